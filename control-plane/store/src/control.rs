//! The port to the control plane's durable state: servers, policy, limits, revocations and their audit.
//!
//! Owns the records and the guarantees of a write: it is atomic, it is audited in the same transaction, and it
//! increments one monotone revision (invariants I-5 and I-6).
//! Refuses: to interpret a record; the caller has validated it.
//! Bounds: [`MAX_BINDINGS_PER_ORG`] and its siblings hold in every backend.

mod audited;
mod forms;
mod issuers;
mod machines;
mod placement;
mod primitives;
mod revocations;
pub mod sql;
mod state;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use audited::{AuditQuery, AuditRecord, Note};
pub use forms::{MAX_FORM_BYTES, PublishedForm};
pub use issuers::{IssuerKeysRecord, IssuerRecord, MAX_ISSUERS, Side};
pub use machines::{
    CertificateName, FEW_MACHINE_KEYS, MAX_MACHINE_CERTIFICATES_PER_ORG, MAX_MACHINE_KEY_BYTES,
    MAX_MACHINE_KEYS, MAX_MACHINE_KEYS_PER_ORG, MachineBound, MachineCertificateRecord, MachineKeyRecord,
    RESERVED_MACHINE_KEYS,
};
pub use placement::{HomeRecord, MAX_HOMES, MAX_REGIONS, MAX_ROUTES, Placement, RegionRecord, RouteRecord};
pub use primitives::{DeniedId, PrimitiveServer, ServerIds};
pub use revocations::{
    MAX_REVOCATIONS, MAX_REVOCATIONS_AT_ONCE, MAX_REVOCATIONS_PER_ORG, RevocationPage, RevocationRecord,
};
pub use state::{
    Changed, ChangedRevocations, ControlState, Machines, OrgState, Position, Since, UnreadableIssuer,
    UnreadableMachine,
};

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
    /// ([`Change::evaluated_at`]).
    #[error("a record that the write depends on has changed since it was evaluated")]
    Moved,
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
}

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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
}

impl BindingRecord {
    /// Whether both have the same key.
    pub fn same_key(&self, other: &BindingRecord) -> bool {
        let key = |record: &BindingRecord| {
            let BindingRecord { org, target_type, target, issuer, primitive, protocol, name, .. } = record;
            [org, target_type, target, issuer, primitive, protocol, name].map(String::clone)
        };
        key(self) == key(other)
    }

    /// Whether each call of the org evaluates it ([`MAX_RULES_PER_ORG`]).
    pub fn is_rule(&self) -> bool {
        self.observed || !self.when.is_empty()
    }
}

/// A token-bucket limit of an org. Each selector is exact or a pattern; `*` matches anything.
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
    /// The text that the admin wrote, e.g. `100/s`.
    pub refill: String,
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
    /// fails with [`StoreError::Moved`] if any of them was written since. A server is checked against servers and
    /// routes, routes against servers, a home against homes and regions, regions against homes. `None`: not checked.
    pub evaluated_at: Option<u64>,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Revision of the resource after the write; for a deleted resource, the revision of its deletion.
    pub revision: u64,
    /// False if the stored state was already the requested one: no new revision, no audit row.
    pub changed: bool,
}

/// A value and the revision of its last change; 0 if it never had an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned<T> {
    pub revision: u64,
    pub value: T,
}

/// The port. Every write is atomic, audited and increments the revision by one, unless it changes nothing.
#[async_trait]
pub trait ControlStore: Send + Sync {
    /// Returns the revision of the last change; 0 before the first.
    async fn revision(&self) -> Result<u64, StoreError> {
        Ok(self.position().await?.revision)
    }
    /// Returns the current revision with the stamp that distinguishes it from the same number in another history.
    async fn position(&self) -> Result<Position, StoreError>;
    /// Whether this database's history contains that revision, made by the same write.
    async fn has(&self, known: &Position) -> Result<bool, StoreError>;
    /// Raises the revision to `to` if it is lower. Subscribers that saw a later revision, from before a restore or a
    /// failover, accept nothing earlier. Afterwards [`ControlStore::since`] returns everything for an older revision.
    async fn raise_revision(&self, change: &Change, to: u64) -> Result<Written, StoreError>;
    /// Returns all data of a snapshot at one revision; expired revocations are in it until they are deleted
    /// ([`ControlStore::prune`]).
    async fn load(&self) -> Result<ControlState, StoreError>;
    /// Returns the changes after `revision`, read at one revision.
    async fn since(&self, revision: u64) -> Result<Since, StoreError>;

    /// Returns the issuers and their fetched keys, in a state that is otherwise empty.
    async fn issuers_of_now(&self) -> Result<ControlState, StoreError> {
        Ok(match self.since(self.revision().await?).await? {
            Since::Changed(Changed { revision, issuers, issuer_keys, .. }) => {
                ControlState { revision, issuers, issuer_keys, ..ControlState::default() }
            }
            Since::All(state) => state,
        })
    }

    /// Returns all servers and the revision at which they were read.
    async fn servers(&self) -> Result<Versioned<Vec<ServerRecord>>, StoreError>;
    async fn server(&self, name: &str) -> Result<Option<ServerRecord>, StoreError>;
    /// Returns the versions of a server, newest first: at most [`MAX_VERSIONS`], and for a while also those of a
    /// deleted server.
    async fn server_versions(&self, name: &str) -> Result<Vec<ServerVersion>, StoreError>;
    /// Returns the server as stored by the write with this revision.
    async fn server_version(&self, name: &str, revision: u64) -> Result<Option<ServerRecord>, StoreError>;
    /// Stores a server with primitives of these ids; ids without an owner become its own. Fails with
    /// [`StoreError::DeniedIds`] if it may not use all of them; the stored server stays unchanged then.
    async fn register_server(
        &self,
        change: &Change,
        name: &str,
        files: &[SourceFile],
        content_hash: &str,
        ids: ServerIds<'_>,
    ) -> Result<Written, StoreError>;
    /// Stores a server without primitives; see [`ControlStore::register_server`].
    async fn put_server(
        &self,
        change: &Change,
        name: &str,
        files: &[SourceFile],
        content_hash: &str,
    ) -> Result<Written, StoreError> {
        self.register_server(change, name, files, content_hash, ServerIds::default()).await
    }
    /// Returns the servers that may have a primitive under this id.
    async fn primitive_servers(&self, id: &str) -> Result<Versioned<Vec<PrimitiveServer>>, StoreError>;
    /// Records ids that a stored server already uses: ids without an owner become its own, ids of other servers are
    /// granted to it. Ids that were granted to it or withdrawn from it before stay unchanged.
    async fn take_primitives(
        &self,
        change: &Change,
        server: &str,
        ids: &[&str],
    ) -> Result<Written, StoreError>;
    async fn grant_primitive(&self, change: &Change, id: &str, server: &str) -> Result<Written, StoreError>;
    /// Withdraws the id from the server permanently: only the platform can give it back. [`StoreError::NotFound`] if
    /// the server may not use it.
    async fn withdraw_primitive(
        &self,
        change: &Change,
        id: &str,
        server: &str,
    ) -> Result<Written, StoreError>;
    /// Removes the server and its offers.
    async fn delete_server(&self, change: &Change, name: &str) -> Result<Written, StoreError>;

    /// Stores the forms of published parts, unless a form of a later revision is stored. Not a change: it is not
    /// audited and makes no revision. Forms longer than [`MAX_FORM_BYTES`] are skipped.
    async fn put_published_forms(&self, forms: &[PublishedForm]) -> Result<(), StoreError>;
    /// Deletes the forms of removed parts, unless a form of a later revision than the given one is stored.
    async fn forget_published_forms(&self, parts: &[(String, u64)]) -> Result<(), StoreError>;
    /// Returns the stored forms of the parts. A server's form is deleted with the server.
    async fn published_forms(&self, parts: &[String]) -> Result<Vec<PublishedForm>, StoreError>;

    /// Returns the offers of a server, by org.
    async fn offers(&self, server: &str) -> Result<Versioned<Vec<OfferRecord>>, StoreError>;
    /// Returns the offers to an org, by server.
    async fn offers_to(&self, org: &str) -> Result<Vec<OfferRecord>, StoreError>;
    /// Fails with [`StoreError::Full`] if [`ControlStore::put_offer`] would exceed a limit.
    async fn offer_fits(&self, record: &OfferRecord) -> Result<(), StoreError>;
    /// Stores an offer; [`StoreError::NotFound`] if the server does not exist.
    async fn put_offer(&self, change: &Change, record: &OfferRecord) -> Result<Written, StoreError>;
    /// Deletes an offer; [`StoreError::NotFound`] if it does not exist.
    async fn delete_offer(&self, change: &Change, record: &OfferRecord) -> Result<Written, StoreError>;

    async fn exposure(&self, org: &str) -> Result<Versioned<Vec<ExposureRecord>>, StoreError>;
    /// Inserts or replaces by key.
    async fn put_exposure(&self, change: &Change, record: &ExposureRecord) -> Result<Written, StoreError>;
    /// Removes the exception with this key, regardless of `enabled`; [`StoreError::NotFound`] if there is none.
    async fn delete_exposure_of(&self, change: &Change, key: &ExposureRecord) -> Result<Written, StoreError>;
    /// Removes all of an org's exceptions.
    async fn delete_exposure(&self, change: &Change, org: &str) -> Result<Written, StoreError>;

    async fn bindings(&self, org: &str) -> Result<Versioned<Vec<BindingRecord>>, StoreError>;
    /// Inserts or replaces by key.
    async fn put_binding(&self, change: &Change, record: &BindingRecord) -> Result<Written, StoreError>;
    /// Removes the binding with this key, regardless of `allowed`; [`StoreError::NotFound`] if there is none.
    async fn delete_binding(&self, change: &Change, key: &BindingRecord) -> Result<Written, StoreError>;
    /// Removes all of an org's bindings.
    async fn delete_bindings(&self, change: &Change, org: &str) -> Result<Written, StoreError>;

    async fn limits(&self, org: &str) -> Result<Versioned<Vec<LimitRecord>>, StoreError>;
    /// Replaces the whole list.
    async fn put_limits(
        &self,
        change: &Change,
        org: &str,
        list: &[LimitRecord],
    ) -> Result<Written, StoreError>;
    async fn delete_limits(&self, change: &Change, org: &str) -> Result<Written, StoreError>;

    /// Returns the bound of an org's machines; empty if none is stored.
    async fn machine_bound(&self, org: &str) -> Result<Versioned<MachineBound>, StoreError>;
    /// Replaces an org's bound; an empty one deletes it.
    async fn put_machine_bound(
        &self,
        change: &Change,
        org: &str,
        bound: &MachineBound,
    ) -> Result<Written, StoreError>;

    /// Returns an org's keys, oldest first. Expired ones are included until the next key is added.
    async fn machine_keys(&self, org: &str) -> Result<Vec<MachineKeyRecord>, StoreError>;
    /// Adds a key. Revocations that match it, earlier or later ones, are kept until it expires.
    async fn add_machine_key(
        &self,
        change: &Change,
        record: &MachineKeyRecord,
    ) -> Result<Written, StoreError>;
    /// Deletes a key; [`StoreError::NotFound`] if the org does not have it.
    async fn delete_machine_key(&self, change: &Change, org: &str, id: &str) -> Result<Written, StoreError>;

    /// Returns an org's certificates, oldest first. Expired ones are included until the next one is registered.
    async fn machine_certificates(&self, org: &str) -> Result<Vec<MachineCertificateRecord>, StoreError>;

    /// Returns the registration of this name, even if it has expired.
    async fn machine_certificate_named(
        &self,
        name: &CertificateName,
    ) -> Result<Option<MachineCertificateRecord>, StoreError>;
    /// Registers a certificate, or renews the machine's registration under this name. Returns the id of the
    /// registration, which a renewal keeps. [`StoreError::Taken`] if the name belongs to another machine. Revocations
    /// that match it, earlier or later ones, are kept until it expires.
    async fn put_machine_certificate(
        &self,
        change: &Change,
        record: &MachineCertificateRecord,
    ) -> Result<(String, Written), StoreError>;
    /// Deletes a certificate; [`StoreError::NotFound`] if the org does not have it.
    async fn delete_machine_certificate(
        &self,
        change: &Change,
        org: &str,
        id: &str,
    ) -> Result<Written, StoreError>;

    async fn issuers(&self) -> Result<Vec<IssuerRecord>, StoreError>;
    async fn issuer(&self, side: Side, name: &str) -> Result<Option<IssuerRecord>, StoreError>;
    async fn put_issuer(
        &self,
        change: &Change,
        side: Side,
        name: &str,
        document: &str,
    ) -> Result<Written, StoreError>;
    /// Removes the issuer and its fetched keys. Its `iss` is kept ([`ControlStore::former_iss`]).
    async fn delete_issuer(&self, change: &Change, side: Side, name: &str) -> Result<Written, StoreError>;
    /// Returns the `iss` of the last deleted issuer of this name; at most 1,000 names are kept.
    async fn former_iss(&self, side: Side, name: &str) -> Result<Option<String>, StoreError>;
    async fn issuer_keys(&self) -> Result<Vec<IssuerKeysRecord>, StoreError>;
    /// Stores fetched keys. The same content from the same source is not a change: only the time is updated. Keys that
    /// were fetched later stay, unless their time is so much later that the clock of who fetched them was ahead.
    async fn put_issuer_keys(
        &self,
        change: &Change,
        record: &IssuerKeysRecord,
    ) -> Result<Written, StoreError>;

    async fn routes(&self) -> Result<Versioned<Vec<RouteRecord>>, StoreError>;
    /// Replaces the whole list; an empty one deletes it.
    async fn put_routes(&self, change: &Change, list: &[RouteRecord]) -> Result<Written, StoreError>;
    async fn regions(&self) -> Result<Versioned<Vec<RegionRecord>>, StoreError>;
    /// Replaces the whole list; an empty one deletes it.
    async fn put_regions(&self, change: &Change, list: &[RegionRecord]) -> Result<Written, StoreError>;
    async fn homes(&self) -> Result<Vec<HomeRecord>, StoreError>;
    async fn home(&self, org: &str) -> Result<Option<Versioned<HomeRecord>>, StoreError>;
    /// Inserts or replaces by org.
    async fn put_home(&self, change: &Change, record: &HomeRecord) -> Result<Written, StoreError>;
    async fn delete_home(&self, change: &Change, org: &str) -> Result<Written, StoreError>;

    /// Returns at most `limit` revocations of one org or of all, newest first.
    async fn revocations(&self, org: Option<&str>, limit: u32) -> Result<Vec<RevocationRecord>, StoreError>;
    async fn revocation(&self, id: &str) -> Result<Option<RevocationRecord>, StoreError>;
    async fn add_revocation(&self, change: &Change, record: &RevocationRecord)
    -> Result<Written, StoreError>;
    /// Adds several revocations in one write, at one revision. All must be of tokens (`token`, `token_hash`) of one
    /// org, made at the time of the change, with new ids. [`StoreError::Full`] beyond [`MAX_REVOCATIONS_AT_ONCE`].
    async fn add_revocations(
        &self,
        change: &Change,
        records: &[RevocationRecord],
    ) -> Result<Written, StoreError>;
    /// Returns the revocations added after `revision`, oldest first and about 2,000 at most.
    async fn revoked_since(&self, revision: u64) -> Result<RevocationPage, StoreError>;
    async fn delete_revocation(&self, change: &Change, id: &str) -> Result<Written, StoreError>;
    /// Deletes expired revocations, versions of servers deleted long ago, forms of parts that are no longer stored, and
    /// audit rows beyond `keep_audit`. What has expired by the change's time but not by the clock of a database that
    /// several machines share stays. Audit rows are taken from the orgs that have the most, oldest first, so that no
    /// org's changes evict those of another. Returns the number of deleted revocations; makes a revision only if there
    /// were any.
    async fn prune(&self, change: &Change, keep_audit: u64) -> Result<u64, StoreError>;

    /// Audits a change of something that is stored elsewhere.
    async fn note(&self, change: &Change, note: Note<'_>) -> Result<Written, StoreError>;
    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditRecord>, StoreError>;
}
