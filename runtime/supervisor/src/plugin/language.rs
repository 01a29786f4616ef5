//! Start command of each language's worker, and the paths that it needs inside its sandbox.

mod java;
mod node;
mod python;
mod stdio;

use std::path::{Path, PathBuf};

use crate::cause::FullHeap;
use crate::plugin::installed::Plugin;
use crate::plugin::manifest::{Language, Mode};
use crate::refusal::Refusal;
use crate::settings::Languages;

/// Directories that every sandbox has anyway.
const SYSTEM: [&str; 5] = ["/usr", "/bin", "/lib", "/lib64", "/sbin"];
const MEBIBYTE: u64 = 1 << 20;

/// An interpreter's command and the paths it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub argv: Vec<String>,
    pub read_only: Vec<PathBuf>,
    /// Names of the secrets that it receives.
    pub secrets: Vec<String>,
    /// Way in which the process ends when its heap is full.
    pub full_heap: FullHeap,
}

/// Returns the command that runs `plugin`'s worker.
pub fn command(languages: &Languages, plugin: &Plugin) -> Result<Command, Refusal> {
    let memory = plugin.manifest.limits.memory_bytes;
    let language = plugin.manifest.language.unwrap_or(Language::Python);
    let absent = || Refusal::LanguageAbsent(language.name());
    let mut command = match language {
        _ if plugin.manifest.mode == Mode::McpStdio => {
            stdio::command(languages, &plugin.manifest.command, &plugin.package(), memory)?
        }
        Language::Python => python::command(languages.python.as_deref().ok_or_else(absent)?),
        Language::Node => {
            let egress = plugin.manifest.has_network();
            node::command(languages.node.as_ref().ok_or_else(absent)?, &plugin.directory, memory, egress)
        }
        Language::Java => {
            let (java, shim) = languages.java.as_ref().ok_or_else(absent)?;
            java::command(java, shim, memory)
        }
    };
    command.read_only.push(plugin.directory.clone());
    command.read_only.retain(|path| !SYSTEM.iter().any(|system| path.starts_with(system)));
    command.read_only.sort();
    // A path within another one is mounted with it.
    command.read_only.dedup_by(|later, earlier| later.starts_with(earlier.as_path()));
    Ok(command)
}

/// Whether this runtime has `language`.
pub fn present(languages: &Languages, language: Language) -> bool {
    match language {
        Language::Python => languages.python.is_some(),
        Language::Node => languages.node.is_some(),
        Language::Java => languages.java.is_some(),
    }
}

/// Returns the directory in which an interpreter is installed: `/opt/x` for `/opt/x/bin/python`.
fn prefix(interpreter: &Path) -> Option<PathBuf> {
    let directory = interpreter.parent()?;
    let is_bin = directory.file_name().is_some_and(|name| name == "bin");
    Some(if is_bin { directory.parent()? } else { directory }.to_path_buf())
}

/// Returns the prefixes of an interpreter, for the path as given and with its links resolved.
fn prefixes(interpreter: &Path) -> Vec<PathBuf> {
    let real = interpreter.canonicalize().ok();
    [Some(interpreter.to_path_buf()), real].into_iter().flatten().filter_map(|path| prefix(&path)).collect()
}

/// Returns a path as text.
pub fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_directory_above_bin() {
        assert_eq!(prefix(Path::new("/opt/x/bin/python")), Some("/opt/x".into()));
        assert_eq!(prefix(Path::new("/opt/node/node")), Some("/opt/node".into()));
    }
}
