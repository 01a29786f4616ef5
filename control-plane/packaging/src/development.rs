//! Files of a plugin's folder that only development needs: they are there for editors, tests and npm, and are not packed.
//!
//! Owns the rules for Node, whose authors install types and tools next to the code. Keeps true: a package that the code may
//! import stays, because npm's own lock says which ones only `devDependencies` need. If the platform installs the dependencies,
//! all of the author's `node_modules` is for development.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::dependencies::Dependencies;

/// npm's lock, which pins what `package.json` asks for.
pub(super) const NODE_LOCK: &str = "package-lock.json";
/// npm's description of what it has installed, with the addresses that it came from.
const INSTALLED: &str = "node_modules/.package-lock.json";
/// The shim, which the runtime provides; authors install it for their editor's types, which npm does by a link.
const NODE_SHIM: &str = "@asp/plugin";
/// Files and folders of Node's tools, relative to the plugin's folder. `.npmrc` may have a token.
const TOOLS: [&str; 6] =
    [NODE_LOCK, INSTALLED, ".npmrc", "tsconfig.json", "node_modules/@types", "node_modules/@asp/plugin"];
const MODULES: &str = "node_modules/";

/// Files of one folder that are not packed.
#[derive(Debug)]
pub(super) struct DevelopmentFiles {
    is_node: bool,
    /// Names of packages whose links are left out: links cannot be packed.
    links: BTreeSet<String>,
    /// Folders of packages, relative to the plugin's folder.
    packages: BTreeSet<String>,
}

impl DevelopmentFiles {
    pub(super) fn of(folder: &Path, language: &str) -> DevelopmentFiles {
        let package = read(&folder.join("package.json"));
        let listed = package.get("devDependencies").and_then(Value::as_object);
        let names = listed.into_iter().flatten().map(|(name, _)| name.clone());
        let links = names.chain([NODE_SHIM.to_owned()]).collect();
        let is_node = language == "node";
        let packages = match is_node {
            true if Dependencies::of(folder, language).is_some() => {
                BTreeSet::from(["node_modules".to_owned()])
            }
            true => development_packages(folder),
            false => BTreeSet::new(),
        };
        DevelopmentFiles { is_node, links, packages }
    }

    /// Whether a file or folder at this path, relative to the plugin's folder, is not packed.
    pub(super) fn has(&self, relative: &str) -> bool {
        let is_tools = || TOOLS.contains(&relative) || self.packages.contains(relative);
        self.is_node && (is_tools() || (!relative.starts_with(MODULES) && is_test(relative)))
    }

    /// Whether a link at this path is not packed.
    pub(super) fn has_link(&self, relative: &str) -> bool {
        relative.strip_prefix(MODULES).is_some_and(|name| self.links.contains(name))
    }
}

/// Returns the folders that npm's lock marks as needed by `devDependencies` alone (package-lock.json(5), `dev`); the lock of
/// what is installed counts more than the one of what should be.
fn development_packages(folder: &Path) -> BTreeSet<String> {
    let installed = folder.join(INSTALLED);
    let lock = read(&if installed.is_file() { installed } else { folder.join(NODE_LOCK) });
    let packages = lock.get("packages").and_then(Value::as_object);
    let is_development = |package: &Value| package.get("dev").and_then(Value::as_bool) == Some(true);
    let found = packages.into_iter().flatten().filter(|(_, package)| is_development(package));
    found.map(|(path, _)| path.clone()).collect()
}

/// Whether a file is a unit test by its name, as `node --test` and other runners find them: `words.test.ts`.
fn is_test(relative: &str) -> bool {
    let name = relative.rsplit('/').next().unwrap_or(relative);
    let mut parts = name.rsplit('.');
    let is_code = matches!(parts.next(), Some("js" | "mjs" | "cjs" | "ts" | "mts" | "cts"));
    is_code && matches!(parts.next(), Some("test" | "spec")) && parts.next().is_some()
}

/// Returns a JSON file; null if it cannot be read.
fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_known_by_its_name() {
        for test in ["main.test.ts", "lib/words.spec.mjs", "a.b.test.cjs"] {
            assert!(is_test(test), "{test}");
        }
        for code in ["main.ts", "test.ts", "main.test.json", "latest.mjs", "main.testing.js"] {
            assert!(!is_test(code), "{code}");
        }
    }

    #[test]
    fn the_lock_of_what_is_installed_counts_more() {
        let root = tempfile::tempdir().unwrap();
        let lock = |packages: Value| serde_json::json!({ "packages": packages }).to_string();
        let x = serde_json::json!({"node_modules/x": {"dev": true}, "node_modules/y": {"devOptional": true}});
        fs::write(root.path().join(NODE_LOCK), lock(x)).unwrap();
        let has = |path: &str| DevelopmentFiles::of(root.path(), "node").has(path);
        assert!(has("node_modules/x") && !has("node_modules/y") && has(NODE_LOCK));
        assert!(!DevelopmentFiles::of(root.path(), "python").has("node_modules/x"));
        fs::create_dir(root.path().join("node_modules")).unwrap();
        let y = serde_json::json!({"node_modules/x": {}, "node_modules/y": {"dev": true}});
        fs::write(root.path().join(INSTALLED), lock(y)).unwrap();
        assert!(!has("node_modules/x") && has("node_modules/y"));
    }
}
