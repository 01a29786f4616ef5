//! What runs below a process and what it uses, read from /proc: for workers without a control group.
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
const KIBIBYTE: u64 = 1024;

/// The processes of this machine, all looked at once.
#[derive(Debug, Default)]
pub struct Processes {
    seen: HashMap<u32, Seen>,
    children: HashMap<u32, Vec<u32>>,
}

/// A process and everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    pub activity: Activity,
    /// Used so far, with what those used that have ended and were waited for.
    pub cpu: Duration,
    pids: Vec<u32>,
}

/// A process, as its /proc/<pid>/stat shows it.
#[derive(Debug)]
struct Seen {
    parent: u32,
    /// Has ended, and nobody has waited for it.
    ended: bool,
    threads: u32,
    cpu: Duration,
    /// Of those that it has waited for.
    cpu_of_children: Duration,
}

impl Activity {
    /// The process `root` and everything below it.
    #[must_use]
    pub fn below(root: u32) -> Activity {
        Processes::now().take(root).activity
    }
}

// === impl Processes ===

impl Processes {
    #[must_use]
    pub fn now() -> Processes {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut found = Processes::default();
        for (pid, seen) in pids.take(MAX_PROCESSES).filter_map(|pid| Some((pid, look(pid)?))) {
            found.children.entry(seen.parent).or_default().push(pid);
            found.seen.insert(pid, seen);
        }
        found
    }

    /// Takes out the process `root` and everything below it; nothing, when it is gone.
    pub fn take(&mut self, root: u32) -> Tree {
        let mut tree = Tree::default();
        let mut open = vec![root];
        while let Some(pid) = open.pop() {
            // Taken out: whatever the numbers say, nothing is counted twice.
            let Some(seen) = self.seen.remove(&pid) else { continue };
            tree.cpu += seen.cpu + seen.cpu_of_children;
            if !seen.ended {
                tree.activity.processes += 1;
                tree.activity.tasks += seen.threads;
                tree.activity.cpu += seen.cpu;
                tree.pids.push(pid);
            }
            open.extend(self.children.remove(&pid).into_iter().flatten());
        }
        tree
    }
}

// === impl Tree ===

impl Tree {
    /// Memory that its processes have of their own, bytes, in swap too, with what the kernel needs to map it. What
    /// several share after a fork counts for each.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let own = |pid: &u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            ["RssAnon:", "VmSwap:", "VmPTE:"].iter().map(|name| kibibytes(&status, name)).sum::<u64>()
        };
        self.pids.iter().map(own).sum::<u64>() * KIBIBYTE
    }

    /// The same with what is shared counted once; it costs the kernel a walk through all of it. `None` where this
    /// process may not look.
    #[must_use]
    pub fn memory_bytes_shared(&self) -> Option<u64> {
        let mut total = 0;
        for pid in &self.pids {
            match fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
                Ok(rollup) => total += kibibytes(&rollup, "Pss_Anon:") + kibibytes(&rollup, "SwapPss:"),
                // It has ended, or becomes another program.
                Err(error) if error.kind() != std::io::ErrorKind::PermissionDenied => {}
                Err(_) => return None,
            }
        }
        Some(total * KIBIBYTE)
    }
}

/// The value of `name` in lines of `name value kB`.
fn kibibytes(text: &str, name: &str) -> u64 {
    let value = |line: &str| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok();
    text.lines().find_map(value).unwrap_or(0)
}

fn look(pid: u32) -> Option<Seen> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything; the state follows it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let time = |at: usize| Some(Duration::from_millis(number(at)? * 1000 / TICKS_PER_SECOND));
    Some(Seen {
        parent: u32::try_from(number(1)?).ok()?,
        ended: matches!(fields.first(), Some(&"Z" | &"X")),
        threads: u32::try_from(number(17)?).ok()?,
        cpu: time(11)? + time(12)?,
        cpu_of_children: time(13)? + time(14)?,
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

    fn becomes(root: &Child, wanted: impl Fn(&Tree) -> bool) -> Tree {
        let began = std::time::Instant::now();
        loop {
            let found = Processes::now().take(root.id());
            if wanted(&found) || began.elapsed() > Duration::from_secs(30) {
                return found;
            }
            std::thread::yield_now();
        }
    }

    fn end(mut child: Child) {
        let group = format!("-{}", child.id());
        assert!(Command::new("kill").args(["-9", "--", &group]).status().unwrap().success());
        child.wait().unwrap();
        assert_eq!(Activity::below(child.id()), Activity::default(), "it has ended");
    }

    #[test]
    fn children_and_their_children_are_counted_and_what_they_use() {
        let idle = start("sleep 60 & (sleep 60; :) & wait");
        let found = becomes(&idle, |found| found.activity.processes == 4);
        assert_eq!((found.activity.processes, found.activity.tasks), (4, 4), "{found:?}");
        let busy = start("(while :; do :; done) & wait");
        let found = becomes(&busy, |found| found.activity.cpu >= Duration::from_millis(100));
        assert!(found.activity.cpu >= Duration::from_millis(100), "{found:?}");
        for child in [idle, busy] {
            end(child);
        }
    }

    #[test]
    fn what_ended_children_used_is_not_forgotten() {
        let ended = start("(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done); sleep 60 & wait");
        let found = becomes(&ended, |found| found.cpu > found.activity.cpu);
        assert!(found.cpu > found.activity.cpu, "{found:?}");
        end(ended);
    }

    #[test]
    fn memory_after_a_fork_counts_for_each_and_is_told_apart_when_asked() {
        let code = "import os,time\ntext = 'x' * (64 << 20)\nfor _ in range(3):\n  if os.fork() == 0: break\ntime.sleep(60)";
        let child =
            Command::new("/usr/bin/python3").args(["-I", "-c", code]).process_group(0).spawn().unwrap();
        let each = 4 * (64 << 20);
        let found = becomes(&child, |found| found.activity.processes == 4 && found.memory_bytes() >= each);
        let each = found.memory_bytes();
        let once = found.memory_bytes_shared().unwrap();
        assert!(each >= 4 * (64 << 20), "{each}");
        assert!((64 << 20..2 * (64 << 20)).contains(&once), "{each} {once}");
        end(child);
    }
}
