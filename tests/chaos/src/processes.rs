//! The machine's view of the runtime and its workers: /proc, nothing the runtime says of itself.
//!
//! A process is known by its id and its start time, so that a reused id is no survivor.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use asp_e2e::process::resident;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

const POLL: Duration = Duration::from_millis(10);
/// USER_HZ, which is 100 on every Linux that runs this.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Known {
    pub pid: u32,
    started: u64,
}

impl Known {
    pub(crate) fn alive(self) -> bool {
        // A zombie has ended; only its parent has not looked yet.
        stat(self.pid).is_some_and(|stat| stat.started == self.started && stat.state != 'Z')
    }

    /// Readable when it has ended; `None` when it has already.
    fn end(self) -> Option<Result<OwnedFd, Errno>> {
        let end = match pidfd_open(Pid::from_raw(i32::try_from(self.pid).ok()?)?, PidfdFlags::empty()) {
            Err(Errno::SRCH) => return None,
            end => end,
        };
        // Looked at after it was opened, it is this process and none that got its id.
        self.alive().then_some(end)
    }
}

struct Stat {
    state: char,
    parent: u32,
    /// Clock ticks of its own, and of the children it has reaped.
    own: u64,
    reaped: u64,
    started: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: u32::try_from(number(1)?).ok()?,
        own: number(11)? + number(12)?,
        reaped: number(13)? + number(14)?,
        started: number(19)?,
    })
}

/// Every process below `root`, parents before children. Parents are asked for: `/proc/<pid>/task/<tid>/children` leaves
/// some out while others end (proc_pid_tid_children(5)).
pub(crate) fn below(root: u32) -> Vec<Known> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut children: BTreeMap<u32, Vec<Known>> = BTreeMap::new();
    for (pid, stat) in pids.filter_map(|pid| Some((pid, stat(pid)?))) {
        children.entry(stat.parent).or_default().push(Known { pid, started: stat.started });
    }
    let mut all = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        let found = children.remove(&parent).unwrap_or_default();
        open.extend(found.iter().map(|known| known.pid));
        all.extend(found);
    }
    all
}

/// The processes of a worker, outermost first: it, and those it sees.
pub(crate) fn of_worker(runtime: u32, worker: &str) -> Result<Vec<Known>> {
    let variable = format!("ASP_WORKER_ID={worker}");
    let inside = below(runtime).into_iter().find(|known| environment_has(known.pid, &variable));
    let inside = inside.with_context(|| format!("no process is worker {worker}"))?;
    Ok(std::iter::once(inside).chain(below(inside.pid)).collect())
}

/// The processes inside the sandboxes of a plugin's workers.
pub(crate) fn below_of_plugin(runtime: u32, plugin: &str) -> Vec<Known> {
    let start = "ASP_PLUGIN_CODE=";
    let part = format!("/{plugin}/");
    let inside = |known: &Known| {
        let environment = fs::read(format!("/proc/{}/environ", known.pid)).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .map(String::from_utf8_lossy)
            .any(|entry| entry.starts_with(start) && entry.contains(&part))
    };
    below(runtime).into_iter().filter(inside).collect()
}

fn environment_has(pid: u32, variable: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
}

/// Waits until one of these is stopped (SIGSTOP); false when none is at `bound`.
pub(crate) async fn stops(processes: &[Known], bound: Duration) -> bool {
    let began = Instant::now();
    let stopped = |known: &Known| stat(known.pid).is_some_and(|stat| stat.state == 'T');
    while !processes.iter().any(stopped) {
        if began.elapsed() > bound {
            return false;
        }
        sleep(POLL).await;
    }
    true
}

/// The threads of these processes, which is what a control group's `pids` counts.
pub(crate) fn threads(processes: &[Known]) -> usize {
    let count = |known: &Known| fs::read_dir(format!("/proc/{}/task", known.pid)).map_or(0, Iterator::count);
    processes.iter().map(count).sum()
}

pub(crate) fn rss_mib(pid: u32) -> Result<f64> {
    Ok(resident(pid)? as f64 / f64::from(1 << 20))
}

/// Seconds of processor time: its own, and of the children it has reaped.
pub(crate) fn cpu_seconds(pid: u32) -> Result<(f64, f64)> {
    let stat = stat(pid).context("the process runs")?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 ticks")]
    let seconds = |ticks: u64| ticks as f64 / TICKS_PER_SECOND;
    Ok((seconds(stat.own), seconds(stat.reaped)))
}

/// Processor time of a process's threads, counted in nanoseconds, where [`cpu_seconds`] counts ticks. The time of threads that
/// have ended is missing.
pub(crate) fn cpu_of_threads(pid: u32) -> Result<Duration> {
    let mut nanos = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("process {pid}"))? {
        // A thread may end between the listing and the reading.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let used = text.split_whitespace().next().and_then(|used| used.parse::<u64>().ok());
        nanos += used.context("schedstat")?;
    }
    Ok(Duration::from_nanos(nanos))
}

pub(crate) fn send(known: Known, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(known.pid)?).context("a process id is positive")?;
    kill_process(pid, signal).context("signal a worker")
}

/// Seconds of processor time these use within `length`.
pub(crate) async fn cpu_within(processes: &[Known], length: Duration) -> f64 {
    let used = || -> f64 {
        processes.iter().filter_map(|known| cpu_seconds(known.pid).ok()).map(|(own, _)| own).sum()
    };
    let before = used();
    sleep(length).await;
    (used() - before).max(0.0)
}

/// Waits until all have ended; how long that took, or `None` and the number left at `bound`.
pub(crate) async fn gone(processes: &[Known], bound: Duration) -> Result<Duration, usize> {
    let began = Instant::now();
    let processes = processes.to_vec();
    let wait = move || {
        // The kernel says when a process ends. To ask for its files again and again keeps it from ending, and the
        // neighbours from a processor.
        let ends: Vec<_> = processes.iter().filter_map(|known| known.end()).collect();
        let has_ended = |end: &OwnedFd| ended(end, bound.saturating_sub(began.elapsed()));
        let left = ends.iter().filter(|end| !end.as_ref().is_ok_and(has_ended)).count();
        if left == 0 { Ok(began.elapsed()) } else { Err(left) }
    };
    match spawn_blocking(wait).await {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Whether a process ends, or has ended, within `bound`.
fn ended(end: &OwnedFd, bound: Duration) -> bool {
    let bound = Timespec {
        tv_sec: i64::try_from(bound.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: bound.subsec_nanos().into(),
    };
    let mut end = [PollFd::new(end, PollFlags::IN)];
    matches!(poll(&mut end, Some(&bound)), Ok(1..))
}
