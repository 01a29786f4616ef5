//! The runtime's worker as /proc shows it: its command line and its memory.

use std::collections::HashMap;
use std::fs;

use anyhow::{Context, Result};
use serde::Serialize;

/// Of one process, in KiB.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Memory {
    pub rss_kib: u64,
    /// What it shares with others counts in part.
    pub pss_kib: u64,
}

/// The process below `root` that has `argument` (a worker's own) in its command line, and that line.
pub(super) fn find(root: u32, argument: &str) -> Result<(u32, Vec<String>)> {
    let parents = parents()?;
    let is_below = |mut pid: u32| {
        // A chain of parents ends at 0; one that was read while it changed might not.
        for _ in 0..parents.len() {
            match parents.get(&pid) {
                Some(parent) if *parent == root => return true,
                Some(parent) => pid = *parent,
                None => return false,
            }
        }
        false
    };
    for pid in parents.keys().copied().filter(|pid| is_below(*pid)) {
        let line = command_line(pid);
        if line.iter().any(|one| one.ends_with(argument)) {
            return Ok((pid, line));
        }
    }
    anyhow::bail!("no process of the runtime has {argument} in its command line")
}

/// Each process's parent. Not from `children` files: those leave some out while others end (proc(5)).
fn parents() -> Result<HashMap<u32, u32>> {
    let mut parents = HashMap::new();
    for entry in fs::read_dir("/proc").context("read /proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // One that has ended meanwhile is left out.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // After the name, which may hold anything: the state, then the parent.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parents.extend(parent.map(|parent| (pid, parent)));
    }
    Ok(parents)
}

fn command_line(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.split_terminator('\0').map(str::to_owned).collect()
}

/// What a process holds now.
pub(super) fn memory(pid: u32) -> Result<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .with_context(|| format!("the memory of process {pid}"))?;
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|rest| rest.split_whitespace().next());
        value.and_then(|value| value.parse().ok()).with_context(|| format!("{name} of process {pid}"))
    };
    Ok(Memory { rss_kib: of("Rss:")?, pss_kib: of("Pss:")? })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_holds_no_less_than_its_share() {
        let own = memory(std::process::id()).unwrap();
        assert!(own.rss_kib >= own.pss_kib && own.pss_kib > 0, "{own:?}");
    }

    #[test]
    fn a_child_is_found_by_its_argument() {
        let argv = ["sh", "-c", "echo; read _", "the argument of one child"];
        let mut child = Command::new(argv[0])
            .args(&argv[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // `spawn` may return before the command line stands in /proc; whoever says something has one.
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        let found = find(std::process::id(), argv[3]);
        drop(child.stdin.take());
        let pid = child.id();
        child.wait().unwrap();
        assert_eq!(found.unwrap(), (pid, argv.map(str::to_owned).to_vec()));
        assert!(find(std::process::id(), "no such argument").is_err());
    }
}
