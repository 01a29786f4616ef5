//! Limits without a control group: the resource use of all processes of a worker is sampled ten times a second, and a
//! worker over its limits is ended with everything it started.
//!
//! Owns the decision. The launcher limits each process individually (`Bounds::Sampled`). Keeps true: a worker that
//! cannot be seen or measured does not run, and a failed sample of one worker ends no other. Does not limit what
//! happens between two samples, such as forks that outrun the count or memory that fills up.

mod processor_time;

use std::io;
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use asp_launcher::{Activity, Limits, Lookout, Report, Sandbox, Stats, Tree};
use futures::FutureExt;
use parking_lot::Mutex;
use processor_time::ProcessorTime;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::cause::Cause;

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of processes of `worker-init` in a worker's process tree.
const OF_LAUNCHER: u32 = 2;
/// CPU time in seconds that a worker may use at once beyond its share: an interpreter that starts takes a second or
/// two.
const BURST: f64 = 5.0;
/// Factor above its share at which a worker is clearly over it. Unlike a control group, nothing here throttles a worker
/// to its share, so one whose compiler or garbage collector runs in parallel must survive.
const TOLERANCE: f64 = 2.0;

/// Function that samples workers.
type SampleFn = fn(&mut Lookout, &[Arc<SampledWorker>]);

/// Samples the workers of this machine.
#[derive(Clone, Debug)]
pub struct Sampler {
    workers: Arc<Mutex<Vec<Weak<SampledWorker>>>>,
    added: Arc<Notify>,
}

/// One worker, from its start to its end.
#[derive(Debug)]
pub struct SampledWorker {
    /// Its outermost process: the number to search for, and a handle that cannot refer to another process.
    root: u32,
    handle: OwnedFd,
    limits: Limits,
    /// Whether this process checks the number of processes, because the kernel's limit applies to all processes of the
    /// user.
    counts_tasks: bool,
    /// Reports its file system in memory, at level 3.
    report: Arc<Report>,
    stats: Mutex<Stats>,
    /// Activity at the last sample, and the time of the sample.
    activity: Mutex<Option<(Activity, Instant)>>,
    used: Mutex<ProcessorTime>,
    share: Mutex<CpuAllowance>,
    /// Result of the previous sample. One sample may be wrong: a child that shares its parent's memory until it
    /// executes a program (vfork(2)) counts for both.
    suspicion: Mutex<Option<Cause>>,
    verdict: OnceLock<Cause>,
}

/// CPU time that a worker may still use.
#[derive(Debug)]
struct CpuAllowance {
    /// Seconds per second.
    rate: f64,
    left: f64,
    last: Option<(Instant, Duration)>,
}

impl Sampler {
    /// Starts sampling on `aside`, for ever; it does nothing while there is no worker.
    pub fn start(aside: &Handle) -> Sampler {
        let sampler = Sampler { workers: Arc::default(), added: Arc::default() };
        aside.spawn(sampler.clone().run(sample_all));
        sampler
    }

    /// Enforces the limits of its `sandbox` on the worker whose outermost process is `root`, a child that was not
    /// waited for, from now on.
    pub fn watch(
        &self,
        root: u32,
        sandbox: &Sandbox,
        report: &Arc<Report>,
    ) -> io::Result<Arc<SampledWorker>> {
        let pid = i32::try_from(root).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("it has no process id"))?;
        let sampled = Arc::new(SampledWorker {
            root,
            handle: pidfd_open(pid, PidfdFlags::empty())?,
            limits: sandbox.limits,
            counts_tasks: sandbox.keeps_user,
            report: Arc::clone(report),
            stats: Mutex::default(),
            activity: Mutex::default(),
            used: Mutex::default(),
            share: Mutex::new(CpuAllowance::new(sandbox.limits.cpu_millis)),
            suspicion: Mutex::default(),
            verdict: OnceLock::new(),
        });
        self.workers.lock().push(Arc::downgrade(&sampled));
        self.added.notify_one();
        Ok(sampled)
    }

    async fn run(self, sample: SampleFn) {
        let mut lookout = Lookout::default();
        let mut fails = false;
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let watched = self.watched();
            if watched.is_empty() {
                self.added.notified().await;
                continue;
            }
            let sampled = sample_blocking(sample, lookout, watched.clone()).await;
            let failed = sampled.is_none();
            lookout = sampled.unwrap_or_default();
            if failed {
                if !fails {
                    tracing::error!(
                        runtime = true,
                        "sampling of workers panicked; each is sampled alone, and one that cannot be measured is ended \
                         because its limits would not hold; report this with the panic's message"
                    );
                }
                sample_each(sample, watched).await;
            }
            fails = failed;
        }
    }

    fn watched(&self) -> Vec<Arc<SampledWorker>> {
        let mut workers = self.workers.lock();
        workers.retain(|worker| worker.strong_count() > 0);
        workers.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Samples workers: reads some files of each of their processes, and periodically of every process of the machine.
fn sample_all(lookout: &mut Lookout, watched: &[Arc<SampledWorker>]) {
    let roots: Vec<u32> = watched.iter().map(|worker| worker.root).collect();
    // Taken before reading, so that the time of the sample is not too late.
    let now = Instant::now();
    let trees = lookout.sample(&roots);
    watched.iter().zip(&trees).for_each(|(worker, tree)| worker.sample(tree, now));
}

/// Samples on a blocking thread; `None`: the sample failed.
async fn sample_blocking(
    sample: SampleFn,
    mut lookout: Lookout,
    watched: Vec<Arc<SampledWorker>>,
) -> Option<Lookout> {
    let work = move || {
        sample(&mut lookout, &watched);
        lookout
    };
    // The executor itself panics if it gets no thread for the work.
    let sampled = AssertUnwindSafe(async { tokio::task::spawn_blocking(work).await }).catch_unwind().await;
    match sampled {
        Ok(Ok(lookout)) => Some(lookout),
        // The executor is ending, and this task with it.
        Ok(Err(error)) if error.is_cancelled() => std::future::pending().await,
        Ok(Err(_)) | Err(_) => None,
    }
}

/// Samples workers one by one, after a sample of all of them failed: a single one may be the cause.
async fn sample_each(sample: SampleFn, watched: Vec<Arc<SampledWorker>>) {
    for worker in watched {
        if sample_blocking(sample, Lookout::default(), vec![Arc::clone(&worker)]).await.is_none() {
            worker.end_if_repeated(Some(Cause::Unmeasured));
        }
    }
}

impl SampledWorker {
    /// Returns the worker's resource use at the last sample.
    pub fn stats(&self) -> Stats {
        *self.stats.lock()
    }

    /// Returns the activity at the last sample and its time; `None` before the first one.
    pub fn activity(&self) -> Option<(Activity, Instant)> {
        *self.activity.lock()
    }

    /// Returns why the worker was ended, if it was.
    pub fn verdict(&self) -> Option<Cause> {
        self.verdict.get().copied()
    }

    fn sample(&self, tree: &Tree, now: Instant) {
        let seen = !tree.times.is_empty();
        let used = seen.then(|| self.used_by(tree));
        // Includes ended processes: otherwise a process that ends would hide as much of another's use.
        let cpu = used.unwrap_or(tree.activity.cpu);
        *self.activity.lock() = Some((Activity { cpu, ..tree.activity }, now));
        let found = if seen { self.exceeded_limit(tree) } else { self.cause_if_unseen() };
        let over_share = used.is_some_and(|used| self.share.lock().is_over(used, now));
        self.end_if_repeated(found);
        if over_share {
            self.end(Cause::Limit("processor time"));
        }
    }

    /// Ends the worker if two samples in a row found a violation.
    fn end_if_repeated(&self, found: Option<Cause>) {
        let before = std::mem::replace(&mut *self.suspicion.lock(), found);
        if let Some(cause) = found.filter(|_| before.is_some()) {
            self.end(cause);
        }
    }

    fn used_by(&self, tree: &Tree) -> Duration {
        let used = self.used.lock().add(&tree.times);
        self.stats.lock().cpu_ms = u64::try_from(used.as_millis()).unwrap_or(u64::MAX);
        used
    }

    /// Returns the limit that is exceeded, if any.
    fn exceeded_limit(&self, tree: &Tree) -> Option<Cause> {
        let files = self.files();
        let mut memory = tree.memory_bytes().saturating_add(files);
        if memory > self.limits.memory_bytes && tree.activity.processes > 1 {
            // Shared memory was counted for each process.
            memory = tree.memory_bytes_shared().saturating_add(files);
        }
        let mut stats = self.stats.lock();
        stats.rss_bytes = memory.saturating_sub(files);
        stats.memory_bytes = memory;
        stats.memory_peak_bytes = stats.memory_peak_bytes.max(memory);
        stats.pids = tree.activity.tasks;
        drop(stats);
        let most = self.limits.pids.saturating_add(OF_LAUNCHER);
        if self.counts_tasks && tree.activity.tasks > most {
            // Too many processes also take too much memory: the number is the reason.
            return Some(Cause::Limit("processes"));
        }
        (memory > self.limits.memory_bytes).then_some(Cause::Oom)
    }

    /// Returns the cause if no process was found: the worker has ended, or this process may not see it.
    fn cause_if_unseen(&self) -> Option<Cause> {
        let mut ended = [PollFd::new(&self.handle, PollFlags::IN)];
        let polled = poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        (polled == Ok(0)).then_some(Cause::Unseen)
    }

    /// Returns the size in bytes of its files in memory.
    fn files(&self) -> u64 {
        let stat = self.report.work_dir().and_then(|dir| rustix::fs::fstatvfs(dir).ok());
        stat.map_or(0, |stat| stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize))
    }

    fn end(&self, cause: Cause) {
        // Err: it is being ended already.
        if self.verdict.set(cause).is_ok() {
            if cause == Cause::Unseen {
                tracing::error!(
                    process = self.root,
                    "a worker was ended because its processes are not visible in /proc, so its limits would not hold; \
                     mount /proc without hidepid, or give the runtime a control group"
                );
            }
            // On this signal `worker-init` kills all of the worker (runtime/launcher/README.md). Err: it has just gone.
            let _ = pidfd_send_signal(&self.handle, Signal::INT);
        }
    }
}

impl CpuAllowance {
    fn new(cpu_millis: u32) -> CpuAllowance {
        CpuAllowance { rate: f64::from(cpu_millis) / 1000.0 * TOLERANCE, left: BURST, last: None }
    }

    /// Whether the CPU time `used` so far is clearly more than the worker's share over some seconds.
    fn is_over(&mut self, used: Duration, now: Instant) -> bool {
        if let Some((before, used_before)) = self.last {
            let gained = now.duration_since(before).as_secs_f64() * self.rate;
            let spent = used.saturating_sub(used_before).as_secs_f64();
            self.left = (self.left + gained - spent).min(BURST);
        }
        self.last = Some((now, used));
        self.left < 0.0
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;

    /// Returns after how many seconds a worker with a share of `cpu_millis` is over it if it uses `processors`; at most
    /// 60.
    fn over_after(cpu_millis: u32, processors: f64) -> Option<f64> {
        let mut share = CpuAllowance::new(cpu_millis);
        let start = Instant::now();
        (0..600).map(|tick| f64::from(tick) / 10.0).find(|passed| {
            let now = start + Duration::from_secs_f64(*passed);
            share.is_over(Duration::from_secs_f64(passed * processors), now)
        })
    }

    fn sampler() -> Sampler {
        Sampler { workers: Arc::default(), added: Arc::default() }
    }

    /// Starts a process that sleeps, and enforces `memory_bytes` on it.
    fn sleeper(memory_bytes: u64) -> (Child, Arc<SampledWorker>) {
        watched_sleeper(&sampler(), memory_bytes)
    }

    fn watched_sleeper(sampler: &Sampler, memory_bytes: u64) -> (Child, Arc<SampledWorker>) {
        // If the tests run in the background, SIGINT may be ignored, and that is inherited.
        let child = Command::new("env").args(["--default-signal=INT", "sleep", "60"]).spawn().unwrap();
        let name = format!("/proc/{}/comm", child.id());
        while std::fs::read_to_string(&name).unwrap() != "sleep\n" {
            std::thread::yield_now();
        }
        let sandbox = json!({
            "level": "l2", "bounds": "sampled", "keepsUser": true, "argv": [], "env": {}, "workDir": "/w",
            "runDir": "/r", "readOnly": [], "uid": 1, "gid": 1, "egress": null, "hostname": "w",
            "limits": {
                "memoryBytes": memory_bytes, "cpuMillis": 1000, "pids": 8, "files": 64, "diskBytes": 1 << 20,
                "fileBytes": 1 << 20, "cpuSeconds": null,
            },
        });
        let sandbox: Sandbox = serde_json::from_value(sandbox).unwrap();
        let report = Arc::new(Report::open().unwrap().0);
        let sampled = sampler.watch(child.id(), &sandbox, &report).unwrap();
        (child, sampled)
    }

    #[test]
    fn two_looks_in_a_row_that_find_too_much_memory_end_a_worker_and_one_does_not() {
        let (mut child, sampled) = sleeper(1);
        let found = Lookout::default().sample(&[child.id()]).remove(0);
        assert!(found.memory_bytes() > 1, "{found:?}");
        sampled.sample(&found, Instant::now());
        assert_eq!(sampled.verdict(), None);
        sampled.sample(&found, Instant::now());
        assert_eq!(sampled.verdict(), Some(Cause::Oom));
        assert_eq!(child.wait().unwrap().signal(), Some(2));
    }

    /// Returns the signal that ended the process. A sleep ends by itself when nothing ends it.
    async fn ended_by(mut child: Child) -> Option<i32> {
        tokio::task::spawn_blocking(move || child.wait().unwrap().signal()).await.unwrap()
    }

    #[tokio::test]
    async fn a_look_that_panics_ends_neither_those_after_it_nor_the_bounds_of_workers() {
        static LOOKS: AtomicUsize = AtomicUsize::new(0);
        fn fails_at_first(lookout: &mut Lookout, watched: &[Arc<SampledWorker>]) {
            assert!(LOOKS.fetch_add(1, Ordering::Relaxed) >= 1, "as the test wants it");
            sample_all(lookout, watched);
        }
        let sampler = sampler();
        let (child, sampled) = watched_sleeper(&sampler, 1);
        // After the failed sample it is sampled alone, and then as usual.
        let running = tokio::spawn(sampler.run(fails_at_first));
        assert_eq!(ended_by(child).await, Some(2));
        assert_eq!(sampled.verdict(), Some(Cause::Oom));
        running.abort();
    }

    #[tokio::test]
    async fn a_worker_that_cannot_be_measured_is_ended_and_those_beside_it_go_on() {
        const BAD: u64 = 7 << 40;
        fn fails_at_one(lookout: &mut Lookout, watched: &[Arc<SampledWorker>]) {
            assert!(watched.iter().all(|worker| worker.limits.memory_bytes != BAD), "as the test wants it");
            sample_all(lookout, watched);
        }
        let sampler = sampler();
        let (bad, unmeasured) = watched_sleeper(&sampler, BAD);
        let (mut good, measured) = watched_sleeper(&sampler, 1 << 30);
        let running = tokio::spawn(sampler.run(fails_at_one));
        assert_eq!(ended_by(bad).await, Some(2));
        assert_eq!(unmeasured.verdict(), Some(Cause::Unmeasured));
        assert!(measured.activity().is_some() && measured.verdict().is_none());
        good.kill().unwrap();
        good.wait().unwrap();
        running.abort();
    }

    #[test]
    fn a_worker_that_runs_and_cannot_be_seen_is_ended_and_one_that_has_gone_is_not() {
        let (mut child, sampled) = sleeper(1 << 30);
        let nothing = Tree::default();
        sampled.sample(&nothing, Instant::now());
        sampled.sample(&nothing, Instant::now());
        assert_eq!(sampled.verdict(), Some(Cause::Unseen));
        assert_eq!(child.wait().unwrap().signal(), Some(2));
        let (mut child, sampled) = sleeper(1 << 30);
        child.kill().unwrap();
        child.wait().unwrap();
        sampled.sample(&nothing, Instant::now());
        sampled.sample(&nothing, Instant::now());
        assert_eq!(sampled.verdict(), None);
    }

    #[test]
    fn a_worker_within_its_share_goes_on_and_one_clearly_above_has_some_seconds() {
        assert_eq!(over_after(1000, 1.0), None);
        assert_eq!(over_after(1000, 1.9), None, "not clearly");
        for (share, processors, least, most) in
            [(1000, 3.0, 4.8, 5.3), (250, 1.0, 9.8, 10.3), (100, 2.0, 2.6, 3.0)]
        {
            let over = over_after(share, processors).unwrap();
            assert!(over > least && over < most, "{share} {processors}: {over}");
        }
    }

    #[test]
    fn a_start_may_take_more_than_a_share_and_rest_pays_for_it() {
        let mut share = CpuAllowance::new(100);
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert!(!share.is_over(Duration::ZERO, at(0)));
        assert!(!share.is_over(Duration::from_secs(4), at(2)), "it starts");
        assert!(!share.is_over(Duration::from_secs(4), at(60)), "it rests");
        assert!(!share.is_over(Duration::from_secs(9), at(62)), "and may again");
        assert!(share.is_over(Duration::from_secs(12), at(64)));
    }
}
