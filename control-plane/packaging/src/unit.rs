//! Units to build and install: the plugin packages of a catalog, and the stdio MCP servers that it names.
//!
//! Keeps true: one unit is one folder on a runtime, so a package or stdio server that several primitives share is one unit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use asp_proto::snapshot::{Primitive, runtime::Mode};
use asp_registry::{CompiledServer, plugin_package, stdio_package};

/// Folder of a server that holds its plugins' code, one folder for each package.
const CODE_FOLDER: &str = "plugins";

/// Language name of stdio MCP servers.
pub const MCP_STDIO: &str = "mcp-stdio";

/// One plugin package, or one stdio MCP server.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Name of the package: the primitive's id if its spec names none.
    pub id: String,
    pub version: String,
    /// Server that lists it, the first of several.
    pub server: String,
    /// `python`, `node`, `java` or `mcp-stdio`.
    pub language: String,
    /// SHA-256 of the package file as pinned by the specs; several if they disagree.
    pub pins: BTreeSet<String>,
    /// Primitives that run on it.
    pub primitives: Vec<Primitive>,
    /// Folder of its code, if it has any here.
    pub folder: Option<PathBuf>,
}

/// Returns every unit of `servers`, by id and version; code is looked for below `root`, the directory that their specs were
/// read from.
pub fn units(servers: &[CompiledServer], root: Option<&Path>) -> Vec<Unit> {
    let mut found: BTreeMap<(String, String), Unit> = BTreeMap::new();
    for server in servers {
        for primitive in &server.primitives {
            let Some((id, version, language, pin)) = installed_as(primitive) else { continue };
            let key = (id, version);
            let unit = found.entry(key.clone()).or_insert_with(|| Unit {
                folder: root.and_then(|root| code_folder(root, server, &key.0)),
                id: key.0,
                version: key.1,
                server: server.server.name.clone(),
                language,
                pins: BTreeSet::new(),
                primitives: Vec::new(),
            });
            if !pin.is_empty() {
                unit.pins.insert(pin);
            }
            // Two servers may list the same primitive.
            if !unit.primitives.iter().any(|known| known.id == primitive.id) {
                unit.primitives.push(primitive.clone());
            }
        }
    }
    found.into_values().collect()
}

/// Returns id, version, language and pin of the unit that runs this primitive.
fn installed_as(primitive: &Primitive) -> Option<(String, String, String, String)> {
    match primitive.runtime.as_ref()?.mode.as_ref()? {
        Mode::Plugin(plugin) => {
            let (id, version) = plugin_package(plugin, &primitive.id, &primitive.version);
            Some((id.to_owned(), version.to_owned(), plugin.language.clone(), plugin.artifact_sha256.clone()))
        }
        Mode::McpStdio(stdio) => {
            let (id, version) = stdio_package(stdio, &primitive.version);
            Some((id, version, MCP_STDIO.to_owned(), stdio.artifact_sha256.clone()))
        }
        _ => None,
    }
}

impl Unit {
    /// Whether it is in one of `languages` (`None`: any). A stdio server may be written in any of them.
    pub fn is_in(&self, languages: Option<&[&str]>) -> bool {
        languages.is_none_or(|all| self.language == MCP_STDIO || all.contains(&self.language.as_str()))
    }
}

/// Returns `<folder of one of the server's files>/plugins/<id>`.
fn code_folder(root: &Path, server: &CompiledServer, id: &str) -> Option<PathBuf> {
    let folders: BTreeSet<&Path> = server.files.iter().filter_map(|file| Path::new(file).parent()).collect();
    let candidates = folders.into_iter().map(|folder| root.join(folder).join(CODE_FOLDER).join(id));
    candidates.into_iter().find(|folder| folder.is_dir())
}
