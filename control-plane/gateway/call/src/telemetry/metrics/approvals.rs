//! Metrics of approvals by another person (`asp_approval_*`).

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::Labels;

/// Upper bounds of the buckets, in seconds.
const SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 30.0, 120.0, 600.0, 3_600.0];

/// Metrics of approvals.
pub struct ApprovalMetrics {
    events: Family<Labels<1>, Counter>,
    visible: Histogram,
    decided: Histogram,
    notices: Family<Labels<1>, Counter>,
    noticed: Histogram,
}

impl Default for ApprovalMetrics {
    fn default() -> ApprovalMetrics {
        ApprovalMetrics {
            events: Family::default(),
            visible: Histogram::new(SECONDS),
            decided: Histogram::new(SECONDS),
            notices: Family::default(),
            noticed: Histogram::new(SECONDS),
        }
    }
}

impl ApprovalMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "asp_approval_events",
            "Requests for approval by another person, by event",
            self.events.clone(),
        );
        registry.register(
            "asp_approval_visible_seconds",
            "Time from a call that needs an approval to a request that approvers see",
            self.visible.clone(),
        );
        registry.register(
            "asp_approval_wait_seconds",
            "Time that a call waited for an approval that it used",
            self.decided.clone(),
        );
        registry.register(
            "asp_approval_notices",
            "Notifications of the approval webhook by outcome of an attempt",
            self.notices.clone(),
        );
        registry.register(
            "asp_approval_notice_seconds",
            "Time from a request for approval to the receipt of its notification",
            self.noticed.clone(),
        );
    }

    /// Counts an event; `event` is from a closed set.
    pub fn count(&self, event: &'static str) {
        self.events.get_or_create(&[("event", event)]).inc();
    }

    /// Records that approvers see a request, this long after its call needed it.
    pub fn visible(&self, after: Duration) {
        self.count("requested");
        self.visible.observe(after.as_secs_f64());
    }

    /// Records that a call uses a grant after waiting this long.
    pub fn used(&self, after: Duration) {
        self.count("used");
        self.decided.observe(after.as_secs_f64());
    }

    /// Counts an attempt of the webhook; `outcome` is from a closed set.
    pub fn notice(&self, outcome: &'static str) {
        self.notices.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Records that a notification was received this long after its request.
    pub fn noticed(&self, after: Duration) {
        self.notice("received");
        self.noticed.observe(after.as_secs_f64());
    }
}
