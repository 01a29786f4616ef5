//! Node: the heap's bound follows the worker's memory; everything else (frozen intrinsics, no `__proto__`, no
//! addons, the permission flags) is what the shim asks for, since it depends on the release.
//!
//! The permission flags stop no connection, the sandbox does; they stop files, children and threads.

use std::path::Path;

use super::{Command, MEBIBYTE, prefixes, text};
use crate::settings::Node;

/// Without a proxy in the environment it only costs time.
const PROXY_FLAG: &str = "--use-env-proxy";

pub(super) fn command(node: &Node, plugin: &Path, memory: u64, egress: bool) -> Command {
    // The old generation's share: the rest is for the young one, buffers, code and stacks.
    let heap = (memory / MEBIBYTE / 4 * 3).max(16);
    let mut argv = vec![text(&node.binary), format!("--max-old-space-size={heap}")];
    let wanted = node.flags.iter().filter(|flag| egress || *flag != PROXY_FLAG);
    argv.extend(wanted.map(|flag| flag.replace("{plugin}", &text(plugin))));
    argv.push(text(&node.shim.join("worker.mjs")));
    let mut read_only = prefixes(&node.binary);
    read_only.push(node.shim.clone());
    Command { argv, read_only, oom_exit: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(egress: bool) -> Vec<String> {
        let flags = ["--permission", "--allow-fs-read={plugin}", PROXY_FLAG].map(str::to_owned).into();
        let node = Node { binary: "/opt/node/bin/node".into(), shim: "/opt/shim".into(), flags };
        command(&node, Path::new("/plugins/p/1.0.0"), 512 * MEBIBYTE, egress).argv
    }

    #[test]
    fn the_heap_is_three_quarters_of_the_memory() {
        assert_eq!(argv(false).get(1).map(String::as_str), Some("--max-old-space-size=384"));
    }

    #[test]
    fn the_shims_flags_come_with_the_plugins_directory() {
        let plain = argv(false);
        assert_eq!(
            plain.get(2..4),
            Some(&["--permission", "--allow-fs-read=/plugins/p/1.0.0"].map(str::to_owned)[..])
        );
        assert_eq!(plain.last().map(String::as_str), Some("/opt/shim/worker.mjs"));
        assert!(!plain.iter().any(|flag| flag == PROXY_FLAG));
        assert!(argv(true).iter().any(|flag| flag == PROXY_FLAG));
    }
}
