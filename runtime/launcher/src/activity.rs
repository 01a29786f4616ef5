//! What runs below a process, read from /proc: for workers without a control group.
//!
//! `worker-init` adopts what its worker abandons (watch.rs), so nothing below it gets out of sight. What cannot be
//! read has ended. Parents are asked for, not children: `/proc/<pid>/task/<tid>/children` leaves some out while others
//! end (proc_pid_tid_children(5)).

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use crate::Activity;

/// USER_HZ: 100 on every Linux whose programs this runs (proc_pid_stat(5)).
const TICKS_PER_SECOND: u64 = 100;
/// Processes of the machine that are looked at: as many as it can number by default.
const MAX_PROCESSES: usize = 32_768;

/// A process, as its /proc/<pid>/stat shows it.
struct Seen {
    pid: u32,
    parent: u32,
    /// Has ended, and nobody has waited for it.
    ended: bool,
    threads: u32,
    cpu: Duration,
}

impl Activity {
    /// The process `root` and everything below it.
    #[must_use]
    pub fn below(root: u32) -> Activity {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut children: HashMap<u32, Vec<Seen>> = HashMap::new();
        let mut open: Vec<Seen> = Vec::new();
        for seen in pids.take(MAX_PROCESSES).filter_map(look) {
            if seen.pid == root {
                open.push(seen);
            } else {
                children.entry(seen.parent).or_default().push(seen);
            }
        }
        let mut found = Activity::default();
        while let Some(seen) = open.pop() {
            if !seen.ended {
                found.processes += 1;
                found.tasks += seen.threads;
                found.cpu += seen.cpu;
            }
            // Taken out: whatever the numbers say, nothing is counted twice.
            open.extend(children.remove(&seen.pid).into_iter().flatten());
        }
        found
    }
}

fn look(pid: u32) -> Option<Seen> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything; the state follows it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let used = number(11)?.saturating_add(number(12)?);
    Some(Seen {
        pid,
        parent: u32::try_from(number(1)?).ok()?,
        ended: matches!(fields.first(), Some(&"Z" | &"X")),
        threads: u32::try_from(number(17)?).ok()?,
        cpu: Duration::from_millis(used * 1000 / TICKS_PER_SECOND),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use super::*;

    fn start(script: &str) -> Child {
        Command::new("/bin/sh").args(["-c", script]).process_group(0).spawn().unwrap()
    }

    fn becomes(root: &Child, wanted: impl Fn(Activity) -> bool) -> Activity {
        let began = std::time::Instant::now();
        loop {
            let found = Activity::below(root.id());
            if wanted(found) || began.elapsed() > Duration::from_secs(30) {
                return found;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn children_and_their_children_are_counted_and_what_they_use() {
        let mut idle = start("sleep 60 & (sleep 60; :) & wait");
        let found = becomes(&idle, |found| found.processes == 4);
        assert_eq!((found.processes, found.tasks), (4, 4), "{found:?}");
        let mut busy = start("(while :; do :; done) & wait");
        let found = becomes(&busy, |found| found.cpu >= Duration::from_millis(100));
        assert!(found.cpu >= Duration::from_millis(100), "{found:?}");
        for child in [&mut idle, &mut busy] {
            let group = format!("-{}", child.id());
            assert!(Command::new("kill").args(["-9", "--", &group]).status().unwrap().success());
            child.wait().unwrap();
            assert_eq!(Activity::below(child.id()), Activity::default(), "it has ended");
        }
    }
}
