//! Background work for approvals: decisions of other processes, and expiry.

use std::sync::Weak;
use std::time::Duration;

use asp_pipeline::pipeline::approvals::DecisionCursor;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Gateway;

/// Interval at which waiting calls learn of decisions that other processes have stored: a person notices no more.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Interval at which expired requests are recorded.
const EXPIRE_EVERY: Duration = Duration::from_secs(5);

impl Gateway {
    /// Wakes calls whose approval was decided elsewhere, and records expired requests, until the gateway is dropped; run
    /// it as a task.
    pub async fn keep_approvals(gateway: Weak<Gateway>) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut cursor = DecisionCursor::default();
        let mut expired: Option<Instant> = None;
        let mut is_failing = false;
        loop {
            ticks.tick().await;
            let Some(gateway) = gateway.upgrade() else { return };
            let mut done = gateway.pipeline.approvals().look(&mut cursor).await;
            if done.is_ok() && expired.is_none_or(|at| at.elapsed() >= EXPIRE_EVERY) {
                expired = Some(Instant::now());
                done = gateway.pipeline.expire_approvals().await;
            }
            match &done {
                Err(error) if !is_failing => {
                    tracing::warn!(%error, "approvals cannot be read; calls that wait for one go on waiting: check the store");
                }
                Ok(()) if is_failing => tracing::info!("approvals can be read again"),
                Ok(()) | Err(_) => {}
            }
            is_failing = done.is_err();
        }
    }
}
