//! Names in policy, limits and offers: an org, server, primitive or issuer that the platform has no record of is refused unless forced.
//!
//! Users, groups and tokens are whatever an issuer says, so they are not checked; but where several issuers speak for an org, what
//! gives them something says of which issuer they are, and no force stores it without. Keeps true: an admin of an org is
//! answered alike for a name that nothing has and for one of a server that the org cannot reach.

use std::collections::BTreeSet;
use std::sync::Arc;

use asp_edge::names;
use asp_proto::snapshot::Issuer;
use asp_registry::CompiledServer;
use asp_snapshot::parts;
use asp_store::audit::AuditQuery;
use asp_store::control::{OfferRecord, ServerRecord};
use serde::Deserialize;
use utoipa::IntoParams;

use super::AdminState;
use super::auth::Admin;
use super::problem::{Code, Problem};
use super::{calls, off_thread};
use crate::catalog::offers;
use suggestion::nearest;

mod suggestion;

/// Unknown names of one write that are shown.
const MAX_SHOWN: usize = 5;
/// Names of one write up to which every primitive is compared with each.
const FEW: usize = 16;
const FORCE: &str = "--force (API: ?force=true) stores it all the same";

/// Whether names that the platform has no record of are stored.
#[derive(Clone, Copy, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ForceQuery {
    /// Stores a name that no org, server or primitive has.
    #[serde(default)]
    pub force: bool,
}

/// A pair of names that one entry of a policy has.
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

/// Refuses a write of `org` that names what the platform has no record of.
pub(super) async fn check(
    state: &AdminState,
    admin: &Admin,
    org: &str,
    names: Vec<Mention>,
    code: Code,
) -> Result<(), Problem> {
    check_org(state, admin, org).await?;
    let reach = reach(state, admin, org).await?;
    // What was compiled last is what is stored, but for a server of this moment.
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
    // What an org is not offered it cannot switch, by force neither.
    let remedy = if code == Code::NotFound { String::new() } else { format!(". {FORCE}") };
    Err(Problem::new(code, format!("{}{remedy}", in_words(&found))))
}

/// The names that an admin may write of an org without force, as they were compiled last.
pub(super) struct KnownNames {
    knows_org: bool,
    servers: Vec<Arc<CompiledServer>>,
}

impl KnownNames {
    /// Reads them. Waits for no compiler: a revocation asks.
    pub(super) async fn read(state: &AdminState, admin: &Admin, org: &str) -> Result<KnownNames, Problem> {
        let reach = reach(state, admin, org).await?;
        let mut servers = state.compiler.last_compiled();
        servers.retain(|server| reach.covers(server));
        Ok(KnownNames { knows_org: knows_org(state, admin, org).await?, servers })
    }

    /// Whether a binding on these primitives is refused unless it is forced; a server that was stored a moment ago is unknown.
    pub(super) fn need_force(&self, primitive: &str) -> bool {
        let mut ids = self.servers.iter().flat_map(|server| ids_of(server));
        !self.knows_org || (primitive != "*" && !ids.any(|id| names::matches(primitive, id)))
    }
}

/// The servers that the admin may know of.
async fn reach(state: &AdminState, admin: &Admin, org: &str) -> Result<Reach, Problem> {
    Ok(match admin.role.is_platform() {
        true => Reach::All,
        false => Reach::Org(org.to_owned(), state.store.offers_to(org).await?),
    })
}

fn in_words(unknown: &[String]) -> String {
    let more = unknown.len().saturating_sub(MAX_SHOWN);
    let shown = unknown.iter().take(MAX_SHOWN).cloned().collect::<Vec<_>>().join("; ");
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("{shown}{more}")
}

// === issuers ===

/// Refuses an issuer that does not speak for `org`.
pub(super) fn check_issuers(state: &AdminState, org: &str, named: &[&str]) -> Result<(), Problem> {
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
    if faults.is_empty() { Ok(()) } else { Err(Problem::new(Code::UnknownName, in_words(&faults))) }
}

/// Refuses to give something to `target` of any issuer, where several speak for `org`.
pub(super) fn check_open_target(
    state: &AdminState,
    org: &str,
    target: Option<String>,
) -> Result<(), Problem> {
    let Some(target) = target else { return Ok(()) };
    let issuers = issuers_of(state, org);
    if issuers.len() < 2 {
        return Ok(());
    }
    let detail = format!(
        "{target} may be somebody else with each issuer that speaks for {org}: {}. Set target.issuer (--issuer) to the one that is \
         meant, or to `*` for every issuer",
        in_words(&issuers)
    );
    Err(Problem::new(Code::AmbiguousName, detail))
}

/// Names of the issuers whose tokens may be of the org.
pub(super) fn issuers_of(state: &AdminState, org: &str) -> Vec<String> {
    let clients = &state.compiler.trust().in_force().clients;
    let speaks = |issuer: &&Issuer| {
        issuer.orgs.is_empty() || issuer.orgs.iter().any(|pattern| names::matches(pattern, org))
    };
    clients.iter().filter(speaks).map(|issuer| issuer.name.clone()).collect()
}

// === orgs ===

/// Refuses an org that nothing speaks of.
pub(super) async fn check_org(state: &AdminState, admin: &Admin, org: &str) -> Result<(), Problem> {
    if knows_org(state, admin, org).await? {
        return Ok(());
    }
    // The team of a server is not told which orgs there are.
    let near = if admin.role.is_platform() { nearest_org(state, org) } else { None };
    let why = "it has no policy, machine, home or call, and no issuer names it";
    let detail =
        format!("no org is called {org}{}: {why}. If it has yet to call, {FORCE}", question(near.as_deref()));
    Err(Problem::new(Code::UnknownName, detail))
}

/// Whether anything speaks of the org: its own admin, an issuer, its policy, a machine, a home or a call. An offer does not:
/// whoever writes one may name it wrongly.
async fn knows_org(state: &AdminState, admin: &Admin, org: &str) -> Result<bool, Problem> {
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
    let called = state.calls.page(&query).await.map_err(|error| calls::unreadable(&error))?;
    Ok(!called.is_empty())
}

/// The orgs that issuers name exactly.
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

/// Reads the record of a server. The refusal names the one that was probably meant, to those who may see all servers.
pub(super) async fn server(state: &AdminState, admin: &Admin, name: &str) -> Result<ServerRecord, Problem> {
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

/// The servers that an admin may know of.
enum Reach {
    All,
    /// Those that an org is offered, some of them by these records.
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

/// Lists the names that no server and no primitive has, each as a sentence. `stored` are servers that may not compile.
fn unknown(
    servers: &[Arc<CompiledServer>],
    stored: &BTreeSet<String>,
    reach: &Reach,
    names: &[Mention],
) -> Vec<String> {
    let servers: Vec<&CompiledServer> =
        servers.iter().map(Arc::as_ref).filter(|server| reach.covers(server)).collect();
    // A lookup in all of them costs less than an index, where there are few.
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

/// Whether a pattern names one of the ids.
fn has(ids: &BTreeSet<&str>, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        None => ids.contains(pattern),
        Some(prefix) => ids.range(prefix..).next().is_some_and(|id| id.starts_with(prefix)),
    }
}

fn unknown_primitive(servers: &[&CompiledServer], pattern: &str) -> String {
    let ids = || servers.iter().flat_map(|server| ids_of(server));
    if let Some(prefix) = pattern.strip_suffix('*') {
        // The part of an id that a prefix of this length would be compared with.
        let heads = ids().filter_map(|id| id.get(..prefix.len()));
        let near = nearest(prefix, heads).map(|head| format!("{head}*"));
        return format!("no primitive's id begins with {prefix}{}", question(near.as_deref()));
    }
    let mut listings = servers.iter().flat_map(|server| server.server.listings.iter());
    let exposed = listings.find(|listing| {
        [&listing.mcp_name, &listing.rest_name, &listing.a2a_skill].into_iter().any(|name| name == pattern)
    });
    if let Some(listing) = exposed {
        return format!("{pattern} is the exposed name of {}: policy names primitives by id", listing.id);
    }
    format!("no primitive is called {pattern}{}", question(nearest(pattern, ids())))
}

fn question(near: Option<&str>) -> String {
    near.map(|near| format!(": did you mean {near}?")).unwrap_or_default()
}
