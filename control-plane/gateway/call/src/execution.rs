//! One execution of a call, and the two narrow ports between the pipeline and the backends that run calls: the pipeline
//! sees the [`Backends`], a backend sees the [`Platform`].
//!
//! Keeps true: a backend cannot reach limits, ledger or audit in any other way.

use std::sync::{Arc, Weak};
use std::time::Duration;

use asp_json::Json;
use asp_proto::snapshot::Primitive;
use asp_snapshot::{ListedPrimitive, Snapshot};
use async_trait::async_trait;

use crate::call::outcome::{Output, Refusal};
use crate::call::started::StartGuard;
use crate::call::{Call, Invocation};
use crate::telemetry::audit::DelegationRecord;

/// One execution of a call.
pub struct Execution {
    pub call: Arc<Call>,
    /// Arguments that fit the input schema. Their view is completed with its defaults; so is their text for authored
    /// primitives, while primitives of other services get the text as it was sent.
    pub arguments: Json,
    /// Calls left in the tightest rate limit; `None` without one.
    pub budget: Option<u64>,
    /// The snapshot it runs in, with the private hosts that may be reached and the questions that primitives may ask.
    pub snapshot: Arc<Snapshot>,
    pub platform: Arc<dyn Platform>,
    /// State that it had reached at a lost gateway; `None` for a new call.
    pub resume_state: Option<ResumeState>,
}

impl Execution {
    /// Marks that the call may have an effect from here on; dropped before it is sent, the guard takes that back.
    pub fn started(&self) -> StartGuard {
        StartGuard::of(&self.call)
    }
}

/// State that a call had reached.
pub struct ResumeState {
    /// Number of its last checkpoint; 0 without one.
    pub seq: u64,
    /// State as the backend stored it; empty if it stored none.
    pub state: Vec<u8>,
}

/// Whether a plugin can run, as reported by its runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// The runtime has not answered yet.
    Unheard,
    /// A worker waits, or starts with the first call.
    Ready,
    /// The plugin cannot run now, for the reason in the text: calls are attempted, and fail with that reason.
    Troubled(String),
    /// The plugin cannot run at present: `<reason>: <sentence>` of the contract (`Admission.reason`, supervisor.proto).
    Impossible(String),
}

/// Subscription of a client to a resource.
pub struct ResourceSubscription<'a> {
    pub snapshot: &'a Snapshot,
    /// User whose quota of subscriptions it counts against.
    pub user: [u8; 16],
    pub org: &'a str,
    /// Server at which the client subscribes.
    pub server: &'a str,
    /// Primitive behind the resource.
    pub primitive: &'a Primitive,
    pub uri: &'a str,
    /// Listener that is notified of changes.
    pub listener: Weak<dyn ResourceListener>,
}

/// Guard of one subscription at a backend; dropping it ends the subscription.
pub type SubscriptionGuard = Box<dyn Send + Sync>;

/// Report of a client about its legacy session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionNote {
    /// The client's roots have changed.
    RootsChanged,
    /// The client has ended the session.
    Ended,
}

/// Backends that run calls, as the pipeline sees them.
#[async_trait]
pub trait Backends: Send + Sync {
    /// Runs the call on the backend of its primitive.
    async fn run(&self, execution: Execution) -> Result<Output, Refusal>;

    /// Whether a call whose gateway is gone can continue here.
    fn runs(&self, primitive: &Primitive) -> bool;

    /// Whether the primitive may run here for clients of the server. One that cannot run at present looks to callers
    /// like one that is hidden from them (I-10).
    fn offers(&self, server: &str, primitive: &Primitive) -> bool;

    /// Returns a number that changes whenever an answer of [`Backends::offers`] changes.
    fn offers_changed(&self) -> u64;

    /// Reports changes of a resource from now on; `None` if there is no source for them, or too many resources are
    /// followed.
    fn follow(&self, subscribed: ResourceSubscription<'_>) -> Option<SubscriptionGuard>;

    /// Passes on a client's report about its session, which has this key, outside of its calls.
    fn handle_session_note(&self, session: &str, said: SessionNote);

    /// Returns the availability of the plugin behind a primitive; `None` for one without a plugin.
    fn availability(&self, primitive: &Primitive) -> Option<Availability>;

    /// Prepares the backends of a new snapshot's primitives.
    fn prepare(&self, snapshot: &Snapshot);

    /// Returns when all work for ended calls is done; called at the end of a shutdown.
    async fn drained(&self);
}

/// Receiver of changes of resources.
pub trait ResourceListener: Send + Sync {
    /// Handles a change of a resource of `server` for callers of `org`.
    fn changed(&self, server: &str, org: &str, uri: &str);

    /// Handles a change for the callers of every org.
    fn changed_for_all(&self, server: &str, uri: &str);

    /// Whether the URI, or URI template, belongs to this primitive at the server.
    fn leads_to(&self, server: &str, uri: &str, primitive: &str) -> bool;

    /// Handles a change of the answers of [`Backends::offers`]: lists are checked now, and not in the next round.
    fn offers_changed(&self);
}

/// Guard of an admitted delegation, held until it ends.
pub type DelegationGrant = Box<dyn Send>;

/// The rest of the gateway, as a backend sees it.
#[async_trait]
pub trait Platform: Send + Sync {
    /// Starts a nested call on behalf of the running one (I-2).
    fn begin(self: Arc<Self>, snapshot: Arc<Snapshot>, invocation: Invocation) -> Result<Arc<Call>, Refusal>;

    /// Draws from the limits on a delegate.
    async fn admit_delegation(
        &self,
        snapshot: &Snapshot,
        call: &Call,
        delegate: &ListedPrimitive,
    ) -> Result<DelegationGrant, Refusal>;

    /// Whether the caller's own list shows each entry of the call's server, in the order of the entries.
    fn visible(&self, snapshot: &Snapshot, call: &Call) -> Vec<bool>;

    /// Reports that a resource of the call's server has changed.
    fn resource_changed(&self, call: &Call, uri: &str);

    /// Reports that the answers of [`Backends::offers`] have changed; clients are notified at once.
    fn offers_changed(&self);

    /// Records one metric and one audit line of a delegation that ended.
    async fn record_delegation(&self, call: &Call, delegated: &DelegationRecord);

    /// Records the CPU time of a plugin's worker for a call, which may have ended.
    fn record_cpu(&self, call: &Call, cpu: Duration);
}
