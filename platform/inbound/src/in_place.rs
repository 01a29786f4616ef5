//! Executor of HTTP/2 requests: each runs on the connection's task until it waits, then on a task of its own.
//!
//! A task per request would cost a thread switch each way, and its answer would be sent in two parts. Keeps true: a
//! waiting request holds up no other one, one that panics ends alone, and a connection with many requests leaves those
//! beyond its share to other threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::task::coop;

use super::unread::WhileRead;

/// Units that a request takes of the budget that tokio grants a task before others run (128 at the time of writing).
const BUDGET: usize = 4;

/// Executor for a listener's HTTP/2 connections.
#[derive(Clone, Copy)]
pub(super) struct InPlace {
    /// Time limit for a client that reads nothing of a response.
    pub unread: Duration,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for InPlace {
    fn execute(&self, request: F) {
        let mut request = Box::pin(WhileRead::new(request, self.unread));
        let mut context = Context::from_waker(Waker::noop());
        let has_time = (0..BUDGET).all(|_| take_one(&mut context));
        // The new task registers its waker as soon as it starts, which is at once. A finished request is dropped in
        // here as well.
        let begin = move || {
            let ended = has_time && request.as_mut().poll(&mut context).is_ready();
            (!ended).then_some(request)
        };
        if let Ok(Some(waits)) = catch_unwind(AssertUnwindSafe(begin)) {
            tokio::spawn(waits);
        }
    }
}

/// Takes one unit of the running task's budget; false if none is left.
fn take_one(context: &mut Context<'_>) -> bool {
    match coop::poll_proceed(context) {
        Poll::Ready(taken) => {
            taken.made_progress();
            true
        }
        Poll::Pending => false,
    }
}
