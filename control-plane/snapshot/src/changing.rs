//! A snapshot on its way from the one before: it begins as that one, takes what changed, and is checked at its end.

use std::collections::HashMap;
use std::sync::Arc;

use asp_edge::Changes;
use asp_proto::snapshot::{
    BasePart, EdgeServer, ExposureException, OrgPart, RecentRevocations, RevokedPart, ServerPart,
};

use crate::{Dependency, Snapshot, VirtualServer};

/// Shares with the snapshot before whatever is not replaced.
pub(super) struct Changing<'a> {
    before: &'a Snapshot,
    next: Snapshot,
    base: Option<BasePart>,
    pub(super) revoked: Option<RevokedPart>,
    pub(super) recent: Option<RecentRevocations>,
    servers: Vec<Arc<VirtualServer>>,
    servers_gone: Vec<String>,
    exposure: Vec<(String, Vec<ExposureException>)>,
    machines_changed: bool,
}

impl<'a> Changing<'a> {
    pub(super) fn of(before: &'a Snapshot, revision: u64) -> Changing<'a> {
        let next = Snapshot {
            revision,
            // Replaced at the end.
            edge: asp_edge::Snapshot::boot(),
            issuers: Arc::clone(&before.issuers),
            policy: before.policy.clone(),
            machines: Arc::clone(&before.machines),
            upstreams: Arc::clone(&before.upstreams),
            dependencies: Arc::clone(&before.dependencies),
            limits: before.limits.clone(),
            servers: before.servers.clone(),
            access: Arc::clone(&before.access),
            machine_parts: before.machine_parts.clone(),
        };
        Changing {
            before,
            next,
            base: None,
            revoked: None,
            recent: None,
            servers: Vec::new(),
            servers_gone: Vec::new(),
            exposure: Vec::new(),
            machines_changed: false,
        }
    }

    pub(super) fn base(&mut self, mut base: BasePart) {
        self.next.upstreams = Arc::new(std::mem::take(&mut base.upstreams));
        self.next.issuers = Arc::new(base.issuers.clone());
        let access = std::mem::take(&mut base.issuer_access).into_iter();
        self.next.access = Arc::new(access.map(|access| (access.issuer.clone(), access)).collect());
        self.base = Some(base);
    }

    pub(super) fn server(&mut self, part: ServerPart) -> Result<(), String> {
        let server = Arc::new(VirtualServer::build(part)?);
        self.next.servers.insert(server.message.name.clone(), Arc::clone(&server));
        self.servers.push(server);
        Ok(())
    }

    pub(super) fn drop_server(&mut self, name: &str) {
        self.next.servers.remove(name);
        self.servers_gone.push(name.to_owned());
    }

    /// An org that has said nothing is one that is gone.
    pub(super) fn org(&mut self, part: OrgPart) -> Result<(), String> {
        let OrgPart { org, exposure, bindings, observed_bindings, limits, machine_keys, machine_certificates } =
            part;
        self.next.policy.replace(&org, bindings, observed_bindings)?;
        match limits.is_empty() {
            true => drop(self.next.limits.remove(org.as_str())),
            false => drop(self.next.limits.insert(org.as_str().into(), limits.into())),
        }
        self.machines_changed |= self.next.machine_parts.replace(&org, machine_keys, machine_certificates);
        self.exposure.push((org, exposure));
        Ok(())
    }

    pub(super) fn done(mut self) -> Result<Snapshot, String> {
        if self.machines_changed {
            self.next.machines = Arc::new(self.next.machine_parts.index()?);
        }
        if !self.servers.is_empty() || !self.servers_gone.is_empty() {
            self.next.dependencies = Arc::new(dependencies(self.next.servers.values()));
        }
        // Servers are evaluated beside the issuers: where those change, all of them are.
        let servers: Vec<&EdgeServer> = match self.base {
            Some(_) => self.next.servers.values().map(|server| &server.edge).collect(),
            None => self.servers.iter().map(|server| &server.edge).collect(),
        };
        let changes = Changes {
            revision: self.next.revision,
            base: self.base.as_ref(),
            servers,
            servers_gone: self.servers_gone.iter().map(String::as_str).collect(),
            exposure: self.exposure.iter().map(|(org, list)| (org.as_str(), list.as_slice())).collect(),
            revoked: self.revoked,
            recent: self.recent,
        };
        let edge = self.before.edge.changed(changes).map_err(|error| error.to_string())?;
        Ok(Snapshot { edge, ..self.next })
    }
}

/// Of several versions of one the last counts.
fn dependencies<'a>(servers: impl Iterator<Item = &'a Arc<VirtualServer>>) -> HashMap<String, Arc<Dependency>> {
    let mut found: HashMap<String, Arc<Dependency>> = HashMap::new();
    for dependency in servers.flat_map(|server| &server.dependencies) {
        let primitive = &dependency.entry.primitive;
        let is_older = |known: &Arc<Dependency>| known.entry.primitive.version >= primitive.version;
        if !found.get(&primitive.id).is_some_and(is_older) {
            found.insert(primitive.id.clone(), Arc::clone(dependency));
        }
    }
    found
}
