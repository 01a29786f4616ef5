//! Node: the heap limit follows the worker's memory; everything else (frozen intrinsics, no `__proto__`, no addons, the
//! permission flags) is specified by the shim, because it depends on the release.
//!
//! The permission flags stop files, children and threads; connections are stopped by the sandbox.

use std::path::Path;

use super::{Command, MEBIBYTE, prefixes, text};
use crate::cause::FullHeap;
use crate::settings::Node;

/// Flags for plugins with network access; without it they only cost time.
const EGRESS_FLAGS: [&str; 2] = ["--use-env-proxy", "--use-system-ca"];

pub(super) fn command(node: &Node, plugin: &Path, memory: u64, egress: bool) -> Command {
    // Size of the old generation; the rest is for the young one, buffers, code and stacks.
    let heap = (memory / MEBIBYTE / 4 * 3).max(16);
    let mut argv = vec![text(&node.binary), format!("--max-old-space-size={heap}")];
    let wanted = node.flags.iter().filter(|flag| egress || !EGRESS_FLAGS.contains(&flag.as_str()));
    argv.extend(wanted.map(|flag| flag.replace("{plugin}", &text(plugin))));
    argv.push(text(&node.shim.join("worker.mjs")));
    let mut read_only = prefixes(&node.binary);
    read_only.push(node.shim.clone());
    Command { secrets: Vec::new(), argv, read_only, full_heap: full_heap(heap) }
}

/// Returns how Node ends when its heap is full: V8 aborts near its limit, possibly a little below it after the last
/// collection. `heap` is the flag's value, in mebibytes.
pub(super) fn full_heap(heap: u64) -> FullHeap {
    FullHeap::Abort { above: heap * MEBIBYTE / 10 * 9 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(egress: bool) -> Vec<String> {
        let flags = ["--permission", "--allow-fs-read={plugin}", EGRESS_FLAGS[0], EGRESS_FLAGS[1]]
            .map(str::to_owned)
            .into();
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
        for flag in EGRESS_FLAGS {
            assert!(!plain.iter().any(|given| given == flag));
            assert!(argv(true).iter().any(|given| given == flag));
        }
    }
}
