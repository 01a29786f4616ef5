//! From the files of a directory to what the gateway serves: checked, built, stored, in force, installed.
//!
//! Keeps true: a directory with a fault is stored not at all, and installed not at all, so that what was served before
//! stays, specs and code; a plugin that does not build stays what it was; whoever is told that something is in force
//! reaches it with the next call.

use std::collections::BTreeSet;
use std::path::Path;
use std::slice::from_ref;
use std::time::Duration;

use anyhow::{Context, bail};
use asp_control::apply::{self, Terms};
use asp_control::catalog::fault::{Fault, Part};
use asp_control::catalog::{self, Bundle};
use asp_gateway::execution::Availability;
use asp_registry::schema_file_name;
use tokio::task::{block_in_place, spawn_blocking};

use super::Served;
use crate::packaging::{self, Installed, Outcome};
use crate::stack::plugins::{Made, NotInstalled, Staging};
use crate::stack::ready;
use crate::stack::runtime::LocalRuntime;

const TERMS: Terms = Terms { actor: "dev", prune: true };
/// From the store to the gateway in the same process: far longer than it takes on a busy machine.
const IN_FORCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The gateway asks its runtime every few seconds for what could not run.
const OFFERED: Duration = Duration::from_secs(8);

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
    /// Why servers are not published as they are in the directory, and what of them is served.
    pub(super) left_out: Vec<String>,
}

/// Brings the directory into force, or says every reason why not. `made` is what earlier loads have built.
pub(super) async fn load(served: &Served, directory: &Path, made: &mut Made) -> Result<Loaded, Vec<String>> {
    let root = directory.to_owned();
    let runtime = served.runtime.clone();
    let mut known = std::mem::take(made);
    let work = move || (prepare(&root, runtime.as_deref(), &mut known), known);
    let prepared = spawn_blocking(work).await.map_err(|error| vec![error.to_string()])?;
    *made = prepared.1;
    let Prepared { bundles, staging, files } = prepared.0?;
    let mut loaded = in_force(served, bundles, staging).await.map_err(|error| vec![format!("{error:#}")])?;
    loaded.typed = typed(&loaded.plugins, &files);
    Ok(loaded)
}

/// A directory without a fault, and its plugins.
struct Prepared {
    bundles: Vec<Bundle>,
    staging: Staging,
    /// Names of its files, of which `asp plugin build` writes some.
    files: BTreeSet<String>,
}

fn typed(plugins: &[String], files: &BTreeSet<String>) -> Vec<String> {
    plugins.iter().filter(|id| files.contains(&schema_file_name(id))).cloned().collect()
}

/// Checks the specs, then builds their plugins.
fn prepare(root: &Path, runtime: Option<&LocalRuntime>, made: &mut Made) -> Result<Prepared, Vec<String>> {
    let sources = asp_registry::read_dir(root).map_err(|error| vec![error.to_string()])?;
    let report = asp_registry::check(&sources);
    let Some(found) = report.catalog else {
        return Err(report.faults.iter().map(catalog::describe).collect());
    };
    let staging = runtime.map(|runtime| runtime.stage(&found, root, made)).unwrap_or_default();
    let names = sources.iter().filter_map(|source| source.path.rsplit('/').next());
    let files = names.map(str::to_owned).collect();
    Ok(Prepared { bundles: catalog::bundles(&sources, found), staging, files })
}

/// Stores the servers, waits until the gateway has them, and puts their plugins into the place of earlier ones.
async fn in_force(served: &Served, bundles: Vec<Bundle>, mut staging: Staging) -> anyhow::Result<Loaded> {
    let mut servers: Vec<String> = bundles.iter().map(|bundle| bundle.server.server.name.clone()).collect();
    servers.sort();
    let units = |bundle: &Bundle| {
        let name = bundle.server.server.name.clone();
        (name, packaging::units(from_ref(&bundle.server), None))
    };
    let plugins: Vec<_> = bundles.iter().map(units).collect();
    // A plugin that was not there is nobody's yet, and the gateway asks for it as soon as it knows it.
    let mut installed = block_in_place(|| staging.place(|plugin| plugin.outcome == Outcome::Installed));
    let revision = apply::servers(served.store.as_ref(), &served.compiler, bundles, TERMS).await?;
    served.publisher.changed();
    let waited = tokio::time::timeout(IN_FORCE, reached(served, revision)).await;
    let parts = waited
        .context("the gateway did not take the snapshot in time; its log says why (ASP_LOG=info)")??;
    let is_left_out =
        |server: &str| parts.iter().any(|part| part.part == Part::Server && part.name == server);
    let held = |plugin: &Installed| {
        let of_left_out = plugins.iter().filter(|(server, _)| is_left_out(server));
        of_left_out
            .flat_map(|(_, units)| units)
            .any(|unit| unit.id == plugin.id && unit.version == plugin.version)
    };
    installed.extend(block_in_place(|| staging.place(|plugin| !held(plugin))));
    take_up(served, &installed).await;
    Ok(Loaded {
        revision,
        servers,
        plugins: installed.into_iter().map(|plugin| plugin.id).collect(),
        typed: Vec::new(),
        not_installed: staging.not_installed,
        left_out: parts.iter().map(in_words).collect(),
    })
}

fn in_words(part: &Fault) -> String {
    let Fault { part, name, fault, in_force, way_out } = part;
    format!("{} {name}: {fault}; in force: {in_force} ({way_out})", part.as_str())
}

/// The runtime runs the new code, and the gateway offers it.
async fn take_up(served: &Served, installed: &[Installed]) {
    let Some(runtime) = &served.runtime else { return };
    let mut taken = Vec::new();
    for plugin in installed {
        match runtime.take_up(plugin).await {
            Ok(()) => taken.push(plugin),
            // Its state is what the table tells; the gateway asks the runtime again and again.
            Err(error) => {
                tracing::warn!(plugin = %plugin.id, %error, "the runtime does not run the new code of a plugin");
            }
        }
    }
    let offered = async {
        while served.gateway.upgrade().is_some_and(|gateway| {
            let servers = gateway.standing(ready::ORG);
            let mut plugins = servers.iter().flat_map(|server| &server.plugins);
            plugins.any(|plugin| {
                matches!(plugin.availability, Availability::Impossible(_))
                    && taken.iter().any(|one| one.id == plugin.id && one.version == plugin.version)
            })
        }) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    // Err: the table says that it cannot run, and why.
    let _ = tokio::time::timeout(OFFERED, offered).await;
}

/// Waits until the gateway serves what the store has at `revision`; returns what of it is served otherwise.
async fn reached(served: &Served, revision: u64) -> anyhow::Result<Vec<Fault>> {
    let mut standing = served.publisher.standing();
    let standing = standing
        .wait_for(|standing| standing.is_of(revision))
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
    Ok(standing.parts)
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
