//! A call on the worker's session stream: an invoke, or the request of a line, and its messages.
//!
//! Keeps true: nothing here waits for a worker that does not read its stream. Messages for it are queued instead, at
//! most `MAX_UNSENT` per call, while deadlines, cancels and disconnects still take effect.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use asp_proto::grace::{CALL_YIELDS_WITHIN, WORKER_STOPS_WITHIN};
use asp_proto::plugin::cancel_request::Mode;
use asp_proto::plugin::client_message::Payload;
use asp_proto::plugin::{
    CancelRequest, ClientMessage, Context, InvokeRequest, LineRequest, Pong, ServerMessage, server_message,
};
use asp_proto::supervisor::PppServerFrame;
use prost_types::Timestamp;
use tokio::time::{Instant, sleep_until};
use tonic::Status;

use super::credential;
use super::grace::Grace;
use super::subject::LogSubject;
use super::{AttachedTunnel, CallEnd, FromGateway, Result, Tunnel, TunnelError};
use crate::plugin::manifest::Mode as WorkerMode;
use crate::ppp::{MAX_QUEUED_BYTES, failed, time_until};
use crate::worker::Worker;
use crate::worker::call::Call;
use crate::worker::session::{BeginError, StillRuns};

/// Minimum interval between two acknowledged checkpoints of a call: all calls share the gateway's store.
const SAVE_EVERY: Duration = Duration::from_millis(10);

/// Maximum number of queued messages of a call to its worker. A call has few open questions and checkpoints at a time.
const MAX_UNSENT: usize = 64;
/// Maximum size of these messages in bytes; the same as for an inbox.
const MAX_UNSENT_BYTES: usize = MAX_QUEUED_BYTES;

/// Progress of a call towards its end.
#[derive(Default)]
struct CallProgress {
    subject: LogSubject,
    /// Messages that the worker has no capacity for, in order.
    unsent: VecDeque<Payload>,
    unsent_bytes: usize,
    /// Remaining grace of the worker; `None` while the call may run.
    grace: Option<Grace>,
    /// Time of the last acknowledged checkpoint.
    saved: Option<Instant>,
    /// Whether the gateway has closed its side.
    half_closed: bool,
    reader_gone: bool,
    superseded: bool,
    closed: bool,
    /// Whether the worker was told to end the call.
    cancelled: bool,
    yielding: bool,
    closing: bool,
    /// The gateway's protocol violation.
    fault: Option<Status>,
}

/// Members of the message that begins a call, whichever it is.
struct CallHead<'a> {
    request_id: &'a str,
    /// Id of the primitive; empty for a stdio server.
    primitive: &'a str,
    deadline: Option<&'a Timestamp>,
    ctx: Option<&'a Context>,
    attrs: &'a BTreeMap<String, String>,
    /// Mode of the workers that take the message.
    mode: WorkerMode,
}

impl CallHead<'_> {
    fn of(payload: &Payload) -> Option<CallHead<'_>> {
        match payload {
            Payload::Invoke(InvokeRequest { request_id, primitive, deadline, ctx, attrs, .. }) => {
                Some(CallHead {
                    request_id,
                    primitive,
                    deadline: deadline.as_ref(),
                    ctx: ctx.as_ref(),
                    attrs,
                    mode: WorkerMode::Plugin,
                })
            }
            Payload::LineRequest(LineRequest { request_id, deadline, ctx, attrs, .. }) => Some(CallHead {
                request_id,
                primitive: "",
                deadline: deadline.as_ref(),
                ctx: ctx.as_ref(),
                attrs,
                mode: WorkerMode::McpStdio,
            }),
            _ => None,
        }
    }
}

impl Tunnel {
    /// Runs a call that begins with this message.
    pub(super) async fn invoke(
        &mut self,
        worker: &Arc<Worker>,
        begins: Payload,
        attached: &AttachedTunnel,
    ) -> Result<CallEnd> {
        let Some(head) = CallHead::of(&begins) else {
            return Err(Status::failed_precondition("the call has not begun").into());
        };
        if head.request_id.is_empty() {
            return Err(Status::invalid_argument("the call has no request_id").into());
        }
        let plan = &attached.ticket.pool().plan;
        if head.mode != plan.plugin.manifest.mode {
            return Err(self.refuse_mode(head.request_id));
        }
        let executions = &plan.executions;
        tokio::select! {
            // First, so that if there is no previous execution, cancellation is handled together with the call.
            biased;
            former = executions.end_previous(head.request_id) => former.map_err(Status::from)?,
            () = self.outbox.reader_gone() => return Err(TunnelError::Quiet),
            () = attached.cancel.cancelled() => return Err(TunnelError::Quiet),
        }
        let deadline = head.deadline.map(|end| Instant::now() + time_until(end));
        let deadline = deadline.or(attached.soft_deadline);
        let named = (head.request_id, head.primitive);
        let call = match worker.session.begin(named, self.outbox.clone(), deadline) {
            Ok(call) => call,
            Err(BeginError::Duplicate) => return Err(Status::from(StillRuns).into()),
            Err(BeginError::Dead(cause)) => {
                self.work = Some(FromGateway::Message(ClientMessage { payload: Some(begins) }));
                return Err(TunnelError::Undelivered(cause));
            }
        };
        // Marked before it is sent: if the worker dies during the send, it may have received the call.
        call.record_delivery();
        let _execution = executions.enter(&call);
        let subject = LogSubject::of(worker, attached, head.request_id, head.ctx, head.attrs);
        let mut progress = CallProgress { subject, ..CallProgress::default() };
        forward(worker, &mut progress, begins);
        let end = self.follow(worker, &call, attached, progress).await;
        if call.was_stopped() {
            worker.stopped.store(true, Ordering::Relaxed);
        }
        end
    }

    /// Ends a call whose message is for workers of the other mode, before anything is sent to a worker.
    fn refuse_mode(&self, request_id: &str) -> TunnelError {
        let text = "a plugin is invoked, a stdio server gets lines: the gateway needs the runtime's version";
        let failed = ServerMessage { payload: Some(failed(request_id, "UNSUPPORTED", text)) };
        self.outbox.send_last(PppServerFrame::carrying(&self.id, &failed));
        TunnelError::Quiet
    }

    /// Forwards messages both ways until the call has ended.
    async fn follow(
        &mut self,
        worker: &Arc<Worker>,
        call: &Call,
        attached: &AttachedTunnel,
        mut progress: CallProgress,
    ) -> Result<CallEnd> {
        let began = Instant::now();
        loop {
            let (limit, reason) = match progress.grace {
                Some(grace) => (grace.end(), ""),
                None => call.limit(),
            };
            tokio::select! {
                // First, and in this order: a gateway that has its answer disconnects, which is not a cancel.
                biased;
                end = call.wait_for_end() => {
                    progress.subject.log_end(end, began.elapsed());
                    return progress.fault.map_or(Ok(end), |fault| Err(fault.into()));
                }
                message = credential::next(&mut self.inbound, attached.lease.as_deref()), if !progress.half_closed => {
                    self.take(message, worker, call, &mut progress).await;
                }
                room = worker.session.wait_for_capacity(), if !progress.unsent.is_empty() => {
                    // None: the worker has ended, which ends the call.
                    let next = progress.next_unsent().zip(room);
                    next.into_iter().for_each(|(next, room)| room.send(ClientMessage { payload: Some(next) }));
                }
                () = sleep_until(limit) => match progress.is_grace_over(call) {
                    Some(true) => {
                        progress.subject.ignored_cancellation();
                        worker.session.kill_for_call(attached.ticket.tenant());
                        // The worker's end ends the call.
                        progress.grace = Some(Grace::of(CALL_YIELDS_WITHIN, call.stall()));
                    }
                    Some(false) => {}
                    // The limit may have moved since it was read.
                    None if call.limit().0 <= Instant::now() => {
                        cancel(worker, call, reason, &mut progress);
                    }
                    None => {}
                },
                () = self.outbox.reader_gone(), if !progress.reader_gone => {
                    progress.reader_gone = true;
                    call.mute();
                    let given_up = self.outbox.was_given_up();
                    let reason = if given_up { "its results are not read" } else { "the caller is gone" };
                    cancel(worker, call, reason, &mut progress);
                }
                () = attached.cancel.cancelled(), if !progress.closed => {
                    progress.closed = true;
                    cancel(worker, call, "the tunnel is closed", &mut progress);
                }
                () = call.superseded.cancelled(), if !progress.superseded => {
                    progress.superseded = true;
                    call.mute();
                    cancel(worker, call, "its gateway runs it again", &mut progress);
                }
                () = worker.yields.cancelled(), if !progress.yielding => {
                    progress.yielding = true;
                    ask_to_yield(worker, call, &mut progress);
                }
                () = worker.closes.cancelled(), if !progress.closing => {
                    progress.closing = true;
                    call.stop(true);
                    cancel(worker, call, "the plugin is drained", &mut progress);
                }
            }
        }
    }

    /// Handles a message of the gateway for the running call.
    async fn take(
        &mut self,
        message: Result<Option<FromGateway>, Status>,
        worker: &Arc<Worker>,
        call: &Call,
        progress: &mut CallProgress,
    ) {
        let payload = match message {
            Ok(Some(FromGateway::Message(ClientMessage { payload: Some(payload) }))) => payload,
            Ok(Some(_)) => return refuse(worker, call, progress, "a tunnel carries one call"),
            Ok(None) => {
                progress.half_closed = true;
                return;
            }
            Err(status) => {
                progress.half_closed = true;
                progress.fault = Some(status);
                return cancel(worker, call, "the caller is gone", progress);
            }
        };
        if !is_of(&payload, &call.request_id) {
            return refuse(worker, call, progress, "the message is of another call");
        }
        match &payload {
            Payload::Ping(ping) => {
                let pong = server_message::Payload::Pong(Pong { nonce: ping.nonce.clone() });
                let pong = ServerMessage { payload: Some(pong) };
                self.outbox.offer_or_drop(PppServerFrame::carrying(&self.id, &pong));
                return;
            }
            Payload::Init(_) => return,
            Payload::UserInput(answer) => call.record_answer(false, &answer.elicitation_id),
            Payload::DelegationResult(answer) => call.record_answer(true, &answer.correlation_id),
            Payload::McpAnswer(answer) => call.record_answer(true, &answer.correlation_id),
            Payload::Cancel(request) if request.mode() == Mode::Hard => {
                return cancel(worker, call, &request.reason, progress);
            }
            Payload::Cancel(request) => {
                call.stop(false);
                // After a soft cancel the current step may run as long as the call.
                if request.mode() == Mode::Preempt {
                    progress.shorten(Grace::of(CALL_YIELDS_WITHIN, call.stall()));
                }
            }
            Payload::CheckpointAck(_) => {
                // A plugin waits for this before it saves again.
                sleep_until(progress.saved.map_or_else(Instant::now, |last| last + SAVE_EVERY)).await;
                progress.saved = Some(Instant::now());
                call.record_checkpoint();
            }
            Payload::StorageAnswer(_) => call.record_storage_answer(),
            Payload::Invoke(_) | Payload::LineRequest(_) => {}
        }
        if progress.is_full() {
            // A cancel has taken effect above, whether or not the worker receives it.
            return match payload {
                Payload::Cancel(_) => {}
                _ => refuse(worker, call, progress, "the gateway sends faster than the worker reads"),
            };
        }
        forward(worker, progress, payload);
    }
}

/// Whether the message belongs to the call, or to no call.
fn is_of(payload: &Payload, call: &str) -> bool {
    match payload {
        Payload::Cancel(message) => message.request_id == call,
        Payload::UserInput(message) => message.request_id == call,
        Payload::DelegationResult(message) => message.request_id == call,
        Payload::McpAnswer(message) => message.request_id == call,
        Payload::CheckpointAck(message) => message.request_id == call,
        Payload::StorageAnswer(message) => message.request_id == call,
        Payload::Ping(_) | Payload::Init(_) => true,
        Payload::Invoke(_) | Payload::LineRequest(_) => false,
    }
}

impl CallProgress {
    /// Whether the worker has used up its grace, which may be extended; `None` while the call may run.
    fn is_grace_over(&mut self, call: &Call) -> Option<bool> {
        self.grace.as_mut().map(|grace| !grace.stretch(call.stall()))
    }

    /// Shortens the grace, unless the current one ends as soon or sooner.
    fn shorten(&mut self, grace: Grace) {
        if self.grace.is_none_or(|former| grace.end() < former.end()) {
            self.grace = Some(grace);
        }
    }

    fn is_full(&self) -> bool {
        self.unsent.len() >= MAX_UNSENT || self.unsent_bytes >= MAX_UNSENT_BYTES
    }

    fn next_unsent(&mut self) -> Option<Payload> {
        let next = self.unsent.pop_front()?;
        self.unsent_bytes -= next.encoded_len();
        Some(next)
    }
}

/// Sends the worker a message, or queues it until the worker has capacity.
fn forward(worker: &Worker, progress: &mut CallProgress, payload: Payload) {
    let unsent = match progress.unsent.is_empty() {
        true => worker.session.try_send(payload).err(),
        false => Some(payload),
    };
    if let Some(payload) = unsent {
        progress.unsent_bytes += payload.encoded_len();
        progress.unsent.push_back(payload);
    }
}

/// Cancels the call in its worker, which then has `WORKER_STOPS_WITHIN` to end it. Whatever cancels a call does it here, and the
/// worker receives one cancel: the message, the end of the tunnel and the deadline may follow each other.
fn cancel(worker: &Worker, call: &Call, reason: &str, progress: &mut CallProgress) {
    if std::mem::replace(&mut progress.cancelled, true) {
        return;
    }
    call.stop(false);
    call.drop_when_blocked();
    progress.shorten(Grace::of(WORKER_STOPS_WITHIN, call.stall()));
    progress.subject.log_cancel(reason);
    forward(worker, progress, cancel_request(call, reason, Mode::Hard));
}

/// Asks a call whose plugin saves its state to yield, unless it is ending already. A call that does not yield keeps its
/// remaining time.
fn ask_to_yield(worker: &Worker, call: &Call, progress: &mut CallProgress) {
    if !worker.checkpoints() || progress.grace.is_some() {
        return;
    }
    call.stop(false);
    forward(worker, progress, cancel_request(call, "the plugin is drained", Mode::Preempt));
}

fn cancel_request(call: &Call, reason: &str, mode: Mode) -> Payload {
    let request_id = call.request_id.clone();
    Payload::Cancel(CancelRequest { request_id, reason: reason.to_owned(), mode: mode.into() })
}

/// Ends the call because its gateway violated the protocol.
fn refuse(worker: &Worker, call: &Call, progress: &mut CallProgress, text: &'static str) {
    progress.half_closed = true;
    progress.fault = Some(Status::failed_precondition(text));
    cancel(worker, call, text, progress);
}
