//! The directories of one control group: one in each hierarchy that is used.
//!
//! Owns making, killing and removing them. Knows nothing of bounds.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::{CgroupError, MANY_PROCESSES, failed, write};

/// Between two tries to remove a group that the kernel still empties: seldom, because many processes that end at once
/// leave the neighbours little of the processors already.
const REMOVE_POLL: Duration = Duration::from_millis(10);
/// Every so many tries what is still listed is killed again.
const KILL_AGAIN: u32 = 20;
/// Between two of many processes: the end of one is a millisecond or two of work inside the kernel, which lets
/// nobody else have the processor.
const THIN_EVERY: Duration = Duration::from_millis(8);
/// What is left then dies at once.
const THIN_WITHIN: Duration = Duration::from_millis(600);

#[derive(Debug, Clone)]
pub(super) struct Dirs {
    pub(super) memory: Place,
    pub(super) pids: Place,
    pub(super) cpu: Place,
    /// Version 1 accounts for processor time in a hierarchy of its own.
    pub(super) cpu_time: Option<PathBuf>,
    /// The unified hierarchy, for `cgroup.kill`, even where it has no controllers.
    pub(super) unified: Option<PathBuf>,
}

/// A directory and the version whose files it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    V1(PathBuf),
    V2(PathBuf),
}

// === impl Dirs ===

impl Dirs {
    pub(super) fn below(&self, name: &str) -> Dirs {
        Dirs {
            memory: self.memory.join(name),
            pids: self.pids.join(name),
            cpu: self.cpu.join(name),
            cpu_time: self.cpu_time.as_ref().map(|dir| dir.join(name)),
            unified: self.unified.as_ref().map(|dir| dir.join(name)),
        }
    }

    /// Each directory once: version 1 may mount several controllers together.
    pub(super) fn all(&self) -> Vec<&Path> {
        let mut found = Vec::new();
        let places = [self.memory.dir(), self.pids.dir(), self.cpu.dir()];
        for dir in places.into_iter().chain(self.cpu_time.as_deref()).chain(self.unified.as_deref()) {
            if !found.contains(&dir) {
                found.push(dir);
            }
        }
        found
    }

    /// Refuses a group that exists: its processes would share the bounds.
    pub(super) fn make(&self) -> Result<(), CgroupError> {
        for dir in self.all() {
            fs::create_dir(dir).map_err(|source| failed("make the group", dir, source))?;
        }
        Ok(())
    }

    pub(super) fn kill(&self) -> Result<(), CgroupError> {
        if let Some(dir) = &self.unified
            && fs::write(dir.join("cgroup.kill"), "1").is_ok()
        {
            return Ok(());
        }
        // Before Linux 5.14 and without version 2: stop the forking, then kill what is listed.
        write(&self.pids.dir().join("pids.max"), "0")?;
        let procs = self.pids.dir().join("cgroup.procs");
        kill_listed(&procs).map_err(|source| failed("kill", &procs, source))
    }

    /// Stops all that runs here until it is killed, without a fork more. False where that is not to be had: before
    /// Linux 5.2, and without version 2.
    pub(super) fn freeze(&self) -> bool {
        let Some(dir) = &self.unified else { return false };
        // What dies must not be made up for, nor tried to: a refused fork costs what a process costs.
        write(&self.pids.dir().join("pids.max"), "0").is_ok()
            && fs::write(dir.join("cgroup.freeze"), "1").is_ok()
    }

    /// Whether more than `count` processes run here.
    pub(super) fn has_more_than(&self, count: usize) -> bool {
        let listed = fs::File::open(self.pids.dir().join("cgroup.procs"));
        listed
            .is_ok_and(|listed| io::BufReader::new(listed).lines().map_while(Result::ok).nth(count).is_some())
    }

    /// Kills what is frozen one after another, the youngest first, so that the neighbours are served in between; at
    /// last all that is left. Blocks for `THIN_WITHIN` at most.
    pub(super) fn kill_by_and_by(&self) -> Result<(), CgroupError> {
        let thinned = self.thin();
        match self.kill().and(thinned) {
            // Whoever removed it killed it.
            Err(_) if !self.pids.dir().exists() => Ok(()),
            done => done,
        }
    }

    fn thin(&self) -> Result<(), CgroupError> {
        let started = Instant::now();
        let procs = self.pids.dir().join("cgroup.procs");
        let listed = fs::read_to_string(&procs).map_err(|source| failed("read", &procs, source))?;
        let mut pids: Vec<i32> = listed.lines().filter_map(|line| line.parse().ok()).collect();
        // Ids are given in rising order, but for one turn at their end. The oldest is `worker-init`: its end is
        // the end of all.
        pids.sort_unstable();
        let (_, young) = pids.split_at(pids.len().min(MANY_PROCESSES));
        for pid in young.iter().rev().take_while(|_| started.elapsed() < THIN_WITHIN) {
            kill_if_listed(&procs, *pid).map_err(|source| failed("kill", &procs, source))?;
            thread::sleep(THIN_EVERY);
        }
        Ok(())
    }

    pub(super) fn remove_within(&self, within: Duration) -> Result<(), CgroupError> {
        remove_within(&self.all(), within)
    }
}

// === impl Place ===

impl Place {
    pub(super) fn dir(&self) -> &Path {
        match self {
            Place::V1(dir) | Place::V2(dir) => dir,
        }
    }

    fn join(&self, name: &str) -> Place {
        match self {
            Place::V1(dir) => Place::V1(dir.join(name)),
            Place::V2(dir) => Place::V2(dir.join(name)),
        }
    }
}

/// Removes `parent` and the groups below it when nothing runs in them.
pub(super) fn remove_empty(parent: &Path) {
    for worker in fs::read_dir(parent).into_iter().flatten().flatten() {
        // Fails for the kernel's own files and for a group with processes.
        let _ = fs::remove_dir(worker.path());
    }
    let _ = fs::remove_dir(parent);
}

fn remove_within(dirs: &[&Path], within: Duration) -> Result<(), CgroupError> {
    let started = Instant::now();
    let mut tries = 0_u32;
    for dir in dirs {
        while let Err(source) = fs::remove_dir(dir) {
            match source.kind() {
                io::ErrorKind::NotFound => break,
                io::ErrorKind::ResourceBusy if started.elapsed() < within => {
                    tries += 1;
                    if tries.is_multiple_of(KILL_AGAIN) {
                        let _ = kill_listed(&dir.join("cgroup.procs"));
                    }
                    thread::sleep(REMOVE_POLL);
                }
                _ => return Err(failed("remove the group", dir, source)),
            }
        }
    }
    Ok(())
}

fn kill_listed(procs: &Path) -> io::Result<()> {
    for pid in fs::read_to_string(procs)?.lines().filter_map(|line| line.parse().ok()) {
        kill_if_listed(procs, pid)?;
    }
    Ok(())
}

fn kill_if_listed(procs: &Path, pid: i32) -> io::Result<()> {
    let Some(handle) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return Ok(());
    };
    // The id may have gone to another process in between; a handle taken while it is listed is the one.
    if fs::read_to_string(procs)?.lines().any(|line| line.parse() == Ok(pid)) {
        let _ = pidfd_send_signal(&handle, Signal::KILL);
    }
    Ok(())
}
