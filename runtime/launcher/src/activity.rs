//! What runs below a process and what it uses, read from /proc: for workers without a control group.
//!
//! `worker-init` adopts what its worker abandons (watch.rs), so nothing below it gets out of sight. What cannot be
//! read has ended. Parents are asked for, not children: `/proc/<pid>/task/<tid>/children` leaves some out while others
//! end (proc_pid_tid_children(5)).

mod lookout;

pub use lookout::Lookout;

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
    /// Of each process, those too that have ended and were not waited for. Empty: not even the outermost was seen.
    pub times: Vec<ProcessTime>,
    pids: Vec<u32>,
}

/// Processor time of one process so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessTime {
    pub pid: u32,
    /// In clock ticks since the machine's start; with `pid` it is no other process's.
    pub started: u64,
    pub own: Duration,
    /// Of those that it has waited for, and that those have.
    pub of_children: Duration,
}

/// A process, as its /proc/<pid>/stat shows it.
#[derive(Debug)]
struct Seen {
    parent: u32,
    /// Has ended with all its threads, and nobody has waited for it.
    ended: bool,
    threads: u32,
    time: ProcessTime,
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
        Processes::of(pids.take(MAX_PROCESSES))
    }

    fn of(pids: impl Iterator<Item = u32>) -> Processes {
        let mut found = Processes::default();
        for (pid, seen) in pids.filter_map(|pid| Some((pid, look(pid)?))) {
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
            tree.times.push(seen.time);
            if !seen.ended {
                tree.activity.processes += 1;
                tree.activity.tasks += seen.threads;
                tree.activity.cpu += seen.time.own;
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
            let status = status(*pid);
            held(&status) + page_tables(&status)
        };
        self.pids.iter().map(own).sum::<u64>() * KIBIBYTE
    }

    /// The same with what is shared counted once; it costs the kernel a walk through all of it. A process that may
    /// not be looked into so closely, as those of the launcher, counts in full.
    #[must_use]
    pub fn memory_bytes_shared(&self) -> u64 {
        let own = |pid: &u32| {
            let status = status(*pid);
            let rollup = read(&format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            let shared = kibibytes(&rollup, "Pss_Anon:")
                .map(|anonymous| anonymous + kibibytes(&rollup, "SwapPss:").unwrap_or(0));
            shared.unwrap_or_else(|| held(&status)) + page_tables(&status)
        };
        self.pids.iter().map(own).sum::<u64>() * KIBIBYTE
    }

    /// Its processes that have not ended.
    #[must_use]
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }
}

/// Memory of files that the one of these processes with the most of it has mapped, bytes: its program and libraries.
#[must_use]
pub fn mapped_bytes(pids: &[u32]) -> u64 {
    let mapped = |pid: &u32| {
        let status = status(*pid);
        ["RssFile:", "RssShmem:"].iter().filter_map(|name| kibibytes(&status, name)).sum::<u64>()
    };
    pids.iter().map(mapped).max().unwrap_or(0) * KIBIBYTE
}

/// Memory of its own, as /proc/<pid>/status says it, KiB.
fn held(status: &str) -> u64 {
    ["RssAnon:", "VmSwap:"].iter().filter_map(|name| kibibytes(status, name)).sum()
}

fn page_tables(status: &str) -> u64 {
    kibibytes(status, "VmPTE:").unwrap_or(0)
}

/// /proc/<pid>/status; of a process whose first thread has ended that of another thread: the first has no memory then.
fn status(pid: u32) -> String {
    let first = read(&format!("/proc/{pid}/status")).unwrap_or_default();
    if kibibytes(&first, "RssAnon:").is_some() {
        return first;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut others = threads.filter_map(|thread| read(thread.path().join("status").to_str()?));
    others.find(|status| kibibytes(status, "RssAnon:").is_some()).unwrap_or_default()
}

/// The value of `name` in lines of `name value kB`.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// A process's name is bytes that it chooses, and is in there.
fn read(path: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

fn look(pid: u32) -> Option<Seen> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    // The name is in parentheses and may hold anything; the state follows it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let time = |at: usize| Some(Duration::from_millis(number(at)? * 1000 / TICKS_PER_SECOND));
    let threads = u32::try_from(number(17)?).ok()?;
    Some(Seen {
        parent: u32::try_from(number(1)?).ok()?,
        // Of a process whose first thread has ended the others go on, with its memory.
        ended: matches!(fields.first(), Some(&"Z" | &"X")) && threads <= 1,
        threads,
        time: ProcessTime {
            pid,
            started: number(19)?,
            own: time(11)? + time(12)?,
            of_children: time(13)? + time(14)?,
        },
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

    fn python(code: &str) -> Child {
        Command::new("/usr/bin/python3").args(["-I", "-c", code]).process_group(0).spawn().unwrap()
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
        let told = |found: &Tree| found.times.iter().any(|time| time.of_children > Duration::ZERO);
        let found = becomes(&ended, told);
        assert!(told(&found), "{found:?}");
        end(ended);
    }

    #[test]
    fn memory_after_a_fork_counts_for_each_and_is_told_apart_when_asked() {
        let code = "import os,time\ntext = 'x' * (64 << 20)\nfor _ in range(3):\n  if os.fork() == 0: break\ntime.sleep(60)";
        let child = python(code);
        let each = 4 * (64 << 20);
        let found = becomes(&child, |found| found.activity.processes == 4 && found.memory_bytes() >= each);
        let each = found.memory_bytes();
        let once = found.memory_bytes_shared();
        assert!(each >= 4 * (64 << 20), "{each}");
        assert!((64 << 20..2 * (64 << 20)).contains(&once), "{each} {once}");
        end(child);
    }

    #[test]
    fn files_that_are_mapped_are_told_apart_from_memory() {
        let code = "import mmap,time\nfile = open('/proc/self/exe', 'rb')\nseen = []\n\
                    for _ in range(16):\n  seen.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))\n  \
                    sum(seen[-1][at] for at in range(0, len(seen[-1]), 4096))\ntime.sleep(60)";
        let program = fs::metadata("/usr/bin/python3").unwrap().len();
        let child = python(code);
        let found = becomes(&child, |found| mapped_bytes(found.pids()) >= 16 * program);
        assert!(mapped_bytes(found.pids()) >= 16 * program, "{}", mapped_bytes(found.pids()));
        assert!(found.memory_bytes() < 8 * program, "{}", found.memory_bytes());
        end(child);
    }

    #[test]
    fn a_name_that_is_no_text_hides_neither_a_process_nor_what_is_below_it() {
        let code = "import ctypes,os,time\ntext = 'x' * (64 << 20)\nctypes.CDLL(None).prctl(15, b'\\xff)\\n', 0, 0, 0)\n\
                    os.fork()\ntime.sleep(60)";
        let child = python(code);
        let each = 2 * (64 << 20);
        let found = becomes(&child, |found| found.activity.processes == 2 && found.memory_bytes() >= each);
        assert_eq!(found.activity.processes, 2, "{found:?}");
        assert!(found.memory_bytes() >= each, "{}", found.memory_bytes());
        end(child);
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_still_there_with_its_memory() {
        let code = format!(
            "import ctypes,threading,time\ntext = 'x' * (64 << 20)\n\
             threading.Thread(target=time.sleep, args=(60,)).start()\nctypes.CDLL(None).syscall({}, 0)",
            nix::libc::SYS_exit
        );
        let child = python(&code);
        let first_has_ended = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            stat.contains(") Z ")
        };
        let found = becomes(&child, |_| first_has_ended());
        assert!(first_has_ended());
        assert_eq!(found.activity.processes, 1, "{found:?}");
        assert!(found.memory_bytes() >= 64 << 20, "{}", found.memory_bytes());
        assert!(found.memory_bytes_shared() >= 64 << 20, "{}", found.memory_bytes_shared());
        end(child);
    }
}
