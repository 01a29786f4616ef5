//! A worker's process: its directories, sandbox, control group, token and pipes.
//!
//! Keeps true: the process has a user, a directory and a control group of its own; all of these are removed with the
//! process, and only the manifest decides what runs.

mod environment;
mod network;
mod secrets;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use asp_launcher::{
    Cgroup, CgroupError, Cgroups, CommandError, Level, Limits, Probe, Report, Sandbox, own_group,
};
use asp_platform::secret::Secret;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::cause::{Cause, FullHeap};
use crate::egress::{self, ActiveCredentials};
use crate::plugin::installed::Plugin;
use crate::plugin::language::Command;
use crate::plugin::manifest::Mode;
use crate::settings::Settings;
use crate::telemetry::metrics::Metrics;
use crate::worker::accounting::Accounting;
use crate::worker::budget::{Lease, WorkerBudget};
use crate::worker::disk::{self, FullDisk};
use crate::worker::home::{HOMES, WorkerHome, make_dir};
use crate::worker::logs;
use crate::worker::sampler::Sampler;
use crate::worker::socket::WorkerSocket;
use crate::worker::spawner::Spawner;
use crate::worker::without_groups;

/// Time limit for the outermost process, which ends after the others; many processes may take 0.6 s.
const END_WITHIN: Duration = Duration::from_secs(1);
/// Time limit for the exit of a process that took calls and closed its stream: it is ending, or it is broken. On a busy
/// machine the exit takes a while: the outer processes report it, and their group may have used up its CPU quota.
pub const EXIT_WITHIN: Duration = Duration::from_secs(2);
/// The same for a process that did not start. It may be healthy, and wait for input that never comes.
const UNSTARTED_EXIT_WITHIN: Duration = Duration::from_millis(250);
/// Time limit for logging the last output of a process that did not start.
const LOGGED_WITHIN: Duration = Duration::from_secs(1);
/// Time limit for reaping a killed process, which is gone at once unless the kernel is busy with it.
const REAP_WITHIN: Duration = Duration::from_secs(5);

/// State shared by all workers of this machine.
#[derive(Debug)]
pub struct Machine {
    pub settings: Settings,
    /// The sandbox level at which workers run.
    pub level: Level,
    /// Capabilities of this machine.
    pub probe: Probe,
    pub budget: Arc<WorkerBudget>,
    pub metrics: Metrics,
    cgroups: Option<Cgroups>,
    /// Enforces the limits of workers without a control group.
    sampler: Sampler,
    spawner: Spawner,
    /// Executor for workers' output and network traffic, so that no amount of it delays a call.
    aside: Handle,
    egress: egress::ProxyContext,
    /// Primitives, with names of secrets that they ask for and may not use, that were logged.
    missing_secrets: Mutex<BTreeSet<(String, String)>>,
    /// Held as long as this process lives: no other process uses the state directory.
    _lock: File,
}

/// A started process.
#[derive(Debug)]
pub struct Process {
    pub id: String,
    pub socket: WorkerSocket,
    pub token: Secret,
    /// The user it runs as.
    pub uid: u32,
    /// Standard input and output, for a server that speaks on them.
    pub pipes: Option<(ChildStdin, ChildStdout)>,
    child: Child,
    full_heap: FullHeap,
    accounting: Accounting,
    home: WorkerHome,
    lease: Lease,
    logs: Arc<logs::Meter>,
    /// Readers of its output; they end when the pipes are closed.
    followers: Vec<JoinHandle<u64>>,
    /// Whether its many processes are being killed.
    thinned: bool,
    /// Report of `worker-init` on the start.
    report: Arc<Report>,
    egress: Option<network::EgressProxy>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{step}: {source}")]
    Io { step: &'static str, source: io::Error },
    #[error("make the control group: {0}")]
    Cgroup(#[from] CgroupError),
    #[error("describe the sandbox: {0}")]
    Command(#[from] CommandError),
}

impl StartError {
    /// Whether the machine could not do it; otherwise the manifest asks for something that cannot be described.
    pub fn is_of_host(&self) -> bool {
        match self {
            StartError::Io { .. } | StartError::Cgroup(_) => true,
            StartError::Command(error) => matches!(error, CommandError::Io(_)),
        }
    }
}

fn step(step: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Io { step, source }
}

impl Machine {
    /// Probes the capabilities of this machine. Blocks for some milliseconds; called within the executor. `aside` is
    /// another one.
    pub fn open(settings: Settings, aside: Handle) -> anyhow::Result<Machine> {
        let lock = File::create(settings.state.join("lock"))?;
        if lock.try_lock().is_err() {
            anyhow::bail!("another runtime uses {}", settings.state.display());
        }
        let homes = settings.state.join(HOMES);
        // Removes the remains of a killed runtime.
        match std::fs::remove_dir_all(&homes) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                anyhow::bail!("clear {}: {error}", homes.display())
            }
            _ => {}
        }
        make_dir(&homes, 0o711)?;
        let probe = asp_launcher::probe(&settings.worker_init, &settings.state);
        for (level, reason) in &probe.missing {
            tracing::warn!(
                level = level.number(),
                reason,
                "plugins that need this sandbox level are refused"
            );
        }
        let Some(level) = probe.level else {
            anyhow::bail!("no sandbox level works here: {}", why(&probe.missing))
        };
        if !probe.own_user {
            // Usual for an ordinary account; what needs more is refused below and by the level of each plugin.
            tracing::info!(
                level = level.number(),
                "workers have the runtime's own user because it is not root; only the sandbox isolates them"
            );
        }
        let cgroups = match &probe.no_cgroup {
            None => Some(Cgroups::open().context("open the control groups")?),
            Some(reason) => {
                without_groups::check_level(&settings, level, reason, probe.sees_workers)?;
                None
            }
        };
        if !settings.secrets.is_empty() && !secrets::may_hold_secrets(probe.own_user, level) {
            tracing::warn!(
                level = level.number(),
                "workers share a user, so none receives a named secret; run asp-runtime as root, or where level 3 works"
            );
        }
        Ok(Machine {
            budget: WorkerBudget::new(settings.memory_budget, settings.max_workers),
            level,
            probe,
            metrics: Metrics::default(),
            cgroups,
            sampler: Sampler::start(&aside),
            spawner: Spawner::start()?,
            aside,
            egress: egress::ProxyContext::default(),
            missing_secrets: Mutex::default(),
            settings,
            _lock: lock,
        })
    }

    /// Starts the process of a worker.
    pub async fn start(
        &self,
        plugin: &Plugin,
        command: &Command,
        lease: Lease,
    ) -> Result<Process, StartError> {
        let home =
            WorkerHome::make(&self.settings, lease.number).map_err(step("make the worker's directory"))?;
        let egress = self.egress(plugin, &home).map_err(step("start the egress proxy"))?;
        let sandbox = self.sandbox(plugin, command, &home);
        let groups = self.cgroups.as_ref();
        let cgroup = groups.map(|groups| groups.create(&home.id, &sandbox.limits)).transpose()?;
        let (child, report) = self.spawn(&sandbox, cgroup.as_ref()).await?;
        let report = Arc::new(report);
        let root = child.id();
        let unbounded = root.filter(|_| cgroup.is_none());
        let sampled = unbounded.map(|root| self.sampler.watch(root, &sandbox, &report)).transpose();
        let sampled = sampled.map_err(step("look at the worker"))?;
        let rate = plugin.manifest.limits.log_bytes_per_second;
        let secrets = self.secret_values(&command.secrets);
        let mut process = Process {
            logs: Arc::new(logs::Meter::new(&plugin.name(), &home.id, rate).redacting(&secrets)),
            id: home.id.clone(),
            socket: WorkerSocket::of(self.level, &home.run_dir(), &report),
            token: Secret::random(),
            uid: home.uid,
            pipes: None,
            child,
            full_heap: command.full_heap,
            accounting: Accounting {
                cgroup: Arc::new(Mutex::new(cgroup)),
                sampled,
                root,
                mapped: Arc::default(),
            },
            home,
            lease,
            followers: Vec::new(),
            thinned: false,
            report,
            egress,
        };
        if plugin.manifest.mode == Mode::McpStdio {
            process.pipes = process.child.stdin.take().zip(process.child.stdout.take());
        }
        process.follow_logs(&self.aside);
        process.hand_over_token().await.map_err(step("hand over the token"))?;
        Ok(process)
    }

    fn sandbox(&self, plugin: &Plugin, command: &Command, home: &WorkerHome) -> Sandbox {
        let limits = &plugin.manifest.limits;
        let egress = plugin.manifest.has_network();
        Sandbox {
            level: self.level,
            bounds: self.probe.bounds,
            keeps_user: self.probe.keeps_user,
            argv: command.argv.clone(),
            env: environment::of((plugin, command), home, &self.settings),
            work_dir: home.work_dir(),
            run_dir: home.run_dir(),
            read_only: command.read_only.clone(),
            uid: home.uid,
            gid: if self.probe.own_user { home.uid } else { own_group(self.probe.keeps_user) },
            limits: Limits {
                memory_bytes: limits.memory_bytes,
                cpu_millis: limits.cpu_millis,
                // The forwarder is a process within the worker's limits.
                pids: limits.pids.saturating_add(u32::from(egress)),
                files: limits.files,
                disk_bytes: limits.disk_bytes,
                file_bytes: limits.disk_bytes,
                cpu_seconds: None,
            },
            egress: egress.then(|| network::of(plugin, home)),
            hostname: home.id.clone(),
        }
    }

    async fn spawn(&self, sandbox: &Sandbox, cgroup: Option<&Cgroup>) -> Result<(Child, Report), StartError> {
        let mut launch = asp_launcher::launch(&self.settings.worker_init, sandbox, cgroup)?;
        launch.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.spawner.spawn(launch.command).await.map_err(step("start worker-init"))?;
        Ok((child, launch.report))
    }
}

impl Process {
    /// Returns the credentials in use by its calls, if its plugin has network access.
    pub fn credentials(&self) -> Option<Arc<ActiveCredentials>> {
        self.egress.as_ref().map(|egress| Arc::clone(&egress.credentials))
    }

    /// Waits for the end of the process, and returns its cause. Cancel-safe.
    pub async fn exited(&mut self) -> Cause {
        match self.child.wait().await {
            Ok(status) => {
                let seen = self.accounting.verdict();
                let stats = self.accounting.stats();
                // The kernel reports the peak of everything that a process had, and for a group also counts files.
                let peak = self.report.peak_bytes().unwrap_or(0);
                let own = peak.saturating_sub(self.accounting.mapped_bytes());
                seen.unwrap_or_else(|| Cause::of_status(status, &stats, self.full_heap, own))
            }
            // The process is no longer a child of this one, which is impossible; it is useless in any case.
            Err(_) => Cause::Wedged,
        }
    }

    /// Ends a worker that did not start, and returns the cause: from its exit if that says more than `fault`, which is
    /// what the runtime observed.
    pub async fn end_unstarted(&mut self, fault: Cause, disk_bytes: u64) -> (Cause, Option<String>) {
        // The fault may be the first sign of its end, which says more.
        let exit = timeout(UNSTARTED_EXIT_WITHIN, self.exited()).await;
        if exit.is_err() {
            self.kill();
            // Err: the kernel is busy with it. Its unlinked files are freed with it.
            let _ = timeout(UNSTARTED_EXIT_WITHIN, self.exited()).await;
        }
        // Its calls learn that the reason is in its output.
        self.finish_logs().await;
        match self.report.fault() {
            Some(fault) if fault.host => {
                return (Cause::Host, Some(format!("build the sandbox ({}): {}", fault.step, fault.error)));
            }
            Some(_) => {}
            None => match self.full_disk(disk_bytes).await {
                Some(FullDisk::Machine(trouble)) => return (Cause::Host, Some(trouble)),
                Some(FullDisk::Worker) => return (Cause::Limit("disk space"), None),
                None => {}
            },
        }
        (exit.unwrap_or(fault), None)
    }

    async fn full_disk(&self, disk_bytes: u64) -> Option<FullDisk> {
        let WorkerSocket::Shared(_) = self.socket else { return None };
        let home = self.home.path.clone();
        // Err: the executor is ending.
        tokio::task::spawn_blocking(move || disk::judge(&home, disk_bytes)).await.ok().flatten()
    }

    /// Asks the process to stop.
    pub fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = self.child.id().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            // Err: it has just gone.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Kills everything that the worker started: at once, or if there are very many processes, within 0.6 s.
    pub fn kill(&mut self) {
        if self.thinned {
            return;
        }
        let log_failure = |worker: &str, done: Result<(), CgroupError>| {
            if let Err(error) = done {
                tracing::error!(worker, %error, "a worker's control group was not killed; kill the processes left in it");
            }
        };
        if let Some(cgroup) = &*self.accounting.cgroup.lock() {
            if let Some(frozen) = cgroup.freeze_if_many() {
                self.thinned = true;
                let worker = self.id.clone();
                // The outermost process ends with the last of them.
                tokio::task::spawn_blocking(move || log_failure(&worker, frozen.kill()));
                return;
            }
            log_failure(&self.id, cgroup.kill());
        } else {
            // On SIGINT the outermost process kills all others and then ends; on SIGKILL it would leave them running.
            return self.signal(rustix::process::Signal::INT);
        }
        // Err: it has ended already.
        let _ = self.child.start_kill();
    }

    /// Records how much of its memory is program text, if its cause of end depends on the rest.
    pub async fn note_program(&self) {
        if matches!(self.full_heap, FullHeap::Abort { .. }) {
            self.accounting.note_mapped().await;
        }
    }

    pub fn accounting(&self) -> Accounting {
        self.accounting.clone()
    }

    /// Kills what is left and removes everything that the process had; returns when all is gone.
    pub async fn clear(mut self) {
        self.kill();
        if timeout(END_WITHIN, self.child.wait()).await.is_err() {
            // It ends with the last process inside, unless it is stopped by a signal.
            let _ = self.child.start_kill();
        }
        // Err: the kernel is busy with it, and reaps it later.
        let _ = timeout(REAP_WITHIN, self.child.wait()).await;
        let cgroup = self.accounting.cgroup.lock().take();
        let home = self.home;
        let lease = self.lease;
        // Waits for the kernel to release the control group.
        let cleared = tokio::task::spawn_blocking(move || {
            if let Some(Err(error)) = cgroup.map(Cgroup::remove) {
                tracing::warn!(worker = home.id, %error, "a worker's control group was not removed; check which processes are left in it");
            }
            drop(home);
            // Last: this frees the user's number for another worker.
            drop(lease);
        });
        // Err: the executor is ending.
        let _ = cleared.await;
    }

    /// Returns the log meter of the worker.
    pub fn logs(&self) -> Arc<logs::Meter> {
        Arc::clone(&self.logs)
    }

    fn follow_logs(&mut self, aside: &Handle) {
        if let Some(pipe) = self.child.stdout.take() {
            self.followers.push(aside.spawn(logs::follow(pipe, "stdout", self.logs())));
        }
        if let Some(pipe) = self.child.stderr.take() {
            self.followers.push(aside.spawn(logs::follow(pipe, "stderr", self.logs())));
        }
    }

    /// Waits until everything that the ended process wrote is logged, unless something else holds its pipes open.
    async fn finish_logs(&mut self) {
        let rest = async {
            for follower in self.followers.drain(..) {
                // Err: the executor is ending.
                let _ = follower.await;
            }
        };
        // Err: the rest is logged later.
        let _ = timeout(LOGGED_WITHIN, rest).await;
    }

    async fn hand_over_token(&mut self) -> io::Result<()> {
        let Some(mut stdin) = self.child.stdin.take() else { return Ok(()) };
        match stdin.write_all(format!("{}\n", self.token.expose()).as_bytes()).await {
            // It has ended already; its exit says why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            done => done,
        }
    }
}

/// Describes why a machine lacks sandbox levels.
pub fn why(missing: &[(Level, String)]) -> String {
    let each = missing.iter().map(|(level, reason)| format!("level {}: {reason}", level.number()));
    each.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
