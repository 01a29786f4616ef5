//! The plugins of a development machine, built and installed one by one.
//!
//! Keeps true: a plugin that cannot be built or installed ends nothing but itself; it is told in one line with the
//! way out. An earlier build of it is not run in its place, unless its author is there and wants it.

use std::path::{Path, PathBuf};
use std::slice::from_ref;

use anyhow::Context;
use asp_registry::Catalog;

use crate::packaging::{self, Existing, Installed, Unit, build};

/// Bytes of a reason that are shown; all of it is what the command says that is the way out.
const MAX_REASON: usize = 240;

/// A plugin that no runtime finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotInstalled {
    pub id: String,
    pub version: String,
    pub language: String,
    /// One line.
    pub why: String,
    /// The command that shows or mends it.
    pub way_out: String,
}

/// What becomes of an earlier build of a plugin that cannot be built or installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It is not what the code beside the spec says, and nobody remembers it.
    Forget,
    /// Its author sees the fault, and goes on with what worked.
    Keep,
}

/// What became of the plugins; those whose language is not here are not among them.
#[derive(Clone, Debug, Default)]
pub struct Installation {
    pub installed: Vec<Installed>,
    pub not_installed: Vec<NotInstalled>,
}

/// Builds and installs every plugin of `catalog` in one of `languages`, whose code is looked for below `root`; code
/// that changed takes the place of what was there.
pub fn install(
    catalog: &Catalog,
    root: &Path,
    plugins: &Path,
    languages: &[&str],
    failed: Failed,
) -> Installation {
    let mut done = Installation::default();
    for unit in packaging::units(&catalog.servers, Some(root)) {
        if !unit.is_in(Some(languages)) {
            tracing::warn!(id = %unit.id, language = %unit.language, "plugin is off: its language is not here");
            continue;
        }
        let (why, way_out) = match one(&unit, root, plugins) {
            Ok(installed) => {
                done.installed.extend(installed);
                continue;
            }
            Err(fault) => fault,
        };
        tracing::warn!(id = %unit.id, version = %unit.version, language = %unit.language, %why, %way_out, "plugin is off, because it could not be installed; the rest goes on");
        if failed == Failed::Forget {
            forget(&unit, plugins);
        }
        let Unit { id, version, language, .. } = unit;
        done.not_installed.push(NotInstalled { id, version, language, why, way_out });
    }
    done
}

/// What was installed; else why not, and the way out.
fn one(unit: &Unit, root: &Path, plugins: &Path) -> Result<Vec<Installed>, (String, String)> {
    let id = &unit.id;
    let try_it = format!("asp plugin test {} --only {id}", root.display());
    if unit.folder.is_none() {
        let install = format!("asp plugin install --from $ASP_ADMIN_URL --plugins {}", plugins.display());
        return Err(("has no code beside its spec".into(), install));
    }
    build::all(from_ref(unit), None).map_err(|error| {
        tracing::debug!(%id, error = format!("{error:#}"), "the whole output of the build");
        (format!("does not build: {}", telling_line(&error)), try_it.clone())
    })?;
    let installed =
        packaging::install(from_ref(unit), plugins, Existing::Replace, None).context("install it");
    let report = installed.map_err(|error| (telling_line(&error), try_it))?;
    for plugin in &report.installed {
        tracing::info!(id = %plugin.id, version = %plugin.version, language = %plugin.language, "plugin installed");
    }
    Ok(report.installed)
}

/// Removes what an earlier start installed: it is not what the code beside the spec says.
fn forget(unit: &Unit, plugins: &Path) {
    if unit.folder.is_none() {
        // Somebody else installs it.
        return;
    }
    let place: PathBuf = plugins.join(&unit.id).join(&unit.version);
    match std::fs::remove_dir_all(&place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(id = %unit.id, path = %place.display(), %error, "an earlier build of a plugin could not be removed and may still run");
        }
        Ok(()) | Err(_) => {}
    }
}

/// The one line of an error that says most: compilers write many, and the place of the first fault is in one of them.
fn telling_line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let names_a_place = |line: &&str| line.contains(".java:");
    let names_an_error = |line: &&str| line.to_ascii_lowercase().contains("error");
    let found =
        lines().find(names_a_place).or_else(|| lines().find(names_an_error)).or_else(|| lines().next());
    let mut line = found.unwrap_or_default().trim_start_matches("[ERROR] ").to_owned();
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

    /// A server of four plugins: `bad` does not build, `bare` has no code, `good` is good, `other` is in another language.
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
        install(&catalog, &root, &plugins, &languages, Failed::Keep);
        assert!(stale.exists(), "what worked is gone");
        let failed = install(&catalog, &root, &plugins, &languages, Failed::Forget).not_installed;
        let names: Vec<&str> = failed.iter().map(|plugin| plugin.id.as_str()).collect();
        assert_eq!(names, ["bad", "bare"], "{failed:?}");
        let bad = &failed[0];
        assert!(bad.why.starts_with("does not build: ") && !bad.why.contains('\n'), "{bad:?}");
        assert_eq!(bad.way_out, format!("asp plugin test {} --only bad", root.display()));
        assert!(failed[1].way_out.starts_with("asp plugin install --from"), "{failed:?}");
        assert!(plugins.join("good/1.0.0/plugin.json").is_file());
        assert!(!stale.exists(), "an earlier build stays");
        assert!(!plugins.join("other").exists());
    }

    #[test]
    fn of_a_compilers_output_the_line_with_the_place_is_told() {
        let javac =
            anyhow::anyhow!("javac failed:\n/a/Greet.java:7: error: ';' expected\n    foo()\n1 error");
        assert_eq!(telling_line(&javac), "/a/Greet.java:7: error: ';' expected");
        let maven = anyhow::anyhow!(
            "mvn failed:\n[INFO] Scanning\n[ERROR] Non-parseable POM /a/pom.xml\n[ERROR] more"
        );
        assert_eq!(telling_line(&maven.context("build plugin x")), "Non-parseable POM /a/pom.xml");
        let absent = anyhow::anyhow!("No such file or directory").context("start mvn; is it installed?");
        assert_eq!(telling_line(&absent), "start mvn; is it installed?: No such file or directory");
        assert!(telling_line(&anyhow::anyhow!("é".repeat(MAX_REASON))).len() <= MAX_REASON);
    }
}
