//! The calls that run in this process: their maximum number, their tasks, and their end.
//!
//! Keeps true: no more calls run than there are permits; a panic of one ends that one alone; a shutdown waits for their
//! outcomes, for a bounded time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use asp_call::call::outcome::Refusal;
use asp_proto::grace::LAST_CALLS_END_WITHIN;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admission::{Admission, AdmissionBounds, AdmissionPermit};

/// The running calls.
pub struct CallTasks {
    tasks: TaskTracker,
    admission: Arc<Admission>,
    /// Cancels every call.
    stop: CancellationToken,
    /// Set when the calls are left to other gateways: no call is taken over any more.
    left: CancellationToken,
}

impl CallTasks {
    /// Creates an empty set of at most `bounds` calls.
    pub fn new(bounds: AdmissionBounds) -> CallTasks {
        let tasks = TaskTracker::new();
        CallTasks {
            tasks,
            admission: Admission::new(bounds),
            stop: Default::default(),
            left: Default::default(),
        }
    }

    /// Takes the permit of another call.
    pub(crate) fn admit(&self, org: &str) -> Result<AdmissionPermit, Refusal> {
        self.admission.admit(org)
    }

    /// Returns the cancellation token of another call.
    pub(crate) fn child(&self) -> CancellationToken {
        self.stop.child_token()
    }

    pub(crate) fn spawn(&self, call: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(call);
    }

    /// Runs a call on the thread of its request until it first waits, then on a task of its own. Most calls never wait,
    /// and a task would cost each of them two changes of thread.
    pub(super) fn run(&self, call: impl Future<Output = ()> + Send + 'static) {
        let mut call = Box::pin(call);
        // The no-op waker is replaced when the task is polled, which is at once. A panic ends this call alone, as it
        // would in a task.
        let begun = || call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Ok(Poll::Pending) = catch_unwind(AssertUnwindSafe(begun)) {
            self.tasks.spawn(call);
        }
    }

    pub(crate) fn leave(&self) {
        self.left.cancel();
    }

    pub(crate) fn are_left(&self) -> bool {
        self.left.is_cancelled()
    }

    /// Whether this gateway has stopped its calls.
    pub(crate) fn have_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Cancels the calls that still run, such as those that wait for an answer that cannot arrive any more, and waits
    /// until each has its outcome.
    pub async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(LAST_CALLS_END_WITHIN, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                calls = self.tasks.len(),
                "calls did not end within 3 s of the cancel at shutdown; they are dropped, and their outcomes are lost"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls() -> CallTasks {
        CallTasks::new(AdmissionBounds { whole: 1, per_org: 1 })
    }

    #[tokio::test]
    async fn a_call_that_never_waits_is_no_task_and_one_that_waits_goes_on_as_one() {
        let calls = calls();
        let (done, mut ended) = tokio::sync::mpsc::unbounded_channel();
        let sent = done.clone();
        calls.run(async move { sent.send("at once").unwrap() });
        assert_eq!((ended.try_recv(), calls.tasks.len()), (Ok("at once"), 0));
        let (go_on, wait) = tokio::sync::oneshot::channel::<()>();
        calls.run(async move {
            wait.await.unwrap();
            done.send("later").unwrap();
        });
        assert_eq!((ended.try_recv().is_err(), calls.tasks.len()), (true, 1));
        go_on.send(()).unwrap();
        assert_eq!(ended.recv().await, Some("later"));
    }

    #[tokio::test]
    async fn a_call_that_panics_ends_alone() {
        struct DropSignal(Option<tokio::sync::oneshot::Sender<()>>);
        impl Drop for DropSignal {
            fn drop(&mut self) {
                self.0.take().unwrap().send(()).unwrap();
            }
        }
        let calls = calls();
        let (dropped, ended) = tokio::sync::oneshot::channel();
        let held = DropSignal(Some(dropped));
        calls.run(async move {
            let _held = held;
            std::panic::resume_unwind(Box::new("a fault of ours"));
        });
        assert_eq!(ended.await, Ok(()), "what the call held is dropped, which ends it as lost");
        assert_eq!(calls.tasks.len(), 0);
    }
}
