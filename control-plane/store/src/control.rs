//! The control plane's durable state: servers, policy, limits, revocations and their audit.
//!
//! Owns the records and the guarantees of a write: it is atomic, it is audited in the same transaction, and it
//! increments one monotone revision (invariants I-5 and I-6).
//! Refuses: to interpret a record; the caller has validated it.
//! Bounds: [`MAX_BINDINGS_PER_ORG`] and its siblings hold in every database ([`sql::ControlStore`]).

mod audited;
mod events;
mod forms;
mod issuers;
mod link_endings;
mod machines;
mod orgs;
mod placement;
mod primitives;
mod revocations;
pub mod sql;
#[cfg(any(test, feature = "testing"))]
pub mod suite;
mod undo;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use audited::{AuditQuery, AuditRecord, Note};
pub use events::{
    KEEP_PARKED, MAX_PARKED, MAX_PARKED_BYTES, MAX_REVOCATION_EVENTS, ParkedEvent, RevocationEvent,
};
pub use forms::{MAX_FORM_BYTES, PublishedForm};
pub use issuers::{IssuerKeysRecord, IssuerRecord, MAX_ISSUERS, Side};
pub use link_endings::{EndedLinks, MAX_LINK_ENDINGS, linked_token_target};
pub use machines::{
    CertificateName, FEW_MACHINE_KEYS, MAX_MACHINE_CERTIFICATES_PER_ORG, MAX_MACHINE_KEY_BYTES,
    MAX_MACHINE_KEYS, MAX_MACHINE_KEYS_PER_ORG, MachineBound, MachineCertificateRecord, MachineKeyRecord,
    RESERVED_MACHINE_KEYS,
};
pub use orgs::OrgRecord;
pub use placement::{HomeRecord, MAX_HOMES, MAX_REGIONS, MAX_ROUTES, Placement, RegionRecord, RouteRecord};
pub use primitives::{DeniedId, PrimitiveServer, ServerIds};
pub use revocations::{
    MAX_REVOCATIONS, MAX_REVOCATIONS_AT_ONCE, MAX_REVOCATIONS_PER_ORG, RevocationPage, RevocationRecord,
};
pub use undo::{ListChange, ListDifference, MAX_UNDO_BYTES, UNDOABLE_PER_ORG};

/// Maximum number of servers of a control plane.
pub const MAX_SERVERS: usize = 1_000;
/// Maximum number of versions kept per server, the current one included.
pub const MAX_VERSIONS: u32 = 20;
/// Retention of the versions of a deleted server, in milliseconds: 30 days.
pub const KEEP_VERSIONS_OF_GONE: u64 = 30 * 24 * 60 * 60 * 1000;
/// Maximum number of offers of servers to orgs in total; each is two names in memory.
pub const MAX_OFFERS: usize = 50_000;
/// Part of [`MAX_OFFERS`] reserved for servers with fewer than [`FEW_OFFERS`], so that a few servers cannot use up all
/// offers.
pub const RESERVED_OFFERS: usize = 10_000;
/// Number of offers up to which a server may use the reserve.
pub const FEW_OFFERS: usize = 10;
/// Maximum number of offers of one server: as many as its own file may name.
pub const MAX_OFFERS_PER_SERVER: usize = 1_000;
/// Maximum number of primitive ids of one server, former and granted ones included: an id stays with its server.
pub const MAX_IDS_PER_SERVER: usize = 4_000;
/// Maximum number of exposure exceptions of one org: every server over every protocol.
pub const MAX_EXPOSURE_PER_ORG: usize = 3_000;
/// Maximum number of bindings of one org.
pub const MAX_BINDINGS_PER_ORG: usize = 10_000;
/// Maximum number of an org's bindings that have conditions on arguments or are observed: each call of the org
/// evaluates all of them.
pub const MAX_RULES_PER_ORG: usize = 256;
/// Maximum number of rate limits of one org.
pub const MAX_LIMITS_PER_ORG: usize = 1_000;

/// Reason why the store rejected an operation or failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The precondition (`If-Match`) does not hold; carries the resource's revision, if it exists.
    #[error("the resource is at revision {current:?}")]
    Conflict { current: Option<u64> },
    /// A record that this write depends on changed after the revision at which the write was evaluated
    /// ([`Change::based_on`]).
    #[error("a record that the write depends on has changed since it was evaluated")]
    Stale,
    #[error("no such resource")]
    NotFound,
    /// A limit of this module is reached.
    #[error("at most {bound} {what}")]
    Full { what: &'static str, bound: usize },
    /// A unique value belongs to another owner.
    #[error("{what} belongs to another owner")]
    Taken { what: &'static str },
    /// The server may not use some of its primitives' ids.
    #[error("the server may not use all ids of its primitives")]
    DeniedIds(Vec<DeniedId>),
    /// The platform disabled it, and only the platform enables it again.
    #[error("the platform disabled it")]
    DisabledByPlatform,
    /// Other operations blocked this one for too long; nothing has changed, and it may be retried. The text is for the
    /// log.
    #[error("store: busy: {0}")]
    Busy(String),
    /// The database aborted the write because of another one, for example in a deadlock. Nothing has changed, and it
    /// may be retried at once. The text is for the log.
    #[error("store: aborted because of another write: {0}")]
    Aborted(String),
    /// The database failed; the text is for the log, never for a client.
    #[error("store: {0}")]
    Backend(String),
}

/// Result of an operation of the control plane's store.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// A source file of a server. The path is relative to the primitives root, with `/` separators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    pub path: String,
    pub text: String,
}

/// A stored server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRecord {
    pub name: String,
    pub files: Vec<SourceFile>,
    /// Reason why this version cannot read the files, which are empty then: a newer version wrote them.
    pub unreadable: Option<String>,
    /// The compiler's hash of the server's meaning. A write with an equal hash and equal files changes nothing.
    pub content_hash: String,
    /// Revision of its last change.
    pub revision: u64,
    /// Unix milliseconds.
    pub updated_at: u64,
    /// Whether A2A may be on: it is off for a server that a version without A2A wrote, until
    /// [`ControlStore::confirm_a2a`](sql::ControlStore::confirm_a2a). Always false for an earlier version of a server.
    pub a2a_confirmed: bool,
    /// Entries that are not published, sorted: ids of primitives, and [`WHOLE_SERVER`]. Empty for an earlier version of a server.
    pub disabled: Vec<String>,
}

/// Entry of [`ServerRecord::disabled`] for the server as a whole.
pub const WHOLE_SERVER: &str = "*";

/// A version of a server: its content since the write with this revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerVersion {
    pub revision: u64,
    pub content_hash: String,
    /// Unix milliseconds.
    pub stored_at: u64,
    /// Admin who stored it; empty if unknown.
    pub actor: String,
}

/// An offer of a server to an org, which may enable it. The server's own files may contain further offers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OfferRecord {
    pub server: String,
    pub org: String,
}

/// An exception from a server's default exposure. The key is (org, server, protocol).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExposureRecord {
    pub org: String,
    pub server: String,
    /// `mcp`, `a2a` or `rest`.
    pub protocol: String,
    pub enabled: bool,
}

impl ExposureRecord {
    /// Whether both have the same key.
    pub fn same_key(&self, other: &ExposureRecord) -> bool {
        (&self.org, &self.server, &self.protocol) == (&other.org, &other.server, &other.protocol)
    }
}

/// A rule about who may call what. The key is org, target with its issuer, primitive, protocol and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingRecord {
    pub org: String,
    /// `user`, `machine`, `wcit` or `group`.
    pub target_type: String,
    pub target: String,
    /// Issuer of the users, tokens or groups; empty for every issuer.
    #[serde(default)]
    pub issuer: String,
    /// Primitive id: exact, `prefix*` or `*`.
    pub primitive: String,
    /// `mcp`, `a2a`, `rest` or `*`.
    pub protocol: String,
    /// Distinguishes bindings that are otherwise equal.
    #[serde(default)]
    pub name: String,
    pub allowed: bool,
    /// Whether the binding is only counted, not enforced.
    #[serde(default)]
    pub observed: bool,
    /// Whether a person must approve the call.
    #[serde(default)]
    pub approval: bool,
    /// Conditions on the arguments, as JSON in the control plane's format; empty for none.
    #[serde(default)]
    pub when: String,
    /// Group that approves, with `approval`; empty: the caller does.
    #[serde(default)]
    pub approvers: String,
    /// Issuer of the group; empty for that of the caller, `*` for every issuer.
    #[serde(default)]
    pub approvers_issuer: String,
}

impl BindingRecord {
    /// Returns the org, the target with its issuer, the primitive, the protocol and the name.
    pub(crate) fn key(&self) -> [&str; 7] {
        let BindingRecord { org, target_type, target, issuer, primitive, protocol, name, .. } = self;
        [org, target_type, target, issuer, primitive, protocol, name].map(String::as_str)
    }

    /// Whether both have the same key.
    pub fn same_key(&self, other: &BindingRecord) -> bool {
        self.key() == other.key()
    }

    /// Whether each call of the org evaluates it ([`MAX_RULES_PER_ORG`]).
    pub fn is_rule(&self) -> bool {
        self.observed || self.approval || !self.when.is_empty()
    }
}

/// Kind of a limit: calls take tokens, which come back steadily.
pub const TOKEN_BUCKET: &str = "token-bucket";
/// Kind of a limit: calls of a window that begins at a multiple of its length since 1970, UTC.
pub const FIXED_WINDOW: &str = "fixed-window";
/// Kind of a limit: calls of any period of the window's length.
pub const SLIDING_WINDOW: &str = "sliding-window";
/// Kind of a limit: calls that run at the same time.
pub const CONCURRENCY: &str = "concurrency";

/// A limit of an org. Each selector is exact or a pattern; `*` matches anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRecord {
    pub server: String,
    pub primitive: String,
    pub user: String,
    pub wcit: String,
    #[serde(default = "any")]
    pub issuer: String,
    /// A name or `each` restricts the limit to machines.
    #[serde(default = "any")]
    pub machine: String,
    pub capacity: u64,
    /// The text that the admin wrote, e.g. `100/s`. Of another kind than a token bucket: what readers that know no kinds
    /// enforce.
    pub refill: String,
    /// Whether the limit refuses nothing and is only counted.
    #[serde(default)]
    pub observe: bool,
    /// Group of the callers.
    #[serde(default = "any")]
    pub group: String,
    /// [`TOKEN_BUCKET`], [`FIXED_WINDOW`], [`SLIDING_WINDOW`] or [`CONCURRENCY`].
    #[serde(default = "token_bucket")]
    pub kind: String,
    /// Length of the window; 0 without one.
    #[serde(default)]
    pub window_seconds: u64,
}

impl Default for LimitRecord {
    /// A limit for every caller that admits nothing.
    fn default() -> LimitRecord {
        LimitRecord {
            server: any(),
            primitive: any(),
            user: any(),
            wcit: any(),
            issuer: any(),
            machine: any(),
            capacity: 0,
            refill: String::new(),
            observe: false,
            group: any(),
            kind: token_bucket(),
            window_seconds: 0,
        }
    }
}

impl LimitRecord {
    /// Whether both have the same selector, kind and window, and both or neither are observed.
    pub fn same_key(&self, other: &LimitRecord) -> bool {
        self.key() == other.key()
    }

    fn key(&self) -> ([&str; 8], u64, bool) {
        let LimitRecord { server, primitive, user, wcit, issuer, machine, group, kind, .. } = self;
        let names = [server, primitive, user, wcit, issuer, machine, group, kind].map(String::as_str);
        (names, self.window_seconds, self.observe)
    }
}

fn token_bucket() -> String {
    TOKEN_BUCKET.to_owned()
}

fn any() -> String {
    "*".to_owned()
}

/// Condition of a write (`If-Match`, `If-None-Match`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    #[default]
    None,
    /// The resource is at this revision.
    At(u64),
    /// The resource exists.
    Exists,
    /// The resource does not exist.
    Absent,
}

/// Author, time and conditions of a write.
#[derive(Clone, Debug)]
pub struct Change {
    /// Author in the audit row, e.g. `ops@platform`.
    pub actor: String,
    /// Unix milliseconds.
    pub at: u64,
    pub precondition: Precondition,
    /// Revision at which the records were read that the write was checked against (optimistic concurrency). The write
    /// fails with [`StoreError::Stale`] if any of them was written since. A server is checked against servers and
    /// routes, routes against servers, a home against homes and regions, regions against homes. `None`: not checked.
    pub based_on: Option<u64>,
    /// Revision of the change that this one undoes, for its audit row.
    pub undoes: Option<u64>,
}

impl Change {
    /// A write without conditions. `at`: Unix milliseconds.
    pub fn unconditional(actor: &str, at: u64) -> Change {
        Change { actor: actor.to_owned(), at, precondition: Precondition::None, based_on: None, undoes: None }
    }
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Revision of the resource after the write; for a deleted resource, the revision of its deletion.
    pub revision: u64,
    /// False if the stored state was already the requested one: no new revision, no audit row.
    pub changed: bool,
}

/// A value and the revision of its last change; 0 if it never had an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtRevision<T> {
    pub revision: u64,
    pub value: T,
}

// === content of the store at one revision ===

/// A revision in the store's history. A database that lost commits, in a failover or a restore, assigns their numbers
/// again to other writes, which have other stamps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub revision: u64,
    /// Random value of the write that made the revision; "" for writes from before stamps existed.
    pub stamp: String,
}

/// All data of a snapshot, read at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlState {
    pub revision: u64,
    /// See [`Position::stamp`].
    pub stamp: String,
    pub servers: Vec<ServerRecord>,
    pub offers: Vec<OfferRecord>,
    pub exposure: Vec<ExposureRecord>,
    pub bindings: Vec<BindingRecord>,
    /// Limits with their orgs, in the order of each org's list.
    pub limits: Vec<(String, LimitRecord)>,
    pub revocations: Vec<RevocationRecord>,
    pub issuers: Vec<IssuerRecord>,
    pub issuer_keys: Vec<IssuerKeysRecord>,
    pub unreadable_issuers: Vec<UnreadableIssuer>,
    pub machines: Machines,
    pub placement: Placement,
}

/// A stored issuer of a side that this version does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreadableIssuer {
    pub side: String,
    pub name: String,
}

/// A stored key, certificate or bound of machines that this version cannot read. It grants nothing: a certificate's URI
/// stays among the certificates as an expired one, and a bound counts as empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreadableMachine {
    pub org: String,
    /// `key`, `certificate` or `bound`.
    pub kind: &'static str,
    /// Empty for a bound.
    pub id: String,
    pub fault: String,
}

/// State of one org, each list in the order of [`ControlState`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrgState {
    pub org: String,
    pub exposure: Vec<ExposureRecord>,
    pub bindings: Vec<BindingRecord>,
    pub limits: Vec<LimitRecord>,
    pub machine_keys: Vec<MachineKeyRecord>,
    pub machine_certificates: Vec<MachineCertificateRecord>,
    pub machine_bound: MachineBound,
    pub unreadable_machines: Vec<UnreadableMachine>,
}

/// Current state of everything that changed after a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateDelta {
    pub revision: u64,
    /// See [`Position::stamp`].
    pub stamp: String,
    /// Servers by name; `None`: deleted.
    pub servers: Vec<(String, Option<ServerRecord>)>,
    pub orgs: Vec<OrgState>,
    /// Machines of every org if any was written, because a write deletes expired ones of all orgs.
    pub machines: Option<Machines>,
    /// All offers, if any was written or deleted with its server.
    pub offers: Option<Vec<OfferRecord>>,
    pub revocations: ChangedRevocations,
    /// The whole placement, if any part of it was written.
    pub placement: Option<Placement>,
    /// All issuers, always: the time of the last fetch changes without a revision.
    pub issuers: Vec<IssuerRecord>,
    pub issuer_keys: Vec<IssuerKeysRecord>,
    pub unreadable_issuers: Vec<UnreadableIssuer>,
}

/// Credentials and bounds of machines of all orgs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machines {
    pub keys: Vec<MachineKeyRecord>,
    pub certificates: Vec<MachineCertificateRecord>,
    /// Bounds by org.
    pub bounds: BTreeMap<String, MachineBound>,
    pub unreadable: Vec<UnreadableMachine>,
}

/// Changes of revocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedRevocations {
    /// Revocations by id; `None`: deleted.
    These(Vec<(String, Option<RevocationRecord>)>),
    /// All revocations, if the changed ones are too many or unknown.
    All(Vec<RevocationRecord>),
}

impl Default for ChangedRevocations {
    fn default() -> ChangedRevocations {
        ChangedRevocations::These(Vec::new())
    }
}

/// Answer to a request for the changes since a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateUpdate {
    Changed(StateDelta),
    /// Everything: the revision is too old, or this database never had it.
    All(ControlState),
}

impl StateUpdate {
    /// Returns the position of the store when it answered.
    pub fn position(&self) -> Position {
        let (revision, stamp) = match self {
            StateUpdate::Changed(StateDelta { revision, stamp, .. }) => (*revision, stamp),
            StateUpdate::All(ControlState { revision, stamp, .. }) => (*revision, stamp),
        };
        Position { revision, stamp: stamp.clone() }
    }
}
