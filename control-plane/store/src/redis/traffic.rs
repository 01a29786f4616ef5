//! Flow control of one lane to Redis: bytes in flight, and whether each shard answers.
//!
//! Keeps true: bytes in flight are bounded (I-4), and the wait for capacity is bounded in time; no request waits for an
//! answer of a silent shard, except one probe a second.

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{ROOM_WITHIN, RedisFault};
use crate::availability::Availability;

/// Maximum bytes in flight in a lane: Redis takes as many within a fraction of the timeout of an answer.
const MAX_BYTES: u32 = 8 << 20;
/// Bytes charged for a command in addition to its arguments.
const COMMAND_BYTES: u32 = 256;

/// Flow control of one lane.
pub(super) struct Traffic {
    availability: Availability,
    /// One permit per byte that may still be sent.
    room: Semaphore,
}

impl Default for Traffic {
    fn default() -> Traffic {
        Traffic { availability: Availability::default(), room: Semaphore::new(MAX_BYTES as usize) }
    }
}

impl Traffic {
    /// Runs a request to a shard once there is capacity for its bytes.
    pub(super) async fn admit<T>(
        &self,
        shard: u64,
        bytes: usize,
        asking: impl Future<Output = Result<T, RedisFault>>,
    ) -> Result<T, RedisFault> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(COMMAND_BYTES).min(MAX_BYTES);
        let room = timeout(ROOM_WITHIN, self.room.acquire_many(bytes)).await;
        // The inner error means a closed semaphore, which does not happen.
        let Ok(Ok(_room)) = room else { return Err(RedisFault::Busy) };
        let attempt = self.availability.attempt(shard).ok_or(RedisFault::Away)?;
        let answer = asking.await;
        match &answer {
            Err(fault) if fault.is_silence() => {
                self.availability.failed(shard);
            }
            Ok(_) | Err(_) => {
                self.availability.answered(shard, attempt);
            }
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use tokio::time::advance;

    use super::*;
    use crate::availability::PROBE_EVERY;

    async fn silent() -> Result<(), RedisFault> {
        Err(RedisFault::Silent(Duration::ZERO))
    }

    async fn answered() -> Result<(), RedisFault> {
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_on_its_way_is_bounded_in_bytes_and_delays_no_other_lane() {
        let lane = Traffic::default();
        let half = MAX_BYTES as usize / 2 - COMMAND_BYTES as usize;
        let under_way = || lane.admit(0, half, std::future::pending::<Result<(), RedisFault>>());
        let mut large = [Box::pin(under_way()), Box::pin(under_way())];
        assert!(large.iter_mut().all(|one| one.now_or_never().is_none()));
        let mut small = Box::pin(lane.admit(0, 0, answered()));
        assert!(small.as_mut().now_or_never().is_none(), "it waits behind them");
        assert!(Traffic::default().admit(0, 0, answered()).now_or_never().is_some(), "another lane has room");
        drop(large);
        assert!(small.now_or_never().is_some_and(|answer| answer.is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_room_for_long() {
        let lane = Traffic::default();
        let mut large = Box::pin(lane.admit(0, usize::MAX, std::future::pending::<Result<(), RedisFault>>()));
        assert!(large.as_mut().now_or_never().is_none());
        assert!(matches!(lane.admit(0, 0, answered()).await, Err(RedisFault::Busy)));
        drop(large);
        assert!(lane.admit(0, 0, answered()).await.is_ok(), "that says nothing of Redis");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_lane_is_asked_again_after_a_moment_and_by_one() {
        let lane = Traffic::default();
        assert!(matches!(lane.admit(0, 0, silent()).await, Err(RedisFault::Silent(_))));
        assert!(matches!(lane.admit(0, 0, answered()).await, Err(RedisFault::Away)), "nobody is asked");
        advance(PROBE_EVERY).await;
        let mut looks = Box::pin(lane.admit(0, 0, std::future::pending::<Result<(), RedisFault>>()));
        assert!(looks.as_mut().now_or_never().is_none());
        assert!(matches!(lane.admit(0, 0, answered()).await, Err(RedisFault::Away)), "another one looks");
        advance(PROBE_EVERY).await;
        assert!(lane.admit(0, 0, answered()).await.is_ok());
        assert!(lane.admit(0, 0, answered()).await.is_ok(), "it is back");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_shard_makes_no_other_one_silent() {
        let lane = Traffic::default();
        assert!(matches!(lane.admit(1, 0, silent()).await, Err(RedisFault::Silent(_))));
        assert!(matches!(lane.admit(1, 0, answered()).await, Err(RedisFault::Away)));
        assert!(lane.admit(2, 0, answered()).await.is_ok());
    }
}
