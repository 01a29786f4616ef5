//! Health checks of the control plane that a gateway follows, and the choice of a fresh one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tonic::transport::Channel;

use super::controls::{ControlPlane, resolve};
use super::{NoteFresh, SubscriptionTarget};
use crate::health::{self, Condition};

/// Interval of health checks.
const EVERY: Duration = Duration::from_secs(1);
/// Number of consecutive checks without an answer after which a control plane counts as stale.
const MISSES: u32 = 3;

/// Checks the followed control plane, over the connection of its stream, until it is stale and another one is fresh;
/// returns that one. If no other one is fresh, the gateway stays and keeps its snapshot.
pub(super) async fn find_fresher(
    target: Arc<SubscriptionTarget>,
    followed: ControlPlane,
    channel: Channel,
    note_fresh: NoteFresh,
) -> (ControlPlane, Channel) {
    let mut ticks = tokio::time::interval(EVERY);
    // No checks while a snapshot is being applied.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut misses = 0;
    let mut is_alone = false;
    loop {
        ticks.tick().await;
        match health::check(channel.clone()).await {
            Condition::Fresh => {
                note_fresh();
                (misses, is_alone) = (0, false);
            }
            Condition::Stale => misses = MISSES,
            Condition::Silent => misses += 1,
        }
        if misses < MISSES {
            continue;
        }
        if let Some(found) = find(&target, &followed).await {
            return found;
        }
        if !std::mem::replace(&mut is_alone, true) {
            tracing::warn!(
                control = %followed.uri,
                "the followed control plane is behind its store or does not answer, and no other one is fresh; this \
                 gateway keeps the last snapshot and does not know later revocations"
            );
        }
    }
}

/// Finds a fresh control plane, the followed one last. One address may have several control planes behind it, so that a
/// new connection may reach another one.
async fn find(target: &SubscriptionTarget, followed: &ControlPlane) -> Option<(ControlPlane, Channel)> {
    let mut controls = resolve(target).await;
    controls.sort_by_cached_key(|control| (control == followed, rand::random::<u32>()));
    for control in controls {
        let Ok(channel) = control.connect(target).await else { continue };
        if health::check(channel.clone()).await == Condition::Fresh {
            return Some((control, channel));
        }
    }
    None
}
