//! A tunnel whose call has ended, and the taking note of what it cost.

use std::sync::Arc;

use asp_proto::supervisor::CloseTunnelResponse;

use super::admission;
use crate::telemetry::metrics::Metrics;

/// What is to be closed at the runtime.
pub(super) struct EndedTunnel {
    pub id: String,
    pub language: &'static str,
    pub reason: &'static str,
    pub metrics: Arc<Metrics>,
}

impl EndedTunnel {
    /// Takes note of what a closed tunnel cost.
    pub(super) fn closed(&self, answer: &CloseTunnelResponse) {
        let stats = admission::stats(answer.stats.as_ref());
        tracing::debug!(
            language = self.language,
            reason = self.reason,
            cpu_ms = stats.cpu_ms,
            rss_max = stats.rss_max,
            bytes_in = stats.bytes_in,
            bytes_out = stats.bytes_out,
            duration_ms = stats.duration_ms,
            "tunnel closed"
        );
        self.metrics.worker_used(self.language, &stats);
    }
}
