//! A snapshot as its parts make it, and the one that comes of other parts.
//!
//! Refuses: a part that does not compile, with its place. Keeps true: what did not change is shared with the snapshot
//! before.

mod changing;

use std::collections::HashMap;
use std::sync::Arc;

use asp_edge::{Caller, MACHINE_ISSUER};
use asp_proto::snapshot::{
    GatewaySnapshot, Issuer, IssuerAccess, Limit, OrgPart, Primitive, SnapshotPart, Upstream,
    snapshot_part::Part,
};

use crate::machine_parts::MachineParts;
use crate::machines::Machines;
use crate::parts::{self, Name};
use crate::policy::Policy;
use crate::server::{Dependency, VirtualServer};
use changing::Changing;

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
        }
    }

    /// This snapshot with other parts; what is not among them is shared. `Err` names what does not compile.
    pub fn changed(&self, revision: u64, changes: Changes) -> Result<Snapshot, String> {
        let mut changing = Changing::of(self, revision);
        for (name, part) in changes {
            let part = match (part, Name::read(&name)) {
                (Some(SnapshotPart { part: None }), Some(_)) => {
                    return Err(format!("{name}: the part is of a newer kind"));
                }
                (part, _) => part.and_then(|part| part.part),
            };
            match (Name::read(&name), part) {
                (Some(Name::Org(org)), Some(Part::Org(part))) if org != part.org => {
                    return Err(format!("{name}: the part is about another org"));
                }
                (Some(Name::Server(of)), Some(Part::Server(part)))
                    if part.server.as_ref().is_none_or(|server| server.name != of) =>
                {
                    return Err(format!("{name}: the part is about another server"));
                }
                (Some(Name::Base), Some(Part::Base(base))) => changing.base(base),
                (Some(Name::Server(_)), Some(Part::Server(server))) => {
                    changing.server(server).map_err(|fault| format!("{name}: {fault}"))?;
                }
                (Some(Name::Server(server)), None) => changing.drop_server(server),
                (Some(Name::Org(_)), Some(Part::Org(org))) => {
                    changing.org(org).map_err(|fault| format!("{name}: {fault}"))?;
                }
                (Some(Name::Org(org)), None) => {
                    changing.org(OrgPart { org: org.to_owned(), ..OrgPart::default() })?;
                }
                (Some(Name::Revoked), Some(Part::Revoked(revoked))) => changing.revoked = Some(revoked),
                (Some(Name::Recent), Some(Part::Recent(recent))) => changing.recent = Some(recent),
                // Of a newer version, in which nothing that this one knows depends on it.
                (None, _) => {}
                _ => return Err(format!("{name}: the part is of another kind than its name says")),
            }
        }
        changing.done()
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
