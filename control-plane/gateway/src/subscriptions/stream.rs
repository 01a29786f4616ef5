//! One open stream of a subscriber.
//!
//! Keeps true: it holds nothing but its number, so that a client that does not read costs no more than one that does; it
//! ends with the token of its request, with its subscriber, and after a day.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use asp_edge::Caller;
use tokio::time::Instant;

use super::Subscriptions;
use super::subscriber::{Notice, Subscriber, Taken};
use crate::call::authority::ends_at;

/// No stream lives longer: neither does a session.
const MAX_LIFE: Duration = Duration::from_secs(24 * 3600);

/// A stream that is open until this is dropped.
pub struct Listening {
    hub: Arc<Subscriptions>,
    subscriber: Arc<Subscriber>,
    number: u64,
    ends: Instant,
}

impl Listening {
    /// Opens a stream for the request of `caller`.
    pub fn open(hub: Arc<Subscriptions>, subscriber: Arc<Subscriber>, caller: &Arc<Caller>) -> Listening {
        let longest = Instant::now() + MAX_LIFE;
        let ends = ends_at(caller).map_or(longest, |end| end.min(longest));
        let number = subscriber.open(caller);
        Listening { hub, subscriber, number, ends }
    }

    /// What its client is told next; `None` when the stream has ended.
    pub async fn next(&self) -> Option<Notice> {
        loop {
            let mut woken = pin!(self.subscriber.woken());
            // From here on no change is missed.
            woken.as_mut().enable();
            match self.subscriber.take(self.number) {
                Taken::Notice(notice) => return Some(notice),
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
        if self.subscriber.close(self.number) {
            self.hub.end(&self.subscriber.id);
        }
    }
}
