//! A snapshot under construction: it starts as a copy of the previous one, takes changed parts, and is checked at the
//! end.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use asp_edge::Changes;
use asp_proto::snapshot::{
    BasePart, Binding, EdgeServer, ExposureException, OrgPart, RecentRevocations, RevokedPart, ServerPart,
    SnapshotPart,
};

use super::fault::UNREAD;
use super::part_change::{self, PartChange};
use super::{Snapshot, unread};
use crate::parts::{self, Name};
use crate::server::{Dependency, VirtualServer};
use asp_registry::version;

/// The next snapshot; it shares with the previous one all that is not replaced.
pub(super) struct SnapshotDraft<'a> {
    pub(super) before: &'a Snapshot,
    pub(super) next: Snapshot,
    /// The base, if it is new.
    pub(super) base: Option<Arc<BasePart>>,
    revoked: Option<RevokedPart>,
    recent: Option<RecentRevocations>,
    /// Names of servers that are new in `next`.
    pub(super) servers: BTreeSet<String>,
    pub(super) servers_gone: Vec<String>,
    pub(super) exposure: Vec<(String, Vec<ExposureException>)>,
    /// Orgs whose part was sent.
    pub(super) orgs: BTreeSet<String>,
    pub(super) machines_changed: bool,
    /// Enforced bindings of an org of which some do not compile, kept until it is decided which ones hold.
    pub(super) faulty_bindings: Vec<Binding>,
}

/// The reason for rejecting a part.
pub(super) enum PartRejection {
    Unread(String),
    /// The part requires a name that this version does not know; its last version may allow more than the new one.
    Needs(String),
    /// The part could be read but does not compile.
    Faulty(String),
}

impl fmt::Display for PartRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartRejection::Unread(reason) | PartRejection::Faulty(reason) => f.write_str(reason),
            PartRejection::Needs(need) => {
                write!(f, "the part needs `{need}`, which this version does not know")
            }
        }
    }
}

impl<'a> SnapshotDraft<'a> {
    pub(super) fn of(before: &'a Snapshot, revision: u64) -> SnapshotDraft<'a> {
        // The edge's snapshot is replaced at the end.
        let next = Snapshot { revision, edge: asp_edge::Snapshot::boot(), ..before.clone() };
        SnapshotDraft {
            before,
            next,
            base: None,
            revoked: None,
            recent: None,
            servers: BTreeSet::new(),
            servers_gone: Vec::new(),
            exposure: Vec::new(),
            orgs: BTreeSet::new(),
            machines_changed: false,
            faulty_bindings: Vec::new(),
        }
    }

    /// Applies a part; `None` removes it. A rejected part changes nothing, except that the machines of an org are
    /// replaced if they could be read, so that deleted keys stop working.
    pub(super) fn take(&mut self, name: &str, part: Option<SnapshotPart>) -> Result<(), PartRejection> {
        self.forget_fault(name);
        let need = part.as_ref().and_then(parts::unknown_need).map(str::to_owned);
        let is_revocations = matches!(Name::read(name), Some(Name::Revoked | Name::Recent));
        if let Some(need) = need.as_ref().filter(|_| !is_revocations) {
            return Err(PartRejection::Needs(need.clone()));
        }
        match part_change::read(name, part).map_err(PartRejection::Unread)? {
            None => {}
            Some(PartChange::Base(base)) => self.take_base(base),
            Some(PartChange::Server(server)) => self.server(*server).map_err(PartRejection::Faulty)?,
            Some(PartChange::ServerGone(server)) => self.drop_server(server),
            Some(PartChange::Org(org)) => self.org(org).map_err(PartRejection::Faulty)?,
            Some(PartChange::Revoked(revoked)) => self.revoked = Some(revoked),
            Some(PartChange::Recent(recent)) => self.recent = Some(recent),
        }
        need.map_or(Ok(()), |need| Err(PartRejection::Needs(need)))
    }

    pub(super) fn forget_fault(&mut self, name: &str) {
        if self.next.faults.contains_key(name) {
            Arc::make_mut(&mut self.next.faults).remove(name);
        }
    }

    fn take_base(&mut self, mut base: BasePart) {
        self.next.upstreams = Arc::new(std::mem::take(&mut base.upstreams));
        let access = std::mem::take(&mut base.issuer_access).into_iter();
        self.next.access = Arc::new(access.map(|access| (access.issuer.clone(), access)).collect());
        self.put_base(base);
    }

    pub(super) fn put_base(&mut self, base: BasePart) {
        self.next.issuers = Arc::new(base.issuers.clone());
        let base = Arc::new(base);
        self.next.base = Some(Arc::clone(&base));
        self.base = Some(base);
    }

    fn server(&mut self, part: ServerPart) -> Result<(), String> {
        let server = Arc::new(VirtualServer::build(part)?);
        let name = server.message.name.clone();
        self.next.waiting.remove(&name);
        self.next.servers.insert(name.clone(), server);
        self.servers.insert(name);
        Ok(())
    }

    pub(super) fn drop_server(&mut self, name: &str) {
        self.next.waiting.remove(name);
        self.next.servers.remove(name);
        self.servers_gone.push(name.to_owned());
    }

    fn org(&mut self, mut part: OrgPart) -> Result<(), String> {
        if let Some(unknown) = unread::settle(&mut part) {
            self.fault(parts::of_org(&part.org), unknown, UNREAD);
        }
        let OrgPart {
            org,
            exposure,
            bindings,
            observed_bindings,
            limits,
            machine_keys,
            machine_certificates,
        } = part;
        self.machines_changed |= self.next.machine_parts.replace(&org, machine_keys, machine_certificates);
        self.orgs.insert(org.clone());
        match limits.is_empty() {
            true => drop(self.next.limits.remove(org.as_str())),
            false => drop(self.next.limits.insert(org.as_str().into(), limits.into())),
        }
        self.exposure.push((org.clone(), exposure));
        // Only the bindings can fail.
        let has_rules =
            !observed_bindings.is_empty() || bindings.iter().any(|binding| !binding.when.is_empty());
        let kept = if has_rules { bindings.clone() } else { Vec::new() };
        let replaced = self.next.policy.replace(&org, bindings, observed_bindings);
        if replaced.is_err() {
            self.faulty_bindings = kept;
        }
        replaced
    }

    pub(super) fn done(mut self) -> Result<Snapshot, String> {
        self.index_machines()?;
        let edge = self.edge()?;
        Ok(self.finish(edge))
    }

    pub(super) fn index_machines(&mut self) -> Result<(), String> {
        if self.machines_changed {
            self.next.machines = Arc::new(self.next.machine_parts.index()?);
        }
        Ok(())
    }

    /// Compiles the changes with the edge's code.
    pub(super) fn edge(&self) -> Result<asp_edge::Snapshot, String> {
        // Servers are checked against the issuers, so a new base means checking all of them.
        let servers: Vec<&EdgeServer> = match self.base {
            Some(_) => self.next.servers.values().map(|server| &server.edge).collect(),
            None => {
                let new = self.servers.iter().filter_map(|name| self.next.servers.get(name));
                new.map(|server| &server.edge).collect()
            }
        };
        let changes = Changes {
            revision: self.next.revision,
            base: self.base.as_deref(),
            servers,
            servers_gone: self.servers_gone.iter().map(String::as_str).collect(),
            exposure: self.exposure.iter().map(|(org, list)| (org.as_str(), list.as_slice())).collect(),
            revoked: self.revoked.clone(),
            recent: self.recent.clone(),
        };
        self.before.edge.changed(changes).map_err(|error| error.to_string())
    }

    pub(super) fn finish(mut self, edge: asp_edge::Snapshot) -> Snapshot {
        if !self.servers.is_empty() || !self.servers_gone.is_empty() {
            self.next.dependencies = Arc::new(dependencies(self.next.servers.values()));
        }
        Snapshot { edge, ..self.next }
    }
}

/// Indexes dependencies by id, the highest version of each.
fn dependencies<'a>(
    servers: impl Iterator<Item = &'a Arc<VirtualServer>>,
) -> HashMap<String, Arc<Dependency>> {
    let mut found: HashMap<String, Arc<Dependency>> = HashMap::new();
    for dependency in servers.flat_map(|server| &server.dependencies) {
        let primitive = &dependency.entry.primitive;
        let is_no_later = |known: &Arc<Dependency>| {
            version::compare(&primitive.version, &known.entry.primitive.version).is_le()
        };
        if !found.get(&primitive.id).is_some_and(is_no_later) {
            found.insert(primitive.id.clone(), Arc::clone(dependency));
        }
    }
    found
}

#[cfg(test)]
pub(super) mod tests {
    use asp_proto::snapshot::{
        AuthScheme, Binding, EdgeSnapshot, GatewaySnapshot, Kind, Limit, Listing, MachineKey, Primitive,
        Protocol, Server, TargetKind, snapshot_part::Part,
    };

    use super::*;
    use crate::parts;

    pub(in crate::snapshot) fn server(name: &str) -> (EdgeServer, Server, Primitive) {
        let id = format!("{name}.tool");
        let listing =
            Listing { id: id.clone(), version: "1.0.0".into(), mcp_name: id.clone(), ..Listing::default() };
        let edge = EdgeServer {
            name: name.into(),
            protocols: vec![Protocol::Mcp.into()],
            schemes: vec![AuthScheme::None.into()],
            default_allow: true,
            ..EdgeServer::default()
        };
        let server = Server { name: name.into(), listings: vec![listing], ..Server::default() };
        let primitive =
            Primitive { id, version: "1.0.0".into(), kind: Kind::Tool.into(), ..Primitive::default() };
        (edge, server, primitive)
    }

    pub(in crate::snapshot) fn binding(org: &str) -> Binding {
        Binding {
            org: org.into(),
            target_kind: TargetKind::User.into(),
            target: "*".into(),
            primitive: "*".into(),
            ..Binding::default()
        }
    }

    pub(in crate::snapshot) fn whole() -> GatewaySnapshot {
        let mut whole = GatewaySnapshot { revision: 1, ..GatewaySnapshot::default() };
        let mut edge =
            EdgeSnapshot { revision: 1, public_url: "https://h".into(), ..EdgeSnapshot::default() };
        for name in ["one", "two"] {
            let (at_edge, server, primitive) = server(name);
            edge.servers.push(at_edge);
            whole.servers.push(server);
            whole.primitives.push(primitive);
        }
        let question = Primitive {
            id: "ask".into(),
            version: "1.0.0".into(),
            kind: Kind::Elicitation.into(),
            question: "{}".into(),
            ..Primitive::default()
        };
        whole.primitives.push(question);
        whole.bindings = vec![binding("acme"), binding("globex")];
        whole.limits = vec![Limit { org: "acme".into(), capacity: 1, ..Limit::default() }];
        whole.machine_keys = vec![MachineKey {
            id: "k".into(),
            hash: vec![1; 32],
            org: "acme".into(),
            user: "press".into(),
            ..MachineKey::default()
        }];
        GatewaySnapshot { edge: Some(edge), ..whole }
    }

    pub(in crate::snapshot) fn put(name: &str, part: Part) -> (String, Option<SnapshotPart>) {
        (name.to_owned(), Some(SnapshotPart { part: Some(part), ..SnapshotPart::default() }))
    }

    #[test]
    fn a_whole_one_in_parts_says_the_same() {
        let snapshot = Snapshot::build(whole()).unwrap();
        assert_eq!(snapshot.revision, 1);
        assert!(
            snapshot.server("one").unwrap().tool("one.tool").is_some() && snapshot.server("two").is_some()
        );
        assert!(snapshot.dependencies.contains_key("ask"));
        assert_eq!((snapshot.limits("acme").len(), snapshot.limits("globex").len()), (1, 0));
        assert!(snapshot.edge.accepts_tokens(), "both lists of revocations are there");
        assert_eq!(snapshot.primitives().count(), 3);
    }

    #[test]
    fn what_did_not_change_is_shared_and_what_is_gone_is_gone() {
        let before = Snapshot::build(whole()).unwrap();
        let (edge, message, mut primitive) = server("two");
        primitive.summary = "Changed.".into();
        let part = ServerPart { edge: Some(edge), server: Some(message), primitives: vec![primitive] };
        let acme = OrgPart { org: "acme".into(), bindings: vec![binding("acme")], ..OrgPart::default() };
        let changes = vec![
            put(&parts::of_server("two"), Part::Server(part)),
            put(&parts::of_org("acme"), Part::Org(acme)),
            ("org/globex".to_owned(), None),
        ];
        let after = before.changed(2, changes).unwrap();
        assert!(Arc::ptr_eq(before.server("one").unwrap(), after.server("one").unwrap()));
        assert_eq!(after.server("two").unwrap().tool("two.tool").unwrap().primitive.summary, "Changed.");
        assert!(
            Arc::ptr_eq(&before.issuers, &after.issuers) && Arc::ptr_eq(&before.upstreams, &after.upstreams)
        );
        assert_eq!(after.limits("acme").len(), 0, "an org's part is all that it has");
        assert!(!Arc::ptr_eq(&before.machines, &after.machines), "its key is gone");
        assert_eq!(before.limits("acme").len(), 1, "the one before is what it was");
        let gone = after.changed(3, vec![("server/one".to_owned(), None)]).unwrap();
        assert!(gone.server("one").is_none() && !gone.edge.exposed("one", "acme", Protocol::Mcp));
        assert!(!gone.dependencies.contains_key("ask"), "it came with that server");
    }

    #[test]
    fn a_part_that_does_not_compile_or_says_another_name_is_refused_with_its_place() {
        let before = Snapshot::build(whole()).unwrap();
        let (edge, message, mut primitive) = server("two");
        primitive.input_schema = "{".into();
        let part = ServerPart { edge: Some(edge), server: Some(message), primitives: vec![primitive] };
        let refused =
            |name: &str, part: Part| before.changed(2, vec![put(name, part)]).err().unwrap_or_default();
        let fault = refused("server/two", Part::Server(part.clone()));
        assert!(fault.starts_with("server/two: primitive two.tool: input schema"), "{fault}");
        assert!(!refused("server/one", Part::Server(part)).is_empty());
        assert!(!refused("org/acme", Part::Base(BasePart::default())).is_empty());
        let other = OrgPart { org: "globex".into(), ..OrgPart::default() };
        assert!(refused("org/acme", Part::Org(other)).contains("another org"));
        assert!(before.server("two").is_some());
    }
}
