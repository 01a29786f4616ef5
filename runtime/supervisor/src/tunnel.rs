//! A tunnel: carries one unit of work between a gateway and a worker, from the wait for a worker to the end.
//!
//! Keeps true: a tunnel carries one invoke, read, list, prompt or subscription; a call that its gateway no longer wants
//! (disconnected, closed, past its deadline) is cancelled in its worker, and a call that ignores its cancellation ends
//! its worker after `WORKER_STOPS_WITHIN`.

mod credential;
mod grace;
pub mod peer;
mod subject;
mod subscription;
mod unary;
mod work;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_platform::breaker::Outcome;
use asp_platform::secret::random_hex;
use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::{ClientMessage, InitResponse, Pong, ServerMessage, client_message};
use asp_proto::supervisor::tunnel_event::Type;
use asp_proto::supervisor::{PppServerFrame, TunnelCost};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::cause::Cause;
use crate::egress::CredentialLease;
use crate::pool::scheduler::QueuePosition;
use crate::pool::{Pool, Ticket, TicketState};
use crate::ppp::outbox::Outbox;
use crate::ppp::{FromGateway, Inbound, closed_frame, event_frame, failed, fields, milliseconds, number};
use crate::refusal::Refusal;
use crate::telemetry::metrics::Metrics;
use crate::tunnel::peer::Peer;
use crate::worker::Worker;
use crate::worker::call::CallEnd;

/// Time after which a tunnel that has its worker and sends no work gives the worker back.
const IDLE: Duration = Duration::from_secs(30);
/// Maximum number of workers that a call is offered to while none has received it.
const MAX_ATTEMPTS: u32 = 3;
/// Longest wait for queue capacity for the tunnel's own events; the queue is nearly empty when they are sent.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time for which the statistics of an ended tunnel are kept for its CloseTunnel.
const KEEP_STATS: Duration = Duration::from_secs(60);
const MAX_TUNNELS: usize = 20_000;

/// The two directions of one tunnel.
#[derive(Debug)]
pub struct Tunnel {
    id: String,
    inbound: Inbound,
    outbox: Outbox,
    /// Whether the gateway sent its `init`, which is answered once there is a worker.
    init: bool,
    /// The gateway's work, if it arrived before the worker was ready.
    work: Option<FromGateway>,
    /// Whether `TUNNEL_READY` has been sent.
    ready: bool,
}

/// Reason why a tunnel ended without a call.
#[derive(Debug)]
enum TunnelError {
    /// The gateway has been notified, or is gone.
    Quiet,
    /// The worker died before it received the call, which may go to another worker.
    Undelivered(Cause),
    /// The gateway violated the protocol.
    Fault(Status),
}

type Result<T, E = TunnelError> = std::result::Result<T, E>;

impl From<Status> for TunnelError {
    fn from(status: Status) -> TunnelError {
        TunnelError::Fault(status)
    }
}

impl Tunnel {
    pub fn new(id: String, inbound: Inbound, outbox: Outbox) -> Tunnel {
        Tunnel { id, inbound, outbox, init: false, work: None, ready: false }
    }

    /// Begins with work that is already in the inbox and also stands for the `init`. `answer`, which confirms this, is
    /// sent unless the call ends at once; the caller must run [`Outbox::open_late`].
    pub fn begin_with_work(&mut self, answer: PppServerFrame) -> Outbox {
        self.init = true;
        self.outbox.begin_with_work(answer);
        self.outbox.clone()
    }

    /// Runs the tunnel to its end.
    pub async fn run(mut self, mut attached: AttachedTunnel, handles: Arc<Handles>, metrics: Metrics) {
        let pool = Arc::clone(attached.ticket.pool());
        let mut stats = TunnelStats::default();
        let (mut outcome, mut result);
        let mut attempt = 1;
        loop {
            (outcome, result) = self.attempt(&mut attached, &mut stats).await;
            let Err(TunnelError::Undelivered(cause)) = result else { break };
            if attempt >= MAX_ATTEMPTS {
                self.report_undelivered(cause);
                result = Err(TunnelError::Quiet);
                break;
            }
            attempt += 1;
            match attached.ticket.request_again(attached.soft_deadline) {
                Ok(ticket) => attached.ticket = ticket,
                Err(reason) => {
                    self.reject(&reason);
                    return self.end(&handles, &metrics, &pool, (stats, outcome, Ok(())));
                }
            }
        }
        attached.ticket.release(outcome, stats.duration);
        let result = result.or_else(TunnelError::result);
        self.end(&handles, &metrics, &pool, (stats, outcome, result));
    }

    /// Waits for a worker and gives it the call.
    async fn attempt(
        &mut self,
        attached: &mut AttachedTunnel,
        stats: &mut TunnelStats,
    ) -> (Outcome, Result<()>) {
        let worker = match self.wait_for_worker(attached).await {
            Ok(worker) => worker,
            Err(error) => return (Outcome::Abandoned, Err(error)),
        };
        let before = worker.stats();
        let began = Instant::now();
        let served = self.serve(&worker, attached).await;
        stats.duration = began.elapsed();
        let after = worker.stats();
        // The CPU time that a worker used during a subscription belongs to its calls, which count it.
        if !attached.ticket.is_subscription() {
            stats.cpu_ms = after.cpu_ms.saturating_sub(before.cpu_ms);
        }
        stats.rss_max = after.rss_bytes.max(before.rss_bytes);
        match served {
            Ok(CallEnd::Answered) => (Outcome::Success, Ok(())),
            // The runtime ended the call, which is no evidence about the plugin.
            Ok(CallEnd::Crashed(Cause::Drained)) => (Outcome::Abandoned, Ok(())),
            Ok(CallEnd::Crashed(_)) => (Outcome::Failure, Ok(())),
            Err(error) => (Outcome::Abandoned, Err(error)),
        }
    }

    /// Reports the end of the tunnel to the gateway and to the statistics.
    fn end(
        self,
        handles: &Handles,
        metrics: &Metrics,
        pool: &Pool,
        (mut stats, outcome, result): (TunnelStats, Outcome, Result<(), Status>),
    ) {
        stats.bytes_in = self.inbound.bytes();
        let closed = closed_frame(&self.id, &result);
        if self.outbox.is_brief() {
            stats.bytes_out = self.outbox.end_with_cost(closed, &result, cost(&stats));
            if self.outbox.may_stay() {
                handles.record_end(&self.id, stats, self.outbox.clone());
            } else {
                handles.record_close(&self.id, stats);
            }
        } else {
            stats.bytes_out = self.outbox.sent_bytes();
            self.outbox.send_last(closed);
            self.outbox.close();
            handles.record_end(&self.id, stats, self.outbox.clone());
        }
        let outcome = match outcome {
            Outcome::Success => "answered",
            Outcome::Failure => "crashed",
            Outcome::Abandoned => "abandoned",
        };
        if metrics.has_subscribers() {
            let plugin = pool.key.to_string();
            let labels = [("plugin", plugin.as_str()), ("outcome", outcome)];
            metrics.emit("call", labels, fields([("duration_ms", milliseconds(stats.duration))]));
        }
    }

    /// Waits for a worker, reporting the progress to the gateway.
    async fn wait_for_worker(&mut self, attached: &mut AttachedTunnel) -> Result<Arc<Worker>> {
        let mut state = attached.ticket.state();
        let mut reported = QueuePosition::default();
        let mut open = true;
        let lease = attached.lease.clone();
        loop {
            match state {
                TicketState::Assigned(worker) => {
                    if !std::mem::replace(&mut self.ready, true) {
                        self.report(event_frame(&self.id, Type::TunnelReady, "", None)).await?;
                    }
                    return Ok(worker);
                }
                TicketState::Refused(reason) => {
                    self.reject(&reason);
                    return Err(TunnelError::Quiet);
                }
                TicketState::Waiting(position) => {
                    self.report_position(position, reported).await?;
                    reported = position;
                }
            }
            state = loop {
                tokio::select! {
                    state = attached.ticket.wait_for_change() => break state,
                    message = credential::next(&mut self.inbound, lease.as_deref()), if open => match message? {
                        Some(message) => self.before_call(message)?,
                        None => open = false,
                    },
                    () = self.outbox.reader_gone() => return Err(TunnelError::Quiet),
                    () = attached.cancel.cancelled() => return Err(TunnelError::Quiet),
                }
            };
        }
    }

    /// Receives the work and runs it to its end.
    async fn serve(&mut self, worker: &Arc<Worker>, attached: &AttachedTunnel) -> Result<CallEnd> {
        let idle = Instant::now() + IDLE;
        let work = loop {
            if std::mem::take(&mut self.init) {
                let answer = InitResponse { ok: true, caps: worker.caps.clone(), ..InitResponse::default() };
                let message = ServerMessage { payload: Some(Payload::Init(answer)) };
                self.report(PppServerFrame::carrying(&self.id, &message)).await?;
            }
            if let Some(work) = self.work.take() {
                break work;
            }
            tokio::select! {
                message = credential::next(&mut self.inbound, attached.lease.as_deref()) => match message? {
                    Some(message) => self.before_call(message)?,
                    None => return Err(TunnelError::Quiet),
                },
                () = self.outbox.reader_gone() => return Err(TunnelError::Quiet),
                () = attached.cancel.cancelled() => return Err(TunnelError::Quiet),
                () = tokio::time::sleep_until(idle) => {
                    return Err(Status::deadline_exceeded("the tunnel was not used").into());
                }
            }
        };
        if attached.ticket.is_subscription() != matches!(work, FromGateway::Subscribe(_)) {
            let text = "the slot and the work differ: only a slot requested for a subscription runs a subscription, and \
                 nothing else";
            return Err(Status::failed_precondition(text).into());
        }
        let _in_use =
            attached.lease.as_ref().map(|lease| credential::activate_in(worker, lease, &self.outbox));
        match work {
            FromGateway::Message(ClientMessage { payload: Some(payload) }) => {
                self.invoke(worker, payload, attached).await
            }
            // Boxed: these futures are large, and every invoke would have to reserve their space.
            FromGateway::Read(_) | FromGateway::Prompt(_) | FromGateway::List(_) => {
                Box::pin(self.ask(worker, work, attached)).await
            }
            FromGateway::Subscribe(request) => Box::pin(self.subscribe(worker, request, attached)).await,
            FromGateway::Message(_) | FromGateway::Credential(_) => {
                Err(Status::failed_precondition("the call has not begun").into())
            }
        }
    }

    /// Handles a message that arrived before the call began.
    fn before_call(&mut self, message: FromGateway) -> Result<()> {
        let FromGateway::Message(inner) = &message else { return self.keep(message) };
        match &inner.payload {
            Some(client_message::Payload::Init(_)) => self.init = true,
            Some(client_message::Payload::Invoke(_) | client_message::Payload::LineRequest(_)) => {
                return self.keep(message);
            }
            Some(client_message::Payload::Ping(ping)) => {
                let pong = ServerMessage { payload: Some(Payload::Pong(Pong { nonce: ping.nonce.clone() })) };
                self.outbox.offer_or_drop(PppServerFrame::carrying(&self.id, &pong));
            }
            // Nothing runs yet, so there is nothing to stop.
            Some(client_message::Payload::Cancel(cancel)) => {
                let failed = failed(&cancel.request_id, "CANCELLED", &cancel.reason);
                let failed = ServerMessage { payload: Some(failed) };
                self.outbox.send_last(PppServerFrame::carrying(&self.id, &failed));
                return Err(TunnelError::Quiet);
            }
            _ => return Err(Status::failed_precondition("the call has not begun").into()),
        }
        Ok(())
    }

    fn keep(&mut self, work: FromGateway) -> Result<()> {
        match self.work.replace(work) {
            None => Ok(()),
            Some(_) => Err(Status::failed_precondition("a tunnel carries one call").into()),
        }
    }

    async fn report_position(&self, position: QueuePosition, reported: QueuePosition) -> Result<()> {
        if position.starting {
            return match reported.starting {
                true => Ok(()),
                false => self.event(Type::AllocationStarted, "a worker is starting", None).await,
            };
        }
        // Position 0: the queue has not been counted yet.
        if position.position == 0 || position == reported {
            return Ok(());
        }
        let details = fields([
            ("position", number(position.position as u64)),
            ("depth", number(position.depth as u64)),
            ("eta_ms", milliseconds(position.eta)),
        ]);
        self.event(Type::AllocationQueued, "", Some(details)).await
    }

    async fn event(&self, kind: Type, text: &str, details: Option<prost_types::Struct>) -> Result<()> {
        let sent = self.outbox.send(event_frame(&self.id, kind, text, details), PATIENCE).await;
        sent.map_err(|_| TunnelError::Quiet)
    }

    /// Reports the beginning of the call. If the work is here already, the gateway does not wait for that report.
    async fn report(&self, frame: PppServerFrame) -> Result<()> {
        if self.work.is_some() || self.inbound.has_news() {
            self.outbox.send_with_next(frame);
            return Ok(());
        }
        self.outbox.send(frame, PATIENCE).await.map_err(|_| TunnelError::Quiet)
    }

    fn reject(&self, reason: &Refusal) {
        let text = reason.to_string();
        self.outbox.send_last(event_frame(&self.id, Type::AdmissionRejected, &text, None));
    }

    /// Reports to the gateway that workers died before they received the call.
    fn report_undelivered(&self, cause: Cause) {
        let details = fields([("cause", cause.name().into()), ("delivered", false.into())]);
        let frame = event_frame(&self.id, Type::WorkerCrashed, &cause.to_string(), Some(details));
        self.outbox.send_last(frame);
    }
}

fn cost(stats: &TunnelStats) -> TunnelCost {
    TunnelCost {
        cpu_ms: stats.cpu_ms,
        rss_max: stats.rss_max,
        bytes_in: stats.bytes_in,
        bytes_out: stats.bytes_out,
        duration_ms: u64::try_from(stats.duration.as_millis()).unwrap_or(u64::MAX),
    }
}

impl TunnelError {
    fn result(self) -> Result<(), Status> {
        match self {
            TunnelError::Quiet | TunnelError::Undelivered(_) => Ok(()),
            TunnelError::Fault(status) => Err(status),
        }
    }
}

/// Resource use of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelStats {
    pub cpu_ms: u64,
    pub rss_max: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub duration: Duration,
}

/// Handles of tunnels: unguessable, each usable by the peer that requested it.
///
/// Keeps true: unknown, ended and foreign handles get the same answer; at most `MAX_TUNNELS` exist.
#[derive(Debug, Default)]
pub struct Handles(Mutex<HashMap<String, HandleEntry>>);

#[derive(Debug)]
struct HandleEntry {
    peer: Peer,
    mcp_request_id: String,
    cancel: CancellationToken,
    stats: watch::Sender<Option<TunnelStats>>,
    /// `None` while the tunnel runs.
    end: Option<TunnelEnd>,
}

#[derive(Debug)]
struct TunnelEnd {
    forget: Instant,
    /// May contain frames that the gateway has not read.
    outbox: Outbox,
}

/// Slot, limits and credential of a running tunnel.
#[derive(Debug)]
pub struct AttachedTunnel {
    pub ticket: Ticket,
    /// Deadline of a call that has none itself.
    pub soft_deadline: Option<Instant>,
    /// Credential that the worker's proxy adds to requests to one origin.
    pub lease: Option<Arc<CredentialLease>>,
    /// Cancelled when the tunnel is closed or cancelled.
    pub cancel: CancellationToken,
}

impl Handles {
    /// Creates the handle of a tunnel of `peer`; `None`: there are too many tunnels. The returned token is cancelled when
    /// the tunnel is closed.
    pub fn open(&self, peer: Peer, mcp_request_id: String) -> Option<(String, CancellationToken)> {
        let id = random_hex::<16>();
        let cancel = CancellationToken::new();
        let stats = watch::Sender::new(None);
        let entry = HandleEntry { peer, mcp_request_id, cancel: cancel.clone(), stats, end: None };
        let mut entries = self.0.lock();
        if entries.len() >= MAX_TUNNELS {
            return None;
        }
        entries.insert(id.clone(), entry);
        Some((id, cancel))
    }

    /// Records that a tunnel has ended.
    pub fn record_end(&self, id: &str, stats: TunnelStats, outbox: Outbox) {
        if let Some(entry) = self.0.lock().get_mut(id) {
            entry.end = Some(TunnelEnd { forget: Instant::now() + KEEP_STATS, outbox });
            entry.stats.send_replace(Some(stats));
        }
    }

    /// Removes the handle of a tunnel that has ended and whose gateway needs no CloseTunnel.
    pub fn record_close(&self, id: &str, stats: TunnelStats) {
        let entry = self.0.lock().remove(id);
        if let Some(entry) = entry {
            entry.stats.send_replace(Some(stats));
        }
    }

    /// Closes a tunnel; cancels it if it runs. The returned channel delivers the statistics when it has ended. `None`: the
    /// peer has no such handle.
    pub fn close(&self, peer: &Peer, id: &str) -> Option<watch::Receiver<Option<TunnelStats>>> {
        let mut entries = self.0.lock();
        let entry = entries.get(id).filter(|entry| entry.peer == *peer)?;
        let stats = entry.stats.subscribe();
        let Some(TunnelEnd { outbox, .. }) = &entry.end else {
            entry.cancel.cancel();
            return Some(stats);
        };
        let outbox = outbox.clone();
        entries.remove(id);
        drop(entries);
        outbox.discard();
        Some(stats)
    }

    /// Returns the handles that `peer` requested for an MCP request.
    pub fn of_request(&self, peer: &Peer, mcp_request_id: &str) -> Vec<String> {
        let entries = self.0.lock();
        let own = |entry: &HandleEntry| entry.peer == *peer && entry.mcp_request_id == mcp_request_id;
        entries.iter().filter(|(_, entry)| own(entry)).map(|(id, _)| id.clone()).collect()
    }

    /// Forgets tunnels that ended long ago.
    pub fn sweep(&self) {
        let now = Instant::now();
        let gone: Vec<TunnelEnd> = {
            let mut entries = self.0.lock();
            let gone = entries.extract_if(|_, entry| entry.end.as_ref().is_some_and(|end| end.forget <= now));
            gone.filter_map(|(_, entry)| entry.end).collect()
        };
        gone.iter().for_each(|end| end.outbox.discard());
    }

    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
