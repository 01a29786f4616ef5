//! How what upstream MCP servers list stands to what was accepted of them.

use std::sync::atomic::AtomicI64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StandingLabel {
    standing: &'static str,
}

/// The gauges of upstream MCP servers.
#[derive(Default)]
pub struct UpstreamMetrics {
    drift: Family<StandingLabel, Gauge<i64, AtomicI64>>,
}

impl UpstreamMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "asp_upstream_drift",
            "Imported items that their upstream lists otherwise than they were accepted",
            self.drift.clone(),
        );
    }

    /// How many accepted items are listed otherwise, refuse what they took, and are listed no more.
    pub fn drifted(&self, changed: i64, incompatible: i64, removed: i64) {
        for (standing, count) in [("changed", changed), ("incompatible", incompatible), ("removed", removed)]
        {
            self.drift.get_or_create(&StandingLabel { standing }).set(count);
        }
    }
}
