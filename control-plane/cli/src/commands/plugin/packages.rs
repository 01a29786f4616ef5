//! `asp plugin build`, `push` and `install`: builds, uploads and installs package files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_control::package_format::Format;
use asp_packaging::dependencies::Dependencies;
use asp_packaging::pack::{PackageFile, digest, pack};
use asp_packaging::schemas::{self, PluginSchemas};
use asp_packaging::{ConflictPolicy, InstallOutcome, InstalledUnit, Unit, build as sources};
use asp_platform::shell;
use asp_registry::Source;
use asp_store::packages::MAX_PACKAGE;
use serde::Serialize;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::super::client::{AdminClient, api_path, block_on};
use super::super::specs;
use super::read;
use crate::args::plugin::{PluginBuildArgs, PluginInstallArgs, PluginPushArgs};

/// A package file and its plugin, as printed by `--json`.
#[derive(Serialize)]
struct BuiltPackage {
    id: String,
    version: String,
    language: String,
    file: PathBuf,
    size: u64,
    sha256: String,
}

pub(super) async fn build(args: &PluginBuildArgs) -> Result<(), Failure> {
    if args.check {
        check_locks(&args.directory).await?;
    }
    let BuiltSources { units, stale, .. } = build_sources(&args.directory).await?;
    if units.is_empty() {
        print::error(&format!("no spec below {} has a plugin", args.directory.display()));
    }
    if args.check {
        return check(&stale, args);
    }
    for schemas in &stale {
        print::error(&schemas.write()?);
    }
    pack_all(args)
}

/// Fails if dependencies are not pinned as they are declared, before a build would pin them.
async fn check_locks(directory: &Path) -> Result<(), Failure> {
    let (_, found) = specs::checked_before_build(directory)?;
    let units = asp_packaging::units(&found.servers, Some(directory));
    let stop = CancellationToken::new();
    let _ends = stop.clone().drop_guard();
    let checked = spawn_blocking(move || {
        let folders = units.iter().filter_map(|unit| Some((unit.folder.as_deref()?, &unit.language)));
        let mut declared = folders.filter_map(|(folder, language)| Dependencies::of(folder, language));
        declared.try_for_each(|dependencies| dependencies.check(&stop))
    });
    let checked = checked.await.context("check the locks")?;
    checked.with_context(|| {
        format!("run `asp plugin build {}` and commit the files that it writes", directory.display())
    })?;
    Ok(())
}

/// Files of a directory whose plugins are built.
pub(in crate::commands) struct BuiltSources {
    pub(in crate::commands) files: Vec<Source>,
    pub(in crate::commands) units: Vec<Unit>,
    /// Schemas of the code that differ from those in the files.
    pub(in crate::commands) stale: Vec<PluginSchemas>,
}

/// Builds the plugins of a directory and derives their schemas, without writing specs.
pub(in crate::commands) async fn build_sources(directory: &Path) -> Result<BuiltSources, Failure> {
    let (files, found) = specs::checked_before_build(directory)?;
    let units = asp_packaging::units(&found.servers, Some(directory));
    sources::all_async(&units, None).await?;
    let mut stale = schemas::from_code(directory, &files, &units).await?;
    stale.retain(|schemas| !schemas.is_current());
    Ok(BuiltSources { files, units, stale })
}

/// Packs the code of a unit into the directory `out`, with a file of its digest; `None` if its code is not here.
pub(in crate::commands) fn pack_unit(unit: &Unit, out: &Path) -> Result<Option<PackageFile>, Failure> {
    let Some(folder) = &unit.folder else { return Ok(None) };
    let package = pack(unit, folder, out).with_context(|| format!("build the package of {}", unit.id))?;
    write_digest(&package)?;
    Ok(Some(package))
}

/// Fails if schema files differ from the code, and prints the differences.
fn check(stale: &[PluginSchemas], args: &PluginBuildArgs) -> Result<(), Failure> {
    if stale.is_empty() {
        // Reports other faults of schemas and specs together, as every other command does.
        return read(&args.directory).map(|_| ());
    }
    for schemas in stale {
        print::error(&schemas.difference());
    }
    print::error(&format!(
        "run `asp plugin build {}` and commit the files that it writes",
        args.directory.display()
    ));
    Err(Failure::Refused)
}

fn pack_all(args: &PluginBuildArgs) -> Result<(), Failure> {
    let (_, units) = read(&args.directory)?;
    std::fs::create_dir_all(&args.out).with_context(|| format!("make {}", args.out.display()))?;
    let mut built = Vec::new();
    for unit in &units {
        let Some(package) = pack_unit(unit, &args.out)? else { continue };
        if !args.json {
            print::line(&format!("{} {} {}", package.path.display(), package.size, package.sha256));
        }
        for pin in unit.pins.iter().filter(|pin| **pin != package.sha256) {
            print::error(&format!("{}@{}: its spec pins another package, {pin}", unit.id, unit.version));
        }
        built.push(BuiltPackage {
            id: unit.id.clone(),
            version: unit.version.clone(),
            language: unit.language.clone(),
            file: package.path,
            size: package.size,
            sha256: package.sha256,
        });
    }
    if args.json {
        print::json(&built);
    } else if !built.is_empty() {
        print::next_step(&format!("asp plugin push {}", shell::path(&args.out)));
    }
    Ok(())
}

/// Writes `<file>.sha256` in the format of sha256sum(1).
fn write_digest(package: &PackageFile) -> Result<(), Failure> {
    let path = digest_path(&package.path);
    let text = format!("{}  {}\n", package.sha256, package.name);
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(())
}

fn digest_path(package: &Path) -> PathBuf {
    let mut name = package.as_os_str().to_owned();
    name.push(".sha256");
    name.into()
}

pub(super) async fn push(args: &PluginPushArgs) -> Result<(), Failure> {
    let files = package_files(&args.files)?;
    let api = AdminClient::of(args.url.as_deref(), &ProcessEnvironment)?;
    let mut results = Vec::new();
    for file in &files {
        let package = existing(file)?;
        let outcome = push_package(&api, &package).await?;
        if !args.json {
            print::line(&format!("{outcome} {} {} {}", package.name, package.size, package.sha256));
        }
        results.push(json!({
            "name": package.name, "size": package.size, "sha256": package.sha256, "outcome": outcome,
        }));
    }
    if args.json {
        print::json(&results);
    } else {
        print::next_step("write each digest into `runtime.artifactSha256` of its spec, then asp apply DIR");
    }
    Ok(())
}

/// Uploads a package file; returns what became of it in one word.
pub(in crate::commands) async fn push_package(
    api: &AdminClient,
    package: &PackageFile,
) -> Result<&'static str, Failure> {
    let file = &package.path;
    let opened = tokio::fs::File::open(file).await.with_context(|| format!("open {}", file.display()))?;
    let path = format!(
        "{}?name={}",
        api_path(&["api", "artifacts", &package.sha256]),
        package.name.replace('+', "%2B")
    );
    let answer = api.upload(&path, opened, package.size).await?;
    let outcome = if answer.status == reqwest::StatusCode::CREATED { "pushed" } else { "unchanged" };
    answer.accepted()?;
    Ok(outcome)
}

/// Returns the given files, and the package files in the given directories.
fn package_files(named: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let is_package = |path: &Path| {
        path.is_file() && path.file_name().and_then(|name| Format::of_name(name.to_str()?)).is_some()
    };
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path).with_context(|| format!("read {}", path.display()))? {
            found.push(entry.with_context(|| format!("read {}", path.display()))?.path());
        }
        found.retain(|path| is_package(path));
        found.sort();
        if found.is_empty() {
            return Err(
                anyhow!("{} has no package; create it with `asp plugin build`", path.display()).into()
            );
        }
        files.extend(found);
    }
    Ok(files)
}

/// Reads an existing package file, which must match the digest file next to it.
fn existing(path: &Path) -> Result<PackageFile, Failure> {
    let (size, sha256) = digest(path).context("read the package")?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    if let Ok(said) = std::fs::read_to_string(digest_path(path))
        && said.split_whitespace().next() != Some(sha256.as_str())
    {
        return Err(anyhow!("{} does not match {name}.sha256; build it again", path.display()).into());
    }
    Ok(PackageFile { path: path.to_owned(), name, size, sha256 })
}

pub(super) fn install(args: &PluginInstallArgs) -> Result<(), Failure> {
    let existing = if args.replace { ConflictPolicy::Replace } else { ConflictPolicy::Keep };
    if let Some(url) = &args.from {
        return block_on(install_from(args, url, existing));
    }
    let (_, units) = read(&args.directory)?;
    let report = asp_packaging::install(&units, &args.plugins, existing, None).context("install plugins")?;
    for id in &report.without_code {
        print::error(&format!("plugin {id}: no code next to its spec (plugins/{id}/); not installed"));
    }
    show(&report.installed, args.json);
    Ok(())
}

fn show(installed: &[InstalledUnit], json: bool) {
    if json {
        print::json(&installed);
        return;
    }
    for plugin in installed {
        let outcome = plugin.outcome.word();
        let digest = &plugin.artifact_sha256;
        print::line(&format!("{}@{} {} {digest} {outcome}", plugin.id, plugin.version, plugin.language));
    }
}

/// Installs what the registered servers pin, once or repeatedly.
async fn install_from(args: &PluginInstallArgs, url: &str, existing: ConflictPolicy) -> Result<(), Failure> {
    let api = AdminClient::of(Some(url), &ProcessEnvironment)?;
    let Some(seconds) = args.every else {
        let faults = install_once(&api, args, existing).await?;
        return if faults == 0 { Ok(()) } else { Err(Failure::Refused) };
    };
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let work = async {
        loop {
            // Next to a runtime it must survive an unreachable control plane.
            if let Err(failure) = install_once(&api, args, existing).await {
                let why = match &failure {
                    Failure::Other(error) => print::in_full(error),
                    failure => failure.to_string(),
                };
                print::error(&format!("nothing could be installed: {why}"));
            }
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
    };
    // Dropping the work removes partial installations.
    tokio::select! {
        () = work => Ok(()),
        _ = terminate.recv() => Ok(()),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// Installs what is missing; prints a line for each plugin that could not be installed, and returns their number.
async fn install_once(
    api: &AdminClient,
    args: &PluginInstallArgs,
    existing: ConflictPolicy,
) -> Result<usize, Failure> {
    let units = registered(api).await?;
    let mut installed = Vec::new();
    let mut faults = 0;
    for unit in &units {
        match install_one(api, unit, &args.plugins, existing).await {
            Ok(Some(done)) => installed.push(done),
            Ok(None) => {
                let id = &unit.id;
                let version = &unit.version;
                print::error(&format!("plugin {id}@{version}: its spec pins no package; not installed"));
            }
            Err(error) => {
                faults += 1;
                print::error(&print::in_full(&error));
            }
        }
    }
    if args.every.is_some() {
        installed.retain(|one| one.outcome != InstallOutcome::Unchanged);
    }
    if args.every.is_none() || !installed.is_empty() {
        show(&installed, args.json);
    }
    Ok(faults)
}

/// Returns the units of every server that the control plane has.
async fn registered(api: &AdminClient) -> Result<Vec<Unit>, Failure> {
    Ok(asp_packaging::units(&specs::stored(api, None).await?, None))
}

/// Downloads a unit's package by its digest and installs it; `None` if its specs pin no package.
pub(in crate::commands) async fn install_one(
    api: &AdminClient,
    unit: &Unit,
    plugins: &Path,
    existing: ConflictPolicy,
) -> anyhow::Result<Option<InstalledUnit>> {
    let name = format!("{}@{}", unit.id, unit.version);
    let mut pins = unit.pins.iter();
    let Some(pin) = pins.next() else { return Ok(None) };
    if pins.next().is_some() {
        return Err(anyhow!("plugin {name}: its specs pin several packages"));
    }
    if let Some(there) = asp_packaging::installed(unit, plugins, pin) {
        return Ok(Some(there));
    }
    let work = asp_packaging::work(plugins)?;
    let path = work.path().join("download");
    let found = api.download(&api_path(&["api", "artifacts", pin]), &path, MAX_PACKAGE).await;
    if found.with_context(|| format!("plugin {name}"))?.is_none() {
        return Err(anyhow!("plugin {name}: the artifact store has no {pin}; `asp plugin push` it"));
    }
    let (size, sha256) = digest(&path)?;
    if sha256 != *pin {
        return Err(anyhow!("plugin {name}: the package has the digest {sha256}, not {pin}"));
    }
    let package = PackageFile { path, name: format!("{}-{}.jar", unit.id, unit.version), size, sha256 };
    Ok(Some(asp_packaging::install_package(unit, &package, plugins, existing)?))
}
