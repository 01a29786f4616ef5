//! Metrics of push notifications (`asp_push_*`).

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::Labels;

/// Upper bounds of the buckets, in seconds.
const SECONDS: [f64; 10] = [0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0, 60.0, 900.0, 86_400.0];

/// Metrics of push notifications.
pub struct PushMetrics {
    ended: Family<Labels<1>, Counter>,
    seconds: Histogram,
}

impl Default for PushMetrics {
    fn default() -> PushMetrics {
        PushMetrics { ended: Family::default(), seconds: Histogram::new(SECONDS) }
    }
}

impl PushMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "asp_push_attempts",
            "Push notifications by outcome of an attempt",
            self.ended.clone(),
        );
        registry.register(
            "asp_push_delay_seconds",
            "Time from a state of a call to its receipt",
            self.seconds.clone(),
        );
    }

    /// Records the end of an attempt; `outcome` is from a closed set.
    pub fn ended(&self, outcome: &'static str) {
        self.ended.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Records that a state was received after this time.
    pub fn received(&self, delay: Duration) {
        self.ended("received");
        self.seconds.observe(delay.as_secs_f64());
    }
}
