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
    /// Whether A2A is confirmed for servers that another version stored. If not, it stays off.
    pub confirms_a2a: bool,
}

/// Terms at start: other servers were stored by admins and stay. The first start of a version switches no protocol on.
const AT_START: Terms = Terms { actor: "serve --primitives", prune: false, confirms_a2a: false };

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
        if bundle.server.lists_a2a() {
            revision = revision.max(confirm_a2a(store, &change(revision), name, terms.confirms_a2a).await?);
        }
    }
    Ok(revision)
}

/// Confirms A2A for a server that another version stored, or warns that it stays off. Returns the resulting revision.
async fn confirm_a2a(store: &ControlStore, change: &Change, name: &str, confirms: bool) -> Result<u64> {
    if confirms {
        let written = store.confirm_a2a(change, name).await;
        return Ok(written.with_context(|| format!("confirm A2A for server {name}"))?.revision);
    }
    let stored = store.server(name).await.with_context(|| format!("read server {name}"))?;
    if stored.is_some_and(|record| !record.a2a_confirmed) {
        tracing::warn!(server = %name, "a server's A2A stays off: an earlier version applied it; `asp servers confirm` switches it on");
    }
    Ok(0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::StaticConfig;
    use crate::testkit::TestIssuer;

    #[tokio::test]
    async fn a_start_keeps_a2a_off_for_a_server_that_another_version_applied() {
        let store = ControlStore::in_memory().await.unwrap();
        let compiler = Compiler::new(StaticConfig {
            public_url: "http://127.0.0.1:8080".into(),
            dev: true,
            workers: 1,
            trust: TestIssuer::new().trust(),
            upstreams: Vec::new(),
            default_agent: String::new(),
            agent_hosts: Vec::new(),
            all_servers: false,
            unauthenticated_rate: 0,
        });
        let apply = async |terms: Terms, version: &str| {
            let text = format!(
                "apiVersion: asp/v1\nname: demo\ndescription: A demo.\nversion: {version}\n\
                 protocols: [mcp, a2a]\nauth: {{schemes: [jwt], issuers: [dev]}}\nprimitives: []\n"
            );
            let sources = [asp_registry::Source { path: "demo/server.yaml".into(), text }];
            let found = asp_registry::check(&sources).catalog.unwrap();
            servers(&store, &compiler, catalog::bundles(&sources, found), terms).await.unwrap();
            store.server("demo").await.unwrap().unwrap().a2a_confirmed
        };
        let dev = Terms { actor: "dev", prune: true, confirms_a2a: true };
        assert!(apply(AT_START, "1.0.0").await, "it is new");
        store.touch_server(&Change::unconditional("ops", 1), "demo").await.unwrap();
        assert!(!apply(AT_START, "1.0.0").await && !apply(AT_START, "1.1.0").await);
        assert!(apply(dev, "1.1.0").await, "the content is the stored one");
        assert!(apply(AT_START, "1.2.0").await);
    }
}
