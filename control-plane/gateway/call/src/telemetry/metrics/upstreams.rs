//! Metrics of the drift between the lists of upstream MCP servers and their accepted schemas.

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
            "Imported items whose upstream lists them differently than accepted",
            self.drift.clone(),
        );
    }

    /// Records the numbers of accepted items that have changed, have become incompatible, or are no longer listed.
    pub fn drifted(&self, changed: i64, incompatible: i64, removed: i64) {
        for (standing, count) in [("changed", changed), ("incompatible", incompatible), ("removed", removed)]
        {
            self.drift.get_or_create(&StandingLabel { standing }).set(count);
        }
    }
}
