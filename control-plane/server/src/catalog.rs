//! From stored sources and policy to the snapshot: the one place where store and registry meet.
//!
//! Keeps true: a server is compiled once per content, not once per change of policy; a stored server that
//! this version can no longer compile is left out and reported, and the others go on.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use asp_proto::snapshot::{AuthScheme, GatewaySnapshot, Issuer, Upstream};
use asp_registry::{CompiledServer, Inputs};
use asp_store::control::{ControlState, ControlStore, ServerRecord, SourceFile};
use async_trait::async_trait;
use parking_lot::Mutex;

use crate::clock;
use crate::policy;
use crate::publisher::Source;

/// What a snapshot says besides what the store holds.
#[derive(Clone, Debug)]
pub struct Fixed {
    pub public_url: String,
    pub dev: bool,
    pub workers: u32,
    pub issuers: Vec<Issuer>,
    /// Hosts the proxy executor may reach although they are private (the sample server of `--stack`).
    pub upstreams: Vec<Upstream>,
}

/// Builds snapshots from the store.
pub struct StoreSource {
    store: Arc<dyn ControlStore>,
    fixed: Fixed,
    compiler: Compiler,
}

impl StoreSource {
    pub fn new(store: Arc<dyn ControlStore>, fixed: Fixed) -> StoreSource {
        StoreSource { store, fixed, compiler: Compiler::default() }
    }

    /// Shared with the admin API, so that a server is compiled once.
    pub fn compiler(&self) -> Compiler {
        self.compiler.clone()
    }
}

#[async_trait]
impl Source for StoreSource {
    async fn revision(&self) -> anyhow::Result<u64> {
        Ok(self.store.revision().await?)
    }

    async fn build(&self) -> anyhow::Result<GatewaySnapshot> {
        let state = self.store.load().await?;
        let (fixed, compiler) = (self.fixed.clone(), self.compiler.clone());
        // Compiling and encoding take milliseconds: not on a thread that serves.
        tokio::task::spawn_blocking(move || snapshot(&state, fixed, &compiler))
            .await
            .context("compile the snapshot")?
    }
}

fn snapshot(state: &ControlState, fixed: Fixed, compiler: &Compiler) -> anyhow::Result<GatewaySnapshot> {
    let issuers: Vec<String> = fixed.issuers.iter().map(|issuer| issuer.iss.clone()).collect();
    let revoked = policy::revoked(&state.revocations, &issuers, clock::now_ms())?;
    let inputs = Inputs {
        revision: state.revision,
        servers: compiler.compile_all(&state.servers),
        issuers: fixed.issuers,
        exposure: state.exposure.iter().map(policy::exposure).collect::<Result<_, _>>()?,
        bindings: state.bindings.iter().map(policy::binding).collect::<Result<_, _>>()?,
        limits: state
            .limits
            .iter()
            .map(|(org, limit)| policy::limit(org, limit))
            .collect::<Result<_, _>>()?,
        revoked: revoked.tokens,
        revoked_before: revoked.before,
        upstreams: fixed.upstreams,
        public_url: fixed.public_url,
        dev: fixed.dev,
        workers: fixed.workers,
        ..Inputs::default()
    };
    Ok(asp_registry::assemble(inputs))
}

/// Whether a server asks nobody who they are. Outside development `assemble` leaves it out, and the admin API
/// does not take it.
pub fn is_open(server: &CompiledServer) -> bool {
    server.edge.schemes().any(|scheme| scheme == AuthScheme::None)
}

/// Compiles stored servers, remembering each by its revision. Holds what the store holds, no more.
#[derive(Clone, Default)]
pub struct Compiler {
    compiled: Arc<Mutex<HashMap<String, Compiled>>>,
}

/// A compiled server and the revision of its sources; `None` when they do not compile.
type Compiled = (u64, Option<CompiledServer>);

impl Compiler {
    /// Every server that compiles.
    pub fn compile_all(&self, records: &[ServerRecord]) -> Vec<CompiledServer> {
        let mut known = self.compiled.lock();
        known.retain(|name, _| records.iter().any(|record| record.name == *name));
        let mut servers = Vec::with_capacity(records.len());
        for record in records {
            let fresh = known.get(&record.name).filter(|(revision, _)| *revision == record.revision);
            let compiled = match fresh {
                Some((_, compiled)) => compiled.clone(),
                None => {
                    let compiled = compile_record(record);
                    known.insert(record.name.clone(), (record.revision, compiled.clone()));
                    compiled
                }
            };
            servers.extend(compiled);
        }
        servers
    }
}

fn compile_record(record: &ServerRecord) -> Option<CompiledServer> {
    match compile(&record.name, &record.files) {
        Ok(compiled) => Some(compiled),
        Err(report) => {
            let faults: Vec<String> = report.iter().map(describe).collect();
            tracing::error!(server = %record.name, ?faults, "a stored server no longer compiles and is not served");
            None
        }
    }
}

/// Compiles the files of exactly one server.
pub fn compile(name: &str, files: &[SourceFile]) -> Result<CompiledServer, Vec<asp_registry::Fault>> {
    let report = asp_registry::check(&sources(files));
    let found = report.catalog.map(|catalog| catalog.servers).unwrap_or_default();
    found.into_iter().find(|server| server.server.name == name).ok_or(report.faults)
}

/// The registry's view of stored files.
pub fn sources(files: &[SourceFile]) -> Vec<asp_registry::Source> {
    files
        .iter()
        .map(|file| asp_registry::Source { path: file.path.clone(), text: file.text.clone() })
        .collect()
}

/// One line for a person: where, what, and what to do.
pub fn describe(fault: &asp_registry::Fault) -> String {
    let hint = if fault.hint.is_empty() { String::new() } else { format!(" ({})", fault.hint) };
    format!("{}:{}: {}: {}{hint}", fault.file, fault.line, fault.code.as_str(), fault.message)
}

/// A directory of primitives, split into the servers that `asp apply` sends one by one.
pub struct Bundle {
    pub server: CompiledServer,
    /// The server's own files and those of other folders that it lists.
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
