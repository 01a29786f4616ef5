//! One child process: its log, its end.
//!
//! A child is ended by its own id: SIGTERM and a bounded wait in [`Process::stop`], SIGKILL on drop.

use std::collections::VecDeque;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::wait;
use crate::wait::ErrorDetails;

/// Lines of a log shown in a failure.
const TAIL: usize = 15;
/// Lines kept of a process's output; older ones are dropped.
const LOG_LINES: usize = 20_000;
/// How long a process may take to end after SIGTERM: the platform's own drain bound and some.
const STOP: Duration = Duration::from_secs(30);
/// How long the log of a process that has ended may still come: a child that outlives it holds the pipe open.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The last lines a process wrote.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<VecDeque<String>>>);

impl Log {
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().iter().cloned().collect()
    }

    pub fn contains(&self, text: &str) -> bool {
        self.0.lock().iter().any(|line| line.contains(text))
    }

    fn push(&self, line: String) {
        let mut lines = self.0.lock();
        if lines.len() == LOG_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn tail(&self, count: usize) -> String {
        let lines = self.0.lock();
        let skipped = lines.len().saturating_sub(count);
        lines.iter().skip(skipped).map(|line| format!("  {line}\n")).collect()
    }
}

/// A running child process.
pub struct Process {
    name: String,
    child: Child,
    log: Log,
    /// What of it came from stdout.
    output: Log,
    /// They fill both and end with the pipes.
    collectors: JoinSet<()>,
}

impl Process {
    /// Starts `command`; its output goes to the log, its input is empty.
    pub fn start(name: &str, mut command: Command) -> Result<Process> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("start {name}"))?;
        let log = Log::default();
        let output = Log::default();
        let mut collectors = JoinSet::new();
        if let Some(stdout) = child.stdout.take() {
            collectors.spawn(collect(stdout, vec![output.clone(), log.clone()]));
        }
        if let Some(stderr) = child.stderr.take() {
            collectors.spawn(collect(stderr, vec![log.clone()]));
        }
        Ok(Process { name: name.into(), child, log, output, collectors })
    }

    /// The process id while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Bytes of memory that it has.
    pub fn resident(&self) -> Result<u64> {
        resident(self.id().with_context(|| format!("{} has ended", self.name))?)
    }

    /// What it wrote to stdout and stderr. These are two pipes: a line of one may come here before an
    /// earlier one of the other.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// What it wrote to stdout, in its order.
    pub fn output(&self) -> &Log {
        &self.output
    }

    /// Fails when the process has ended, with the end of its log.
    pub fn check_alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended with {status}:\n{}", self.name, self.log.tail(TAIL));
        }
        Ok(())
    }

    /// The end of the log, for a failure's message.
    pub fn tail(&self) -> String {
        format!("{}:\n{}", self.name, self.log.tail(TAIL))
    }

    /// Waits for a line with `text`: what a process has written is read here a moment later.
    pub async fn logged(&self, text: &str) -> Result<()> {
        let seen = || async { self.log.contains(text).then_some(()) };
        let waited = wait::until(text, wait::CONVERGE, seen).await;
        waited.with_details(|| format!("no such line: {}", self.tail()))
    }

    /// Sends a signal, which a failover test uses to kill or freeze the process.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.child.id().context("the process has ended")?;
        let pid = Pid::from_raw(i32::try_from(id)?).context("a process id is positive")?;
        kill_process(pid, signal).with_context(|| format!("signal {}", self.name))
    }

    /// Waits for the process to end by itself. Its log is complete then, unless a child of it lives on.
    pub async fn wait(&mut self, bound: Duration) -> Result<ExitStatus> {
        let Ok(status) = timeout(bound, self.child.wait()).await else {
            bail!("{} still runs after {} s:\n{}", self.name, bound.as_secs(), self.log.tail(TAIL));
        };
        let rest = async { while self.collectors.join_next().await.is_some() {} };
        // Err: a child holds the pipe.
        let _ = timeout(LAST_WORDS, rest).await;
        Ok(status?)
    }

    /// Ends the process with SIGTERM; fails when it needs more than the drain bound.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        if self.child.try_wait()?.is_none() {
            self.signal(Signal::TERM)?;
        }
        self.wait(STOP).await
    }
}

async fn collect(pipe: impl AsyncRead + Unpin, logs: Vec<Log>) {
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    // Bytes, not `lines()`: one invalid byte must not end the collection.
    while matches!(reader.read_until(b'\n', &mut line).await, Ok(count) if count > 0) {
        let text = String::from_utf8_lossy(&line).trim_end().to_string();
        logs.iter().for_each(|log| log.push(text.clone()));
        line.clear();
    }
}

/// Bytes of memory that a process has (`VmRSS`).
pub fn resident(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS is a number of kB")?;
    Ok(kib * 1024)
}
