//! Turns stored sources and policy into snapshots: the only place where the store and the registry meet.
//!
//! Keeps true: a server is compiled once per content, not once per policy change. One rejected server would make edges
//! and gateways reject the whole snapshot, so a server that they would reject is never published: a new one is refused,
//! a stored one is left out and reported as a fault while the others are published. The same holds for an org's policy
//! ([`build`]).

mod agent_hosts;
pub mod budget;
pub mod build;
mod declarations;
pub(crate) mod disabled;
pub mod fault;
mod form;
pub mod ids;
pub mod offers;
pub mod orgs;
mod outcome;
pub mod revoked;
pub mod servers;
pub mod stored_state;
pub mod usage;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use asp_issuers::document::Document;
use asp_issuers::trust::Trust;
use asp_proto::snapshot::{
    AuthScheme, BasePart, RecentRevocations, RevokedPart, ServerPart, SnapshotPart, Upstream,
    snapshot_part::Part as Says,
};
use asp_registry::CompiledServer;
use asp_snapshot::{Snapshot, parts as names};
use asp_store::control::{ServerRecord, SourceFile};
use parking_lot::Mutex;

use budget::{EDGE, GATEWAY, SLACK};
use declarations::Declarations;
use fault::{Fault, LAST_FORM, NOT_SERVED};
use outcome::{CompileOutcome, StaleServer};
use servers::server_fault;

/// Snapshot content that does not come from the store.
#[derive(Clone)]
pub struct StaticConfig {
    pub public_url: String,
    pub dev: bool,
    pub workers: u32,
    /// Issuers whose tokens are accepted.
    pub trust: Trust,
    /// Private hosts that the proxy backend may reach (the sample server of `--stack`).
    pub upstreams: Vec<Upstream>,
    /// Server that is the agent at the root; empty for none.
    pub default_agent: String,
    /// Hosts at which servers with A2A may answer, each with the patterns of its servers' primitives.
    pub agent_hosts: Vec<(String, Vec<String>)>,
    /// Whether the server `all` stands for all others.
    pub all_servers: bool,
    /// Requests per second of one client network and kind without a valid credential; 0 for no limit.
    pub unauthenticated_rate: u32,
}

impl StaticConfig {
    /// Returns the part that concerns every server and org, without regions.
    fn base(&self) -> BasePart {
        let in_force = self.trust.in_force();
        let mut base = BasePart {
            public_url: self.public_url.clone(),
            dev: self.dev,
            issuers: in_force.clients.clone(),
            issuer_access: in_force.access.clone(),
            upstreams: self.upstreams.clone(),
            default_agent: self.default_agent.clone(),
            all_servers: self.all_servers,
            unauthenticated_rate: self.unauthenticated_rate,
            ..BasePart::default()
        };
        base.issuers.sort_by(|a, b| a.name.cmp(&b.name));
        base.issuer_access.sort_by(|a, b| a.issuer.cmp(&b.issuer));
        base.upstreams.sort_by(|a, b| (&a.name, &a.url).cmp(&(&b.name, &b.url)));
        base
    }
}

/// Whether a server requires no authentication.
fn is_open(server: &CompiledServer) -> bool {
    server.edge.schemes().any(|scheme| scheme == AuthScheme::None)
}

fn server_part(server: &CompiledServer) -> Says {
    Says::Server(ServerPart {
        edge: Some(server.edge.clone()),
        server: Some(server.server.clone()),
        primitives: server.primitives.clone(),
    })
}

/// Compiles stored servers and caches the result by revision. Holds only servers that the store holds.
#[derive(Clone)]
pub struct Compiler {
    config: Arc<StaticConfig>,
    compiled: Arc<Mutex<HashMap<String, CompileOutcome>>>,
    /// Primitives of the servers in the last settlement.
    declared: Arc<Mutex<Declarations>>,
    /// Last settlement: the next request is often for the same records.
    last: Arc<Mutex<Option<Last>>>,
}

/// A cached settlement: a write and the build that publishes it both need it.
struct Last {
    /// Result of [`asp_issuers::trust::InForce::names`].
    issuers: BTreeMap<String, String>,
    /// Names and revisions of the servers.
    of: Vec<(String, u64)>,
    settled: Settlement,
}

impl Last {
    fn is_of(&self, records: &[ServerRecord], issuers: &BTreeMap<String, String>) -> bool {
        let same = |((name, revision), record): (&(String, u64), &ServerRecord)| {
            *name == record.name && *revision == record.revision
        };
        self.issuers == *issuers && self.of.len() == records.len() && self.of.iter().zip(records).all(same)
    }
}

/// The stored servers to publish, and the faults of the others.
#[derive(Clone, Default)]
pub struct Settlement {
    pub servers: Vec<Arc<CompiledServer>>,
    pub faults: Vec<Fault>,
}

impl Compiler {
    pub fn new(config: StaticConfig) -> Compiler {
        Compiler {
            config: Arc::new(config),
            compiled: Arc::default(),
            declared: Arc::default(),
            last: Arc::default(),
        }
    }

    /// Checks that edges and gateways accept a snapshot with this server; the error says what is wrong with it.
    pub fn accepts(&self, server: &CompiledServer) -> Result<(), String> {
        if !self.config.dev && is_open(server) {
            return Err("auth.schemes: `none` is for development".into());
        }
        let fault = self.opaque_fault(server).or_else(|| self.audience_fault(server));
        if let Some(fault) = fault.or_else(|| self.host_fault(server)) {
            return Err(fault);
        }
        self.evaluate_alone(names::of_server(&server.server.name), server_part(server))
    }

    /// Checks that a snapshot of the configuration and this part alone compiles.
    fn evaluate_alone(&self, name: String, part: Says) -> Result<(), String> {
        let recent = RecentRevocations { revision: 1, ..RecentRevocations::default() };
        let parts = [
            (names::BASE.to_owned(), Says::Base(self.config.base())),
            (names::REVOKED.to_owned(), Says::Revoked(RevokedPart::default())),
            (names::RECENT.to_owned(), Says::Recent(recent)),
            (name, part),
        ];
        let whole = |part| SnapshotPart { part: Some(part), ..SnapshotPart::default() };
        let changes = parts.map(|(name, part)| (name, Some(whole(part))));
        Snapshot::empty().changed(1, changes.into()).map(drop)
    }

    /// Rejects opaque tokens with several introspecting issuers: an opaque token names no issuer, so each of them would
    /// see the tokens of the others.
    fn opaque_fault(&self, server: &CompiledServer) -> Option<String> {
        if server.edge.schemes().all(|scheme| scheme != AuthScheme::Opaque) {
            return None;
        }
        let in_force = self.config.trust.in_force();
        let asked = in_force.access.iter().filter(|access| access.introspection.is_some());
        let asked: Vec<&str> = asked
            .map(|access| access.issuer.as_str())
            .filter(|name| server.edge.issuers.iter().any(|i| i == name))
            .collect();
        (asked.len() > 1).then(|| {
            format!(
                "auth.issuers: opaque tokens would be shown to several issuers ({}): name one of them",
                asked.join(", ")
            )
        })
    }

    /// Rejects audiences that an issuer does not list for the server: a team that receives users' tokens for another
    /// service could otherwise act as those users here.
    fn audience_fault(&self, server: &CompiledServer) -> Option<String> {
        let name = &server.server.name;
        let in_force = self.config.trust.in_force();
        foreign_audiences(server, &self.config.public_url).into_iter().find_map(|audience| {
            let of_server = |document: &&Document| server.edge.issuers.contains(&document.name);
            let mut refusing = in_force.documents.iter().filter(of_server);
            let refusing = refusing.find(|document| !document.allows_audience(name, audience))?;
            Some(format!(
                "auth.audiences: the issuer `{}` does not list `{audience}` for this server: an admin of the platform adds \
                 `serverAudiences: {{\"{name}\": [\"{audience}\"]}}` to the issuer",
                refusing.name
            ))
        })
    }

    /// The `iss` of every trusted issuer, for clients and for admins.
    pub fn trusted(&self) -> Vec<String> {
        self.config.trust.in_force().all()
    }

    pub fn trust(&self) -> &Trust {
        &self.config.trust
    }

    /// The servers of the last settlement: the stored ones, except for a write in progress.
    pub fn last_compiled(&self) -> Vec<Arc<CompiledServer>> {
        self.last.lock().as_ref().map(|last| last.settled.servers.clone()).unwrap_or_default()
    }

    /// Returns every server that is published.
    pub fn compile_all(&self, records: &[ServerRecord]) -> Vec<Arc<CompiledServer>> {
        self.settle(records).servers
    }

    /// Compiles the servers that changed. A faulty server keeps its last published form or, without one, is left out.
    /// Of two conflicting servers the older one stays. If the servers do not fit together, the largest are left out.
    pub fn settle(&self, records: &[ServerRecord]) -> Settlement {
        let issuers = self.config.trust.in_force().names();
        let mut last = self.last.lock();
        if let Some(last) = last.as_ref().filter(|last| last.is_of(records, &issuers)) {
            return last.settled.clone();
        }
        let settled = self.settle_uncached(records, &issuers);
        let of = records.iter().map(|record| (record.name.clone(), record.revision)).collect();
        *last = Some(Last { issuers, of, settled: settled.clone() });
        settled
    }

    fn settle_uncached(&self, records: &[ServerRecord], issuers: &BTreeMap<String, String>) -> Settlement {
        let mut known = self.compiled.lock();
        let stored: HashSet<&str> = records.iter().map(|record| record.name.as_str()).collect();
        known.retain(|name, _| stored.contains(name.as_str()));
        let mut good = Vec::with_capacity(records.len());
        let mut faults = Vec::new();
        let mut stale = Vec::new();
        for record in records {
            if !known.get(&record.name).is_some_and(|compiled| compiled.is_of(record, issuers)) {
                let before = known
                    .remove(&record.name)
                    .and_then(|compiled| compiled.good.map(|good| (compiled.good_at, good)));
                stale.push(StaleServer { record, before });
            }
        }
        for (record, compiled) in outcome::compile_stale(self, issuers, stale) {
            known.insert(record.name.clone(), compiled);
        }
        for record in records {
            let Some(compiled) = known.get(&record.name) else { continue };
            let in_force = if compiled.good.is_some() { LAST_FORM } else { NOT_SERVED };
            faults.extend(compiled.fault.iter().map(|fault| server_fault(&record.name, fault, in_force)));
            good.extend(compiled.good.iter().map(|server| (record.revision, Arc::clone(server))));
        }
        drop(known);
        let servers = self.declared.lock().without_conflicts(good, &mut faults);
        let size = |server: &CompiledServer| self.server_bytes(server);
        let servers = servers::select_fitting(servers, GATEWAY - EDGE - SLACK, size, &mut faults);
        Settlement { servers, faults }
    }

    /// Compiles one stored server; if this revision is published, returns the published form.
    pub fn compile_one(&self, record: &ServerRecord) -> Option<Arc<CompiledServer>> {
        let known = self.compiled.lock();
        let current = known.get(&record.name).filter(|compiled| compiled.revision == record.revision);
        if let Some(current) = current {
            return current.good.clone();
        }
        drop(known);
        compile_stored(record).ok().map(Arc::new)
    }

    /// Returns [`servers::server_bytes`] of a server; cached for servers that were compiled here.
    pub fn server_bytes(&self, server: &CompiledServer) -> usize {
        let known = self.compiled.lock();
        let is_own =
            |known: &&CompileOutcome| known.good.as_deref().is_some_and(|good| std::ptr::eq(good, server));
        let bytes = known.get(&server.server.name).filter(is_own).map(|known| known.bytes);
        drop(known);
        bytes.unwrap_or_else(|| servers::server_bytes(server))
    }
}

/// Compiles the files of exactly one server.
pub fn compile(name: &str, files: &[SourceFile]) -> Result<CompiledServer, Vec<asp_registry::Fault>> {
    let report = asp_registry::check(&sources(files));
    let found = report.catalog.map(|catalog| catalog.servers).unwrap_or_default();
    found.into_iter().find(|server| server.server.name == name).ok_or(report.faults)
}

/// Compiles a stored server as it is published: A2A is off until it is confirmed.
fn compile_stored(record: &ServerRecord) -> Result<CompiledServer, Vec<asp_registry::Fault>> {
    let mut server = compile(&record.name, &record.files)?;
    if !record.a2a_confirmed {
        server.switch_a2a_off();
    }
    Ok(server)
}

/// Returns the audiences that a server accepts in addition to the public URL, its own URL and URLs below that.
pub fn foreign_audiences<'a>(server: &'a CompiledServer, public_url: &str) -> Vec<&'a str> {
    let own = format!("{public_url}/{}", server.server.name);
    let is_own = |audience: &&str| {
        *audience == public_url
            || audience.strip_prefix(&own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    server.edge.audiences.iter().map(String::as_str).filter(|audience| !is_own(audience)).collect()
}

/// Converts stored files for the registry.
pub fn sources(files: &[SourceFile]) -> Vec<asp_registry::Source> {
    files
        .iter()
        .map(|file| asp_registry::Source { path: file.path.clone(), text: file.text.clone() })
        .collect()
}

/// Formats a fault as one line: place, message and hint.
pub fn describe(fault: &asp_registry::Fault) -> String {
    let hint = if fault.hint.is_empty() { String::new() } else { format!(" ({})", fault.hint) };
    let text = format!("{}:{}: {}: {}{hint}", fault.file, fault.line, fault.code.as_str(), fault.message);
    without_commands(&text)
}

/// Escapes the text of a spec so that a CI does not obey it in a job's output: commands at the beginning of a line
/// (`::error::` of GitHub Actions, `##teamcity[`) or anywhere in it (`##[command]` of GitHub Actions, `##vso[command]`
/// of Azure Pipelines).
pub fn without_commands(text: &str) -> String {
    let text = text.replace('\r', " ").replace('\n', "\n  | ");
    // JSON's escape, which `asp` also uses for control characters.
    let text = text.replace("##", "#\\u0023");
    if text.trim_start().starts_with("::") { format!("| {text}") } else { text }
}

/// One server of a directory of primitives; `asp apply` sends them one by one.
pub struct Bundle {
    pub server: CompiledServer,
    /// The server's own files, and files of other folders that it lists.
    pub files: Vec<SourceFile>,
}

/// Splits checked sources by server.
pub fn bundles(sources: &[asp_registry::Source], catalog: asp_registry::Catalog) -> Vec<Bundle> {
    catalog
        .servers
        .into_iter()
        .map(|server| {
            let files = sources
                .iter()
                .filter(|source| server.files.contains(&source.path))
                .map(|source| SourceFile { path: source.path.clone(), text: source.text.clone() })
                .collect();
            Bundle { server, files }
        })
        .collect()
}

#[cfg(test)]
mod tests;
