//! Where the requests of an HTTP/2 connection run: on the connection's task until one waits, then on a task of its own.
//!
//! A task for each would be a change of thread there and one back, and its answer would be sent in two parts. Keeps
//! true: a request that waits holds up no other one, one that panics ends alone, and a connection with many requests
//! leaves those beyond its share to any thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::task::coop;

use super::unread::WhileRead;

/// What a request takes of the budget that tokio gives a task until it lets others run, 128 at the time of writing.
const BUDGET: usize = 4;

/// The executor of a listener's HTTP/2 connections.
#[derive(Clone, Copy)]
pub(super) struct InPlace {
    /// How long nothing of a response may be read.
    pub unread: Duration,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for InPlace {
    fn execute(&self, request: F) {
        let mut request = Box::pin(WhileRead::new(request, self.unread));
        let mut context = Context::from_waker(Waker::noop());
        let has_time = (0..BUDGET).all(|_| take_one(&mut context));
        // Whoever is waited for learns of the task's waker when the task begins, which is at once. What has ended is
        // dropped in here as well.
        let begin = move || {
            let ended = has_time && request.as_mut().poll(&mut context).is_ready();
            (!ended).then_some(request)
        };
        if let Ok(Some(waits)) = catch_unwind(AssertUnwindSafe(begin)) {
            tokio::spawn(waits);
        }
    }
}

/// Takes one of the running task's budget; false where none is left.
fn take_one(context: &mut Context<'_>) -> bool {
    match coop::poll_proceed(context) {
        Poll::Ready(taken) => {
            taken.made_progress();
            true
        }
        Poll::Pending => false,
    }
}
