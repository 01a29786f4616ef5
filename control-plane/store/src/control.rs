//! The port to the control plane's durable state: servers, policy, limits, revocations and their audit.
//!
//! Owns the records and what a write promises: it happens whole or not at all, it is audited in the same
//! transaction, and it bumps one monotone revision (invariants I-5 and I-6).
//! Refuses: any evaluation of what a record means; the caller has validated it.
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
    MAX_REVOCATIONS, MAX_REVOCATIONS_AT_ONCE, MAX_REVOCATIONS_PER_ORG, RevocationRecord, RevokedSince,
};
pub use state::{
    Changed, ChangedRevocations, ControlState, Machines, OrgState, Position, Since, UnreadableIssuer,
    UnreadableMachine,
};

/// Servers a control plane keeps.
pub const MAX_SERVERS: usize = 1_000;
/// Versions of one server that are kept, the one in force among them.
pub const MAX_VERSIONS: u32 = 20;
/// How long those of a server are kept that was deleted, in milliseconds: 30 days.
pub const KEEP_VERSIONS_OF_GONE: u64 = 30 * 24 * 60 * 60 * 1000;
/// Offers of servers to orgs, of all together: each is two names in memory.
pub const MAX_OFFERS: usize = 50_000;
/// The last of these, for servers that have fewer than [`FEW_OFFERS`]: a few servers do not take the offers of all.
pub const RESERVED_OFFERS: usize = 10_000;
/// Offers of a server that has few.
pub const FEW_OFFERS: usize = 10;
/// Offers of one server: as many as its own file may name.
pub const MAX_OFFERS_PER_SERVER: usize = 1_000;
/// Ids of primitives of one server, those that it had and those that it was granted among them: each stays its own.
pub const MAX_IDS_PER_SERVER: usize = 4_000;
/// Exposure exceptions of one org: every server over every protocol, at most.
pub const MAX_EXPOSURE_PER_ORG: usize = 3_000;
/// Bindings of one org.
pub const MAX_BINDINGS_PER_ORG: usize = 10_000;
/// Of one org's bindings those that ask about arguments or are observed: each call of the org looks at all of them.
pub const MAX_RULES_PER_ORG: usize = 256;
/// Rate limits of one org.
pub const MAX_LIMITS_PER_ORG: usize = 1_000;

/// Why the store refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The precondition (`If-Match`) does not hold; carries the resource's revision, if it exists.
    #[error("the resource is at revision {current:?}")]
    Conflict { current: Option<u64> },
    /// What this write must fit beside changed after the revision at which it was evaluated ([`Change::evaluated_at`]).
    #[error("what it must fit beside changed meanwhile")]
    Moved,
    #[error("no such resource")]
    NotFound,
    /// A bound of this module.
    #[error("at most {bound} {what}")]
    Full { what: &'static str, bound: usize },
    /// Somebody else has what can be one's only.
    #[error("{what} is somebody else's")]
    Taken { what: &'static str },
    /// Primitives under ids that the server may not have.
    #[error("the server may not have all ids of its primitives")]
    DeniedIds(Vec<DeniedId>),
    /// Others were in the way for too long, nothing has happened, and it may be tried again; the text is for the log.
    #[error("store: busy: {0}")]
    Busy(String),
    /// The database ended the write because of another one, as where each waits for the other. Nothing has happened, and it may be
    /// tried again at once; the text is for the log.
    #[error("store: ended because of another write: {0}")]
    Aborted(String),
    /// The database failed; the text is for the log, never for a client.
    #[error("store: {0}")]
    Backend(String),
}

/// One source file of a server, path relative to the primitives root, `/` separators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    pub path: String,
    pub text: String,
}

/// A server as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRecord {
    pub name: String,
    pub files: Vec<SourceFile>,
    /// Why this version cannot read the files, of which there are none then: a newer version wrote them.
    pub unreadable: Option<String>,
    /// The compiler's hash over what the server means; equal hashes make a write a no-op.
    pub content_hash: String,
    /// Revision of its last change.
    pub revision: u64,
    /// Unix milliseconds.
    pub updated_at: u64,
}

/// A version of a server: what it was from the write with this revision on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerVersion {
    pub revision: u64,
    pub content_hash: String,
    /// Unix milliseconds.
    pub stored_at: u64,
    /// Who stored it; empty where nobody knows any more.
    pub actor: String,
}

/// A server is offered to an org, which may switch it on. Its own files may say so too; this is beside them.
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

/// A rule on who may call what. The key is org, target with its issuer, primitive, protocol and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingRecord {
    pub org: String,
    /// `user`, `machine`, `wcit` or `group`.
    pub target_type: String,
    pub target: String,
    /// Issuer whose users, tokens or groups are meant; empty for every issuer.
    #[serde(default)]
    pub issuer: String,
    /// Primitive id: exact, `prefix*` or `*`.
    pub primitive: String,
    /// `mcp`, `a2a`, `rest` or `*`.
    pub protocol: String,
    /// Tells bindings apart that are equal in the above.
    #[serde(default)]
    pub name: String,
    pub allowed: bool,
    /// It is counted and not enforced.
    #[serde(default)]
    pub observed: bool,
    /// A person must approve the call.
    #[serde(default)]
    pub approval: bool,
    /// What it asks of the arguments, as JSON whose form is the control plane's; empty for nothing.
    #[serde(default)]
    pub when: String,
}

impl BindingRecord {
    /// Whether both are the same binding, whatever they say.
    pub fn same_key(&self, other: &BindingRecord) -> bool {
        let key = |record: &BindingRecord| {
            let BindingRecord { org, target_type, target, issuer, primitive, protocol, name, .. } = record;
            [org, target_type, target, issuer, primitive, protocol, name].map(String::clone)
        };
        key(self) == key(other)
    }

    /// Whether each call of the org looks at it ([`MAX_RULES_PER_ORG`]).
    pub fn is_rule(&self) -> bool {
        self.observed || !self.when.is_empty()
    }
}

/// A token-bucket limit of an org; each selector exact or a pattern, `*` for any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRecord {
    pub server: String,
    pub primitive: String,
    pub user: String,
    pub wcit: String,
    #[serde(default = "any")]
    pub issuer: String,
    /// With a name or `each` only machines are meant.
    #[serde(default = "any")]
    pub machine: String,
    pub capacity: u64,
    /// As the admin wrote it, e.g. `100/s`.
    pub refill: String,
}

fn any() -> String {
    "*".to_owned()
}

/// What must hold for a write to happen (`If-Match`, `If-None-Match`).
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

/// Who changes something, when, and under which condition.
#[derive(Clone, Debug)]
pub struct Change {
    /// For the audit row, e.g. `ops@platform`.
    pub actor: String,
    /// Unix milliseconds.
    pub at: u64,
    pub precondition: Precondition,
    /// The revision at which that was read which the write must fit beside: it fails with [`StoreError::Moved`] if any of
    /// it was written since. A server must fit beside servers and routes, routes beside servers, a home beside homes and
    /// regions, regions beside homes. `None`: it need not fit.
    pub evaluated_at: Option<u64>,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Revision of the resource after the write; of a deleted resource, the revision of its deletion.
    pub revision: u64,
    /// False when the stored state already was what was asked for: nothing bumped, nothing audited.
    pub changed: bool,
}

/// A list and the revision of its last change; 0 when it never had an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned<T> {
    pub revision: u64,
    pub value: T,
}

/// The port. Every write is atomic, audited and bumps the revision by one, unless it changes nothing.
#[async_trait]
pub trait ControlStore: Send + Sync {
    /// The revision of the last change; 0 before the first.
    async fn revision(&self) -> Result<u64, StoreError> {
        Ok(self.position().await?.revision)
    }
    /// The same, with what tells it from that of another history.
    async fn position(&self) -> Result<Position, StoreError>;
    /// Whether this database's history has that revision, made by the same write.
    async fn has(&self, known: &Position) -> Result<bool, StoreError>;
    /// Raises the revision to `to`, if it is lower: what has a later one, from before a restore or a failover, takes nothing
    /// earlier. What changed since an older revision is everything then.
    async fn raise_revision(&self, change: &Change, to: u64) -> Result<Written, StoreError>;
    /// Everything a snapshot needs, at one revision; expired revocations are left out by the caller.
    async fn load(&self) -> Result<ControlState, StoreError>;
    /// What changed after `revision`, read at one revision.
    async fn since(&self, revision: u64) -> Result<Since, StoreError>;

    /// The issuers and what was fetched from them, in a state that has nothing else.
    async fn issuers_of_now(&self) -> Result<ControlState, StoreError> {
        Ok(match self.since(self.revision().await?).await? {
            Since::Changed(Changed { revision, issuers, issuer_keys, .. }) => {
                ControlState { revision, issuers, issuer_keys, ..ControlState::default() }
            }
            Since::All(state) => state,
        })
    }

    /// All of them, and the revision at which they were read.
    async fn servers(&self) -> Result<Versioned<Vec<ServerRecord>>, StoreError>;
    async fn server(&self, name: &str) -> Result<Option<ServerRecord>, StoreError>;
    /// What is kept of what the server was, the newest first: [`MAX_VERSIONS`] at most, for a while also of one that was
    /// deleted.
    async fn server_versions(&self, name: &str) -> Result<Vec<ServerVersion>, StoreError>;
    /// The server as the write with this revision stored it.
    async fn server_version(&self, name: &str, revision: u64) -> Result<Option<ServerRecord>, StoreError>;
    /// Stores a server that has primitives of these ids: each is its own from now on, unless it is another one's.
    /// [`StoreError::DeniedIds`] where it may not have all of them; what was stored before stays then.
    async fn register_server(
        &self,
        change: &Change,
        name: &str,
        files: &[SourceFile],
        content_hash: &str,
        ids: ServerIds<'_>,
    ) -> Result<Written, StoreError>;
    /// [`ControlStore::register_server`] of one that has none.
    async fn put_server(
        &self,
        change: &Change,
        name: &str,
        files: &[SourceFile],
        content_hash: &str,
    ) -> Result<Written, StoreError> {
        self.register_server(change, name, files, content_hash, ServerIds::default()).await
    }
    /// The servers that may have a primitive under this id.
    async fn primitive_servers(&self, id: &str) -> Result<Versioned<Vec<PrimitiveServer>>, StoreError>;
    /// Notes ids that a server has stored already: each is its own, or it is granted it where it is another one's. Of those
    /// that it was granted, and that were withdrawn from it, nothing changes.
    async fn take_primitives(
        &self,
        change: &Change,
        server: &str,
        ids: &[&str],
    ) -> Result<Written, StoreError>;
    async fn grant_primitive(&self, change: &Change, id: &str, server: &str) -> Result<Written, StoreError>;
    /// Takes the id from the server for the time to come: no team's word gives it back. [`StoreError::NotFound`] where it may not have it.
    async fn withdraw_primitive(
        &self,
        change: &Change,
        id: &str,
        server: &str,
    ) -> Result<Written, StoreError>;
    /// Removes the server and its offers.
    async fn delete_server(&self, change: &Change, name: &str) -> Result<Written, StoreError>;

    /// Keeps the forms of parts that were published, each unless one of a later revision is kept. It is no change: nothing is
    /// audited, and no revision is made. A form beyond [`MAX_FORM_BYTES`] is left out.
    async fn put_published_forms(&self, forms: &[PublishedForm]) -> Result<(), StoreError>;
    /// Forgets the forms of parts that are gone, unless one of a later revision than the named one is kept.
    async fn forget_published_forms(&self, parts: &[(String, u64)]) -> Result<(), StoreError>;
    /// Returns the forms that are kept of the parts. That of a server goes with it.
    async fn published_forms(&self, parts: &[String]) -> Result<Vec<PublishedForm>, StoreError>;

    /// Those of a server, by org.
    async fn offers(&self, server: &str) -> Result<Versioned<Vec<OfferRecord>>, StoreError>;
    /// Those to an org, by server.
    async fn offers_to(&self, org: &str) -> Result<Vec<OfferRecord>, StoreError>;
    /// [`StoreError::Full`] where [`ControlStore::put_offer`] has no room for it.
    async fn offer_fits(&self, record: &OfferRecord) -> Result<(), StoreError>;
    /// [`StoreError::NotFound`] where there is no such server.
    async fn put_offer(&self, change: &Change, record: &OfferRecord) -> Result<Written, StoreError>;
    /// [`StoreError::NotFound`] where there is no such offer.
    async fn delete_offer(&self, change: &Change, record: &OfferRecord) -> Result<Written, StoreError>;

    async fn exposure(&self, org: &str) -> Result<Versioned<Vec<ExposureRecord>>, StoreError>;
    /// Inserts or replaces by key.
    async fn put_exposure(&self, change: &Change, record: &ExposureRecord) -> Result<Written, StoreError>;
    /// Removes the one with this key, whatever `enabled` says; [`StoreError::NotFound`] when there is none.
    async fn delete_exposure_of(&self, change: &Change, key: &ExposureRecord) -> Result<Written, StoreError>;
    /// Removes all of an org's exceptions.
    async fn delete_exposure(&self, change: &Change, org: &str) -> Result<Written, StoreError>;

    async fn bindings(&self, org: &str) -> Result<Versioned<Vec<BindingRecord>>, StoreError>;
    /// Inserts or replaces by key.
    async fn put_binding(&self, change: &Change, record: &BindingRecord) -> Result<Written, StoreError>;
    /// Removes the one with this key, whatever `allowed` says; [`StoreError::NotFound`] when there is none.
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

    /// Reads the bound of an org's machines; an empty one where nobody wrote one.
    async fn machine_bound(&self, org: &str) -> Result<Versioned<MachineBound>, StoreError>;
    /// Replaces an org's bound; an empty one deletes it.
    async fn put_machine_bound(
        &self,
        change: &Change,
        org: &str,
        bound: &MachineBound,
    ) -> Result<Written, StoreError>;

    /// Those of an org, the oldest first, expired ones among them until the next one is added.
    async fn machine_keys(&self, org: &str) -> Result<Vec<MachineKeyRecord>, StoreError>;
    /// Adds a key. Revocations that hit it are kept as long as it lives; so are those that come later.
    async fn add_machine_key(
        &self,
        change: &Change,
        record: &MachineKeyRecord,
    ) -> Result<Written, StoreError>;
    /// [`StoreError::NotFound`] where the org has no such key.
    async fn delete_machine_key(&self, change: &Change, org: &str, id: &str) -> Result<Written, StoreError>;

    /// Those of an org, the oldest first, expired ones among them until the next one is registered.
    async fn machine_certificates(&self, org: &str) -> Result<Vec<MachineCertificateRecord>, StoreError>;

    /// Finds the registration of this name, also one that has ended.
    async fn machine_certificate_named(
        &self,
        name: &CertificateName,
    ) -> Result<Option<MachineCertificateRecord>, StoreError>;
    /// Registers a certificate, or renews the registration that the machine has under this name. The answer has the id
    /// that it is known by, which a renewed one keeps. [`StoreError::Taken`] where the name is another machine's. Revocations that hit it are
    /// kept as long as it lives; so are those that come later.
    async fn put_machine_certificate(
        &self,
        change: &Change,
        record: &MachineCertificateRecord,
    ) -> Result<(String, Written), StoreError>;
    /// [`StoreError::NotFound`] where the org has no such certificate.
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
    /// Removes the issuer, and what was fetched from it. Its `iss` is kept ([`ControlStore::former_iss`]).
    async fn delete_issuer(&self, change: &Change, side: Side, name: &str) -> Result<Written, StoreError>;
    /// The `iss` of the issuer of this name that was deleted last; of 1,000 names at most.
    async fn former_iss(&self, side: Side, name: &str) -> Result<Option<String>, StoreError>;
    async fn issuer_keys(&self) -> Result<Vec<IssuerKeysRecord>, StoreError>;
    /// Keeps what was fetched. The same content from the same source is no change: only its time is kept. One that an
    /// issuer said later than this stays.
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

    /// Newest first, at most `limit`, of one org or of all.
    async fn revocations(&self, org: Option<&str>, limit: u32) -> Result<Vec<RevocationRecord>, StoreError>;
    async fn revocation(&self, id: &str) -> Result<Option<RevocationRecord>, StoreError>;
    async fn add_revocation(&self, change: &Change, record: &RevocationRecord)
    -> Result<Written, StoreError>;
    /// Adds several by one write, at one revision: all of tokens (`token`, `token_hash`) of one org, made at the moment of the
    /// change, under ids that are new. [`StoreError::Full`] beyond [`MAX_REVOCATIONS_AT_ONCE`].
    async fn add_revocations(
        &self,
        change: &Change,
        records: &[RevocationRecord],
    ) -> Result<Written, StoreError>;
    /// Those that were added after `revision`, some 2,000 at most, the oldest first.
    async fn revoked_since(&self, revision: u64) -> Result<RevokedSince, StoreError>;
    async fn delete_revocation(&self, change: &Change, id: &str) -> Result<Written, StoreError>;
    /// Deletes revocations whose `until` has passed, and audit rows beyond `keep_audit`: the oldest of the orgs that
    /// have the most, so that no org's changes push out those of another one. Forms of parts of which nothing is stored go too.
    /// Returns how many revocations went; bumps the revision only if any did.
    async fn prune(&self, change: &Change, keep_audit: u64) -> Result<u64, StoreError>;

    /// Audits a change of something that is kept elsewhere.
    async fn note(&self, change: &Change, note: Note<'_>) -> Result<Written, StoreError>;
    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditRecord>, StoreError>;
}
