//! Reports of a gateway about itself in the metadata of its node: upstreams that fail, and items that it does not serve as accepted.

use prost_types::Value;

use crate::degraded_items::{self, DegradedItem, DegradedItems};
use crate::failing_upstreams::{self, FailingUpstream, FailingUpstreams};

/// Sources of the reports.
pub struct ReportSources {
    pub failing: FailingUpstreams,
    pub degraded: DegradedItems,
}

/// Reports with one content.
#[derive(Default, PartialEq, Eq)]
pub(super) struct ReportContent {
    failing: Vec<FailingUpstream>,
    degraded: Vec<DegradedItem>,
}

/// Reports as last sent.
pub(super) struct NodeReports {
    sources: ReportSources,
    sent: ReportContent,
}

impl NodeReports {
    pub(super) fn new(sources: ReportSources) -> NodeReports {
        NodeReports { sources, sent: ReportContent::default() }
    }

    /// Reads the sources; returns the former content if it has changed.
    pub(super) fn refresh(&mut self) -> Option<ReportContent> {
        let ReportSources { failing, degraded } = &self.sources;
        let now = ReportContent { failing: failing(), degraded: degraded() };
        (now != self.sent).then(|| std::mem::replace(&mut self.sent, now))
    }

    /// Restores the former content, because the new one could not be sent.
    pub(super) fn restore(&mut self, former: ReportContent) {
        self.sent = former;
    }

    /// Returns the metadata of the gateway's node.
    pub(super) fn members(&self) -> impl Iterator<Item = (String, Value)> {
        let degraded = degraded_items::members(&self.sent.degraded);
        failing_upstreams::members(&self.sent.failing).into_iter().chain(degraded)
    }
}
