//! Content of the store at one revision: everything, or the changes since another revision.

use std::collections::BTreeMap;

use super::{
    BindingRecord, ExposureRecord, IssuerKeysRecord, IssuerRecord, LimitRecord, MachineBound,
    MachineCertificateRecord, MachineKeyRecord, OfferRecord, Placement, RevocationRecord, ServerRecord,
};

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
