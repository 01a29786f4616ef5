//! One open stream of a subscriber.
//!
//! Keeps true: it buffers nothing, so that a client that does not read costs no more than one that does; it ends with
//! the token of its request, with its subscriber, and after a day.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use asp_call::call::authority::ends_at;
use asp_call::call::principal::owner;
use asp_edge::Caller;
use asp_snapshot::Snapshot;
use tokio::time::Instant;

use super::subscriber::{NextNotice, Notice, ResumedStream, Subscriber};
use super::{CapacityError, Subscriptions};
use crate::event_id::ChangesPosition;

/// Maximum lifetime of a stream, the same as of a session.
const MAX_LIFE: Duration = Duration::from_secs(24 * 3600);

/// A stream that is open until this is dropped.
pub struct ChangeStream {
    hub: Arc<Subscriptions>,
    subscriber: Arc<Subscriber>,
    /// Id of the stream.
    id: [u8; 16],
    ends: Instant,
}

impl ChangeStream {
    /// Opens a stream for the request of `caller`, who was evaluated by `snapshot`, or resumes an earlier stream.
    pub fn open(
        hub: Arc<Subscriptions>,
        subscriber: Arc<Subscriber>,
        snapshot: &Arc<Snapshot>,
        caller: &Arc<Caller>,
        resumed: Option<ResumedStream>,
    ) -> Result<ChangeStream, CapacityError> {
        let longest = Instant::now() + MAX_LIFE;
        let ends = ends_at(caller).map_or(longest, |end| end.min(longest));
        // On an error, dropping it releases what it has reserved.
        let stream = ChangeStream { hub, subscriber, id: rand::random(), ends };
        let place = stream.hub.table.lock().open(stream.id, owner(caller));
        place?;
        if !stream.subscriber.open(stream.id, caller, resumed) {
            return Err(CapacityError);
        }
        // An evaluation between the request and here did not include this stream.
        stream.hub.catch_up(&stream.subscriber, Some(snapshot));
        Ok(stream)
    }

    /// Returns the position of a client that has received every notice so far.
    pub fn position(&self) -> ChangesPosition {
        self.subscriber.position(&self.id)
    }

    /// Returns the next notice and the position after it; `None` once the stream has ended.
    pub async fn next(&self) -> Option<(Notice, ChangesPosition)> {
        loop {
            let mut woken = pin!(self.subscriber.woken());
            // From here on no change is missed.
            woken.as_mut().enable();
            match self.subscriber.take(&self.id) {
                NextNotice::Notice(notice, position) => return Some((notice, position)),
                NextNotice::Ended => return None,
                NextNotice::Nothing => {}
            }
            tokio::select! {
                () = woken => {}
                () = tokio::time::sleep_until(self.ends) => return None,
            }
        }
    }
}

impl Drop for ChangeStream {
    fn drop(&mut self) {
        self.hub.table.lock().close(&self.id);
        if self.subscriber.close(&self.id) {
            self.hub.end_this(&self.subscriber);
        }
    }
}
