//! Ends the responses that nobody reads.
//!
//! The HTTP library asks a body for nothing while what it gave before waits for the client, and it tells nobody; but a
//! client that has stopped reading keeps what its stream holds, up to its call. Keeps true: a response whose last part
//! was not taken for as long as a listener says is reset, and what it held is dropped; one that is quiet, and one that is
//! read slowly, are not.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

thread_local! {
    /// Whether the body that was asked last on this thread gave a part that others follow; `None` since none was asked.
    static GAVE: Cell<Option<bool>> = const { Cell::new(None) };
}

/// A body was asked: it gave a part that is not its last, or it did not.
pub(super) fn asked(gave: bool) {
    GAVE.set(Some(gave));
}

/// The answering of one HTTP/2 request, which ends when nothing of the response is read for `longest`. Dropped, it
/// resets its stream.
pub(super) struct WhileRead<F> {
    answering: Pin<Box<F>>,
    longest: Duration,
    /// Until when the part that was given last has to be taken.
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
            // It has nothing to say: all was taken.
            Some(false) => self.until = None,
            // It was not asked: as before.
            None => {}
        }
        let is_over = self.until.as_mut().is_some_and(|until| until.as_mut().poll(context).is_ready());
        if !is_over {
            return Poll::Pending;
        }
        tracing::info!(
            seconds = self.longest.as_secs(),
            "a response is reset: its client reads nothing of it"
        );
        Poll::Ready(())
    }
}
