//! What is read of the store at one revision: everything, or what changed since another one.

use std::collections::BTreeMap;

use super::{
    BindingRecord, ExposureRecord, IssuerKeysRecord, IssuerRecord, LimitRecord, MachineBound,
    MachineCertificateRecord, MachineKeyRecord, OfferRecord, Placement, RevocationRecord, ServerRecord,
};

/// A revision in the store's history. A database that has lost commits, by a failover or a restore, gives their numbers to other
/// writes, whose stamps are others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub revision: u64,
    /// Random, of the write that made the revision; "" of one that was made before there were stamps.
    pub stamp: String,
}

/// Everything a snapshot is made of, read at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlState {
    pub revision: u64,
    /// As [`Position::stamp`].
    pub stamp: String,
    pub servers: Vec<ServerRecord>,
    pub offers: Vec<OfferRecord>,
    pub exposure: Vec<ExposureRecord>,
    pub bindings: Vec<BindingRecord>,
    /// With their orgs, in the order of each org's list.
    pub limits: Vec<(String, LimitRecord)>,
    pub revocations: Vec<RevocationRecord>,
    pub issuers: Vec<IssuerRecord>,
    pub issuer_keys: Vec<IssuerKeysRecord>,
    pub unreadable_issuers: Vec<UnreadableIssuer>,
    pub machine_keys: Vec<MachineKeyRecord>,
    pub machine_certificates: Vec<MachineCertificateRecord>,
    /// The key is the org.
    pub machine_bounds: BTreeMap<String, MachineBound>,
    pub unreadable_machines: Vec<UnreadableMachine>,
    pub placement: Placement,
}

/// A stored issuer of a side that this version does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreadableIssuer {
    pub side: String,
    pub name: String,
}

/// A stored key, certificate or bound of machines that this version cannot read. It opens nothing: a certificate's URI is among
/// the certificates all the same, as one that has ended, and a bound is as if it were empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreadableMachine {
    pub org: String,
    /// `key`, `certificate` or `bound`.
    pub kind: &'static str,
    /// "" of a bound.
    pub id: String,
    pub fault: String,
}

/// What one org has, each list in the order of [`ControlState`].
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

/// What changed after a revision, as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    pub revision: u64,
    /// As [`Position::stamp`].
    pub stamp: String,
    /// By name; `None`: it is gone.
    pub servers: Vec<(String, Option<ServerRecord>)>,
    pub orgs: Vec<OrgState>,
    /// Those of every org, where one of them was written: what had ended was forgotten, whose ever it was.
    pub machines: Option<Machines>,
    /// All of them, where one of them was written or went with its server.
    pub offers: Option<Vec<OfferRecord>>,
    pub revocations: ChangedRevocations,
    /// All of it, where something of it was written.
    pub placement: Option<Placement>,
    /// All of them, in every case: the time at which an issuer was asked changes without a revision.
    pub issuers: Vec<IssuerRecord>,
    pub issuer_keys: Vec<IssuerKeysRecord>,
    pub unreadable_issuers: Vec<UnreadableIssuer>,
}

/// What machines of every org call with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machines {
    pub keys: Vec<MachineKeyRecord>,
    pub certificates: Vec<MachineCertificateRecord>,
    /// The key is the org.
    pub bounds: BTreeMap<String, MachineBound>,
    pub unreadable: Vec<UnreadableMachine>,
}

/// Of revocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedRevocations {
    /// By id; `None`: it is gone.
    These(Vec<(String, Option<RevocationRecord>)>),
    /// Too many to tell which.
    All(Vec<RevocationRecord>),
}

impl Default for ChangedRevocations {
    fn default() -> ChangedRevocations {
        ChangedRevocations::These(Vec::new())
    }
}

/// The answer to what changed since a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Since {
    Changed(Changed),
    /// Everything: it was too long ago, or the revision is one that this database never had.
    All(ControlState),
}

impl Since {
    /// Where the store was when it answered.
    pub fn position(&self) -> Position {
        let (revision, stamp) = match self {
            Since::Changed(Changed { revision, stamp, .. }) => (*revision, stamp),
            Since::All(ControlState { revision, stamp, .. }) => (*revision, stamp),
        };
        Position { revision, stamp: stamp.clone() }
    }
}
