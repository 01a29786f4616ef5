//! Progress of a call's publication to other gateways. An event is published before a client gets it, so that the
//! client finds it wherever it returns.
//!
//! Keeps true: waits are short, so that the shared store slows a stream down but never stops it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Maximum time that a stream waits for its next event to be published.
const WITHIN: Duration = Duration::from_millis(500);

/// Publication of one call's events to all gateways.
pub struct Publication {
    reached: watch::Sender<PublicationState>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PublicationState {
    /// Whether the store has the call's record; `None` before it was asked, `false` if it does not accept it for now.
    is_announced: Option<bool>,
    /// First event that is not published yet.
    next: u64,
    /// Whether the shared store is unavailable for now.
    is_away: bool,
    /// Whether no more is published.
    is_over: bool,
}

impl Publication {
    /// Starts with the events before number `next` published.
    pub(crate) fn from(next: u64) -> Publication {
        Publication { reached: watch::Sender::new(PublicationState { next, ..PublicationState::default() }) }
    }

    /// Returns the first event that is not published yet.
    pub(crate) fn next(&self) -> u64 {
        self.reached.borrow().next
    }

    /// Notes whether the store has accepted the call's record.
    pub(crate) fn note_record(&self, is_stored: bool) {
        self.reached.send_modify(|reached| reached.is_announced = Some(is_stored));
    }

    /// Notes that the events before number `next` are published.
    pub(crate) fn advance_to(&self, next: u64) {
        self.reached.send_modify(|reached| {
            reached.next = next;
            reached.is_away = false;
        });
    }

    /// Notes that all events are published again, from the first one on.
    pub(crate) fn restart(&self) {
        self.reached.send_modify(|reached| reached.next = 0);
    }

    /// Notes that the shared store is unavailable: nothing waits until more is published.
    pub(crate) fn note_outage(&self) {
        self.reached.send_modify(|reached| reached.is_away = true);
    }

    /// Notes that no more is published.
    pub(crate) fn finish(&self) {
        self.reached.send_modify(|reached| reached.is_over = true);
    }

    /// Resolves when other gateways see the call and its events before number `next`, or when that takes too long.
    pub async fn wait_for(&self, next: u64) {
        let seen = |reached: &PublicationState| {
            match reached.is_announced {
                Some(true) => reached.is_away || reached.is_over || reached.next >= next,
                Some(false) => true,
                // The record is not in the same store as the events.
                None => false,
            }
        };
        let mut reached = self.reached.subscribe();
        // The stream continues either way.
        let _ = timeout(WITHIN, reached.wait_for(seen)).await;
    }

    /// Resolves when the events before number `next` are published, whatever the store has of the call, or when that
    /// takes too long.
    pub(crate) async fn wait_for_events(&self, next: u64) {
        let mut reached = self.reached.subscribe();
        let seen = |reached: &PublicationState| reached.is_away || reached.is_over || reached.next >= next;
        // The call ends either way.
        let _ = timeout(WITHIN, reached.wait_for(seen)).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_event_is_seen_once_the_call_and_all_before_it_are_there() {
        let publication = Publication::from(0);
        let mut seen = Box::pin(publication.wait_for(2));
        assert!(seen.as_mut().now_or_never().is_none());
        publication.advance_to(2);
        assert!(seen.as_mut().now_or_never().is_none(), "no other gateway knows the call");
        publication.note_record(true);
        assert!(seen.as_mut().now_or_never().is_some());
        assert!(publication.wait_for(3).now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_what_is_away_or_for_long() {
        let publication = Publication::from(0);
        publication.wait_for(1).await;
        publication.note_outage();
        assert!(publication.wait_for(1).now_or_never().is_none(), "its record may come yet");
        publication.note_record(false);
        assert!(publication.wait_for(1).now_or_never().is_some());
        publication.note_record(true);
        assert!(publication.wait_for(1).now_or_never().is_some());
        publication.advance_to(1);
        assert!(publication.wait_for(2).now_or_never().is_none(), "it is back");
        publication.finish();
        assert!(publication.wait_for(2).now_or_never().is_some());
    }
}
