//! The directories of one control group: one in each hierarchy that is used.
//!
//! Owns their creation, killing and removal. Knows nothing of bounds.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::{CgroupError, MANY_PROCESSES, failed, write};

/// Interval between attempts to remove a group that the kernel is still emptying: long, because many processes that end
/// at once already leave other workers little processor time.
const REMOVE_POLL: Duration = Duration::from_millis(10);
/// Number of attempts after which the processes that are still listed are killed again.
const KILL_AGAIN: u32 = 20;
/// Interval between kills of many processes: ending one takes a millisecond or two inside the kernel, which cannot be
/// preempted.
const THIN_EVERY: Duration = Duration::from_millis(8);
/// Time after which all remaining processes are killed at once.
const THIN_WITHIN: Duration = Duration::from_millis(600);

#[derive(Debug, Clone)]
pub(super) struct Dirs {
    pub(super) memory: VersionedDir,
    pub(super) pids: VersionedDir,
    pub(super) cpu: VersionedDir,
    /// Directory for processor time, which version 1 accounts in a hierarchy of its own.
    pub(super) cpu_time: Option<PathBuf>,
    /// Directory in the unified hierarchy, for `cgroup.kill`, even if it has no controllers.
    pub(super) unified: Option<PathBuf>,
}

/// Directory, by the version of its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VersionedDir {
    V1(PathBuf),
    V2(PathBuf),
}

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

    /// Returns each directory once: version 1 may mount several controllers together.
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

    /// Creates the group; fails if it exists, because its processes would share the bounds.
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
        // Before Linux 5.14 and without version 2: stop forks, then kill the listed processes.
        write(&self.pids.dir().join("pids.max"), "0")?;
        let procs = self.pids.dir().join("cgroup.procs");
        kill_listed(&procs).map_err(|source| failed("kill", &procs, source))
    }

    /// Stops all processes here until they are killed, and prevents further forks. False if not supported: before Linux
    /// 5.2, and without version 2.
    pub(super) fn freeze(&self) -> bool {
        let Some(dir) = &self.unified else { return false };
        // Killed processes must not be replaced; even a refused fork costs as much as a process.
        write(&self.pids.dir().join("pids.max"), "0").is_ok()
            && fs::write(dir.join("cgroup.freeze"), "1").is_ok()
    }

    /// Whether more than `count` processes run here.
    pub(super) fn has_more_than(&self, count: usize) -> bool {
        let listed = fs::File::open(self.pids.dir().join("cgroup.procs"));
        listed
            .is_ok_and(|listed| io::BufReader::new(listed).lines().map_while(Result::ok).nth(count).is_some())
    }

    /// Kills frozen processes one after another, the youngest first, so that other workers can run in between; finally
    /// kills all that are left. Blocks for `THIN_WITHIN` at most.
    pub(super) fn kill_gradually(&self) -> Result<(), CgroupError> {
        let thinned = self.kill_youngest();
        match self.kill().and(thinned) {
            // The group was killed and removed by someone else.
            Err(_) if !self.pids.dir().exists() => Ok(()),
            done => done,
        }
    }

    fn kill_youngest(&self) -> Result<(), CgroupError> {
        let started = Instant::now();
        let procs = self.pids.dir().join("cgroup.procs");
        let listed = fs::read_to_string(&procs).map_err(|source| failed("read", &procs, source))?;
        let mut pids: Vec<i32> = listed.lines().filter_map(|line| line.parse().ok()).collect();
        // Ids ascend, except when they wrap around. The oldest is `worker-init`, whose end is the end of all.
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

impl VersionedDir {
    pub(super) fn dir(&self) -> &Path {
        match self {
            VersionedDir::V1(dir) | VersionedDir::V2(dir) => dir,
        }
    }

    fn join(&self, name: &str) -> VersionedDir {
        match self {
            VersionedDir::V1(dir) => VersionedDir::V1(dir.join(name)),
            VersionedDir::V2(dir) => VersionedDir::V2(dir.join(name)),
        }
    }
}

/// Removes `parent` and the groups below it if no processes run in them.
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
    // The id may have been reused in between; a handle taken while it is listed refers to the right process.
    if fs::read_to_string(procs)?.lines().any(|line| line.parse() == Ok(pid)) {
        let _ = pidfd_send_signal(&handle, Signal::KILL);
    }
    Ok(())
}
