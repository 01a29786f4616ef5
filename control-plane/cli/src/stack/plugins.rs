//! The plugins of a development machine, built and installed one by one.
//!
//! Keeps true: a plugin that cannot be built or installed affects nothing else, and is reported in one line with the remedy.
//! Its earlier build is not run instead, unless its author is present and wants that. Staging does not change what is
//! installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::slice::from_ref;

use anyhow::Context;
use asp_command::print;
use asp_packaging::schemas::OUTPUT;
use asp_packaging::{ConflictPolicy, InstallOutcome, InstalledUnit, StagedUnit, Unit, build, fingerprint};
use asp_registry::Catalog;
use tokio_util::sync::CancellationToken;

/// Maximum bytes shown of a reason; the command given as remedy prints all of it.
const MAX_REASON: usize = 240;

/// Beginnings of the lines in which shims say why code does not load.
const SHIMS: [&str; 2] = ["cannot load the plugin: ", "the plugin could not be loaded: "];

/// A plugin that is not installed for any runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPlugin {
    pub id: String,
    pub version: String,
    pub language: String,
    /// Reason, in one line.
    pub why: String,
    /// Command that shows or fixes the cause.
    pub remedy: String,
}

/// Digests of the sources of past builds, by id and version; bounded by the size of the last catalog.
#[derive(Debug, Default)]
pub struct PastBuilds(BTreeMap<(String, String), Build>);

/// Digests of the inputs of a package; see [`fingerprint`].
#[derive(Debug)]
struct Build {
    sources: [u8; 32],
    snapshots: [u8; 32],
    sha256: String,
}

/// Built plugins, some of them not yet installed.
#[derive(Debug, Default)]
pub struct Staging {
    staged: Vec<StagedUnit>,
    pub not_installed: Vec<MissingPlugin>,
    root: PathBuf,
}

impl PastBuilds {
    /// Whether nothing was built yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Staging {
    /// Discards a staged plugin whose code turns out not to load.
    pub fn refuse(&mut self, id: &str, version: &str, error: &anyhow::Error) {
        let is_it =
            |staged: &mut StagedUnit| staged.installed().id == id && staged.installed().version == version;
        for staged in self.staged.extract_if(.., is_it) {
            let InstalledUnit { id, version, language, .. } = staged.installed().clone();
            let why = format!("its code does not load: {}", reason_for_not_loading(error));
            let remedy = try_it(&self.root, &id);
            self.not_installed.push(MissingPlugin { id, version, language, why, remedy });
        }
    }

    /// Returns the plugins that are not yet installed.
    pub fn to_install(&self) -> impl Iterator<Item = &InstalledUnit> {
        self.staged.iter().map(StagedUnit::installed)
    }

    /// Installs and returns the staged plugins for which `wanted` holds.
    pub fn place(&mut self, wanted: impl Fn(&InstalledUnit) -> bool) -> Vec<InstalledUnit> {
        let (now, later) =
            std::mem::take(&mut self.staged).into_iter().partition(|staged| wanted(staged.installed()));
        self.staged = later;
        let now: Vec<StagedUnit> = now;
        now.into_iter().filter_map(|staged| self.put(staged)).collect()
    }

    fn put(&mut self, staged: StagedUnit) -> Option<InstalledUnit> {
        let InstalledUnit { id, version, language, .. } = staged.installed().clone();
        match staged.place() {
            Ok(installed) => {
                tracing::info!(%id, %version, %language, "plugin installed");
                Some(installed)
            }
            Err(error) => {
                let why = most_informative_line(&error);
                let remedy = try_it(&self.root, &id);
                self.not_installed.push(MissingPlugin { id, version, language, why, remedy });
                None
            }
        }
    }
}

/// Builds and installs every plugin of `catalog` in one of `languages`, with its code below `root`; changed code replaces the
/// installed version. Returns the plugins that could not be installed; their earlier builds are removed, because they do not
/// match the code next to the spec.
pub fn install(
    catalog: &Catalog,
    root: &Path,
    (plugins, languages): (&Path, &[&str]),
    stop: &CancellationToken,
) -> Vec<MissingPlugin> {
    let mut staging = stage(catalog, root, (plugins, languages), &mut PastBuilds::default(), stop);
    staging.place(|_| true);
    for MissingPlugin { id, version, language, why, remedy } in &staging.not_installed {
        tracing::warn!(
            %id, %version, %language, %why, %remedy,
            "plugin is off because it could not be installed; everything else keeps running"
        );
    }
    let failed = |unit: &Unit| {
        staging.not_installed.iter().any(|one| (&one.id, &one.version) == (&unit.id, &unit.version))
    };
    for unit in asp_packaging::units(&catalog.servers, Some(root)).iter().filter(|unit| failed(unit)) {
        forget(unit, plugins);
    }
    staging.not_installed
}

/// Builds every plugin of `catalog` in one of the languages whose code changed since the build in `made`, without changing
/// what is installed. A running build ends on `stop`.
pub fn stage(
    catalog: &Catalog,
    root: &Path,
    (plugins, languages): (&Path, &[&str]),
    made: &mut PastBuilds,
    stop: &CancellationToken,
) -> Staging {
    let mut staging = Staging { root: root.to_owned(), ..Staging::default() };
    let units = asp_packaging::units(&catalog.servers, Some(root));
    made.0.retain(|(id, version), _| units.iter().any(|unit| (&unit.id, &unit.version) == (id, version)));
    for unit in units {
        if !unit.is_in(Some(languages)) {
            tracing::warn!(id = %unit.id, language = %unit.language, "plugin is off: its language is not available");
            continue;
        }
        match one(&unit, root, plugins, made, stop) {
            Ok(staged) => {
                let is_news = |staged: &StagedUnit| staged.installed().outcome != InstallOutcome::Unchanged;
                staging.staged.extend(staged.filter(is_news));
            }
            Err((why, remedy)) => {
                let Unit { id, version, language, .. } = unit;
                staging.not_installed.push(MissingPlugin { id, version, language, why, remedy });
            }
        }
    }
    staging
}

/// Builds one plugin. Returns `None` if nothing changed; fails with the reason and the remedy.
fn one(
    unit: &Unit,
    root: &Path,
    plugins: &Path,
    made: &mut PastBuilds,
    stop: &CancellationToken,
) -> Result<Option<StagedUnit>, (String, String)> {
    let Some(folder) = &unit.folder else {
        let install = format!("asp plugin install --from $ASP_ADMIN_URL --plugins {}", plugins.display());
        return Err(("has no code next to its spec".into(), install));
    };
    let key = (unit.id.clone(), unit.version.clone());
    let sources = fingerprint::of(folder, &unit.language);
    if let Some(build) = made.0.get(&key)
        && sources == Some(build.sources)
        && fingerprint::of_snapshots(folder) == build.snapshots
        && asp_packaging::installed(unit, plugins, &build.sha256).is_some()
    {
        return Ok(None);
    }
    let id = &unit.id;
    build::all(from_ref(unit), None, stop).map_err(|error| {
        tracing::debug!(%id, error = format!("{error:#}"), "the whole output of the build");
        (format!("does not build: {}", with_remedy(most_informative_line(&error))), try_it(root, id))
    })?;
    let staged =
        asp_packaging::stage_files(unit, folder, plugins, ConflictPolicy::Replace).context("install it");
    let staged = staged.map_err(|error| (most_informative_line(&error), try_it(root, id)))?;
    if let Some(sources) = sources {
        // The artifacts that Maven used are known only after the build.
        let snapshots = fingerprint::of_snapshots(folder);
        let sha256 = staged.installed().artifact_sha256.clone();
        made.0.insert(key, Build { sources, snapshots, sha256 });
    }
    Ok(Some(staged))
}

fn try_it(root: &Path, id: &str) -> String {
    format!("asp plugin test {} --only {id}", root.display())
}

/// Removes what an earlier start installed, because it does not match the code next to the spec.
fn forget(unit: &Unit, plugins: &Path) {
    if unit.folder.is_none() {
        // The plugin is installed by other means.
        return;
    }
    let place: PathBuf = plugins.join(&unit.id).join(&unit.version);
    match std::fs::remove_dir_all(&place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(
                id = %unit.id, path = %place.display(), %error,
                "earlier build of a plugin could not be removed and may still run"
            );
        }
        Ok(()) | Err(_) => {}
    }
}

/// Returns the line of a plugin's output that says why its code does not load: the shims' own line, else the last one.
fn reason_for_not_loading(error: &anyhow::Error) -> String {
    let text = print::in_full(error);
    let Some((_, output)) = text.split_once(OUTPUT) else { return most_informative_line(error) };
    let lines = || output.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("(the process"));
    let marked = lines().find_map(|line| SHIMS.iter().find_map(|mark| line.split_once(mark)));
    shortened(marked.map(|(_, reason)| reason).or_else(|| lines().next_back()).unwrap_or_default())
}

/// Returns the most informative line of an error: compilers write many, of which one has the place of the first fault.
fn most_informative_line(error: &anyhow::Error) -> String {
    let text = print::in_full(error);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let names_a_place = |line: &&str| line.contains(".java:");
    let names_an_error = |line: &&str| line.to_ascii_lowercase().contains("error");
    let found =
        lines().find(names_a_place).or_else(|| lines().find(names_an_error)).or_else(|| lines().next());
    shortened(found.unwrap_or_default().trim_start_matches("[ERROR] "))
}

/// Adds where a library belongs that javac does not find.
fn with_remedy(line: String) -> String {
    let is_missing =
        line.contains(".java:") && line.contains("package ") && line.ends_with(" does not exist");
    if is_missing { line + ": list the library in pom.xml" } else { line }
}

fn shortened(line: &str) -> String {
    let mut line = line.trim().to_owned();
    line.truncate(line.floor_char_boundary(MAX_REASON));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "apiVersion: asp/v1\nname: mixed\ndescription: For tests.\nprotocols: [mcp]\n\
        defaultExposure: allow\nauth: {schemes: [jwt], issuers: [dev]}\n\
        primitives: [{ref: mixed/bad}, {ref: mixed/bare}, {ref: mixed/good}, {ref: mixed/other}]\n";

    fn spec(id: &str, language: &str, entrypoint: &str) -> String {
        format!(
            "id: {id}\nname: {id}\ntype: tool\nversion: 1.0.0\nowner: t@example.com\nsummary: Tests.\n\
             mutation: read_only\nprimitiveSchema: {{input_schema: {{type: object}}}}\nsecurity: {{riskClass: low}}\n\
             runtime: {{mode: plugin, language: {language}, entrypoint: {entrypoint}}}\n"
        )
    }

    fn never() -> CancellationToken {
        CancellationToken::new()
    }

    /// A server with four plugins: `bad` does not build, `bare` has no code, `good` is valid, `other` is in another language.
    fn primitives(root: &Path) -> Catalog {
        let server = root.join("mixed");
        for (id, file, code) in [
            ("bad", "pom.xml", "<project"),
            ("good", "main.py", "def main(): pass\n"),
            ("other", "main.mjs", ""),
        ] {
            let folder = server.join("plugins").join(id);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(file), code).unwrap();
        }
        std::fs::write(server.join("server.yaml"), SERVER).unwrap();
        for (id, language, entrypoint) in [
            ("bad", "java", "demo.Bad"),
            ("bare", "python", "main.py"),
            ("good", "python", "main.py"),
            ("other", "node", "main.mjs"),
        ] {
            std::fs::write(server.join(format!("{id}.yaml")), spec(id, language, entrypoint)).unwrap();
        }
        let report = asp_registry::check(&asp_registry::read_dir(root).unwrap());
        report.catalog.unwrap_or_else(|| panic!("{:?}", report.faults))
    }

    #[test]
    fn a_plugin_that_does_not_build_keeps_no_other_from_being_installed() {
        let work = tempfile::tempdir().unwrap();
        let root = work.path().join("primitives");
        let catalog = primitives(&root);
        let plugins = work.path().join("plugins");
        let stale = plugins.join("bad/1.0.0");
        std::fs::create_dir_all(&stale).unwrap();
        let languages = ["python", "java"];
        let mut made = PastBuilds::default();
        let mut staging = stage(&catalog, &root, (&plugins, &languages), &mut made, &never());
        assert!(!plugins.join("good").exists(), "what is staged is installed");
        assert_eq!(staging.place(|_| true).len(), 1);
        assert!(stale.exists(), "what worked is gone");
        let failed = install(&catalog, &root, (&plugins, &languages), &never());
        let names: Vec<&str> = failed.iter().map(|plugin| plugin.id.as_str()).collect();
        assert_eq!(names, ["bad", "bare"], "{failed:?}");
        let bad = &failed[0];
        assert!(bad.why.starts_with("does not build: ") && !bad.why.contains('\n'), "{bad:?}");
        assert_eq!(bad.remedy, format!("asp plugin test {} --only bad", root.display()));
        assert!(failed[1].remedy.starts_with("asp plugin install --from"), "{failed:?}");
        assert!(plugins.join("good/1.0.0/plugin.json").is_file());
        assert!(!stale.exists(), "an earlier build stays");
        assert!(!plugins.join("other").exists());
    }

    #[test]
    fn a_library_that_is_missing_is_named_with_its_place() {
        let line = |text: &str| with_remedy(text.to_owned());
        let javac = "Main.java:1: error: package com.example does not exist";
        assert_eq!(line(javac), format!("{javac}: list the library in pom.xml"));
        assert_eq!(line("Main.java:1: error: ';' expected"), "Main.java:1: error: ';' expected");
    }

    #[test]
    fn what_changed_is_built_again_and_nothing_else() {
        let work = tempfile::tempdir().unwrap();
        let root = work.path().join("primitives");
        let catalog = primitives(&root);
        let plugins = work.path().join("plugins");
        let languages = ["python", "node"];
        let mut made = PastBuilds::default();
        let mut load = || -> Vec<(String, InstallOutcome)> {
            let mut staging = stage(&catalog, &root, (&plugins, &languages), &mut made, &never());
            let staged = staging.to_install().map(|plugin| (plugin.id.clone(), plugin.outcome)).collect();
            staging.place(|_| true);
            staged
        };
        let news = |id: &str, outcome| (id.to_owned(), outcome);
        assert_eq!(
            load(),
            [news("good", InstallOutcome::Installed), news("other", InstallOutcome::Installed)]
        );
        let folder = std::fs::File::open(&plugins).unwrap();
        folder.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(load(), []);
        assert_eq!(
            folder.metadata().unwrap().modified().unwrap(),
            std::time::UNIX_EPOCH,
            "it was packed again"
        );
        std::fs::write(root.join("mixed/plugins/good/main.py"), "def main(): return 1\n").unwrap();
        assert_eq!(load(), [news("good", InstallOutcome::Replaced)]);
        // A missing installation is made again, whatever the reason.
        std::fs::remove_dir_all(plugins.join("other")).unwrap();
        assert_eq!(load(), [news("other", InstallOutcome::Installed)]);
    }

    #[test]
    fn of_code_that_does_not_load_the_shims_reason_is_shown() {
        let why = |output: &str| {
            let error = anyhow::anyhow!(
                "quarantined: no; {OUTPUT}\n{output}\n(the process ended: it could not load)"
            );
            reason_for_not_loading(&error.context("greet: read the schemas of the code"))
        };
        let python = "  File \"helper.py\", line 2\nKeyError: 'x'\ncannot load the plugin: import main.py: helper.py:2: KeyError: 'x'";
        assert_eq!(why(python), "import main.py: helper.py:2: KeyError: 'x'");
        let node = "the plugin could not be loaded: Error: no\n    at main.mjs:3\nthrow error;";
        assert_eq!(why(node), "Error: no");
        let java = "there is no class Main in the package; runtime.entrypoint names it";
        assert_eq!(why(java), java);
        assert_eq!(
            reason_for_not_loading(&anyhow::anyhow!("asp-runtime did not start")),
            "asp-runtime did not start"
        );
    }

    #[test]
    fn of_a_compilers_output_the_line_with_the_place_is_told() {
        let javac =
            anyhow::anyhow!("javac failed:\n/a/Greet.java:7: error: ';' expected\n    foo()\n1 error");
        assert_eq!(most_informative_line(&javac), "/a/Greet.java:7: error: ';' expected");
        let maven = anyhow::anyhow!(
            "mvn failed:\n[INFO] Scanning\n[ERROR] Non-parseable POM /a/pom.xml\n[ERROR] more"
        );
        assert_eq!(most_informative_line(&maven.context("build plugin x")), "Non-parseable POM /a/pom.xml");
        let absent = anyhow::anyhow!("No such file or directory").context("start mvn; is it installed?");
        assert_eq!(most_informative_line(&absent), "start mvn; is it installed?: No such file or directory");
        assert!(most_informative_line(&anyhow::anyhow!("é".repeat(MAX_REASON))).len() <= MAX_REASON);
    }
}
