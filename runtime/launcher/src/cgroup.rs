//! Control groups of workers: one group each, below our own, with bounds on memory, processor and processes.
//!
//! Owns the layout `<own group>/asp-<pid>-<n>/<worker>` in every hierarchy used: version 2 if it has the controller,
//! else version 1. Refuses to work without any of the three controllers. A group is removed with its value; groups of a
//! killed supervisor are removed by the next one. Sources: Linux Documentation/admin-guide/cgroup-v2.rst and
//! cgroup-v1/{memory,pids,cpuacct}.rst.

mod dirs;
mod hierarchy;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{fs, io, process};

use serde::{Deserialize, Serialize};

use self::dirs::{Dirs, VersionedDir, remove_empty};
use self::hierarchy::Hierarchies;
use crate::sandbox::Limits;

/// `worker-init` itself, the first process inside. Callers that request an egress forwarder allow it one more.
const OWN_PIDS: u32 = 1;
/// Period of the processor quota, in microseconds: the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;
/// Group for the processes of our own group if it must delegate controllers (version 2 allows processes only in
/// leaves).
const MAIN: &str = "asp-main";
/// Time to wait for an empty group: it is busy until its last process is reaped, which the kernel does soon after a
/// kill.
const REMOVE_WITHIN: Duration = Duration::from_secs(3);
const DROP_WITHIN: Duration = Duration::from_millis(50);
const MAX_NAME_BYTES: usize = 64;
/// Maximum number of processes that are killed at once.
const MANY_PROCESSES: usize = 8;

/// Counter that distinguishes the groups of several [`Cgroups`] in one process.
static NEXT: AtomicU32 = AtomicU32::new(0);

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("no control group provides {0}")]
    Missing(&'static str),
    #[error("{0:?} cannot name a control group")]
    Name(String),
    #[error("{step} {path}: {source}")]
    Io { step: &'static str, path: PathBuf, source: io::Error },
}

/// Parent of the groups of all workers of this process. Dropping it removes it if no worker is left.
#[derive(Debug)]
pub struct Cgroups(Dirs);

/// Bounds and accounting of one worker. Dropping it kills its remaining processes and removes it.
#[derive(Debug)]
pub struct Cgroup {
    dirs: Dirs,
    removed: bool,
}

/// Two ways to enter the worker's control group that avoid the kernel's lock on writes to `cgroup.procs`, which costs
/// 15 ms per start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GroupFiles {
    /// Directory in the unified hierarchy, in which a process can be created.
    pub unified: Option<PathBuf>,
    /// The `tasks` files of version 1, to which a single-threaded process writes `0`.
    pub tasks: Vec<PathBuf>,
}

/// Frozen processes of a worker, to be killed gradually; see [`Cgroup::freeze_if_many`].
#[derive(Debug)]
pub struct FrozenGroup(Dirs);

/// Resource usage of a worker so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    pub cpu_ms: u64,
    /// Anonymous memory in bytes: what `ps` calls resident, without shared files.
    pub rss_bytes: u64,
    /// All memory charged to it, including `work_dir` and page cache.
    pub memory_bytes: u64,
    /// Peak of `memory_bytes`; 0 if the kernel does not report it (version 2 before Linux 5.19).
    pub memory_peak_bytes: u64,
    /// Processes and threads, including the one or two of `worker-init`.
    pub pids: u32,
    /// Processes killed because the memory bound was reached.
    pub oom_kills: u64,
}

/// Current activity of a worker; with a control group this costs reading three small files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Activity {
    /// Processes, including those of `worker-init`.
    pub processes: u32,
    /// Processes and threads, including zombies.
    pub tasks: u32,
    /// Processor time used since the group was created.
    pub cpu: Duration,
}

impl Cgroups {
    /// Creates the parent group below our own. Fails if control groups are not available to this process.
    pub fn open() -> Result<Cgroups, CgroupError> {
        let own = own_groups()?;
        let v2 = own.unified.as_deref().map(read_controllers).unwrap_or_default();
        let place = |controller: &'static str| match (&own.unified, own.legacy(controller)) {
            (Some(dir), _) if v2.iter().any(|name| name == controller) => Ok(VersionedDir::V2(dir.clone())),
            (_, Some(dir)) => Ok(VersionedDir::V1(dir.to_path_buf())),
            _ => Err(CgroupError::Missing(controller)),
        };
        let base = Dirs {
            memory: place("memory")?,
            pids: place("pids")?,
            cpu: place("cpu")?,
            cpu_time: own.legacy("cpuacct").map(Path::to_path_buf),
            unified: own.unified.clone(),
        };
        base.all().into_iter().for_each(sweep);
        let controllers = v2_controllers(&base);
        if let (Some(dir), false) = (&base.unified, controllers.is_empty()) {
            delegate_controllers(dir, &controllers)?;
        }
        let name = format!("asp-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let parent = Cgroups(base.below(&name));
        parent.0.make()?;
        if let (Some(dir), false) = (&parent.0.unified, controllers.is_empty()) {
            enable(dir, &controllers)?;
        }
        Ok(parent)
    }

    /// Creates the group of one worker. `name` is unique among the living workers: letters, digits, `-`, `_`.
    pub fn create(&self, name: &str, limits: &Limits) -> Result<Cgroup, CgroupError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(plain) {
            return Err(CgroupError::Name(name.to_owned()));
        }
        let dirs = self.0.below(name);
        dirs.make()?;
        let cgroup = Cgroup { dirs, removed: false };
        cgroup.limit(limits)?;
        Ok(cgroup)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for dir in self.0.all() {
            // Fails while a worker is left; the next supervisor then removes it.
            let _ = fs::remove_dir(dir);
        }
    }
}

impl Cgroup {
    pub(crate) fn files(&self) -> GroupFiles {
        let legacy = self.dirs.all().into_iter().filter(|dir| Some(*dir) != self.dirs.unified.as_deref());
        GroupFiles {
            unified: self.dirs.unified.clone(),
            tasks: legacy.map(|dir| dir.join("tasks")).collect(),
        }
    }

    fn limit(&self, limits: &Limits) -> Result<(), CgroupError> {
        let pids = limits.pids.saturating_add(OWN_PIDS).to_string();
        let quota = u64::from(limits.cpu_millis) * CPU_PERIOD_US / 1000;
        let memory = limits.memory_bytes.to_string();
        write(&self.dirs.pids.dir().join("pids.max"), &pids)?;
        match &self.dirs.cpu {
            VersionedDir::V2(dir) => write(&dir.join("cpu.max"), &format!("{quota} {CPU_PERIOD_US}"))?,
            VersionedDir::V1(dir) => {
                write(&dir.join("cpu.cfs_period_us"), &CPU_PERIOD_US.to_string())?;
                write(&dir.join("cpu.cfs_quota_us"), &quota.to_string())?;
            }
        }
        match &self.dirs.memory {
            VersionedDir::V2(dir) => {
                write(&dir.join("memory.max"), &memory)?;
                // A worker whose helper process was killed is of no use: the kernel kills all or none.
                write(&dir.join("memory.oom.group"), "1")?;
                write_if_present(&dir.join("memory.swap.max"), "0")
            }
            VersionedDir::V1(dir) => {
                write(&dir.join("memory.limit_in_bytes"), &memory)?;
                write_if_present(&dir.join("memory.memsw.limit_in_bytes"), &memory)
            }
        }
    }

    /// Returns the resource usage so far; values that cannot be read count as 0.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let cpu_ms = u64::try_from(self.cpu().as_millis()).unwrap_or(u64::MAX);
        let (rss_bytes, memory_bytes, memory_peak_bytes) = match &self.dirs.memory {
            VersionedDir::V2(dir) => {
                let anonymous = keyed(&text(dir, "memory.stat"), "anon");
                (anonymous, number(dir, "memory.current"), number(dir, "memory.peak"))
            }
            VersionedDir::V1(dir) => {
                let anonymous = keyed(&text(dir, "memory.stat"), "rss");
                (anonymous, number(dir, "memory.usage_in_bytes"), number(dir, "memory.max_usage_in_bytes"))
            }
        };
        let pids = self.tasks();
        let oom_kills = self.oom_kills();
        Stats { cpu_ms, rss_bytes, memory_bytes, memory_peak_bytes, pids, oom_kills }
    }

    /// Returns the current activity; values that cannot be read count as 0.
    #[must_use]
    pub fn activity(&self) -> Activity {
        // Threads and zombies are not listed.
        let listed = text(self.dirs.pids.dir(), "cgroup.procs");
        let processes = u32::try_from(listed.lines().count()).unwrap_or(u32::MAX);
        Activity { processes, tasks: self.tasks(), cpu: self.cpu() }
    }

    /// Returns the ids of the processes in the group.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let listed = text(self.dirs.pids.dir(), "cgroup.procs");
        listed.lines().filter_map(|pid| pid.parse().ok()).collect()
    }

    fn tasks(&self) -> u32 {
        u32::try_from(number(self.dirs.pids.dir(), "pids.current")).unwrap_or(u32::MAX)
    }

    fn cpu(&self) -> Duration {
        match (&self.dirs.cpu, &self.dirs.cpu_time) {
            (VersionedDir::V2(dir), _) => Duration::from_micros(keyed(&text(dir, "cpu.stat"), "usage_usec")),
            (VersionedDir::V1(_), Some(dir)) => Duration::from_nanos(number(dir, "cpuacct.usage")),
            (VersionedDir::V1(_), None) => Duration::ZERO,
        }
    }

    /// Returns the number of processes killed so far because the memory bound was reached.
    #[must_use]
    pub fn oom_kills(&self) -> u64 {
        let file = match &self.dirs.memory {
            VersionedDir::V2(dir) => dir.join("memory.events"),
            VersionedDir::V1(dir) => dir.join("memory.oom_control"),
        };
        keyed(&fs::read_to_string(file).unwrap_or_default(), "oom_kill")
    }

    /// Sends SIGKILL to every process of the worker; `worker-init` outside then ends by the same signal. Returns before
    /// they are gone.
    pub fn kill(&self) -> Result<(), CgroupError> {
        self.dirs.kill()
    }

    /// Freezes the group if it has so many processes that killing them at once would occupy the machine's processors
    /// for tens of milliseconds; a frozen group must then be killed. `None` for the few processes that a worker usually
    /// has, and if freezing is not supported.
    #[must_use]
    pub fn freeze_if_many(&self) -> Option<FrozenGroup> {
        (self.dirs.has_more_than(MANY_PROCESSES) && self.dirs.freeze())
            .then(|| FrozenGroup(self.dirs.clone()))
    }

    /// Kills the remaining processes and removes the group. Blocks up to three seconds for the kernel.
    pub fn remove(mut self) -> Result<(), CgroupError> {
        self.kill()?;
        self.removed = true;
        self.dirs.remove_within(REMOVE_WITHIN)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if !self.removed {
            // If it is still busy after the short wait, the next supervisor removes it.
            let _ = self.kill();
            let _ = self.dirs.remove_within(DROP_WITHIN);
        }
    }
}

impl FrozenGroup {
    /// Kills like [`Cgroup::kill`], but one process after another. Blocks for 0.6 s at most.
    pub fn kill(self) -> Result<(), CgroupError> {
        self.0.kill_gradually()
    }
}

fn v2_controllers(dirs: &Dirs) -> Vec<&'static str> {
    let of = |name, place: &VersionedDir| matches!(place, VersionedDir::V2(_)).then_some(name);
    [of("memory", &dirs.memory), of("pids", &dirs.pids), of("cpu", &dirs.cpu)].into_iter().flatten().collect()
}

fn own_groups() -> Result<Hierarchies, CgroupError> {
    let read =
        |path: &str| fs::read_to_string(path).map_err(|source| failed("read", Path::new(path), source));
    let mut own = Hierarchies::parse(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?);
    // An earlier `hand_down` moved us one level down.
    if let Some(dir) = own.unified.take() {
        let moved = dir.file_name().is_some_and(|name| name == MAIN);
        own.unified = Some(if moved { dir.parent().unwrap_or(&dir).to_path_buf() } else { dir });
    }
    Ok(own)
}

fn read_controllers(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Delegates our own group's controllers to its children, which requires that it has no processes of its own.
fn delegate_controllers(own: &Path, controllers: &[&str]) -> Result<(), CgroupError> {
    match enable(own, controllers) {
        Err(CgroupError::Io { source, .. }) if source.kind() == io::ErrorKind::ResourceBusy => {}
        done => return done,
    }
    let main = own.join(MAIN);
    fs::create_dir_all(&main).map_err(|source| failed("make the group", &main, source))?;
    let listed = fs::read_to_string(own.join("cgroup.procs")).unwrap_or_default();
    for pid in listed.lines() {
        // A process that has just ended need not be moved.
        let _ = fs::write(main.join("cgroup.procs"), pid);
    }
    enable(own, controllers)
}

fn enable(dir: &Path, controllers: &[&str]) -> Result<(), CgroupError> {
    let wanted: Vec<String> = controllers.iter().map(|name| format!("+{name}")).collect();
    write(&dir.join("cgroup.subtree_control"), &wanted.join(" "))
}

/// Removes groups of supervisors that no longer exist. Their workers ended with them; a supervisor in another process
/// namespace cannot be distinguished by its number, so nothing is killed and a group in use stays.
fn sweep(own: &Path) {
    let Ok(entries) = fs::read_dir(own) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = supervisor_of(&name.to_string_lossy()) else { continue };
        if Path::new("/proc").join(pid.to_string()).exists() {
            continue;
        }
        remove_empty(&entry.path());
    }
}

/// Returns the process id in a name made by [`Cgroups::open`].
fn supervisor_of(name: &str) -> Option<u32> {
    let (pid, count) = name.strip_prefix("asp-")?.split_once('-')?;
    count.parse::<u32>().ok()?;
    pid.parse().ok()
}

fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    fs::write(path, value).map_err(|source| failed("write", path, source))
}

fn write_if_present(path: &Path, value: &str) -> Result<(), CgroupError> {
    if path.exists() { write(path, value) } else { Ok(()) }
}

fn failed(step: &'static str, path: &Path, source: io::Error) -> CgroupError {
    CgroupError::Io { step, path: path.to_path_buf(), source }
}

fn text(dir: &Path, file: &str) -> String {
    fs::read_to_string(dir.join(file)).unwrap_or_default()
}

fn number(dir: &Path, file: &str) -> u64 {
    text(dir, file).trim().parse().unwrap_or(0)
}

/// Returns the value of `key` in lines of `key value`.
fn keyed(text: &str, key: &str) -> u64 {
    let value = |line: &str| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(value).unwrap_or(0)
}

#[cfg(test)]
mod tests;
