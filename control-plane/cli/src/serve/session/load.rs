//! Loads a directory into the gateway: checks, builds, stores, publishes and installs it.
//!
//! Keeps true: a directory with a fault is neither stored nor installed, so that the previous specs and code stay in service,
//! and new code of a served plugin that does not build or load is such a fault; no request meets new specs with old code;
//! once a load is reported as in force, the next call reaches it.

use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::time::Duration;

use anyhow::{Context, bail};
use asp_call::execution::Availability;
use asp_command::print;
use asp_control::apply::{self, Terms};
use asp_control::catalog::fault::{Fault, Part};
use asp_control::catalog::{self, Bundle};
use asp_packaging::{InstallOutcome, InstalledUnit, Unit};
use asp_registry::{Catalog, Source};
use tokio::task::{block_in_place, spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::SessionContext;
use super::schemas::{self, DerivedSchemas};
use crate::stack::plugins::{MissingPlugin, PastBuilds, Staging};
use crate::stack::ready;

const TERMS: Terms = Terms { actor: "dev", prune: true, confirms_a2a: true };
/// Timeout from the store to the gateway in the same process: far longer than it takes on a busy machine.
const IN_FORCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Timeout for the gateway to offer new code: it asks its runtime every few seconds about plugins that could not run.
const OFFERED: Duration = Duration::from_secs(8);

/// Result of a load.
pub(super) struct LoadResult {
    pub(super) revision: u64,
    /// Names, sorted.
    pub(super) servers: Vec<String>,
    /// Plugins with new code.
    pub(super) plugins: Vec<String>,
    pub(super) not_installed: Vec<MissingPlugin>,
    /// Reasons why servers are not published as they are in the directory, with the part that is served.
    pub(super) left_out: Vec<String>,
    /// Schema files that were rewritten after the code.
    pub(super) written: Vec<PathBuf>,
    /// Other messages for the reader.
    pub(super) notes: Vec<String>,
    /// Users of named secrets that do not exist, one a line.
    pub(super) unused_secrets: Vec<String>,
}

/// Reasons why a load is not in force.
#[derive(Debug, Default)]
pub(super) struct LoadRefusal {
    pub(super) faults: Vec<String>,
    /// Other messages for the reader.
    pub(super) notes: Vec<String>,
}

impl From<Vec<String>> for LoadRefusal {
    fn from(faults: Vec<String>) -> LoadRefusal {
        LoadRefusal { faults, notes: Vec::new() }
    }
}

/// Brings the directory into force, or returns every reason why not. `made` holds the builds of earlier loads.
pub(super) async fn load(
    served: &SessionContext,
    directory: &Path,
    made: &mut PastBuilds,
) -> Result<LoadResult, LoadRefusal> {
    // At the first load the developer has just built the plugins, or learns of stale schemas from lint.
    let is_first = made.is_empty();
    let DirectoryContents { sources, found, faults } = block_in_place(|| read(directory))?;
    let staging = stage(served, directory, &found, made).await?;
    let is_asked = |unit: &Unit| {
        let is_it = |id: &str, version: &str| unit.id == id && unit.version == version;
        let failed = staging.not_installed.iter().any(|one| is_it(&one.id, &one.version));
        let is_new = staging.to_install().any(|one| is_it(&one.id, &one.version));
        let runs = served.runtime.as_ref().is_some_and(|runtime| runtime.runs(unit));
        runs && !failed && (!faults.is_empty() || (is_new && !is_first))
    };
    let units = asp_packaging::units(&found.servers, Some(directory)).into_iter().filter(is_asked);
    let asked = schemas::derive_schemas(directory, &sources, &units.collect::<Vec<_>>()).await;
    if !asked.has_stale() {
        return match faults.is_empty() {
            true => finish(served, (directory, is_first), (&sources, found), staging, asked).await,
            false => Err(LoadRefusal { faults, notes: asked.notes }),
        };
    }
    // The author means specs and code together: neither takes effect without the other.
    let sources = asked.with(directory, sources);
    let report = asp_registry::check(&sources);
    let Some(found) = report.catalog else {
        let faults = report.faults.iter().map(catalog::describe).collect();
        return Err(LoadRefusal { faults, notes: asked.notes });
    };
    drop(staging);
    let staging = stage(served, directory, &found, made).await?;
    finish(served, (directory, is_first), (&sources, found), staging, asked).await
}

/// A directory whose files have no faults except `faults`, which new schemas of its code may fix.
struct DirectoryContents {
    sources: Vec<Source>,
    found: Catalog,
    faults: Vec<String>,
}

fn read(root: &Path) -> Result<DirectoryContents, Vec<String>> {
    let sources = asp_registry::read_dir(root).map_err(|error| vec![error.to_string()])?;
    let report = asp_registry::check(&sources);
    let faults: Vec<String> = report.faults.iter().map(catalog::describe).collect();
    if let Some(found) = report.catalog {
        return Ok(DirectoryContents { sources, found, faults: Vec::new() });
    }
    match asp_registry::check_before_build(&sources).catalog {
        Some(found) => Ok(DirectoryContents { sources, found, faults }),
        None => Err(faults),
    }
}

/// Builds the plugins without blocking calls; a running build ends with the session.
async fn stage(
    served: &SessionContext,
    root: &Path,
    found: &Catalog,
    made: &mut PastBuilds,
) -> Result<Staging, Vec<String>> {
    let Some(runtime) = served.runtime.clone() else { return Ok(Staging::default()) };
    let root = root.to_owned();
    let found = found.clone();
    let mut known = std::mem::take(made);
    let stop = CancellationToken::new();
    let _ends = stop.clone().drop_guard();
    let work = move || (runtime.stage(&found, &root, &mut known, &stop), known);
    let (staging, known) = spawn_blocking(work).await.map_err(|error| vec![error.to_string()])?;
    *made = known;
    Ok(staging)
}

/// Brings the checked and built servers into force, then writes the schemas derived from the code.
async fn finish(
    served: &SessionContext,
    (directory, is_first): (&Path, bool),
    (sources, found): (&[Source], Catalog),
    mut staging: Staging,
    mut asked: DerivedSchemas,
) -> Result<LoadResult, LoadRefusal> {
    for (id, version, error) in &asked.broken {
        staging.refuse(id, version, error);
    }
    let faults = match is_first {
        // Nothing is served yet.
        true => Vec::new(),
        false => faults_of_code(served, &asp_packaging::units(&found.servers, Some(directory)), &staging),
    };
    if !faults.is_empty() {
        return Err(LoadRefusal { faults, notes: asked.notes });
    }
    let bundles = catalog::bundles(sources, found);
    let put = put_in_force(served, bundles, staging).await;
    let mut loaded = put.map_err(|error| vec![print::in_full(&error)])?;
    loaded.written = asked.write();
    loaded.notes = asked.notes;
    Ok(loaded)
}

/// Returns the faults of code next to its spec that replaces code in service.
fn faults_of_code(served: &SessionContext, units: &[Unit], staging: &Staging) -> Vec<String> {
    let is_served = |failed: &&MissingPlugin| {
        let is_it = |unit: &Unit| unit.id == failed.id && unit.version == failed.version;
        let has_code = units.iter().any(|unit| is_it(unit) && unit.folder.is_some());
        has_code && served.runtime.as_ref().is_some_and(|runtime| runtime.has_any(&failed.id))
    };
    let failed = staging.not_installed.iter().filter(is_served);
    failed
        .map(|MissingPlugin { id, why, remedy, .. }| {
            format!("plugin {id}: {why}; its code from before stays in force ({remedy})")
        })
        .collect()
}

/// Stores the servers, waits until the gateway has them, and replaces earlier versions of their plugins.
async fn put_in_force(
    served: &SessionContext,
    bundles: Vec<Bundle>,
    mut staging: Staging,
) -> anyhow::Result<LoadResult> {
    let mut servers: Vec<String> = bundles.iter().map(|bundle| bundle.server.server.name.clone()).collect();
    servers.sort();
    let units = |bundle: &Bundle| {
        let name = bundle.server.server.name.clone();
        (name, asp_packaging::units(from_ref(&bundle.server), None))
    };
    let plugins: Vec<_> = bundles.iter().map(units).collect();
    let compiled = bundles.iter().map(|bundle| &bundle.server);
    let unused = served.runtime.as_ref().map(|runtime| runtime.unused_secrets(compiled)).unwrap_or_default();
    let _held = served.gate.write().await;
    // A new plugin is in use by no one yet, and the gateway asks for it as soon as it knows of it.
    let mut installed =
        block_in_place(|| staging.place(|plugin| plugin.outcome == InstallOutcome::Installed));
    let revision = apply::servers(served.store.as_ref(), &served.compiler, bundles, TERMS).await?;
    served.publisher.changed();
    let waited = tokio::time::timeout(IN_FORCE, wait_for_revision(served, revision)).await;
    let parts =
        waited.context("the gateway did not apply the snapshot in time; see its log (ASP_LOG=info)")??;
    let is_left_out =
        |server: &str| parts.iter().any(|part| part.part == Part::Server && part.name == server);
    let held = |plugin: &InstalledUnit| {
        let of_left_out = plugins.iter().filter(|(server, _)| is_left_out(server));
        of_left_out
            .flat_map(|(_, units)| units)
            .any(|unit| unit.id == plugin.id && unit.version == plugin.version)
    };
    installed.extend(block_in_place(|| staging.place(|plugin| !held(plugin))));
    take_up(served, &installed).await;
    Ok(LoadResult {
        revision,
        servers,
        plugins: installed.into_iter().map(|plugin| plugin.id).collect(),
        not_installed: staging.not_installed,
        left_out: parts.iter().map(describe_fault).collect(),
        written: Vec::new(),
        notes: Vec::new(),
        unused_secrets: unused.iter().map(ToString::to_string).collect(),
    })
}

fn describe_fault(part: &Fault) -> String {
    let Fault { part, name, fault, in_force, remedy } = part;
    format!("{} {name}: {fault}; in force: {in_force} ({remedy})", part.as_str())
}

/// Waits until the runtime runs the new code and the gateway offers it.
async fn take_up(served: &SessionContext, installed: &[InstalledUnit]) {
    let Some(runtime) = &served.runtime else { return };
    let mut taken = Vec::new();
    for plugin in installed {
        match runtime.take_up(plugin).await {
            Ok(()) => taken.push(plugin),
            // The table shows the plugin's state; the gateway keeps asking the runtime.
            Err(error) => {
                tracing::warn!(plugin = %plugin.id, %error, "runtime does not run the new code of a plugin");
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
    // Err: the table shows that the plugin cannot run, and why.
    let _ = tokio::time::timeout(OFFERED, offered).await;
}

/// Waits until the gateway serves what the store has at `revision`; returns the parts that are served differently.
async fn wait_for_revision(served: &SessionContext, revision: u64) -> anyhow::Result<Vec<Fault>> {
    let mut standing = served.publisher.status();
    let standing = standing
        .wait_for(|standing| standing.is_of(revision))
        .await
        .context("publishing has stopped")?
        .clone();
    // A fault of a later revision does not concern this one.
    if let Some(fault) = standing.fault.filter(|_| standing.covers < revision) {
        bail!("it cannot be published: {fault}");
    }
    // A revision that does not change the snapshot is not pushed.
    let published = served.publisher.xds_state().borrow().snapshot.as_ref().map(|snapshot| snapshot.revision);
    while served.gateway.upgrade().is_some_and(|gateway| gateway.revision() < published.unwrap_or_default()) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(standing.parts)
}
