//! Applies a directory of primitives to the store, as `asp serve --primitives` does at start.
//!
//! Keeps true: a directory with any fault is applied not at all, and every fault is reported.

use std::path::Path;

use anyhow::{Context, bail};
use asp_store::control::{Change, ControlStore, Precondition};

use crate::catalog;
use crate::clock;

/// Who the audit names.
const ACTOR: &str = "serve --primitives";

/// Checks the whole directory, then stores every server that changed.
pub async fn directory(store: &dyn ControlStore, directory: &Path) -> anyhow::Result<()> {
    let sources =
        asp_registry::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
    let report = asp_registry::check(&sources);
    for warning in &report.warnings {
        tracing::warn!(warning = %catalog::describe(warning), "primitive");
    }
    let Some(found) = report.catalog else {
        for fault in &report.faults {
            tracing::error!(fault = %catalog::describe(fault), "primitive");
        }
        let list: Vec<String> = report.faults.iter().map(catalog::describe).collect();
        bail!("{} is not applied: {} faults\n{}", directory.display(), list.len(), list.join("\n"));
    };
    for bundle in catalog::bundles(&sources, found) {
        let change = Change { actor: ACTOR.into(), at: clock::now_ms(), precondition: Precondition::None };
        let name = &bundle.server.server.name;
        let written = store
            .put_server(&change, name, &bundle.files, &bundle.server.content_hash)
            .await
            .with_context(|| format!("store server {name}"))?;
        tracing::info!(server = %name, changed = written.changed, revision = written.revision, "server applied");
    }
    Ok(())
}
