//! Python: `-I` (no environment, no user site, not the current directory), `-B` (the package is read-only), and
//! faulthandler, so that a native crash leaves a stack in the log. Its heap has no limit except the worker's.

use std::path::{Path, PathBuf};

use super::{Command, prefix, prefixes, text};
use crate::cause::FullHeap;

const MODULE: &str = "asp_plugin.worker";

pub(super) fn command(interpreter: &Path) -> Command {
    let argv =
        [&text(interpreter), "-I", "-B", "-X", "faulthandler", "-m", MODULE].map(str::to_owned).to_vec();
    let mut read_only = prefixes(interpreter);
    read_only.extend(base(interpreter));
    Command { secrets: Vec::new(), argv, read_only, full_heap: FullHeap::Unknown }
}

/// Returns the installation from which a virtual environment was created (`home` in its pyvenv.cfg).
fn base(interpreter: &Path) -> Option<PathBuf> {
    let config = std::fs::read_to_string(prefix(interpreter)?.join("pyvenv.cfg")).ok()?;
    let home = config.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "home").then(|| PathBuf::from(value.trim()))
    })?;
    prefix(&home.join("python")).and_then(|path| path.canonicalize().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_environment_brings_its_base() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for bin in ["base/bin", "venv/bin"] {
            std::fs::create_dir_all(root.join(bin)).unwrap();
        }
        std::fs::write(root.join("base/bin/python3"), "").unwrap();
        let home = format!("home = {}\nversion = 3.11\n", root.join("base/bin").display());
        std::fs::write(root.join("venv/pyvenv.cfg"), home).unwrap();
        std::os::unix::fs::symlink(root.join("base/bin/python3"), root.join("venv/bin/python")).unwrap();
        let command = command(&root.join("venv/bin/python"));
        assert_eq!(command.read_only, [root.join("venv"), root.join("base"), root.join("base")]);
    }
}
