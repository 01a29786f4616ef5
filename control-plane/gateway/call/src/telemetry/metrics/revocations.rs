//! Metrics of revocations (`asp_revocation_*`): the time from a revocation or block to its effects at this gateway.
//!
//! The time begins by the clock of the control plane that stored the revocation, and ends by the clock of this gateway.

use std::time::Duration;

use asp_platform::clock;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::Labels;

/// Upper bounds of the buckets, in seconds.
const SECONDS: [f64; 10] = [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0];

/// An effect of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevocationStage {
    /// New requests are refused.
    Enforced,
    /// A running call has ended.
    Call,
    /// A stream of changes has ended.
    Stream,
}

impl RevocationStage {
    const fn as_str(self) -> &'static str {
        match self {
            RevocationStage::Enforced => "enforced",
            RevocationStage::Call => "call",
            RevocationStage::Stream => "stream",
        }
    }
}

/// Metrics of revocations.
pub struct RevocationMetrics {
    seconds: Family<Labels<1>, Histogram, fn() -> Histogram>,
}

impl Default for RevocationMetrics {
    fn default() -> RevocationMetrics {
        RevocationMetrics { seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)) }
    }
}

impl RevocationMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "asp_revocation_seconds",
            "Time from a revocation or block to its effect at this gateway",
            self.seconds.clone(),
        );
    }

    /// Records an effect of a revocation of this time (Unix milliseconds); nothing if the time is not known.
    pub fn observe(&self, stage: RevocationStage, since_ms: u64) {
        if since_ms > 0 {
            let elapsed = clock::now_ms().saturating_sub(since_ms);
            let seconds = Duration::from_millis(elapsed).as_secs_f64();
            self.seconds.get_or_create(&[("stage", stage.as_str())]).observe(seconds);
        }
    }
}
