//! One open stream of a subscriber.
//!
//! Keeps true: it holds nothing but its place, so that a client that does not read costs no more than one that does; it
//! ends with the token of its request, with its subscriber, and after a day.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use asp_edge::Caller;
use asp_snapshot::Snapshot;
use tokio::time::Instant;

use super::subscriber::{Notice, Resumed, Subscriber, Taken};
use super::table::owner;
use super::{Full, Subscriptions};
use crate::call::authority::ends_at;
use crate::event_id::ChangesPosition;

/// No stream lives longer: neither does a session.
const MAX_LIFE: Duration = Duration::from_secs(24 * 3600);

/// A stream that is open until this is dropped.
pub struct Listening {
    hub: Arc<Subscriptions>,
    subscriber: Arc<Subscriber>,
    /// Its place among the streams.
    id: [u8; 16],
    ends: Instant,
}

impl Listening {
    /// Opens a stream for the request of `caller`, who was evaluated by `snapshot`; one that was open before, where it is
    /// resumed.
    pub fn open(
        hub: Arc<Subscriptions>,
        subscriber: Arc<Subscriber>,
        snapshot: &Arc<Snapshot>,
        caller: &Arc<Caller>,
        resumed: Option<Resumed>,
    ) -> Result<Listening, Full> {
        let longest = Instant::now() + MAX_LIFE;
        let ends = ends_at(caller).map_or(longest, |end| end.min(longest));
        // Gives back what it has come to when it is dropped.
        let stream = Listening { hub, subscriber, id: rand::random(), ends };
        let place = stream.hub.table.lock().open(stream.id, owner(caller));
        place?;
        if !stream.subscriber.open(stream.id, caller, resumed) {
            return Err(Full);
        }
        // What was evaluated between the request and here has not seen this stream.
        stream.hub.catch_up(&stream.subscriber, Some(snapshot));
        Ok(stream)
    }

    /// Where its client is that was told all it was told so far.
    pub fn position(&self) -> ChangesPosition {
        self.subscriber.position(&self.id)
    }

    /// What its client is told next, and where it is then; `None` when the stream has ended.
    pub async fn next(&self) -> Option<(Notice, ChangesPosition)> {
        loop {
            let mut woken = pin!(self.subscriber.woken());
            // From here on no change is missed.
            woken.as_mut().enable();
            match self.subscriber.take(&self.id) {
                Taken::Notice(notice, position) => return Some((notice, position)),
                Taken::Ended => return None,
                Taken::Nothing => {}
            }
            tokio::select! {
                () = woken => {}
                () = tokio::time::sleep_until(self.ends) => return None,
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.hub.table.lock().close(&self.id);
        if self.subscriber.close(&self.id) {
            self.hub.end_this(&self.subscriber);
        }
    }
}
