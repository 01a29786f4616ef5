//! A worker: a process that speaks PPP, from its start to its end.
//!
//! Owns the heartbeat and the judgement why a worker ended. Keeps true: when a worker ends, for whatever
//! reason, its calls hear of it before its slot is given to another.

pub mod accounting;
pub mod budget;
pub mod call;
pub mod disk;
pub mod executions;
pub mod heartbeat;
mod home;
pub mod logs;
mod opening;
pub mod process;
pub mod residual_work;
pub mod sampler;
pub mod session;
pub mod socket;
pub mod spawner;
pub mod stdio;
mod without_groups;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_launcher::Stats;
use asp_proto::plugin::ServerMessage;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Streaming};

use crate::cause::Cause;
use crate::egress::{Lending, Lent, Loan};
use crate::plugin::installed::Plugin;
use crate::plugin::language::Command;
use crate::plugin::manifest::Mode;
use crate::telemetry::totals::WorkerStats;
use crate::worker::accounting::Accounting;
use crate::worker::budget::Lease;
use crate::worker::call::Rules;
use crate::worker::executions::Executions;
use crate::worker::heartbeat::PING_EVERY;
use crate::worker::logs::Rate;
use crate::worker::opening::{WorkerEndpoint, open};
use crate::worker::process::{EXIT_WITHIN, Machine, Process};
use crate::worker::residual_work::{Idle, Quiescence, Watch};
use crate::worker::session::Session;
use crate::worker::stdio::{Inbox, Readings};

/// From the fork to the answered `init`. A JVM on a busy machine takes the longest.
const START_WITHIN: Duration = Duration::from_secs(30);
/// Between SIGTERM and SIGKILL.
const GO_WITHIN: Duration = Duration::from_secs(2);
/// To read what a worker said before its end, which is there by then.
const SAID_WITHIN: Duration = Duration::from_millis(250);
/// A worker's messages beyond this are left in its stream for a while. It is twice what one thread carries of calls;
/// below it workers take turns.
const MESSAGES_PER_SECOND: u64 = 40_000;
/// How long a worker that says more is left alone.
const PAUSE: Duration = Duration::from_millis(5);
/// How old a reading of its use may be where an exact one costs too much.
const FRESH_ENOUGH: Duration = Duration::from_millis(50);
/// Tells apart the workers of one pool.
pub type WorkerId = u64;

/// A worker that takes calls.
#[derive(Debug)]
pub struct Worker {
    pub id: String,
    pub number: WorkerId,
    pub session: Session,
    /// For reads beside the session stream; a server on standard input and output has none.
    pub channel: Option<Channel>,
    /// What such a server has instead.
    pub readings: Option<Readings>,
    /// What the worker said of itself in its `init`.
    pub caps: BTreeMap<String, String>,
    token: MetadataValue<Ascii>,
    /// What its calls took, and what it tells of itself.
    pub observed: WorkerStats,
    lending: Option<Arc<Lending>>,
    accounting: Accounting,
    last_reading: Mutex<Option<(Instant, Stats)>>,
    leave: CancellationToken,
    /// What its ended calls may have left.
    watch: Mutex<Watch>,
    /// A call of it was stopped.
    stopped: AtomicBool,
    /// Its calls should save what they have and yield.
    yields: CancellationToken,
    /// Its calls should end.
    closes: CancellationToken,
    /// Its subscriptions should end.
    unsubscribes: Notify,
    /// Its stream is gone.
    lost: CancellationToken,
}

/// A worker and what only its keeper has: the process and the stream from it.
#[derive(Debug)]
pub struct Running {
    pub worker: Arc<Worker>,
    process: Process,
    stream: Incoming,
    kill: mpsc::Receiver<Cause>,
    born: Instant,
}

/// What a worker says.
#[derive(Debug)]
enum Incoming {
    Session(Box<Streaming<ServerMessage>>),
    Stdio {
        inbox: Inbox,
        /// Translates, and ends with this.
        _bridge: AbortOnDropHandle<()>,
    },
}

/// Why a worker says no more.
enum StreamError {
    Stream(tonic::Status),
    Rule(Cause),
}

/// A worker that never took calls.
#[derive(Debug)]
pub struct NotStarted {
    pub cause: Cause,
    /// What the machine could not do, where the [`Cause`] is `Host`.
    pub host: Option<String>,
    /// To be cleared.
    pub remains: Option<Process>,
}

/// How a worker ended.
#[derive(Clone, Debug)]
pub struct Death {
    /// `None`: it was asked to go.
    pub cause: Option<Cause>,
    pub lived: Duration,
    /// Calls that it took with it, once they have heard of it.
    pub calls: usize,
    /// Whose call alone is why, where that is known.
    pub culprit: Option<String>,
}

impl Death {
    /// Why it ended, when it failed.
    pub fn crash(&self) -> Option<Cause> {
        self.cause.filter(|cause| cause.is_crash())
    }
}

/// What a worker is started with.
#[derive(Debug)]
pub struct Plan {
    pub plugin: Arc<Plugin>,
    pub command: Command,
    pub rules: Arc<Rules>,
    pub executions: Executions,
}

// === impl Worker ===

impl Worker {
    /// What the worker used so far, read at most a moment ago.
    pub fn stats(&self) -> Stats {
        let mut last = self.last_reading.lock();
        match *last {
            Some((at, stats)) if at.elapsed() < FRESH_ENOUGH => stats,
            _ => {
                let stats = self.accounting.stats();
                *last = Some((Instant::now(), stats));
                stats
            }
        }
    }

    /// A request to the worker with its token.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.token.clone());
        request
    }

    /// Lets the worker's proxy prove requests by a call's credential, until the loan is dropped. `None`: the plugin may
    /// reach nobody.
    pub fn lend(&self, lent: &Arc<Lent>) -> Option<Loan> {
        self.lending.as_ref().map(|lending| lending.lend(lent))
    }

    /// Waits until its stream is gone, and with it the way for calls. How it ended is known later.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Lets the worker go; it has no calls any more, or none that matter.
    pub fn leave(&self) {
        self.leave.cancel();
    }

    /// Notes that a call of this worker was told to end: something of it may go on.
    pub fn stopped_a_call(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether a call was told to end since this was asked last.
    pub fn take_stopped(&self) -> bool {
        self.stopped.swap(false, Ordering::Relaxed)
    }

    /// Looks whether the worker does nothing without calls.
    pub fn look(&self, idle: Idle) -> Quiescence {
        let Some((activity, at)) = self.accounting.activity() else { return Quiescence::Unclear };
        self.watch.lock().look(activity, idle, at)
    }

    /// Whether its calls go on elsewhere from what they saved.
    pub fn checkpoints(&self) -> bool {
        self.caps.get("checkpoint").is_some_and(|value| value == "true")
    }

    /// Asks its calls to save what they have and yield, where the plugin can.
    pub fn ask_to_yield(&self) {
        self.yields.cancel();
    }

    /// Ends when its calls should yield.
    pub async fn yields(&self) {
        self.yields.cancelled().await;
    }

    /// Tells its calls to end.
    pub fn close(&self) {
        self.closes.cancel();
    }

    /// Tells its subscriptions to end. Said again as long as there are any: one that begins just now does not hear it.
    pub fn unsubscribe(&self) {
        self.unsubscribes.notify_waiters();
    }

    /// Ends when its subscriptions must end.
    pub async fn unsubscribes(&self) {
        self.unsubscribes.notified().await;
    }

    /// Ends when its calls must end.
    pub async fn closes(&self) {
        self.closes.cancelled().await;
    }
}

// === impl Running ===

impl Running {
    /// Starts a worker; it takes calls when this returns.
    pub async fn start(
        machine: &Machine,
        plan: &Plan,
        number: WorkerId,
        lease: Lease,
    ) -> Result<Running, Box<NotStarted>> {
        let born = Instant::now();
        let started = machine.start(&plan.plugin, &plan.command, lease).await;
        let mut process = started.map_err(|error| {
            let host = error.is_of_host().then(|| error.to_string());
            let cause = host.as_ref().map_or(Cause::Exit(asp_launcher::EXIT_SETUP), |_| Cause::Host);
            NotStarted { cause, host, remains: None }
        })?;
        let accounting = process.accounting();
        let (kill_sender, kill) = mpsc::channel(1);
        let opened = {
            let opening = timeout(START_WITHIN, open(WorkerEndpoint::of(&mut process)));
            tokio::select! {
                opened = opening => opened.unwrap_or(Err(Cause::Wedged)),
                cause = process.exited() => Err(cause),
            }
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(fault) => {
                let disk_bytes = plan.plugin.manifest.limits.disk_bytes;
                let (cause, host) = process.not_started(fault, disk_bytes).await;
                return Err(Box::new(NotStarted { cause, host, remains: Some(process) }));
            }
        };
        let rules = Arc::clone(&plan.rules);
        let (watch, ()) = tokio::join!(watch_over(&plan.plugin, &accounting), process.note_program());
        let worker = Worker {
            id: process.id.clone(),
            number,
            session: Session::new(process.logs(), rules, (opened.to_worker, opened.pings), kill_sender),
            channel: opened.channel,
            readings: opened.readings,
            caps: opened.caps,
            token: opened.token,
            observed: WorkerStats::new(born),
            lending: process.lending(),
            watch: Mutex::new(watch),
            accounting,
            last_reading: Mutex::new(None),
            leave: CancellationToken::new(),
            stopped: AtomicBool::new(false),
            yields: CancellationToken::new(),
            closes: CancellationToken::new(),
            unsubscribes: Notify::new(),
            lost: CancellationToken::new(),
        };
        Ok(Running { worker: Arc::new(worker), process, stream: opened.stream, kill, born })
    }

    /// Keeps the worker until it ends. Its calls are to hear of it ([`Session::die`]), and what is left of the process is to be
    /// cleared.
    pub async fn keep(mut self) -> (Death, Process) {
        let outcome = self.watch().await;
        let lived = self.born.elapsed();
        let asked = outcome.is_none();
        let cause = match outcome {
            None => Cause::Drained,
            Some(WorkerOutcome::Killed(cause)) => cause,
            Some(WorkerOutcome::Ended(cause)) => cause,
        };
        let culprit = self.worker.session.culprit().filter(|_| cause == Cause::Deadline).map(str::to_owned);
        (Death { cause: (!asked).then_some(cause), lived, calls: 0, culprit }, self.process)
    }

    /// Ends when the worker has ended or must end; `None` when it was asked to go.
    async fn watch(&mut self) -> Option<WorkerOutcome> {
        let mut next_ping = Instant::now() + PING_EVERY;
        let mut rate = Rate::new(MESSAGES_PER_SECOND, Instant::now());
        let leave = self.worker.leave.clone();
        loop {
            let message = tokio::select! {
                biased;
                end = ends(&mut self.kill, &leave, &mut self.process) => {
                    if let End::Exited(_) = end {
                        self.drain().await;
                    }
                    return self.end(end).await;
                }
                () = sleep_until(next_ping) => {
                    next_ping = Instant::now() + PING_EVERY;
                    match self.worker.session.ping() {
                        Ok(()) => continue,
                        Err(cause) => return self.end(End::Kill(cause)).await,
                    }
                }
                message = self.stream.message() => message,
            };
            let message = match self.read(message).await {
                Ok(message) => message,
                Err(outcome) => return Some(outcome),
            };
            let before = Instant::now();
            // A gateway that reads slowly holds this up: the worker can be ended all the same.
            let taken = tokio::select! {
                biased;
                taken = self.worker.session.receive(message) => taken,
                end = ends(&mut self.kill, &leave, &mut self.process) => return self.end(end).await,
            };
            if let Err(cause) = taken {
                return self.end(End::Kill(cause)).await;
            }
            if rate.take(1, before) == 0 {
                sleep(PAUSE).await;
            }
            // What it said meanwhile, its pongs too, was not read: that is no silence of the worker.
            next_ping += before.elapsed();
            consume_budget().await;
        }
    }

    /// Ends the worker as it is to be ended.
    async fn end(&mut self, end: End) -> Option<WorkerOutcome> {
        match end {
            End::Kill(cause) => {
                self.process.kill();
                Some(WorkerOutcome::Killed(cause))
            }
            End::Leave => {
                self.process.terminate();
                let _ = timeout(GO_WITHIN, self.process.exited()).await;
                None
            }
            End::Exited(cause) => Some(WorkerOutcome::Ended(cause)),
        }
    }

    /// What the worker said, or why it says no more.
    async fn read(
        &mut self,
        message: Result<Option<ServerMessage>, StreamError>,
    ) -> Result<ServerMessage, WorkerOutcome> {
        let fault = match message {
            Ok(Some(message)) => return Ok(message),
            Ok(None) => return Err(self.lost("the session stream ended").await),
            // tonic says so of a message it cannot read or that is too large; everything else is a lost stream.
            Err(StreamError::Stream(status)) if status.code() == tonic::Code::OutOfRange => {
                Cause::Protocol("an oversize message")
            }
            Err(StreamError::Rule(cause)) => cause,
            Err(StreamError::Stream(status)) => {
                tracing::debug!(worker = self.worker.id, %status, "the session stream broke");
                return Err(self.lost("the session stream broke").await);
            }
        };
        self.process.kill();
        Err(WorkerOutcome::Killed(fault))
    }

    /// The stream is gone: either the process is going too, or it broke the protocol.
    async fn lost(&mut self, fault: &'static str) -> WorkerOutcome {
        self.worker.lost.cancel();
        match timeout(EXIT_WITHIN, self.process.exited()).await {
            Ok(cause) => WorkerOutcome::Ended(cause),
            Err(_) => {
                // What it was ended for is known before all of it is gone.
                let seen = self.process.accounting().verdict();
                self.process.kill();
                WorkerOutcome::Killed(seen.unwrap_or(Cause::Protocol(fault)))
            }
        }
    }

    /// What the worker said before it ended counts.
    async fn drain(&mut self) {
        let said = async {
            while let Ok(Some(message)) = self.stream.message().await {
                if self.worker.session.receive(message).await.is_err() {
                    return;
                }
            }
        };
        // Err: something else holds the socket open.
        let _ = timeout(SAID_WITHIN, said).await;
    }
}

/// A worker that is ready has the processes it needs. A stdio server's are its own business: it may keep a
/// browser between calls.
async fn watch_over(plugin: &Plugin, accounting: &Accounting) -> Watch {
    let processes = match plugin.manifest.mode {
        Mode::Plugin => Some(accounting.activity_now().await.processes),
        Mode::McpStdio => None,
    };
    Watch::new(processes, plugin.manifest.limits.pids)
}

// === impl Incoming ===

impl Incoming {
    /// The next message; `None` at the end. Safe to cancel.
    async fn message(&mut self) -> Result<Option<ServerMessage>, StreamError> {
        match self {
            Incoming::Session(stream) => stream.message().await.map_err(StreamError::Stream),
            Incoming::Stdio { inbox, .. } => inbox.recv().await.transpose().map_err(StreamError::Rule),
        }
    }
}

/// Why a worker is not kept any longer.
enum End {
    /// It is to be killed.
    Kill(Cause),
    /// It is to go.
    Leave,
    /// It has gone.
    Exited(Cause),
}

/// Ends when the worker is to end or has ended. Safe to cancel.
async fn ends(kill: &mut mpsc::Receiver<Cause>, leave: &CancellationToken, process: &mut Process) -> End {
    tokio::select! {
        biased;
        // The session holds the sender as long as this worker lives.
        cause = kill.recv() => End::Kill(cause.unwrap_or(Cause::Wedged)),
        () = leave.cancelled() => End::Leave,
        cause = process.exited() => End::Exited(cause),
    }
}

enum WorkerOutcome {
    /// This process ended it.
    Killed(Cause),
    /// It ended, and this is how.
    Ended(Cause),
}
