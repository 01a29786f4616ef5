//! A tunnel whose call has ended, and the recording of its cost.

use std::sync::Arc;

use asp_platform::worker_usage::Stats;
use prost_types::Struct;
use tokio_util::task::TaskTracker;

use super::admission;

/// Receiver of the cost of each closed tunnel, with the language of its plugin.
pub type UsageRecorder = Arc<dyn Fn(&'static str, &Stats) + Send + Sync>;

/// Destination of a tunnel's cost.
#[derive(Clone)]
pub struct Account {
    pub language: &'static str,
    pub usage: UsageRecorder,
    /// Tasks that the gateway waits for when it ends.
    pub tasks: TaskTracker,
}

/// A tunnel that is to be closed at the runtime.
pub struct EndedTunnel {
    pub id: String,
    pub reason: &'static str,
    pub account: Account,
}

impl Account {
    pub fn used(&self, reason: &'static str, stats: &Stats) {
        tracing::debug!(
            language = self.language,
            reason,
            cpu_ms = stats.cpu_ms,
            rss_max = stats.rss_max,
            bytes_in = stats.bytes_in,
            bytes_out = stats.bytes_out,
            duration_ms = stats.duration_ms,
            "tunnel closed"
        );
        (self.usage)(self.language, stats);
    }
}

impl EndedTunnel {
    /// Records the statistics in the answer to CloseTunnel.
    pub fn closed(&self, details: Option<&Struct>) {
        self.used(&admission::stats(details));
    }

    pub fn used(&self, stats: &Stats) {
        self.account.used(self.reason, stats);
    }
}
