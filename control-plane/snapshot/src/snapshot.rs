//! Snapshots, made of parts, and their replacement by new parts.
//!
//! Refuses: a part that does not compile, and names it; for a gateway, only that part ([`Snapshot::applied`]). Keeps
//! true: unchanged parts are shared with the previous snapshot.

mod draft;
mod fault;
mod part_change;
mod partly;
mod unread;
#[cfg(any(test, feature = "testkit"))]
mod whole;

use std::collections::HashMap;
use std::sync::Arc;

use asp_edge::{Caller, MACHINE_ISSUER, RevocationNotice};
use asp_proto::snapshot::{BasePart, Issuer, IssuerAccess, Limit, Primitive, SnapshotPart, Upstream};

use crate::machine_parts::MachineParts;
use crate::machines::Machines;
use crate::policy::Policy;
use crate::server::{Dependency, VirtualServer};
use draft::SnapshotDraft;
pub use fault::{PartFault, PartFaults};

/// An indexed, immutable gateway snapshot.
#[derive(Clone, Default)]
pub struct Snapshot {
    pub revision: u64,
    pub edge: asp_edge::Snapshot,
    pub issuers: Arc<Vec<Issuer>>,
    pub policy: Policy,
    pub machines: Arc<Machines>,
    /// Private hosts that proxy primitives may reach.
    pub upstreams: Arc<Vec<Upstream>>,
    /// Elicitations and delegates that primitives may use, by id.
    pub dependencies: Arc<HashMap<String, Arc<Dependency>>>,
    limits: HashMap<Arc<str>, Arc<[Limit]>>,
    servers: HashMap<String, Arc<VirtualServer>>,
    /// Access to issuers by issuer name.
    access: Arc<HashMap<String, IssuerAccess>>,
    machine_parts: MachineParts,
    /// `None` before the first base, and while the last one sent is rejected: no server is served.
    base: Option<Arc<BasePart>>,
    /// Latest versions of servers that are incompatible with the base in force, by name. They are retried with the
    /// next base.
    waiting: HashMap<String, Arc<VirtualServer>>,
    faults: Arc<PartFaults>,
}

/// Parts of a snapshot by name ([`crate::parts`]); `None` for a removed part.
pub type PartChanges = Vec<(String, Option<SnapshotPart>)>;

impl Snapshot {
    /// Returns the snapshot in force before the first part arrives, which denies everything.
    pub fn empty() -> Snapshot {
        Snapshot::default()
    }

    /// Returns this snapshot with some parts replaced; all others are shared. The error names what does not compile.
    pub fn changed(&self, revision: u64, changes: PartChanges) -> Result<Snapshot, String> {
        let mut draft = SnapshotDraft::of(self, revision);
        for (name, part) in changes {
            draft.take(&name, part).map_err(|rejection| format!("{name}: {rejection}"))?;
        }
        draft.done()
    }

    /// Returns this snapshot with those new parts that can take effect; [`Snapshot::faults`] lists the rest. A
    /// rejected part keeps its last version or is denied, so that no access becomes wider than it was. Fails if
    /// nothing can take effect: a list of revocations cannot be read, or there is no base yet.
    pub fn applied(&self, revision: u64, changes: PartChanges) -> Result<Snapshot, String> {
        let mut draft = SnapshotDraft::of(self, revision);
        for (name, part) in changes {
            if let Err(rejection) = draft.take(&name, part) {
                draft.leave_out(&name, &rejection)?;
            }
        }
        draft.done_lenient()
    }

    /// Returns the parts that are not in force as they were sent.
    pub fn faults(&self) -> &Arc<PartFaults> {
        &self.faults
    }

    /// Whether the caller's credential is revoked: its token, or its machine's key or certificate.
    pub fn revoked(&self, caller: &Caller) -> bool {
        self.edge.revoked(caller) || (caller.issuer == MACHINE_ISSUER && !self.machines.has(caller))
    }

    /// Returns how the caller's credential is revoked, in the cases of [`Snapshot::revoked`].
    pub fn revocation(&self, caller: &Caller) -> Option<RevocationNotice> {
        let is_gone = || caller.issuer == MACHINE_ISSUER && !self.machines.has(caller);
        self.edge.revocation(caller).or_else(|| is_gone().then(RevocationNotice::default))
    }

    /// Returns how a user's tokens issued at that Unix second are revoked, or how the user or org is blocked.
    pub fn user_revocation(&self, org: &str, user: &str, issued_at: u64) -> Option<RevocationNotice> {
        self.edge.user_revocation(org, user, issued_at)
    }

    /// Returns how gateways use an issuer for introspection, login and token exchange.
    pub fn access(&self, issuer: &str) -> Option<&IssuerAccess> {
        self.access.get(issuer)
    }

    /// Returns the exact limits of an org.
    pub fn limits(&self, org: &str) -> &[Limit] {
        self.limits.get(org).map(|limits| &**limits).unwrap_or_default()
    }

    pub fn servers(&self) -> impl Iterator<Item = &Arc<VirtualServer>> {
        self.servers.values()
    }

    /// Iterates over the primitives that servers list, once for each server, and over those they depend on.
    pub fn primitives(&self) -> impl Iterator<Item = &Primitive> {
        let listed = self.servers.values().flat_map(|server| &server.entries).map(|entry| &entry.primitive);
        listed.chain(self.dependencies.values().map(|asked| &asked.entry.primitive))
    }

    pub fn server(&self, name: &str) -> Option<&Arc<VirtualServer>> {
        self.servers.get(name)
    }
}
