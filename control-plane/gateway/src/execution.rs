//! One execution of a call, and the two narrow ports between the pipeline and what runs calls: the pipeline sees
//! an [`Executor`], an executor sees the [`Platform`].
//!
//! Keeps true: an executor cannot reach limits, ledger or audit by any other way.

use std::sync::{Arc, Weak};

use asp_json::Json;
use asp_proto::snapshot::Primitive;
use asp_snapshot::{ListedPrimitive, Snapshot};
use async_trait::async_trait;

use crate::call::outcome::{Output, Refusal};
use crate::call::started::Started;
use crate::call::{Call, Invocation};
use crate::telemetry::audit::Delegated;

/// One execution of a call.
pub struct Execution {
    pub call: Arc<Call>,
    /// Checked against the input schema. Their view is complete with its defaults; their text is for authored primitives, and
    /// is as it was sent for those of other services.
    pub arguments: Json,
    /// Calls left in the tightest rate limit; `None` without one.
    pub budget: Option<u64>,
    /// The snapshot it runs in, with the private hosts that may be reached and what primitives may ask.
    pub snapshot: Arc<Snapshot>,
    pub platform: Arc<dyn Platform>,
    /// What it had come to on a gateway that is gone; `None` for a call that begins.
    pub resume_state: Option<ResumeState>,
}

impl Execution {
    /// Marks that the call may have an effect from here on; dropped before it is sent, the guard takes that back.
    pub(crate) fn started(&self) -> Started {
        Started::of(&self.call)
    }
}

/// What a call had come to.
pub struct ResumeState {
    /// The number of its last checkpoint; 0 without one.
    pub seq: u64,
    /// As the executor stored it; empty where it stored nothing.
    pub state: Vec<u8>,
}

/// Whether a plugin can run, as its runtime says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It has not answered yet.
    Unheard,
    /// A worker waits, or starts with the first call.
    Ready,
    /// Not now, as the text says: calls are tried, and told why.
    Troubled(String),
    /// Not as things stand: `<reason>: <sentence>` of the contract (`Admission.reason`, supervisor.proto).
    Impossible(String),
}

/// A resource that a client subscribes to.
pub struct Subscribed<'a> {
    pub snapshot: &'a Snapshot,
    /// Whose share of what is followed it takes.
    pub user: [u8; 16],
    pub org: &'a str,
    /// The server that it subscribes at.
    pub server: &'a str,
    /// What is behind the resource.
    pub primitive: &'a Primitive,
    pub uri: &'a str,
    /// Who is told when it has changed.
    pub listener: Weak<dyn ResourceListener>,
}

/// What an executor holds for one subscription until this is dropped.
pub type Following = Box<dyn Send + Sync>;

/// What a client says of its legacy session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionNote {
    /// It has other roots than before.
    RootsChanged,
    /// It has ended the session.
    Ended,
}

/// What runs calls, as the pipeline sees it.
#[async_trait]
pub trait Executor: Send + Sync {
    /// Runs the call on what its primitive names.
    async fn run(&self, execution: Execution) -> Result<Output, Refusal>;

    /// Whether a call whose gateway is gone can go on here.
    fn runs(&self, primitive: &Primitive) -> bool;

    /// Whether the primitive may run here for clients of the server. One that cannot as things stand is as unknown to callers as one that is
    /// hidden from them (I-10).
    fn offers(&self, server: &str, primitive: &Primitive) -> bool;

    /// Changes whenever [`Executor::offers`] answers otherwise than before.
    fn offers_changed(&self) -> u64;

    /// Learns from now on when a resource changes; `None` where nobody says so, or more are followed than may be.
    fn follow(&self, subscribed: Subscribed<'_>) -> Option<Following>;

    /// A client says something of its session, which has this key, beside its calls.
    fn heard(&self, session: &str, said: SessionNote);

    /// What is known of the plugin behind a primitive; `None` for one that needs none.
    fn availability(&self, primitive: &Primitive) -> Option<Availability>;

    /// Prepares what the primitives of a new snapshot run on.
    fn prepare(&self, snapshot: &Snapshot);

    /// Returns when nothing of an ended call is left to do; the end of a shutdown.
    async fn drained(&self);
}

/// Who is told of resources that changed.
pub trait ResourceListener: Send + Sync {
    /// A resource of `server` reads otherwise than before for callers of `org`.
    fn changed(&self, server: &str, org: &str, uri: &str);

    /// The same for the callers of every org.
    fn changed_for_all(&self, server: &str, uri: &str);

    /// Whether the address is behind this primitive there, or the text of its template, said of what is behind it.
    fn leads_to(&self, server: &str, uri: &str, primitive: &str) -> bool;

    /// What [`Executor::offers`] answers has changed: lists are looked at now, and not with the next round.
    fn offers_changed(&self);
}

/// What an admitted delegation holds until it ends.
pub type DelegationGrant = Box<dyn Send>;

/// The rest of the gateway, as an executor sees it.
#[async_trait]
pub trait Platform: Send + Sync {
    /// Begins a call of its own, on behalf of the one that runs (I-2).
    fn begin(self: Arc<Self>, snapshot: Arc<Snapshot>, invocation: Invocation) -> Result<Arc<Call>, Refusal>;

    /// Takes what the limits on a delegate allow.
    async fn admit_delegation(
        &self,
        snapshot: &Snapshot,
        call: &Call,
        delegate: &ListedPrimitive,
    ) -> Result<DelegationGrant, Refusal>;

    /// Whether the caller's own list shows each entry of the call's server, in their order.
    fn visible(&self, snapshot: &Snapshot, call: &Call) -> Vec<bool>;

    /// A resource of the call's server reads otherwise than before.
    fn resource_changed(&self, call: &Call, uri: &str);

    /// What [`Executor::offers`] answers has changed, and clients are told of it at once.
    fn offers_changed(&self);

    /// One metric and one audit line of a delegation that ended.
    async fn record_delegation(&self, call: &Call, delegated: &Delegated);
}
