//! What runs below a process, read from /proc: for workers without a control group.
//!
//! `worker-init` adopts what its worker abandons (watch.rs), so nothing below it gets out of sight. What cannot be
//! read has ended.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use crate::Activity;

/// USER_HZ: 100 on every Linux whose programs this runs (proc_pid_stat(5)).
const TICKS_PER_SECOND: u64 = 100;
/// Beyond the bound on a worker's processes; what is above is not looked at.
const MAX_PROCESSES: usize = 4096;

impl Activity {
    /// The process `root` and everything below it.
    #[must_use]
    pub fn below(root: u32) -> Activity {
        let mut found = Activity::default();
        let (mut open, mut seen) = (vec![root], BTreeSet::new());
        while let Some(pid) = open.pop() {
            if seen.len() >= MAX_PROCESSES || !seen.insert(pid) {
                continue;
            }
            let Some(cpu) = cpu_of(pid) else { continue };
            found.processes += 1;
            found.cpu += cpu;
            for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                found.tasks += 1;
                let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
                open.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
            }
        }
        found
    }
}

/// Processor time of a process that has not ended.
fn cpu_of(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything; the state follows it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let used = ticks(11)?.saturating_add(ticks(12)?);
    let ended = matches!(fields.first(), Some(&"Z" | &"X"));
    (!ended).then(|| Duration::from_millis(used * 1000 / TICKS_PER_SECOND))
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
