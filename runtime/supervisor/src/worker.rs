//! A worker: a process that speaks PPP, from its start to its end.
//!
//! Owns the heartbeat and decides why a worker ended. Keeps true: when a worker ends, for whatever reason, its calls
//! are notified before its slot is given to another.

pub mod accounting;
pub mod budget;
pub mod call;
pub mod disk;
pub mod heartbeat;
mod home;
pub mod logs;
mod opening;
mod plan;
pub mod process;
pub mod residual_work;
pub mod rules;
pub mod sampler;
pub mod session;
pub mod socket;
pub mod spawner;
pub mod stdio;
mod without_groups;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
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
use crate::egress::{ActiveCredentials, CredentialLease, CredentialUse};
use crate::plugin::installed::Plugin;
use crate::plugin::manifest::Mode;
use crate::telemetry::totals::WorkerStats;
use crate::worker::accounting::Accounting;
use crate::worker::budget::Lease;
use crate::worker::heartbeat::PING_EVERY;
use crate::worker::logs::Rate;
use crate::worker::opening::{WorkerEndpoint, open};
use crate::worker::process::{EXIT_WITHIN, Machine, Process};
use crate::worker::residual_work::{Idle, Quiescence, QuiescenceCheck};
use crate::worker::session::Session;
use crate::worker::stdio::Inbox;
pub use plan::Plan;

/// Time limit from the fork to the answered `init`. A JVM on a busy machine takes the longest.
const START_WITHIN: Duration = Duration::from_secs(30);
/// Time between SIGTERM and SIGKILL.
const GO_WITHIN: Duration = Duration::from_secs(2);
/// Time limit for reading what a worker sent before its end, which is all buffered by then.
const DRAIN_WITHIN: Duration = Duration::from_millis(250);
/// Maximum rate of a worker's messages, twice what one thread handles. Above it, the stream is read after a pause.
const MESSAGES_PER_SECOND: u64 = 40_000;
/// Pause in reading the stream of a worker above that rate.
const PAUSE: Duration = Duration::from_millis(5);
/// Maximum age of a reading of resource use where an exact one costs too much.
const FRESH_ENOUGH: Duration = Duration::from_millis(50);
/// Identifier of a worker within its pool.
pub type WorkerId = u64;

/// A worker that takes calls.
#[derive(Debug)]
pub struct Worker {
    pub id: String,
    pub number: WorkerId,
    pub session: Session,
    /// Channel for reads outside the session stream; a server on standard input and output has none.
    pub channel: Option<Channel>,
    /// Capabilities that the worker reported in its `init`.
    pub caps: BTreeMap<String, String>,
    token: MetadataValue<Ascii>,
    /// Durations of its calls, and the vitals that it reports.
    pub observed: WorkerStats,
    credentials: Option<Arc<ActiveCredentials>>,
    accounting: Accounting,
    last_reading: Mutex<Option<(Instant, Stats)>>,
    /// Cancelled when it should stop; it has no calls any more, or none that matter.
    pub leave: CancellationToken,
    /// Quiescence check of its ended calls.
    watch: Mutex<QuiescenceCheck>,
    /// Whether a call was cancelled since the flag was last taken: a part of it may still run.
    pub stopped: AtomicBool,
    /// Cancelled when its calls should save their state and yield, if the plugin supports it.
    pub yields: CancellationToken,
    /// Cancelled when its calls should end.
    pub closes: CancellationToken,
    /// Notified when its subscriptions should end. Repeated as long as there are any, because one that is just starting
    /// misses it.
    pub unsubscribes: Notify,
    /// Cancelled when its stream is gone, so that it cannot take calls. The cause of its end is known later.
    pub lost: CancellationToken,
}

/// A worker together with the process and its stream, which only the managing task has.
#[derive(Debug)]
pub struct RunningWorker {
    pub worker: Arc<Worker>,
    process: Process,
    stream: MessageStream,
    kill: mpsc::Receiver<Cause>,
    born: Instant,
}

/// Source of a worker's messages.
#[derive(Debug)]
enum MessageStream {
    Session(Box<Streaming<ServerMessage>>),
    Stdio {
        inbox: Inbox,
        /// Translates between the protocols, and ends with this value.
        _bridge: AbortOnDropHandle<()>,
    },
}

/// Reason why a worker's stream ended.
enum StreamError {
    Stream(tonic::Status),
    Rule(Cause),
}

/// A worker that failed before it took calls.
#[derive(Debug)]
pub struct StartFailure {
    pub cause: Cause,
    /// The lacking resource of the machine, if the [`Cause`] is `Host`.
    pub host: Option<String>,
    /// The process, if its remains must be cleared.
    pub remains: Option<Process>,
}

/// End of a worker.
#[derive(Clone, Debug)]
pub struct Death {
    /// `None`: it was asked to stop.
    pub cause: Option<Cause>,
    pub lived: Duration,
    /// Number of calls that ended with it, once they have been notified.
    pub calls: usize,
    /// Tenant whose call alone caused the end, if known.
    pub culprit: Option<String>,
}

impl Death {
    /// Returns the cause if the worker failed.
    pub fn crash(&self) -> Option<Cause> {
        self.cause.filter(|cause| cause.is_crash())
    }
}

impl Worker {
    /// Returns the worker's resource use so far, measured at most a moment ago.
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

    /// Builds a request to the worker with its token.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.token.clone());
        request
    }

    /// Lets the worker's proxy use a call's credential until the returned value is dropped. `None`: the plugin has no
    /// network access.
    pub fn use_credential(&self, lease: &Arc<CredentialLease>) -> Option<CredentialUse> {
        self.credentials.as_ref().map(|credentials| credentials.activate(lease))
    }

    /// Checks whether the worker without calls is idle.
    pub fn check_quiescence(&self, idle: Idle) -> Quiescence {
        let Some((activity, at)) = self.accounting.activity() else { return Quiescence::Unclear };
        self.watch.lock().evaluate(activity, idle, at)
    }

    /// Whether calls of one of its primitives can continue elsewhere from checkpoints.
    pub fn checkpoints(&self) -> bool {
        self.caps.get("checkpoint").is_some_and(|value| value == "true" || value.starts_with("of "))
    }
}

impl RunningWorker {
    /// Starts a worker; it takes calls when this returns.
    pub async fn start(
        machine: &Machine,
        plan: &Plan,
        number: WorkerId,
        lease: Lease,
    ) -> Result<RunningWorker, Box<StartFailure>> {
        let born = Instant::now();
        let started = machine.start(&plan.plugin, &plan.command, lease).await;
        let mut process = started.map_err(|error| {
            let host = error.is_of_host().then(|| error.to_string());
            let cause = host.as_ref().map_or(Cause::Exit(asp_launcher::EXIT_SETUP), |_| Cause::Host);
            StartFailure { cause, host, remains: None }
        })?;
        let accounting = process.accounting();
        let (kill_sender, kill) = mpsc::channel(1);
        let opened = {
            let endpoint =
                WorkerEndpoint::of(&mut process, plan.lines(), machine.secret_values(&plan.command.secrets));
            let opening = timeout(START_WITHIN, open(endpoint));
            tokio::select! {
                opened = opening => opened.unwrap_or(Err(Cause::Wedged)),
                cause = process.exited() => Err(cause),
            }
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(fault) => {
                let disk_bytes = plan.plugin.manifest.limits.disk_bytes;
                let (cause, host) = process.end_unstarted(fault, disk_bytes).await;
                return Err(Box::new(StartFailure { cause, host, remains: Some(process) }));
            }
        };
        let rules = Arc::clone(&plan.rules);
        let (watch, ()) = tokio::join!(watch_over(&plan.plugin, &accounting), process.note_program());
        let worker = Worker {
            id: process.id.clone(),
            number,
            session: Session::new(process.logs(), rules, (opened.to_worker, opened.pings), kill_sender),
            channel: opened.channel,
            caps: opened.caps,
            token: opened.token,
            observed: WorkerStats::new(born),
            credentials: process.credentials(),
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
        Ok(RunningWorker { worker: Arc::new(worker), process, stream: opened.stream, kill, born })
    }

    /// Runs the worker until it ends. The caller notifies its calls ([`Session::notify_end`]) and clears the process.
    pub async fn run_to_end(mut self) -> (Death, Process) {
        let cause = self.watch().await;
        let lived = self.born.elapsed();
        let late = cause == Some(Cause::Deadline);
        let culprit = self.worker.session.culprit().filter(|_| late).map(str::to_owned);
        (Death { cause, lived, calls: 0, culprit }, self.process)
    }

    /// Returns the cause when the worker has ended or was killed; `None` if it was asked to stop.
    async fn watch(&mut self) -> Option<Cause> {
        let mut next_ping = Instant::now() + PING_EVERY;
        let mut rate = Rate::new(MESSAGES_PER_SECOND, Instant::now());
        let leave = self.worker.leave.clone();
        loop {
            let message = tokio::select! {
                biased;
                end = ends(&mut self.kill, &leave, &mut self.process) => {
                    if let StopReason::Exited(_) = end {
                        self.drain().await;
                    }
                    return self.end(end).await;
                }
                () = sleep_until(next_ping) => {
                    next_ping = Instant::now() + PING_EVERY;
                    match self.worker.session.ping() {
                        Ok(()) => continue,
                        Err(cause) => return self.end(StopReason::Kill(cause)).await,
                    }
                }
                message = self.stream.message() => message,
            };
            let message = match self.read(message).await {
                Ok(message) => message,
                Err(cause) => return Some(cause),
            };
            let before = Instant::now();
            // A gateway that reads slowly blocks this, and the worker must be stoppable all the same.
            let taken = tokio::select! {
                biased;
                taken = self.worker.session.receive(message) => taken,
                end = ends(&mut self.kill, &leave, &mut self.process) => return self.end(end).await,
            };
            if let Err(cause) = taken {
                return self.end(StopReason::Kill(cause)).await;
            }
            if rate.take(1, before) == 0 {
                sleep(PAUSE).await;
            }
            // Messages sent during this time were not read, pongs included: that is not the worker's silence.
            next_ping += before.elapsed();
            consume_budget().await;
        }
    }

    /// Ends the worker as `end` requires.
    async fn end(&mut self, end: StopReason) -> Option<Cause> {
        match end {
            StopReason::Kill(cause) => {
                self.process.kill();
                Some(cause)
            }
            StopReason::Leave => {
                self.process.terminate();
                let _ = timeout(GO_WITHIN, self.process.exited()).await;
                None
            }
            StopReason::Exited(cause) => Some(cause),
        }
    }

    /// Returns the worker's message, or the reason why there are no more.
    async fn read(
        &mut self,
        message: Result<Option<ServerMessage>, StreamError>,
    ) -> Result<ServerMessage, Cause> {
        let fault = match message {
            Ok(Some(message)) => return Ok(message),
            Ok(None) => return Err(self.end_lost("the session stream ended").await),
            // tonic reports this for a message that cannot be decoded or is too large; everything else is a lost
            // stream.
            Err(StreamError::Stream(status)) if status.code() == tonic::Code::OutOfRange => {
                Cause::Protocol("an oversize message")
            }
            Err(StreamError::Rule(cause)) => cause,
            Err(StreamError::Stream(status)) => {
                tracing::debug!(worker = self.worker.id, %status, "the session stream broke");
                return Err(self.end_lost("the session stream broke").await);
            }
        };
        self.process.kill();
        Err(fault)
    }

    /// Handles a lost stream: either the process is ending too, or it violated the protocol.
    async fn end_lost(&mut self, fault: &'static str) -> Cause {
        self.worker.lost.cancel();
        match timeout(EXIT_WITHIN, self.process.exited()).await {
            Ok(cause) => cause,
            Err(_) => {
                // The limit that it exceeded is known before all of it is gone.
                let seen = self.process.accounting().verdict();
                self.process.kill();
                seen.unwrap_or(Cause::Protocol(fault))
            }
        }
    }

    /// Handles the messages that the worker sent before it ended.
    async fn drain(&mut self) {
        let reading = async {
            while let Ok(Some(message)) = self.stream.message().await {
                if self.worker.session.receive(message).await.is_err() {
                    return;
                }
            }
        };
        // Err: another process holds the socket open.
        let _ = timeout(DRAIN_WITHIN, reading).await;
    }
}

/// Creates the check of a worker that is ready. A stdio server may start more processes, such as a browser.
async fn watch_over(plugin: &Plugin, accounting: &Accounting) -> QuiescenceCheck {
    let processes = match plugin.manifest.mode {
        Mode::Plugin => Some(accounting.activity_now().await.processes),
        Mode::McpStdio => None,
    };
    QuiescenceCheck::new(processes, plugin.manifest.limits.pids)
}

impl MessageStream {
    /// Returns the next message; `None` at the end. Cancel-safe.
    async fn message(&mut self) -> Result<Option<ServerMessage>, StreamError> {
        match self {
            MessageStream::Session(stream) => stream.message().await.map_err(StreamError::Stream),
            MessageStream::Stdio { inbox, .. } => inbox.recv().await.transpose().map_err(StreamError::Rule),
        }
    }
}

/// Reason to stop running a worker.
enum StopReason {
    /// The worker must be killed.
    Kill(Cause),
    /// The worker must stop.
    Leave,
    /// The process has exited.
    Exited(Cause),
}

/// Waits until the worker must end or has ended. Cancel-safe.
async fn ends(
    kill: &mut mpsc::Receiver<Cause>,
    leave: &CancellationToken,
    process: &mut Process,
) -> StopReason {
    tokio::select! {
        biased;
        // The session holds the sender as long as this worker lives.
        cause = kill.recv() => StopReason::Kill(cause.unwrap_or(Cause::Wedged)),
        () = leave.cancelled() => StopReason::Leave,
        cause = process.exited() => StopReason::Exited(cause),
    }
}
