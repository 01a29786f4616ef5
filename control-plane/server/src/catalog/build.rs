//! Builds the published snapshot from the changes in the store, whatever the store holds.
//!
//! Keeps true: a part that cannot be built keeps its last published form (the one in the store, unless this process has
//! published a later one). Without a last form it is denied. Either way it is reported as a standing fault, and
//! everything else is published, including revocations. If orgs do not fit together, the largest keep their last form.
//! Unchanged parts are neither compiled nor encoded again. A change that was not published because edges would reject
//! it counts as a change until it is published.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context as _;
use asp_edge::names::ALL_SERVERS;
use asp_issuers::trust::NotInForce;
use asp_platform::clock;
use asp_proto::snapshot::{
    BasePart, EdgeSnapshot, Limit, RecentRevocations, RevokedBefore, RevokedPart, Route,
    snapshot_part::Part as Says,
};
use asp_registry::{CompiledServer, EdgeInputs};
use asp_snapshot::parts as names;
use asp_store::control::{ControlState, Position, StateUpdate};
use asp_xds::parts::{EncodedPart, Parts, PartsBuilder};

use super::budget::{self, EDGE, GATEWAY, SLACK};
use super::fault::{Fault, NOT_SERVED, Part};
use super::orgs::{OrgPolicy, Size};
use super::revoked::{Cut, EncodedRevocations, RevocationSplit};
use super::servers::{edge_bytes, server_fault};
use super::stored_state::{ORG_REMEDY, OrgForm, StoredState};
use super::usage::{EXPOSURE, POLICY, REVOCATIONS, Totals};
use super::{Compiler, Settlement, disabled, server_part};
use crate::placement;
use faults::{not_in_force, too_large, unknown_revocation, unreadable_issuer};
use last_forms::StoredOrgForm;

pub use last_forms::{Batch, PendingForms};

mod faults;
mod last_forms;
mod routing;

/// The fault of a stored server with the name of the platform's own.
const NAME_RESERVED: &str =
    "its name is reserved: with ASP_ALL_SERVERS=on, /all/mcp leads to the tools of all servers";

/// The fault of the platform's own server if the others fill the edge snapshot.
const NO_ROOM: &str = "the servers at the edge leave no room for the one that stands for all of them";
const FEWER_SERVERS: &str = "delete a server that is no longer needed, or set ASP_ALL_SERVERS=off";

/// The build of one revision: what is published, and which records could not be published as stored.
#[derive(Debug, Default)]
pub struct SnapshotBuild {
    /// Position of the store that was built.
    pub position: Position,
    /// Edge snapshot; the same `Arc` as before if edges see no difference.
    pub edge: Arc<EdgeSnapshot>,
    /// Recent revocations; the publisher may add later ones, of a later revision.
    pub recent: Arc<RecentRevocations>,
    pub gateway: Parts,
    /// Names of the parts that differ from the previous build.
    pub changed: BTreeSet<Arc<str>>,
    pub faults: Vec<Fault>,
    /// Whether the store could not be read for last published forms, so that the build must be repeated.
    pub lacks_forms: bool,
}

/// State of the last build, from which the next one starts.
pub struct Builder {
    compiler: Compiler,
    held: StoredState,
    /// Published servers, sorted by name; the others are disabled or have `server_faults`.
    servers: Vec<Arc<CompiledServer>>,
    server_faults: Vec<Fault>,
    /// Issuers against which the servers were evaluated.
    issuers: BTreeMap<String, String>,
    base: BasePart,
    /// Routes in order of precedence.
    routes: Vec<Route>,
    /// Whether the homes in `base` (or `routes`) were once published complete.
    has_all_homes: bool,
    has_all_routes: bool,
    /// Orgs as published.
    orgs: Orgs,
    /// Last published forms of orgs that are not published as stored.
    asked: BTreeMap<String, StoredOrgForm>,
    /// Names of the parts whose published form the store may not have yet.
    pending: BTreeSet<String>,
    gateway: PartsBuilder,
    edge: Arc<EdgeSnapshot>,
    edge_is_stale: bool,
    recent: Arc<RecentRevocations>,
    /// `RevocationSplit::made` of the published revocations.
    revoked_made: u64,
    /// Encoded bytes of `servers`.
    server_bytes: usize,
    /// Limits for all orgs together.
    most: Room,
}

/// Forms of orgs by name.
type Orgs = BTreeMap<String, Arc<OrgForm>>;

/// Forms of orgs to publish.
struct OrgSelection {
    orgs: Orgs,
    faults: Vec<Fault>,
}

/// Bytes left for the orgs' policies.
#[derive(Clone, Copy)]
struct Room {
    exposure: usize,
    policy: usize,
}

impl Room {
    fn take(&mut self, size: Size) -> bool {
        let fits = size.exposure <= self.exposure && size.policy() <= self.policy;
        if fits {
            self.exposure -= size.exposure;
            self.policy -= size.policy();
        }
        fits
    }
}

impl Builder {
    pub fn new(compiler: Compiler) -> Builder {
        Builder {
            compiler,
            held: StoredState::default(),
            servers: Vec::new(),
            server_faults: Vec::new(),
            issuers: BTreeMap::new(),
            base: BasePart::default(),
            routes: Vec::new(),
            has_all_homes: false,
            has_all_routes: false,
            orgs: BTreeMap::new(),
            asked: BTreeMap::new(),
            pending: BTreeSet::new(),
            gateway: PartsBuilder::default(),
            edge: Arc::default(),
            edge_is_stale: true,
            recent: Arc::default(),
            revoked_made: 0,
            server_bytes: 0,
            most: Room { exposure: EXPOSURE.whole, policy: POLICY.whole },
        }
    }

    /// Position of the store that was taken last; revision 0 at first.
    pub fn position(&self) -> Position {
        Position { revision: self.held.revision, stamp: self.held.stamp.clone() }
    }

    /// Returns the bytes that each org takes.
    pub fn totals(&self) -> Totals {
        let policies = self.held.orgs.iter().map(|(org, form)| (org.as_str(), form.size));
        Totals::new(self.held.revision, policies, self.held.revocations.bytes())
    }

    /// Takes the changes of the store and builds the next snapshot. With `raise`, all parts get the new revision.
    pub fn build(&mut self, since: StateUpdate, raise: bool) -> anyhow::Result<SnapshotBuild> {
        let has_new_servers = self.held.take(since);
        self.build_held(has_new_servers, raise)
    }

    fn build_held(&mut self, has_new_servers: bool, raise: bool) -> anyhow::Result<SnapshotBuild> {
        self.held.drop_expired(clock::now_ms());
        // Must come first: servers are evaluated against the issuers.
        let out_of_force = self.take_trust();
        let mut placed = Vec::new();
        let is_other_base = self.take_base(&mut placed);
        self.settle(has_new_servers || is_other_base);
        placed.extend(self.take_routes());
        let unknown = self.revoke();
        let mut fitted = self.choose_forms(&BTreeMap::new());
        self.edge_is_stale |= self.differs_at_the_edge(&fitted.orgs);
        if self.edge_is_stale {
            let mut edge = self.edge_snapshot(&fitted.orgs);
            if evaluate(&edge).is_err() {
                // Edges would reject it although each write was checked: find the orgs that cause it.
                fitted = self.choose_forms(&self.refused());
                edge = self.edge_snapshot(&fitted.orgs);
                evaluate(&edge).context("edges would reject the snapshot")?;
            }
            if !asp_registry::differs_only_in_revision(&edge, &self.edge) {
                self.edge = Arc::new(edge);
            }
            self.edge_is_stale = false;
        }
        self.publish_orgs(fitted.orgs);
        if raise {
            self.keep_unchanged_revisions();
        }
        let mut faults: Vec<Fault> = unknown.iter().map(|id| unknown_revocation(id)).collect();
        faults.append(&mut fitted.faults);
        faults.extend(too_large(&self.edge));
        let bytes = self.gateway.parts.bytes();
        anyhow::ensure!(bytes <= GATEWAY, "the gateway snapshot has {bytes} bytes, {GATEWAY} is the limit");
        faults.splice(0..0, self.server_faults.iter().cloned());
        faults.extend(out_of_force.into_iter().map(not_in_force));
        faults.extend(self.held.unreadable_issuers.iter().map(unreadable_issuer));
        faults.append(&mut placed);
        Ok(SnapshotBuild {
            position: self.position(),
            edge: Arc::clone(&self.edge),
            recent: Arc::clone(&self.recent),
            gateway: self.gateway.parts.clone(),
            changed: std::mem::take(&mut self.gateway.changed),
            faults,
            lacks_forms: false,
        })
    }

    fn take_trust(&self) -> Vec<NotInForce> {
        let stored = ControlState {
            revision: self.held.revision,
            issuers: self.held.issuers.clone(),
            issuer_keys: self.held.issuer_keys.clone(),
            ..ControlState::default()
        };
        let trust = self.compiler.trust();
        trust.take(&stored, trust.clock().now_ms())
    }

    /// Updates the part that concerns every server and org; returns whether it changed.
    fn take_base(&mut self, faults: &mut Vec<Fault>) -> bool {
        let regions = placement::regions(&self.held.placement);
        let mut base = BasePart { regions, ..self.compiler.config.base() };
        faults.extend(self.fit_homes(&mut base.regions));
        if base == self.base {
            return false;
        }
        self.gateway.put(names::BASE, Some(EncodedPart::of(Says::Base(base.clone()))));
        self.base = base;
        self.edge_is_stale = true;
        true
    }

    /// Compiles the servers that changed.
    fn settle(&mut self, is_due: bool) {
        let issuers = self.compiler.trust().in_force().names();
        if !is_due && issuers == self.issuers {
            return;
        }
        self.issuers = issuers;
        let Settlement { servers, mut faults } = self.compiler.settle(&self.held.servers);
        let mut servers = disabled::enabled(servers, &self.held.servers);
        self.add_all_servers(&mut servers, &mut faults);
        servers.sort_by(|a, b| a.server.name.cmp(&b.server.name));
        let before: BTreeMap<&str, &Arc<CompiledServer>> =
            self.servers.iter().map(|server| (server.server.name.as_str(), server)).collect();
        for server in &servers {
            let name = server.server.name.as_str();
            if !before.get(name).is_some_and(|before| Arc::ptr_eq(before, server)) {
                let name = names::of_server(name);
                self.gateway.put(&name, Some(EncodedPart::of(server_part(server))));
                self.pending.insert(name);
            }
        }
        for name in before.keys() {
            if servers.binary_search_by(|server| server.server.name.as_str().cmp(name)).is_err() {
                self.gateway.put(&names::of_server(name), None);
            }
        }
        self.edge_is_stale |= !asp_registry::is_same_at_edges(&self.servers, &servers);
        self.server_bytes = servers.iter().map(|server| self.compiler.server_bytes(server)).sum();
        (self.servers, self.server_faults) = (servers, faults);
        self.held.offer(&self.servers);
    }

    /// Adds the server that stands for all others, if the platform has one. A stored one of its name is not published.
    fn add_all_servers(&self, servers: &mut Vec<Arc<CompiledServer>>, faults: &mut Vec<Fault>) {
        let is_all = |server: &&Arc<CompiledServer>| server.server.name == ALL_SERVERS;
        let config = &self.compiler.config;
        if !config.all_servers {
            return;
        }
        if servers.iter().any(|server| is_all(&server)) {
            faults.push(server_fault(ALL_SERVERS, NAME_RESERVED, NOT_SERVED));
            servers.retain(|server| !is_all(&server));
        }
        let all = asp_registry::all_servers(&config.public_url, servers.iter().map(Arc::as_ref));
        let bytes: usize = servers.iter().map(|server| edge_bytes(server)).sum();
        if bytes + edge_bytes(&all) > budget::EDGE_SERVERS.bytes {
            faults.push(Fault { remedy: FEWER_SERVERS, ..server_fault(ALL_SERVERS, NO_ROOM, NOT_SERVED) });
            return;
        }
        let former = self.servers.iter().find(is_all);
        let former = former.filter(|former| former.content_hash == all.content_hash);
        servers.push(former.cloned().unwrap_or_else(|| Arc::new(all)));
    }

    /// Updates both lists of revocations; returns the ids of revocations of unknown types.
    fn revoke(&mut self) -> BTreeSet<String> {
        let now = clock::now_ms();
        let RevocationSplit { cut, older, made, recent } =
            self.held.revocations.lists(&self.compiler.trusted(), now);
        let unknown = older.unknown.iter().chain(&recent.unknown).cloned().collect();
        let Cut { since, through } = cut;
        if made != self.revoked_made {
            let EncodedRevocations { revoked, before, .. } = older.clone();
            let part = RevokedPart { through, revoked, revoked_before: before };
            self.gateway.put(names::REVOKED, Some(EncodedPart::of(Says::Revoked(part))));
            self.revoked_made = made;
            self.edge_is_stale = true;
        }
        let EncodedRevocations { revoked, before: revoked_before, details: tokens, .. } = recent;
        let RecentRevocations { revoked: known, revoked_before: known_before, .. } = &*self.recent;
        let is_same = (self.recent.since, known, known_before) == (since, &revoked, &revoked_before);
        if !is_same || self.gateway.parts.get(names::RECENT).is_none() {
            let revision = self.held.revision;
            let recent = RecentRevocations { revision, since, until: now, revoked, revoked_before, tokens };
            self.gateway.put_recent(&recent);
            self.recent = Arc::new(recent);
        }
        unknown
    }

    /// Gives unchanged parts the current revision.
    fn keep_unchanged_revisions(&mut self) {
        let revision = self.held.revision;
        self.edge = Arc::new(asp_registry::at_revision((*self.edge).clone(), revision));
        let recent = RecentRevocations { revision, ..(*self.recent).clone() };
        self.gateway.put_recent(&recent);
        self.recent = Arc::new(recent);
    }

    /// Chooses the form of each org to publish: all that fit, smallest first. `refused` holds the faults of orgs whose
    /// policy was refused.
    fn choose_forms(&self, refused: &BTreeMap<String, String>) -> OrgSelection {
        let mut room = self.room();
        let mut forms: Vec<(usize, &String, &Arc<OrgForm>)> = Vec::with_capacity(self.held.orgs.len());
        let mut faults = Vec::new();
        for (org, form) in &self.held.orgs {
            faults.extend(form.faults.iter().cloned());
            // Reserve room to deny every org.
            room.policy = room.policy.saturating_sub(form.denial_bytes);
            forms.push((form.size.exposure + form.size.policy(), org, form));
        }
        forms.sort_by_key(|(size, org, _)| (*size, *org));
        let mut orgs = BTreeMap::new();
        for (_, org, form) in forms {
            let fault = match refused.get(org) {
                Some(fault) => fault.clone(),
                None if room.take(form.size) => {
                    orgs.insert(org.clone(), Arc::clone(form));
                    continue;
                }
                None => self.does_not_fit(form.size),
            };
            let (instead, in_force) = self.last_form_or_denial(org, form, &mut room);
            orgs.insert(org.clone(), instead);
            faults.push(Fault { part: Part::Org, name: org.to_owned(), fault, in_force, remedy: ORG_REMEDY });
        }
        OrgSelection { orgs, faults }
    }

    fn does_not_fit(&self, size: Size) -> String {
        format!(
            "its policy takes {} bytes of exposure exceptions at the edge and {} of bindings, rate limits and exceptions; \
             all orgs together have {} and {}",
            size.exposure,
            size.policy(),
            self.most.exposure,
            self.most.policy
        )
    }

    fn differs_at_the_edge(&self, orgs: &Orgs) -> bool {
        let is_same = |(org, form): (&String, &Arc<OrgForm>)| {
            self.orgs
                .get(org)
                .is_some_and(|former| Arc::ptr_eq(former, form) || former.is_same_at_the_edge(form))
        };
        self.orgs.keys().any(|org| !orgs.contains_key(org)) || !orgs.iter().all(is_same)
    }

    /// Replaces the published orgs.
    fn publish_orgs(&mut self, orgs: Orgs) {
        for (org, form) in &orgs {
            if !self.orgs.get(org).is_some_and(|former| Arc::ptr_eq(former, form)) {
                self.gateway.put(&names::of_org(org), form.part.clone());
                self.note_pending(org, form);
            }
        }
        for org in self.orgs.keys().filter(|org| !orgs.contains_key(*org)) {
            self.gateway.put(&names::of_org(org), None);
            self.pending.insert(names::of_org(org));
        }
        self.orgs = orgs;
        let held = &self.held.orgs;
        let is_instead = |org: &String| {
            held.get(org).zip(self.orgs.get(org)).is_some_and(|(held, form)| !Arc::ptr_eq(held, form))
        };
        self.asked.retain(|org, asked| {
            is_instead(org) && held.get(org).is_some_and(|held| Arc::ptr_eq(held, &asked.of))
        });
    }

    /// Returns the limits for all orgs together, less if servers and revocations leave less.
    fn room(&self) -> Room {
        let revoked = [names::REVOKED, names::RECENT]
            .map(|name| self.gateway.parts.get(name).map_or(0, |part| part.bytes.len()));
        let fixed = self.server_bytes
            + revoked.iter().sum::<usize>()
            + (EDGE - REVOCATIONS.whole)
            + budget::MACHINE_KEYS
            + SLACK;
        let Room { exposure, policy } = self.most;
        Room { exposure, policy: policy.min(GATEWAY.saturating_sub(fixed)) }
    }

    /// Returns the orgs whose policy is refused even alone, each with the reason.
    fn refused(&self) -> BTreeMap<String, String> {
        let refused = self.held.orgs.iter().filter_map(|(org, form)| {
            let fault = self.compiler.evaluate(org, &form.policy()).err()?;
            Some((org.clone(), fault))
        });
        refused.collect()
    }

    fn edge_snapshot(&self, orgs: &Orgs) -> EdgeSnapshot {
        let servers: Vec<&CompiledServer> = self.servers.iter().map(|server| &**server).collect();
        let exceptions = orgs.iter().map(|(org, form)| (org.as_str(), form.exposure.as_slice()));
        let exposure: Vec<_> = exceptions.collect();
        let limits: Vec<&Limit> = orgs.values().flat_map(|form| &form.limits).collect();
        let (revoked, before, through) = self.older();
        asp_registry::edge(EdgeInputs {
            revision: self.held.revision,
            servers: &servers,
            issuers: &self.base.issuers,
            exposure: &exposure,
            limits: &limits,
            routes: &self.routes,
            regions: &self.base.regions,
            revoked: &revoked,
            revoked_before: &before,
            revoked_through: through,
            public_url: &self.base.public_url,
            dev: self.base.dev,
            workers: self.compiler.config.workers,
            default_agent: &self.base.default_agent,
            all_servers: self.base.all_servers,
            unauthenticated_rate: self.base.unauthenticated_rate,
            coarse_multiple: asp_registry::DEFAULT_COARSE_MULTIPLE,
        })
    }

    fn older(&self) -> (Vec<u8>, Vec<RevokedBefore>, u64) {
        match self.gateway.parts.get(names::REVOKED).and_then(EncodedPart::read) {
            Some(Says::Revoked(part)) => (part.revoked, part.revoked_before, part.through),
            _ => (Vec::new(), Vec::new(), 0),
        }
    }
}

/// Checks that edges accept the snapshot.
fn evaluate(edge: &EdgeSnapshot) -> Result<(), asp_edge::SnapshotError> {
    asp_edge::Snapshot::from_message(edge.clone()).map(drop)
}

#[cfg(test)]
mod tests;
