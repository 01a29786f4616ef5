//! How each language's worker is started: its command line, and what it must see inside its sandbox.

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
    /// Names of the secrets that it is given.
    pub secrets: Vec<String>,
    /// How it ends when its heap is full.
    pub full_heap: FullHeap,
}

/// The command that runs `plugin`'s worker.
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
            let egress = !plugin.manifest.allowed_domains.is_empty();
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
    // A path within another one is bound with it.
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

/// The directory an interpreter is installed in: `/opt/x` for `/opt/x/bin/python`.
fn prefix(interpreter: &Path) -> Option<PathBuf> {
    let directory = interpreter.parent()?;
    let is_bin = directory.file_name().is_some_and(|name| name == "bin");
    Some(if is_bin { directory.parent()? } else { directory }.to_path_buf())
}

/// The prefixes of an interpreter as it is named and as its links lead.
fn prefixes(interpreter: &Path) -> Vec<PathBuf> {
    let real = interpreter.canonicalize().ok();
    [Some(interpreter.to_path_buf()), real].into_iter().flatten().filter_map(|path| prefix(&path)).collect()
}

fn text(path: &Path) -> String {
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
