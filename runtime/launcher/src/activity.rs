//! The processes below a process and their resource usage, read from /proc: for workers without a control group.
//!
//! `worker-init` adopts the orphans of its worker (watch.rs), so nothing below it gets out of sight. A process that
//! cannot be read has ended. The tree is built from each process's parent, not from its children:
//! `/proc/<pid>/task/<tid>/children` omits some while others end (proc_pid_tid_children(5)).

mod lookout;

pub use lookout::Lookout;

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use crate::Activity;

/// USER_HZ: 100 on every Linux whose programs this runs (proc_pid_stat(5)).
const TICKS_PER_SECOND: u64 = 100;
/// Maximum number of the machine's processes to read: as many ids as it has by default.
const MAX_PROCESSES: usize = 32_768;
const KIBIBYTE: u64 = 1024;

/// The processes of this machine, all read at once.
#[derive(Debug, Default)]
pub struct Processes {
    seen: HashMap<u32, ProcessStat>,
    children: HashMap<u32, Vec<u32>>,
}

/// A process and everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    pub activity: Activity,
    /// Times of each process, including zombies. Empty if not even the outermost process was found.
    pub times: Vec<ProcessTime>,
    pids: Vec<u32>,
}

/// Processor time of one process so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessTime {
    pub pid: u32,
    /// Start time in clock ticks since boot; unique together with `pid`.
    pub started: u64,
    pub own: Duration,
    /// Time of the children that it has waited for, and of theirs.
    pub of_children: Duration,
}

/// One process, as its /proc/<pid>/stat shows it.
#[derive(Debug)]
struct ProcessStat {
    parent: u32,
    /// Whether it is a zombie: it has ended with all its threads, but was not waited for.
    ended: bool,
    threads: u32,
    time: ProcessTime,
}

impl Activity {
    /// Returns the activity of the process `root` and everything below it.
    #[must_use]
    pub fn below(root: u32) -> Activity {
        Processes::now().take(root).activity
    }
}

impl Processes {
    #[must_use]
    pub fn now() -> Processes {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Processes::of(pids.take(MAX_PROCESSES))
    }

    fn of(pids: impl Iterator<Item = u32>) -> Processes {
        let mut found = Processes::default();
        for (pid, seen) in pids.filter_map(|pid| Some((pid, read_stat(pid)?))) {
            found.children.entry(seen.parent).or_default().push(pid);
            found.seen.insert(pid, seen);
        }
        found
    }

    /// Removes and returns the process `root` and everything below it; an empty tree if it is gone.
    pub fn take(&mut self, root: u32) -> Tree {
        let mut tree = Tree::default();
        let mut open = vec![root];
        while let Some(pid) = open.pop() {
            // Removed, so that nothing is counted twice whatever the numbers say.
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

impl Tree {
    /// Returns the private memory of its processes in bytes, including swap and page tables. Pages shared after a fork
    /// count for each process.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let own = |pid: &u32| {
            let status = status(*pid);
            private_memory(&status) + page_tables(&status)
        };
        self.pids.iter().map(own).sum::<u64>() * KIBIBYTE
    }

    /// Returns the same with shared pages counted once; this makes the kernel walk through all of them. A process that
    /// may not be inspected so closely, such as those of the launcher, counts in full.
    #[must_use]
    pub fn memory_bytes_shared(&self) -> u64 {
        let own = |pid: &u32| {
            let status = status(*pid);
            let rollup = read(&format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            let shared = kibibytes(&rollup, "Pss_Anon:")
                .map(|anonymous| anonymous + kibibytes(&rollup, "SwapPss:").unwrap_or(0));
            shared.unwrap_or_else(|| private_memory(&status)) + page_tables(&status)
        };
        self.pids.iter().map(own).sum::<u64>() * KIBIBYTE
    }

    /// Returns its processes that have not ended.
    #[must_use]
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }
}

/// Returns the largest amount of mapped file memory of any of these processes, in bytes: its program and libraries.
#[must_use]
pub fn mapped_bytes(pids: &[u32]) -> u64 {
    let mapped = |pid: &u32| {
        let status = status(*pid);
        ["RssFile:", "RssShmem:"].iter().filter_map(|name| kibibytes(&status, name)).sum::<u64>()
    };
    pids.iter().map(mapped).max().unwrap_or(0) * KIBIBYTE
}

/// Returns the private memory in /proc/<pid>/status, in KiB.
fn private_memory(status: &str) -> u64 {
    ["RssAnon:", "VmSwap:"].iter().filter_map(|name| kibibytes(status, name)).sum()
}

fn page_tables(status: &str) -> u64 {
    kibibytes(status, "VmPTE:").unwrap_or(0)
}

/// Reads /proc/<pid>/status. If the first thread has ended, reads that of another thread, because the first one then
/// shows no memory.
fn status(pid: u32) -> String {
    let first = read(&format!("/proc/{pid}/status")).unwrap_or_default();
    if kibibytes(&first, "RssAnon:").is_some() {
        return first;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut others = threads.filter_map(|thread| read(thread.path().join("status").to_str()?));
    others.find(|status| kibibytes(status, "RssAnon:").is_some()).unwrap_or_default()
}

/// Returns the value of `name` in lines of `name value kB`.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// Reads a file that contains the process's name, which may be any bytes.
fn read(path: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

fn read_stat(pid: u32) -> Option<ProcessStat> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    // The name is in parentheses and may hold anything; the state follows it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let time = |at: usize| Some(Duration::from_millis(number(at)? * 1000 / TICKS_PER_SECOND));
    let threads = u32::try_from(number(17)?).ok()?;
    Some(ProcessStat {
        parent: u32::try_from(number(1)?).ok()?,
        // If only the first thread has ended, the others still run, with the process's memory.
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
