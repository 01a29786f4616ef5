//! The environment of a worker: exactly the variables that runtime/README.md lists, and for a stdio server those that
//! its package defines.
//!
//! Keeps true: a secret is only in the environment of a stdio server whose pool is for users of that secret; a plugin gets its
//! secrets by its `init`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::egress::EGRESS_PORT;
use crate::plugin::installed::Plugin;
use crate::plugin::language::{Command, text};
use crate::plugin::manifest::{Mode, Variable};
use crate::secrets::Secrets;
use crate::settings::Settings;
use crate::worker::home::WorkerHome;

const PYTHON_PATH: &str = "PYTHONPATH";
/// Makes a shim report the texts of exceptions to callers.
const DEVELOPMENT: &str = "ASP_DEVELOPMENT";
/// Directories of Python packages next to the code that uses them.
const LIBRARIES: [&str; 2] = ["lib", "site-packages"];

/// Returns the variables of a worker.
pub(super) fn of(
    (plugin, command): (&Plugin, &Command),
    home: &WorkerHome,
    settings: &Settings,
) -> BTreeMap<String, String> {
    let bin = command.argv.first().and_then(|program| Path::new(program).parent()).map(text);
    let work = text(&home.work_dir());
    let mut variables = vec![
        ("ASP_WORKER_SOCKET", text(&home.socket())),
        ("ASP_PLUGIN_MANIFEST", text(&plugin.manifest_path())),
        ("ASP_PLUGIN_CODE", text(&plugin.package())),
        ("ASP_WORK_DIR", work.clone()),
        ("HOME", work.clone()),
        ("TMPDIR", work),
        ("ASP_WORKER_ID", home.id.clone()),
        ("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.unwrap_or_default())),
        ("LANG", "C.UTF-8".to_owned()),
        ("TZ", "UTC".to_owned()),
    ];
    if !plugin.manifest.allowed_domains.is_empty() {
        let proxy = format!("http://127.0.0.1:{EGRESS_PORT}");
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
            variables.push((name, proxy.clone()));
        }
    }
    let mut variables: BTreeMap<String, String> =
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    if plugin.manifest.mode == Mode::McpStdio {
        variables.extend(of_package(plugin, &command.secrets, &settings.secrets));
    } else if settings.development {
        variables.insert(DEVELOPMENT.to_owned(), "true".to_owned());
    }
    variables
}

/// Returns the variables that the package of a stdio server defines. The manifest refuses the names of the runtime's
/// own variables.
fn of_package(plugin: &Plugin, granted: &[String], secrets: &Secrets) -> BTreeMap<String, String> {
    let package = plugin.package();
    let mut variables = BTreeMap::new();
    for (name, variable) in &plugin.manifest.env {
        let value = match variable {
            Variable::Value(value) => Some(value.clone()),
            Variable::Paths(paths) => Some(joined(paths.iter().map(|path| package.join(path)))),
            Variable::Secret(secret) if granted.contains(secret) => {
                secrets.get(secret).map(|secret| secret.expose().to_owned())
            }
            Variable::Secret(_) => None,
        };
        variables.extend(value.map(|value| (name.clone(), value)));
    }
    let libraries = python_libraries(&plugin.manifest.command, &package);
    if !libraries.is_empty() {
        let asked = variables.remove(PYTHON_PATH).map(PathBuf::from);
        variables.insert(PYTHON_PATH.to_owned(), joined(asked.into_iter().chain(libraries)));
    }
    variables
}

/// Returns the library directories next to a Python server and at the top of its package.
fn python_libraries(command: &[String], package: &Path) -> Vec<PathBuf> {
    let is_python = command.first().is_some_and(|program| program.starts_with("python"));
    let script = command
        .iter()
        .skip(1)
        .map(|word| package.join(word))
        .find(|path| path.starts_with(package) && path.is_file());
    let beside = script.and_then(|script| Some(script.parent()?.to_owned()));
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in beside.into_iter().chain([package.to_owned()]).filter(|_| is_python) {
        for library in LIBRARIES.map(|name| folder.join(name)) {
            if library.is_dir() && !found.contains(&library) {
                found.push(library);
            }
        }
    }
    found
}

fn joined(paths: impl Iterator<Item = PathBuf>) -> String {
    paths.map(|path| text(&path)).collect::<Vec<_>>().join(":")
}
