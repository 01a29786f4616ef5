//! Ends responses whose client does not read them.
//!
//! The HTTP library requests nothing from a body while earlier parts wait for the client, and does not report it; but a
//! client that stopped reading holds the resources of its stream, up to its call. Keeps true: a response whose last
//! part is not taken within the listener's time limit is reset, and its resources are dropped; responses that are quiet
//! or read slowly are not.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

thread_local! {
    /// Whether the body that was polled last on this thread returned a part that others follow; `None` if none was
    /// polled.
    static GAVE: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Records that a body was polled, and whether it returned a part that is not its last.
pub(super) fn record_poll(gave: bool) {
    GAVE.set(Some(gave));
}

/// Future that answers one HTTP/2 request and completes if nothing of the response is read for `longest`. Dropping it
/// resets its stream.
pub(super) struct WhileRead<F> {
    answering: Pin<Box<F>>,
    longest: Duration,
    /// Deadline for taking the last returned part.
    until: Option<Pin<Box<Sleep>>>,
}

impl<F> WhileRead<F> {
    pub(super) fn new(answering: F, longest: Duration) -> WhileRead<F> {
        WhileRead { answering: Box::pin(answering), longest, until: None }
    }
}

impl<F: Future<Output = ()>> Future for WhileRead<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        GAVE.set(None);
        if self.answering.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        match GAVE.take() {
            Some(true) => {
                let until = Instant::now() + self.longest;
                match &mut self.until {
                    Some(sleep) => sleep.as_mut().reset(until),
                    None => self.until = Some(Box::pin(sleep_until(until))),
                }
            }
            // The body has nothing to send: everything was taken.
            Some(false) => self.until = None,
            // The body was not polled: no change.
            None => {}
        }
        let is_over = self.until.as_mut().is_some_and(|until| until.as_mut().poll(context).is_ready());
        if !is_over {
            return Poll::Pending;
        }
        tracing::info!(
            seconds = self.longest.as_secs(),
            "response reset because its client does not read it"
        );
        Poll::Ready(())
    }
}
