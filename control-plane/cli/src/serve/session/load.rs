//! From the files of a directory to what the gateway serves: checked, built, installed, stored, in force.
//!
//! Keeps true: a directory with a fault is stored not at all, so that what was served before stays; a plugin that does
//! not build stays what it was; whoever is told that something is in force reaches it with the next call.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use asp_control::apply::{self, Terms};
use asp_control::catalog::{self, Bundle};
use asp_registry::schema_file_name;

use super::Served;
use crate::packaging::Outcome;
use crate::stack::plugins::{Failed, Installation, NotInstalled};
use crate::stack::runtime::LocalRuntime;

const TERMS: Terms = Terms { actor: "dev", prune: true };
/// From the store to the gateway in the same process: far longer than it takes on a busy machine.
const IN_FORCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What is in force.
pub(super) struct Loaded {
    pub(super) revision: u64,
    /// Names, sorted.
    pub(super) servers: Vec<String>,
    /// Plugins whose code is new.
    pub(super) plugins: Vec<String>,
    /// Those of them whose schemas are what an earlier build said of their types.
    pub(super) typed: Vec<String>,
    pub(super) not_installed: Vec<NotInstalled>,
}

/// Brings the directory into force, or says every reason why not.
pub(super) async fn load(served: &Served, directory: &Path) -> Result<Loaded, Vec<String>> {
    let root = directory.to_owned();
    let runtime = served.runtime.clone();
    let work = move || prepare(&root, runtime.as_deref());
    let prepared = tokio::task::spawn_blocking(work).await.map_err(|error| vec![error.to_string()])?;
    in_force(served, prepared?).await.map_err(|error| vec![format!("{error:#}")])
}

/// A directory without a fault, and what became of its plugins.
struct Prepared {
    bundles: Vec<Bundle>,
    installation: Installation,
    /// Names of its files, of which `asp plugin build` writes some.
    files: BTreeSet<String>,
}

fn typed(plugins: &[String], files: &BTreeSet<String>) -> Vec<String> {
    plugins.iter().filter(|id| files.contains(&schema_file_name(id))).cloned().collect()
}

/// Checks the specs, then builds and installs their plugins.
fn prepare(root: &Path, runtime: Option<&LocalRuntime>) -> Result<Prepared, Vec<String>> {
    let sources = asp_registry::read_dir(root).map_err(|error| vec![error.to_string()])?;
    let report = asp_registry::check(&sources);
    let Some(found) = report.catalog else {
        return Err(report.faults.iter().map(catalog::describe).collect());
    };
    let installation = runtime.map(|runtime| runtime.install(&found, root, Failed::Keep)).unwrap_or_default();
    let names = sources.iter().filter_map(|source| source.path.rsplit('/').next());
    let files = names.map(str::to_owned).collect();
    Ok(Prepared { bundles: catalog::bundles(&sources, found), installation, files })
}

/// Stores the servers and waits until the gateway has them.
async fn in_force(served: &Served, prepared: Prepared) -> anyhow::Result<Loaded> {
    let Prepared { bundles, installation, files } = prepared;
    let Installation { installed, not_installed } = installation;
    let mut servers: Vec<String> = bundles.iter().map(|bundle| bundle.server.server.name.clone()).collect();
    servers.sort();
    let mut plugins = Vec::new();
    for plugin in installed.iter().filter(|plugin| plugin.outcome == Outcome::Replaced) {
        plugins.push(plugin.id.clone());
        if let Some(runtime) = &served.runtime
            && let Err(error) = runtime.take_up(plugin).await
        {
            // Its state is what the table tells; the gateway asks the runtime again and again.
            tracing::warn!(plugin = %plugin.id, %error, "the runtime does not run the new code of a plugin");
        }
    }
    let revision = apply::servers(served.store.as_ref(), &served.compiler, bundles, TERMS).await?;
    served.publisher.changed();
    let waited = tokio::time::timeout(IN_FORCE, reached(served, revision)).await;
    waited.context("the gateway did not take the snapshot in time; its log says why (ASP_LOG=info)")??;
    let typed = typed(&plugins, &files);
    Ok(Loaded { revision, servers, plugins, typed, not_installed })
}

/// Waits until the gateway serves what the store has at `revision`.
async fn reached(served: &Served, revision: u64) -> anyhow::Result<()> {
    let mut standing = served.publisher.standing();
    let standing = standing
        .wait_for(|standing| standing.covers >= revision || standing.fault.is_some())
        .await
        .context("nothing is published any more")?
        .clone();
    if let Some(fault) = standing.fault {
        bail!("it cannot be published: {fault}");
    }
    // A revision that changes nothing of the snapshot is not pushed.
    let published = served.publisher.xds_state().borrow().snapshot.as_ref().map(|snapshot| snapshot.revision);
    while served.gateway.upgrade().is_some_and(|gateway| gateway.revision() < published.unwrap_or_default()) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let left_out: Vec<String> =
        standing.parts.iter().map(|part| format!("{}: {}", part.name, part.fault)).collect();
    ensure!(left_out.is_empty(), "not all of it is served: {}", left_out.join("; "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plugins_with_a_file_of_schemas_are_typed() {
        let files = BTreeSet::from(["greet.yaml", "greet.schema.json", "sum.yaml"].map(str::to_owned));
        let plugins = ["greet", "sum"].map(str::to_owned);
        assert_eq!(typed(&plugins, &files), ["greet"]);
        assert_eq!(typed(&plugins[1..], &files), Vec::<String>::new());
    }
}
