//! Applies a directory of primitives to the store, as `asp serve --primitives` does at start.
//!
//! Keeps true: a directory with any fault is applied not at all, and every fault is reported.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use asp_registry::Catalog;
use asp_store::control::{Change, ControlStore, Precondition};

use crate::catalog::{self, Bundle, Compiler};
use crate::clock;

/// Who the audit names.
const ACTOR: &str = "serve --primitives";

/// Checks the whole directory, then stores every server that changed. Returns what it holds.
pub async fn directory(
    store: &dyn ControlStore,
    compiler: &Compiler,
    directory: &Path,
) -> anyhow::Result<Catalog> {
    let sources =
        asp_registry::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
    let report = asp_registry::check(&sources);
    if !report.warnings.is_empty() {
        tracing::info!(warnings = report.warnings.len(), "primitives have warnings; `asp lint` lists them");
    }
    let Some(found) = report.catalog else {
        for fault in &report.faults {
            tracing::error!(fault = %catalog::describe(fault), "a primitive has a fault, nothing of its directory is applied");
        }
        let list: Vec<String> = report.faults.iter().map(catalog::describe).collect();
        bail!("{} is not applied: {} faults\n{}", directory.display(), list.len(), list.join("\n"));
    };
    let bundles = catalog::bundles(&sources, found.clone());
    let mut evaluated_at = check_conflicts(store, compiler, directory, &bundles).await?;
    for bundle in &bundles {
        let name = &bundle.server.server.name;
        compiler
            .accepts(&bundle.server)
            .map_err(|fault| anyhow!("server {name} is not acceptable: {fault}"))?;
    }
    for bundle in bundles {
        let change = Change {
            actor: ACTOR.into(),
            at: clock::now_ms(),
            precondition: Precondition::None,
            evaluated_at: Some(evaluated_at),
        };
        let name = &bundle.server.server.name;
        let written = store
            .put_server(&change, name, &bundle.files, &bundle.server.content_hash)
            .await
            .with_context(|| format!("store server {name}"))?;
        evaluated_at = evaluated_at.max(written.revision);
        tracing::info!(server = %name, changed = written.changed, revision = written.revision, "server applied");
    }
    Ok(found)
}

/// The directory as a whole was checked; what remains are the servers that only the store has. Returns the revision
/// at which they were read.
async fn check_conflicts(
    store: &dyn ControlStore,
    compiler: &Compiler,
    directory: &Path,
    bundles: &[Bundle],
) -> anyhow::Result<u64> {
    let state = store.load().await.context("read the stored servers")?;
    let mut stored = state.servers;
    stored.retain(|record| !bundles.iter().any(|bundle| bundle.server.server.name == record.name));
    let others = compiler.compile_all(&stored);
    let conflicts: Vec<String> = bundles
        .iter()
        .flat_map(|bundle| asp_registry::conflicts(&others, &bundle.server))
        .map(|fault| catalog::describe(&fault))
        .collect();
    if conflicts.is_empty() {
        return Ok(state.revision);
    }
    bail!(
        "{} is not applied: it conflicts with stored servers\n{}",
        directory.display(),
        conflicts.join("\n")
    )
}
