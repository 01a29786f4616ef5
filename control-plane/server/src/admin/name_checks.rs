//! Checks of names in policy, limits and offers: an unknown org, server, primitive or issuer is refused unless forced.
//!
//! Users, groups and tokens are names of an issuer, so they are not checked. But if several issuers serve an org, a
//! write that allows one of them something must name the issuer, even if forced. Keeps true: an admin of an org gets
//! the same answer for an unknown name and for one of a server that is not offered to the org.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use asp_edge::names;
use asp_proto::snapshot::{Issuer, Listing};
use asp_registry::CompiledServer;
use asp_snapshot::limits::EVERY_ORG;
use asp_snapshot::parts;
use asp_store::audit::AuditQuery;
use asp_store::control::{OfferRecord, ServerRecord};
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::Admin;
use super::problem::{Code, Problem, Result};
use super::{AdminState, off_thread};
use crate::catalog::offers;
use crate::suggestion::nearest;

/// Maximum number of unknown names of one write that are shown.
const MAX_SHOWN: usize = 5;
/// Number of names in a write up to which each is compared with every primitive.
const FEW: usize = 16;
const FORCE: &str = "--force (API: ?force=true) stores it all the same";

/// Option to store unknown names.
#[derive(Clone, Copy, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ForceQuery {
    /// Stores names of orgs, servers or primitives that are not known.
    #[serde(default)]
    pub force: bool,
}

/// Names in one entry of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    /// A server's name, or `*`.
    pub server: String,
    /// A primitive's id, `prefix*` or `*`.
    pub primitive: String,
}

impl Mention {
    pub fn server(name: &str) -> Mention {
        Mention { server: name.to_owned(), primitive: "*".to_owned() }
    }

    pub fn primitive(pattern: &str) -> Mention {
        Mention { server: "*".to_owned(), primitive: pattern.to_owned() }
    }
}

/// Refuses a write for `org` that uses unknown names.
pub(super) async fn check(
    state: &AdminState,
    admin: &Admin,
    org: &str,
    names: Vec<Mention>,
    code: Code,
) -> Result<()> {
    if org != EVERY_ORG {
        check_org(state, admin, org).await?;
    }
    let reach = reach(state, admin, org).await?;
    // The last compiled servers are the stored ones, except for one stored just now.
    let compiled = state.compiler.last_compiled();
    let (reach, names, found) = off_thread(move || {
        let unknown = unknown(&compiled, &BTreeSet::new(), &reach, &names);
        (reach, names, unknown)
    })
    .await?;
    if found.is_empty() {
        return Ok(());
    }
    let stored = state.servers.read(state.store.as_ref()).await?.value;
    let compiler = state.compiler.clone();
    let found = off_thread(move || {
        let names_of_all = match reach {
            Reach::All => stored.iter().map(|record| record.name.clone()).collect(),
            Reach::Org(..) => BTreeSet::new(),
        };
        unknown(&compiler.compile_all(&stored), &names_of_all, &reach, &names)
    })
    .await?;
    if found.is_empty() {
        return Ok(());
    }
    // An org cannot switch a server that is not offered to it, even with force.
    let remedy = if code == Code::NotFound { String::new() } else { format!(". {FORCE}") };
    Err(Problem::new(code, format!("{}{remedy}", describe_scope(&found))))
}

/// Replaces exposed names of primitives by their ids, as far as the org is offered a server that exposes them. An id
/// stays, also if it is another primitive's exposed name; a name that several primitives are exposed by is refused.
pub(super) async fn resolve(state: &AdminState, org: &str, names: Vec<&mut String>) -> Result<()> {
    let written: Vec<String> = names.iter().map(|name| (**name).clone()).collect();
    if written.iter().all(|name| name.ends_with('*')) {
        return Ok(());
    }
    let reach = Reach::Org(org.to_owned(), state.store.offers_to(org).await?);
    let compiled = state.compiler.last_compiled();
    let found = off_thread(move || exposed_ids(&compiled, &reach, &written)).await??;
    for (name, id) in names.into_iter().zip(found) {
        if let Some(id) = id {
            *name = id;
        }
    }
    Ok(())
}

/// Returns the id behind each name; `None` for a name that stays.
fn exposed_ids(
    servers: &[Arc<CompiledServer>],
    reach: &Reach,
    names: &[String],
) -> Result<Vec<Option<String>>> {
    let servers: Vec<&CompiledServer> =
        servers.iter().map(Arc::as_ref).filter(|server| reach.covers(server)).collect();
    let known: BTreeSet<&str> = servers.iter().flat_map(|server| ids_of(server)).collect();
    let mut exposed: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for listing in servers.iter().flat_map(|server| &server.server.listings) {
        for name in exposed_names(listing) {
            exposed.entry(name).or_default().insert(&listing.id);
        }
    }
    let id = |name: &String| {
        let ids = exposed.get(name.as_str()).filter(|_| !known.contains(name.as_str()));
        let ids = ids.into_iter().flatten().copied();
        only_id(name, ids).map_err(|detail| Problem::new(Code::UnknownName, detail))
    };
    names.iter().map(id).collect()
}

/// Returns the one id behind an exposed name, if there is any; several are refused.
fn only_id<'s>(name: &str, mut ids: impl Iterator<Item = &'s str>) -> Result<Option<String>, String> {
    match (ids.next(), ids.next()) {
        (None, _) => Ok(None),
        (Some(id), None) => Ok(Some(id.to_owned())),
        (Some(first), Some(second)) => Err(format!(
            "{name} is the exposed name of several primitives, e.g. {first} and {second}: name one by its id"
        )),
    }
}

/// Returns the id to search the audit log or usage for if `name` is an exposed name; `None` if it stays: an id, or unknown,
/// because they also have primitives that were deleted. Looks at what the org is offered, or at every server without an org, and
/// at one server if it is given.
pub(super) async fn called_id(
    state: &AdminState,
    org: Option<&str>,
    server: Option<&str>,
    name: &str,
) -> Result<Option<String>> {
    let reach = match org {
        Some(org) => Reach::Org(org.to_owned(), state.store.offers_to(org).await?),
        None => Reach::All,
    };
    let mut servers = state.compiler.last_compiled();
    servers.retain(|known| server.is_none_or(|server| known.server.name == server));
    let name = name.to_owned();
    let found = off_thread(move || {
        servers.retain(|server| reach.covers(server));
        if servers.iter().flat_map(|server| ids_of(server)).any(|id| id == name) {
            return Ok(None);
        }
        let listings = servers.iter().flat_map(|server| &server.server.listings);
        let exposing = listings.filter(|listing| exposed_names(listing).any(|exposed| exposed == name));
        let ids: BTreeSet<&str> = exposing.map(|listing| listing.id.as_str()).collect();
        only_id(&name, ids.into_iter())
    });
    found.await?.map_err(Problem::params)
}

/// Returns the names by which clients call a listed primitive.
pub(super) fn exposed_names(listing: &Listing) -> impl Iterator<Item = &str> {
    let names = [&listing.mcp_name, &listing.rest_name, &listing.a2a_skill];
    names.into_iter().map(String::as_str).filter(|name| !name.is_empty())
}

/// Names that an admin may use for an org without force, from the last compiled servers.
pub(super) struct KnownNames {
    knows_org: bool,
    servers: Vec<Arc<CompiledServer>>,
}

impl KnownNames {
    /// Reads them without waiting for the compiler, because revocations use them.
    pub(super) async fn read(state: &AdminState, admin: &Admin, org: &str) -> Result<KnownNames> {
        let reach = reach(state, admin, org).await?;
        let mut servers = state.compiler.last_compiled();
        servers.retain(|server| reach.covers(server));
        Ok(KnownNames { knows_org: knows_org(state, admin, org).await?, servers })
    }

    /// Whether a binding on these primitives needs force; a server that was stored just now counts as unknown.
    pub(super) fn need_force(&self, primitive: &str) -> bool {
        let mut ids = self.servers.iter().flat_map(|server| ids_of(server));
        !self.knows_org || (primitive != "*" && !ids.any(|id| names::matches(primitive, id)))
    }
}

/// Returns the servers that the admin may know.
async fn reach(state: &AdminState, admin: &Admin, org: &str) -> Result<Reach> {
    Ok(match admin.role.is_platform() {
        true => Reach::All,
        false => Reach::Org(org.to_owned(), state.store.offers_to(org).await?),
    })
}

fn describe_scope(unknown: &[String]) -> String {
    let more = unknown.len().saturating_sub(MAX_SHOWN);
    let shown = unknown.iter().take(MAX_SHOWN).cloned().collect::<Vec<_>>().join("; ");
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("{shown}{more}")
}

// === issuers ===

/// Refuses an issuer that does not serve `org`.
pub(super) fn check_issuers(state: &AdminState, org: &str, named: &[&str]) -> Result<()> {
    if named.is_empty() {
        return Ok(());
    }
    let known = issuers_of(state, org);
    let unknown = named.iter().filter(|name| !known.iter().any(|known| known == *name));
    let faults: BTreeSet<String> = unknown
        .map(|name| {
            let near = nearest(name, known.iter().map(String::as_str));
            format!("no issuer called {name} speaks for {org}{}", question(near))
        })
        .collect();
    let faults: Vec<String> = faults.into_iter().collect();
    if faults.is_empty() { Ok(()) } else { Err(Problem::new(Code::UnknownName, describe_scope(&faults))) }
}

/// Refuses an allow for `target` without an issuer if several issuers serve `org`.
pub(super) fn check_open_target(state: &AdminState, org: &str, target: Option<String>) -> Result<()> {
    let Some(target) = target else { return Ok(()) };
    let issuers = issuers_of(state, org);
    if issuers.len() < 2 {
        return Ok(());
    }
    let detail = format!(
        "{target} may be a different user at each issuer of {org}: {}. Set target.issuer (--issuer) to one \
         issuer, or to `*` for every issuer",
        describe_scope(&issuers)
    );
    Err(Problem::new(Code::AmbiguousName, detail))
}

/// Returns the names of the issuers that may issue tokens for the org.
pub(super) fn issuers_of(state: &AdminState, org: &str) -> Vec<String> {
    let clients = &state.compiler.trust().in_force().clients;
    let speaks = |issuer: &&Issuer| {
        issuer.orgs.is_empty() || issuer.orgs.iter().any(|pattern| names::matches(pattern, org))
    };
    clients.iter().filter(speaks).map(|issuer| issuer.name.clone()).collect()
}

// === orgs ===

/// Refuses an unknown org.
pub(super) async fn check_org(state: &AdminState, admin: &Admin, org: &str) -> Result<()> {
    if knows_org(state, admin, org).await? {
        return Ok(());
    }
    // The team of a server must not learn which orgs exist.
    let near = if admin.role.is_platform() { nearest_org(state, org) } else { None };
    let why = "it has no policy, machine, home or call, and no issuer names it";
    let detail =
        format!("no org is called {org}{}: {why}. If it has yet to call, {FORCE}", question(near.as_deref()));
    Err(Problem::new(Code::UnknownName, detail))
}

/// Whether the org is known: from its own admin, an issuer, its policy, a machine, a home or a call. An offer does not
/// count, because its author may have mistyped the name.
async fn knows_org(state: &AdminState, admin: &Admin, org: &str) -> Result<bool> {
    if admin.role.org() == Some(org) || listed_orgs(state).contains(org) {
        return Ok(true);
    }
    let published = state.publisher.xds_state().borrow().snapshot.clone();
    if published.is_some_and(|published| published.gateway.parts.get(&parts::of_org(org)).is_some()) {
        return Ok(true);
    }
    let store = state.store.as_ref();
    if !store.exposure(org).await?.value.is_empty()
        || !store.bindings(org).await?.value.is_empty()
        || !store.limits(org).await?.value.is_empty()
        || !store.machine_keys(org).await?.is_empty()
        || !store.machine_certificates(org).await?.is_empty()
        || store.home(org).await?.is_some()
    {
        return Ok(true);
    }
    let query = AuditQuery { org: Some(org.to_owned()), before: None, limit: 1 };
    let called = state.calls.page(&query).await?;
    Ok(!called.is_empty())
}

/// Returns the orgs that issuers name exactly.
fn listed_orgs(state: &AdminState) -> BTreeSet<String> {
    let in_force = state.compiler.trust().in_force();
    let clients = in_force.clients.iter();
    let of_clients = clients
        .flat_map(|issuer| issuer.orgs.iter().chain(issuer.claims.iter().map(|claims| &claims.org_default)));
    let admins = in_force.admins.iter().map(|issuer| &issuer.rules);
    let of_admins = admins.flat_map(|rules| {
        let by_group = rules.roles.iter().map(|(_, role)| role);
        let roles =
            by_group.chain(rules.grants.iter().map(|grant| &grant.role)).filter_map(|role| role.org());
        rules.orgs.iter().map(String::as_str).chain(roles)
    });
    let all = of_clients.map(String::as_str).chain(of_admins);
    all.filter(|org| !org.is_empty() && !org.ends_with('*')).map(str::to_owned).collect()
}

fn nearest_org(state: &AdminState, org: &str) -> Option<String> {
    let mut known = listed_orgs(state);
    if let Some(published) = state.publisher.xds_state().borrow().snapshot.as_ref() {
        let names = published.gateway.parts.iter().filter_map(|(name, _)| parts::Name::read(name));
        known.extend(names.filter_map(|name| match name {
            parts::Name::Org(org) => Some(org.to_owned()),
            _ => None,
        }));
    }
    nearest(org, known.iter().map(String::as_str)).map(str::to_owned)
}

// === servers and primitives ===

/// Reads the record of a server. The refusal suggests a similar name to admins who may see all servers.
pub(super) async fn server(state: &AdminState, admin: &Admin, name: &str) -> Result<ServerRecord> {
    if let Some(record) = state.store.server(name).await? {
        return Ok(record);
    }
    if !admin.role.is_platform() {
        return Err(Problem::not_found());
    }
    let stored = state.servers.read(state.store.as_ref()).await?.value;
    let near = nearest(name, stored.iter().map(|record| record.name.as_str()));
    Err(Problem::new(Code::NotFound, format!("no server is called {name}{}", question(near))))
}

/// Servers that an admin may know.
enum Reach {
    All,
    /// Servers that are offered to an org; the records are the stored offers.
    Org(String, Vec<OfferRecord>),
}

impl Reach {
    fn covers(&self, server: &CompiledServer) -> bool {
        match self {
            Reach::All => true,
            Reach::Org(org, stored) => {
                let is_stored = stored.iter().any(|offer| offer.server == server.server.name);
                offers::source(server, org, is_stored).is_some()
            }
        }
    }
}

/// Returns a sentence for each unknown name. `stored` are servers that may not compile.
fn unknown(
    servers: &[Arc<CompiledServer>],
    stored: &BTreeSet<String>,
    reach: &Reach,
    names: &[Mention],
) -> Vec<String> {
    let servers: Vec<&CompiledServer> =
        servers.iter().map(Arc::as_ref).filter(|server| reach.covers(server)).collect();
    // For few names, a search through all ids costs less than an index.
    let index: Option<BTreeSet<&str>> =
        (names.len() > FEW).then(|| servers.iter().flat_map(|server| ids_of(server)).collect());
    let exists = |pattern: &str| match &index {
        Some(ids) => has(ids, pattern),
        None => servers.iter().flat_map(|server| ids_of(server)).any(|id| names::matches(pattern, id)),
    };
    let mut faults = BTreeSet::new();
    for Mention { server, primitive } in names {
        let named = servers.iter().find(|known| known.server.name == *server);
        if server != "*" && named.is_none() && !stored.contains(server) {
            let near = nearest(server, servers.iter().map(|known| known.server.name.as_str()));
            faults.insert(format!("no server is called {server}{}", question(near)));
        } else if primitive == "*" {
            continue;
        } else if !exists(primitive) {
            faults.insert(unknown_primitive(&servers, primitive));
        } else if named.is_some_and(|named| !ids_of(named).any(|id| names::matches(primitive, id))) {
            faults.insert(format!("{server} lists no primitive called {primitive}"));
        }
    }
    faults.into_iter().collect()
}

fn ids_of(server: &CompiledServer) -> impl Iterator<Item = &str> {
    server.primitives.iter().map(|primitive| primitive.id.as_str())
}

/// Whether a pattern matches one of the ids.
fn has(ids: &BTreeSet<&str>, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        None => ids.contains(pattern),
        Some(prefix) => ids.range(prefix..).next().is_some_and(|id| id.starts_with(prefix)),
    }
}

fn unknown_primitive(servers: &[&CompiledServer], pattern: &str) -> String {
    let ids = || servers.iter().flat_map(|server| ids_of(server));
    if let Some(prefix) = pattern.strip_suffix('*') {
        // The part of each id that is compared with a prefix of this length.
        let heads = ids().filter_map(|id| id.get(..prefix.len()));
        let near = nearest(prefix, heads).map(|head| format!("{head}*"));
        return format!("no primitive's id begins with {prefix}{}", question(near.as_deref()));
    }
    let mut listings = servers.iter().flat_map(|server| server.server.listings.iter());
    let exposed = listings.find(|listing| exposed_names(listing).any(|name| name == pattern));
    if let Some(listing) = exposed {
        return format!("{pattern} is the exposed name of {}: name that id", listing.id);
    }
    format!("no primitive is called {pattern}{}", question(nearest(pattern, ids())))
}

pub(super) fn question(near: Option<&str>) -> String {
    near.map(|near| format!(": did you mean {near}?")).unwrap_or_default()
}
