//! The calls that run in one gateway: permits for them and for its memory, in all and per org; their tasks, and their
//! end.
//!
//! Keeps true: a call holds one permit from its start to its end, even while it waits for an answer; no org takes the
//! permits of all; a panic of a call ends that one alone; a shutdown waits for the outcomes, for a bounded time. Refuses:
//! queueing; a rejected caller learns when to retry.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use asp_call::call::outcome::Refusal;
use asp_platform::quota::Counts;
use asp_proto::grace::LAST_CALLS_END_WITHIN;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Delay after which a rejected caller may retry.
const RETRY_AFTER_MS: u64 = 1_000;

/// Maximum number of calls at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionBounds {
    pub whole: usize,
    pub per_org: usize,
}

impl Default for AdmissionBounds {
    fn default() -> AdmissionBounds {
        AdmissionBounds { whole: 8_192, per_org: 2_048 }
    }
}

/// Maximum memory for the bodies of all requests, and for those of one org, in bytes.
pub const MEMORY: AdmissionBounds = AdmissionBounds { whole: 512 << 20, per_org: 256 << 20 };

/// Maximum memory for the bodies of requests that need no caller, such as login forms, in bytes: in all, and per client
/// network.
pub const MEMORY_OF_NOBODY: AdmissionBounds = AdmissionBounds { whole: 16 << 20, per_org: 2 << 20 };

/// Maximum memory for large headers of open requests, in bytes: in all, and per client network, for all callers there.
const MEMORY_OF_HEADERS: AdmissionBounds = AdmissionBounds { whole: 256 << 20, per_org: 64 << 20 };

/// The permits of one gateway.
pub struct Admission {
    bounds: AdmissionBounds,
    /// Names of the limits, in all and per org.
    limits: [&'static str; 2],
    taken: Mutex<PermitCounts>,
}

/// Memory of one gateway that requests occupy until their calls have ended.
pub struct RequestMemory {
    /// Bodies of requests with a caller, by org.
    pub of_callers: Arc<Admission>,
    /// Bodies of requests that need no caller, by the client's network: they take nothing from known callers.
    pub of_nobody: Arc<Admission>,
    /// Large headers, by the client's network.
    pub of_headers: Arc<Admission>,
}

impl RequestMemory {
    /// Creates the memory budgets; requests with a caller take at most `bounds`, in bytes.
    pub fn new(bounds: AdmissionBounds) -> RequestMemory {
        RequestMemory {
            of_callers: Admission::of(bounds, ["memory of requests", "memory of the org's requests"]),
            of_nobody: Admission::of(
                MEMORY_OF_NOBODY,
                ["memory of logins", "memory of the network's logins"],
            ),
            of_headers: Admission::of(
                MEMORY_OF_HEADERS,
                ["memory of headers", "memory of the network's headers"],
            ),
        }
    }
}

#[derive(Default)]
struct PermitCounts {
    whole: usize,
    orgs: Counts<String>,
}

/// A permit, or an amount, given back on drop.
pub struct AdmissionPermit {
    admission: Arc<Admission>,
    org: String,
    amount: usize,
}

impl Admission {
    pub fn new(bounds: AdmissionBounds) -> Arc<Admission> {
        Admission::of(bounds, ["running calls", "running calls of the org"])
    }

    /// Creates permits for another resource of a gateway: `limits` names it, in all and per org.
    pub fn of(bounds: AdmissionBounds, limits: [&'static str; 2]) -> Arc<Admission> {
        Arc::new(Admission { bounds, limits, taken: Mutex::default() })
    }

    /// Takes a permit for a call of `org`.
    pub fn admit(self: &Arc<Self>, org: &str) -> Result<AdmissionPermit, Refusal> {
        self.take(org, 1)
    }

    /// Returns the maximum that one org may hold.
    pub fn most_of_org(&self) -> usize {
        self.bounds.per_org.min(self.bounds.whole)
    }

    /// Takes `amount` for `org`.
    pub fn take(self: &Arc<Self>, org: &str, amount: usize) -> Result<AdmissionPermit, Refusal> {
        let mut taken = self.taken.lock();
        let limited = |limit| Err(Refusal::Limited { limit, retry_after_ms: RETRY_AFTER_MS });
        let [of_all, of_org] = self.limits;
        if taken.whole.saturating_add(amount) > self.bounds.whole {
            return limited(of_all);
        }
        if !taken.orgs.add_within(self.bounds.per_org, org.to_owned(), amount) {
            return limited(of_org);
        }
        taken.whole += amount;
        Ok(AdmissionPermit { admission: self.clone(), org: org.to_owned(), amount })
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let mut taken = self.admission.taken.lock();
        taken.whole = taken.whole.saturating_sub(self.amount);
        taken.orgs.remove(&self.org, self.amount);
    }
}

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
        CallTasks {
            tasks: TaskTracker::new(),
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

    #[test]
    fn forms_of_one_network_leave_memory_to_those_of_others() {
        let logins = RequestMemory::new(MEMORY).of_nobody;
        let _held = logins.take("a", MEMORY_OF_NOBODY.per_org).unwrap();
        assert!(logins.take("a", 1).is_err());
        assert!(logins.take("b", 1).is_ok());
    }

    #[test]
    fn an_org_at_its_bound_leaves_places_to_others_until_all_are_taken() {
        let admission = Admission::new(AdmissionBounds { whole: 3, per_org: 2 });
        let first = admission.admit("acme").unwrap();
        let _second = admission.admit("acme").unwrap();
        let refused = |org: &str| match admission.admit(org) {
            Err(Refusal::Limited { limit, .. }) => limit,
            _ => "admitted",
        };
        assert_eq!(refused("acme"), "running calls of the org");
        let _third = admission.admit("globex").unwrap();
        assert_eq!(refused("initech"), "running calls");
        drop(first);
        assert_eq!(refused("acme"), "admitted");
        assert_eq!(admission.taken.lock().orgs.len(), 2, "an org without a call is not counted");
    }

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
