//! Dependencies of Node: `dependencies` and `optionalDependencies` of `package.json`, pinned in `package-lock.json`.
//!
//! Refuses what is not a package of a registry with a hash: links, folders and git repositories. npm runs in a folder of its
//! own, without the project's `.npmrc`, which may name programs, and fetches no repository, which may have one too.
//! Sources: package.json(5), package-lock.json(5), npm-ci(1).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::network::RegistryNetwork;
use super::{FETCH, network, write_lock};
use crate::registries::Registries;
use crate::tool::NPM_RUNS_NOTHING;

const PACKAGE: &str = "package.json";
const LOCK: &str = "package-lock.json";
const MODULES: &str = "node_modules";
/// List of what npm installed, below [`MODULES`]. It says where npm got each part from, and the same packages are to make the same
/// files everywhere.
const INSTALLED: &str = ".package-lock.json";
/// Options with the URL of a proxy.
const PROXY_OPTIONS: [&str; 2] = ["--proxy", "--https-proxy"];
/// The shim, which the runtime provides.
const SHIM: &str = "@asp/plugin";
/// Parts of `package.json` on which the installed packages depend.
const RELEVANT: [&str; 7] = [
    "name",
    "version",
    "dependencies",
    "optionalDependencies",
    "peerDependencies",
    "peerDependenciesMeta",
    "overrides",
];

pub(super) fn is_declared(folder: &Path) -> bool {
    let is_locked = folder.join(LOCK).is_file();
    let brings_them = !is_locked && folder.join(MODULES).is_dir();
    !brings_them && read(&folder.join(PACKAGE)).is_ok_and(|package| !declared(&package).is_empty())
}

/// Returns what the lock pins; fails if the lock does not fit `package.json`: it is the author's, with their tools in it.
pub(super) fn current(folder: &Path) -> Result<Option<String>> {
    let path = folder.join(LOCK);
    if !path.is_file() {
        return Ok(None);
    }
    let root = read(&path)?.pointer("/packages/").cloned().unwrap_or_default();
    if declared(&root) != declared(&read(&folder.join(PACKAGE))?) {
        bail!("{} does not fit {PACKAGE}: run `npm install` in its folder", path.display());
    }
    pinned(folder).map(Some)
}

/// Returns the part of the lock that is installed.
pub(super) fn pinned(folder: &Path) -> Result<String> {
    let path = folder.join(LOCK);
    let lock = production_lock(&read(&path)?, &read(&folder.join(PACKAGE))?);
    Ok(lock.with_context(|| path.display().to_string())?.to_string())
}

/// Writes the lock.
pub(super) fn resolve(folder: &Path, work: &Path, stop: &CancellationToken) -> Result<()> {
    let package = production(&read(&folder.join(PACKAGE))?);
    if let Some((name, wanted)) = declared(&package).into_iter().find(|(_, wanted)| !is_of_registry(wanted)) {
        bail!("{PACKAGE}: `{name}: {wanted}` is not a version of a registry's package");
    }
    write(&work.join(PACKAGE), &package.to_string())?;
    npm(work, &["install", "--package-lock-only"], stop)?;
    let made = work.join(LOCK);
    let text = fs::read_to_string(&made).with_context(|| format!("read {}", made.display()))?;
    write_lock(&folder.join(LOCK), &text)
}

/// Installs what the lock pins into `node_modules` of the folder, which exists.
pub(super) fn install(folder: &Path, lock: &str, into: &Path, stop: &CancellationToken) -> Result<()> {
    let package = production(&read(&folder.join(PACKAGE))?);
    write(&into.join(PACKAGE), &package.to_string())?;
    write(&into.join(LOCK), lock)?;
    npm(into, &["ci", "--omit=dev", "--no-bin-links", "--prefer-offline"], stop)?;
    let modules = into.join(MODULES);
    fs::create_dir_all(&modules).with_context(|| format!("create {}", modules.display()))?;
    [into.join(PACKAGE), into.join(LOCK), modules.join(INSTALLED)].iter().try_for_each(|file| remove(file))
}

/// Installs a package (`name`, `name@version`) with everything that it needs into `node_modules` of the folder, an absolute path.
pub(super) fn fetch(package: &str, folder: &Path, work: &Path, stop: &CancellationToken) -> Result<()> {
    // Without it npm reads the settings of a project around its folder.
    write(&work.join(PACKAGE), "{}")?;
    let network = RegistryNetwork::start(Registries::of_npm(work, stop))?;
    let mut npm = fetch_command(package, folder, work, &network);
    network.run(&mut npm, "npm", (FETCH, stop))?;
    remove(&folder.join(MODULES).join(INSTALLED))
}

fn fetch_command(package: &str, folder: &Path, work: &Path, network: &RegistryNetwork) -> Command {
    let mut npm = npm_command(work, &["install", "--omit=dev", "--no-bin-links", "--no-save"]);
    npm.arg("--prefix").arg(folder);
    network.confine(&mut npm, &PROXY_OPTIONS);
    npm.arg("--").arg(package);
    npm
}

/// Returns the packages that `package.json`, or the first entry of a lock, asks for, each with its range.
fn declared(package: &Value) -> BTreeMap<String, Value> {
    let parts = ["dependencies", "optionalDependencies"];
    let listed = parts.into_iter().filter_map(|part| package.get(part)?.as_object()).flatten();
    listed.filter(|(name, _)| *name != SHIM).map(|(name, range)| (name.clone(), range.clone())).collect()
}

/// Whether a range or a tag is one that a registry answers (`^1.2`, `latest`, `npm:other@2`).
fn is_of_registry(wanted: &Value) -> bool {
    let text = wanted.as_str().unwrap_or(":");
    text.starts_with("npm:") || !text.contains([':', '/'])
}

/// Returns `package.json` without scripts, development and the shim.
fn production(package: &Value) -> Value {
    let mut kept = Map::new();
    for key in RELEVANT {
        let Some(mut value) = package.get(key).cloned() else { continue };
        if let Some(listed) = value.as_object_mut() {
            listed.remove(SHIM);
        }
        kept.insert(key.to_owned(), value);
    }
    Value::Object(kept)
}

/// Returns the lock without development and the shim.
fn production_lock(lock: &Value, package: &Value) -> Result<Value> {
    let listed = lock.get("packages").and_then(Value::as_object);
    let listed = listed.context("the lock lists no packages; npm 7 or later writes them")?;
    let shim = format!("{MODULES}/{SHIM}");
    let mut packages = Map::from_iter([(String::new(), production(package))]);
    for (path, entry) in listed {
        let is = |key: &str| entry.get(key).and_then(Value::as_bool) == Some(true);
        let is_shims = path == &shim || path.starts_with(&format!("{shim}/"));
        // Folders outside of `node_modules` are what links lead to.
        if !path.starts_with(MODULES) || is_shims || is("dev") {
            continue;
        }
        let from = entry.get("resolved").and_then(Value::as_str).unwrap_or_default();
        let is_web = from.starts_with("https://") || from.starts_with("http://");
        if is("link") || !(is("inBundle") || (is_web && entry.get("integrity").is_some())) {
            bail!("{path} is not a package of a registry with an `integrity`: only those can be packed");
        }
        packages.insert(path.clone(), entry.clone());
    }
    let version = lock.get("lockfileVersion").cloned().unwrap_or_else(|| json!(3));
    Ok(json!({
        "name": package.get("name"), "version": package.get("version"),
        "lockfileVersion": version, "requires": true, "packages": packages,
    }))
}

fn npm(folder: &Path, arguments: &[&str], stop: &CancellationToken) -> Result<()> {
    let registries = Registries::of_npm(folder, stop);
    let mut npm = npm_command(folder, arguments);
    network::run(&mut npm, "npm", registries, &PROXY_OPTIONS, (FETCH, stop)).map(drop)
}

fn npm_command(folder: &Path, arguments: &[&str]) -> Command {
    let mut npm = Command::new("npm");
    npm.args(arguments).args(NPM_RUNS_NOTHING).args(["--no-audit", "--no-fund"]).current_dir(folder);
    npm
}

fn read(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))
}

fn remove(file: &Path) -> Result<()> {
    match file.is_file() {
        true => fs::remove_file(file).with_context(|| format!("remove {}", file.display())),
        false => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLUGIN: &str = r#"{"name": "p", "scripts": {"install": "x"}, "dependencies": {"lib": "^1", "@asp/plugin": "1"},
        "devDependencies": {"tool": "2"}}"#;

    #[test]
    fn npm_runs_neither_scripts_nor_git() {
        let npm = npm_command(Path::new("work"), &["ci"]);
        let words: Vec<&str> = npm.get_args().filter_map(|word| word.to_str()).collect();
        assert_eq!(words.first(), Some(&"ci"));
        for option in ["--ignore-scripts", "--allow-git=none", "--git=/dev/null"] {
            assert!(words.contains(&option), "{option}");
        }
    }

    #[test]
    fn a_fetched_package_is_an_operand_behind_the_proxy_and_runs_nothing() {
        let network = RegistryNetwork::start(Registries::of([])).unwrap();
        let npm = fetch_command("@a/kit@1", Path::new("/folder"), Path::new("work"), &network);
        let words: Vec<&str> = npm.get_args().filter_map(|word| word.to_str()).collect();
        for option in NPM_RUNS_NOTHING {
            assert!(words.contains(&option), "{option}");
        }
        assert!(words.windows(2).any(|pair| pair == ["--prefix", "/folder"]), "{words:?}");
        assert!(words.ends_with(&["--", "@a/kit@1"]), "{words:?}");
        assert_eq!(npm.get_current_dir(), Some(Path::new("work")));
    }

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    fn lock(lib: Value) -> Value {
        json!({"lockfileVersion": 3, "packages": {
            "": {"dependencies": {"lib": "^1", "@asp/plugin": "1"}, "devDependencies": {"tool": "2"}},
            "../shim": {"version": "1"},
            "node_modules/@asp/plugin": {"link": true, "resolved": "../shim"},
            "node_modules/lib": lib,
            "node_modules/tool": {"dev": true, "resolved": "git+ssh://example.org/tool"},
        }})
    }

    #[test]
    fn what_is_installed_has_no_scripts_no_development_and_no_shim() {
        let lib = json!({"resolved": "https://example.org/lib.tgz", "integrity": "sha512-x"});
        let made = production_lock(&lock(lib.clone()), &value(PLUGIN)).unwrap();
        let root = json!({"name": "p", "dependencies": {"lib": "^1"}});
        assert_eq!(made["packages"], json!({"": root, "node_modules/lib": lib}));
    }

    #[test]
    fn a_package_without_registry_or_hash_is_refused() {
        for lib in [
            json!({"resolved": "git+ssh://example.org/lib", "integrity": "sha512-x"}),
            json!({"resolved": "file:../lib", "integrity": "sha512-x"}),
            json!({"resolved": "https://example.org/lib.tgz"}),
            json!({"resolved": "https://example.org/lib.tgz", "integrity": "sha512-x", "link": true}),
        ] {
            let fault = production_lock(&lock(lib.clone()), &value(PLUGIN)).unwrap_err().to_string();
            assert!(fault.starts_with("node_modules/lib is not"), "{lib}: {fault}");
        }
        for (wanted, is_good) in [
            ("^1.2", true),
            ("latest", true),
            ("npm:@a/b@1", true),
            ("file:../x", false),
            ("user/repository", false),
            ("git+https://example.org/x", false),
        ] {
            assert_eq!(is_of_registry(&json!(wanted)), is_good, "{wanted}");
        }
    }

    #[test]
    fn dependencies_are_installed_unless_the_folder_brings_them_without_a_lock() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        assert!(!is_declared(at));
        write(
            &at.join(PACKAGE),
            r#"{"devDependencies": {"tool": "2"}, "dependencies": {"@asp/plugin": "1"}}"#,
        )
        .unwrap();
        assert!(!is_declared(at), "only development");
        write(&at.join(PACKAGE), PLUGIN).unwrap();
        assert!(is_declared(at));
        fs::create_dir(at.join(MODULES)).unwrap();
        assert!(!is_declared(at));
        let lib = json!({"resolved": "https://example.org/lib.tgz", "integrity": "sha512-x"});
        write(&at.join(LOCK), &lock(lib).to_string()).unwrap();
        assert!(is_declared(at));
        assert!(current(at).unwrap().is_some());
        write(&at.join(PACKAGE), r#"{"dependencies": {"lib": "^2"}}"#).unwrap();
        assert!(current(at).unwrap_err().to_string().contains("run `npm install`"));
    }
}
