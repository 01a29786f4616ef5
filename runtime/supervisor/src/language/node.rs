//! Node: the heap's bound follows the worker's memory, `__proto__` is gone, native addons are refused.
//!
//! The permission flags are not used: they stop no connection (the sandbox does), and with them a Unix socket
//! cannot be served on newer releases.

use std::path::Path;

use super::{Command, MEBIBYTE, prefixes, text};

pub(super) fn command(node: &Path, shim: &Path, memory: u64) -> Command {
    // The old generation's share: the rest is for the young one, buffers, code and stacks.
    let heap = (memory / MEBIBYTE / 4 * 3).max(16);
    let argv = vec![
        text(node),
        format!("--max-old-space-size={heap}"),
        "--disable-proto=delete".to_owned(),
        "--no-addons".to_owned(),
        text(&shim.join("worker.mjs")),
    ];
    let mut read_only = prefixes(node);
    read_only.push(shim.to_path_buf());
    Command { argv, read_only }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_is_three_quarters_of_the_memory() {
        let command = command(Path::new("/opt/node/bin/node"), Path::new("/opt/shim"), 512 * MEBIBYTE);
        assert!(command.argv.contains(&"--max-old-space-size=384".to_owned()), "{command:?}");
        assert_eq!(command.argv.last().map(String::as_str), Some("/opt/shim/worker.mjs"));
    }
}
