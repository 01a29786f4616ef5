//! A snapshot as its parts make it, and the one that comes of other parts.
//!
//! Refuses: a part that does not compile, with its place; or, for a gateway, that part alone ([`Snapshot::applied`]). Keeps
//! true: what did not change is shared with the snapshot before.

mod changing;
mod fault;
mod partly;
mod says;
mod unread;

use std::collections::HashMap;
use std::sync::Arc;

use asp_edge::{Caller, MACHINE_ISSUER};
use asp_proto::snapshot::{
    BasePart, GatewaySnapshot, Issuer, IssuerAccess, Limit, Primitive, SnapshotPart, Upstream,
};

use crate::machine_parts::MachineParts;
use crate::machines::Machines;
use crate::parts;
use crate::policy::Policy;
use crate::server::{Dependency, VirtualServer};
use changing::Changing;
pub use fault::{PartFault, PartFaults};

/// An indexed, immutable gateway snapshot.
pub struct Snapshot {
    pub revision: u64,
    pub edge: asp_edge::Snapshot,
    pub issuers: Arc<Vec<Issuer>>,
    pub policy: Policy,
    pub machines: Arc<Machines>,
    /// The private hosts that the proxy executor may reach.
    pub upstreams: Arc<Vec<Upstream>>,
    /// What primitives may ask, by id.
    pub dependencies: Arc<HashMap<String, Arc<Dependency>>>,
    limits: HashMap<Arc<str>, Arc<[Limit]>>,
    servers: HashMap<String, Arc<VirtualServer>>,
    /// By the issuer's name.
    access: Arc<HashMap<String, IssuerAccess>>,
    machine_parts: MachineParts,
    /// `None` before the first, and while the one that was sent is denied: no server is served.
    base: Option<Arc<BasePart>>,
    /// Servers as they were sent last that the base in force refuses, by name: another base is tried with them.
    waiting: HashMap<String, Arc<VirtualServer>>,
    faults: Arc<PartFaults>,
}

/// Parts of a snapshot by name ([`parts`]); `None`: it is gone.
pub type Changes = Vec<(String, Option<SnapshotPart>)>;

impl Snapshot {
    /// Indexes `snapshot`; `Err` names what does not compile (the NACK reason).
    pub fn build(snapshot: GatewaySnapshot) -> Result<Snapshot, String> {
        let revision = snapshot.revision;
        let parts = parts::split(snapshot).into_iter().map(|(name, part)| (name, Some(part)));
        Snapshot::empty().changed(revision, parts.collect())
    }

    /// Denies everything: what is known before the first part comes.
    pub fn empty() -> Snapshot {
        Snapshot {
            revision: 0,
            edge: asp_edge::Snapshot::boot(),
            issuers: Arc::default(),
            policy: Policy::default(),
            machines: Arc::default(),
            upstreams: Arc::default(),
            dependencies: Arc::default(),
            limits: HashMap::new(),
            servers: HashMap::new(),
            access: Arc::default(),
            machine_parts: MachineParts::default(),
            base: None,
            waiting: HashMap::new(),
            faults: Arc::default(),
        }
    }

    /// This snapshot with other parts; what is not among them is shared. `Err` names what does not compile.
    pub fn changed(&self, revision: u64, changes: Changes) -> Result<Snapshot, String> {
        let mut changing = Changing::of(self, revision);
        for (name, part) in changes {
            changing.take(&name, part).map_err(|refused| format!("{name}: {refused}"))?;
        }
        changing.done()
    }

    /// This snapshot with what can be put in force of other parts; [`Snapshot::faults`] names the rest. A part that is refused
    /// keeps its last form or is denied, so that nothing opens wider than it was. `Err`: nothing can be put in force, because
    /// a list of revocations cannot be read or there is no base yet.
    pub fn applied(&self, revision: u64, changes: Changes) -> Result<Snapshot, String> {
        let mut changing = Changing::of(self, revision);
        for (name, part) in changes {
            if let Err(refused) = changing.take(&name, part) {
                changing.leave_out(&name, &refused)?;
            }
        }
        changing.done_partly()
    }

    /// The parts that are not in force as they were sent.
    pub fn faults(&self) -> &Arc<PartFaults> {
        &self.faults
    }

    /// Whether what this caller came with is dead by now: its token, or its machine's key or certificate.
    pub fn revoked(&self, caller: &Caller) -> bool {
        self.edge.revoked(caller) || (caller.issuer == MACHINE_ISSUER && !self.machines.has(caller))
    }

    /// What gateways do with an issuer beside verifying its tokens.
    pub fn access(&self, issuer: &str) -> Option<&IssuerAccess> {
        self.access.get(issuer)
    }

    /// The exact limits of an org.
    pub fn limits(&self, org: &str) -> &[Limit] {
        self.limits.get(org).map(|limits| &**limits).unwrap_or_default()
    }

    pub fn servers(&self) -> impl Iterator<Item = &Arc<VirtualServer>> {
        self.servers.values()
    }

    /// Everything that a server lists or asks, each once a server.
    pub fn primitives(&self) -> impl Iterator<Item = &Primitive> {
        let listed = self.servers.values().flat_map(|server| &server.entries).map(|entry| &entry.primitive);
        listed.chain(self.dependencies.values().map(|asked| &asked.entry.primitive))
    }

    pub fn server(&self, name: &str) -> Option<&Arc<VirtualServer>> {
        self.servers.get(name)
    }
}
