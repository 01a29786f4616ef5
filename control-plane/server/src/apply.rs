//! Applies a directory of primitives to the store, as `asp serve --primitives` does at start and `asp dev` on each
//! change.
//!
//! Keeps true: a directory with a fault is not applied at all, and every fault is reported.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use asp_platform::clock;
use asp_registry::Catalog;
use asp_store::control::sql::ControlStore;
use asp_store::control::{AtRevision, Change, ServerIds};

use crate::catalog::{self, Bundle, Compiler};

/// Actor of an application, and the treatment of stored servers that the directory does not have.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Actor named in the audit.
    pub actor: &'static str,
    /// Whether such servers are deleted; if not, the directory must not conflict with them.
    pub prune: bool,
}

/// Terms at start: other servers were stored by admins and stay.
const AT_START: Terms = Terms { actor: "serve --primitives", prune: false };

/// Checks the whole directory, then stores every server that changed. Returns the catalog of the directory.
pub async fn directory(store: &ControlStore, compiler: &Compiler, directory: &Path) -> Result<Catalog> {
    let sources =
        asp_registry::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
    let report = asp_registry::check(&sources);
    if !report.warnings.is_empty() {
        tracing::info!(warnings = report.warnings.len(), "primitives have warnings; `asp lint` lists them");
    }
    let Some(found) = report.catalog else {
        for fault in &report.faults {
            tracing::error!(fault = %catalog::describe(fault), "a primitive has a fault; its directory is not applied");
        }
        let list: Vec<String> = report.faults.iter().map(catalog::describe).collect();
        bail!("{} was not applied: {} faults\n{}", directory.display(), list.len(), list.join("\n"));
    };
    let bundles = catalog::bundles(&sources, found.clone());
    let applied = servers(store, compiler, bundles, AT_START).await;
    applied.with_context(|| format!("{} is not applied", directory.display()))?;
    Ok(found)
}

/// Checks all servers together, then stores those that changed. Returns the resulting revision of the store.
pub async fn servers(
    store: &ControlStore,
    compiler: &Compiler,
    bundles: Vec<Bundle>,
    terms: Terms,
) -> Result<u64> {
    for bundle in &bundles {
        let name = &bundle.server.server.name;
        compiler
            .accepts(&bundle.server)
            .map_err(|fault| anyhow!("server {name} is not acceptable: {fault}"))?;
    }
    let change =
        |based_on| Change { based_on: Some(based_on), ..Change::unconditional(terms.actor, clock::now_ms()) };
    let mut revision = match terms.prune {
        true => prune(store, &bundles, change).await?,
        false => check_conflicts(store, compiler, &bundles).await?,
    };
    for bundle in bundles {
        let name = &bundle.server.server.name;
        let ids = catalog::ids::of(&bundle.server);
        // The operator who starts the process controls the directory.
        let ids = ServerIds { ids: &ids, by_platform: true };
        let written = store
            .register_server(&change(revision), name, &bundle.files, &bundle.server.content_hash, ids)
            .await
            .with_context(|| format!("store server {name}"))?;
        revision = revision.max(written.revision);
        tracing::info!(server = %name, changed = written.changed, revision = written.revision, "server applied");
    }
    Ok(revision)
}

/// Deletes the stored servers that are not in `bundles`. Returns the resulting revision.
async fn prune(store: &ControlStore, bundles: &[Bundle], change: impl Fn(u64) -> Change) -> Result<u64> {
    let stored = store.servers().await.context("read the stored servers")?;
    let mut revision = stored.revision;
    for record in stored.value {
        if bundles.iter().any(|bundle| bundle.server.server.name == record.name) {
            continue;
        }
        let name = &record.name;
        let written = store.delete_server(&change(revision), name).await;
        revision = revision.max(written.with_context(|| format!("delete server {name}"))?.revision);
        tracing::info!(server = %name, revision, "server deleted: its folder is gone");
    }
    Ok(revision)
}

/// Checks the directory, which is consistent in itself, against the servers that only the store has. Returns the
/// revision at which they were read.
async fn check_conflicts(store: &ControlStore, compiler: &Compiler, bundles: &[Bundle]) -> Result<u64> {
    let AtRevision { revision, value: mut stored } =
        store.servers().await.context("read the stored servers")?;
    stored.retain(|record| !bundles.iter().any(|bundle| bundle.server.server.name == record.name));
    let others = compiler.compile_all(&stored);
    let conflicts: Vec<String> = bundles
        .iter()
        .flat_map(|bundle| {
            asp_registry::conflicts(others.iter().map(|other| &**other), &bundle.server, |_| true)
        })
        .map(|fault| catalog::describe(&fault))
        .collect();
    if conflicts.is_empty() {
        return Ok(revision);
    }
    bail!("it conflicts with stored servers\n{}", conflicts.join("\n"))
}
