//! A call on the worker's session stream: an invoke and what belongs to it.

use std::sync::Arc;
use std::time::Duration;

use asp_proto::plugin::cancel_request::Mode;
use asp_proto::plugin::client_message::Payload;
use asp_proto::plugin::{CancelRequest, ClientMessage, InvokeRequest, Pong, ServerMessage, server_message};
use tokio::time::{Instant, sleep_until};
use tonic::Status;

use super::subject::Subject;
use super::{Attached, End, FromGateway, GRACE, Over, Tunnel};
use crate::call::Call;
use crate::cause::Cause;
use crate::ppp::{message_frame, until};
use crate::session::NotBegun;
use crate::worker::Worker;

/// A plugin that is asked to yield saves its state first.
const YIELD_GRACE: Duration = Duration::from_secs(10);
/// Between two acknowledged checkpoints of a call: it shares the gateway's store with everybody.
const SAVE_EVERY: Duration = Duration::from_millis(10);

/// How far the end of a call has come.
#[derive(Default)]
struct Ending {
    subject: Subject,
    /// When the worker is killed; `None` while the call may run.
    grace: Option<Instant>,
    /// When the last checkpoint was acknowledged.
    saved: Option<Instant>,
    /// The gateway sends no more.
    half_closed: bool,
    reader_gone: bool,
    cancelled: bool,
    yielding: bool,
    closing: bool,
    /// What the gateway did wrong.
    fault: Option<Status>,
}

impl Tunnel {
    pub(super) async fn invoke(
        &mut self,
        worker: &Arc<Worker>,
        invoke: InvokeRequest,
        attached: &Attached,
    ) -> Result<End, Over> {
        if invoke.request_id.is_empty() {
            return Err(Status::invalid_argument("the invoke has no request_id").into());
        }
        let deadline = invoke.deadline.as_ref().map(|end| Instant::now() + until(end));
        let deadline = deadline.or(attached.soft_deadline);
        let call = match worker.session.begin(&invoke.request_id, self.outbox.clone(), deadline) {
            Ok(call) => call,
            Err(NotBegun::Duplicate) => {
                return Err(Status::already_exists("the worker has a call of this request_id").into());
            }
            Err(NotBegun::Dead(cause)) => {
                self.work =
                    Some(FromGateway::Message(ClientMessage { payload: Some(Payload::Invoke(invoke)) }));
                return Err(Over::Undelivered(cause));
            }
        };
        // Before it is sent: a worker that dies meanwhile may have had it.
        call.delivered();
        let subject = Subject::of(worker, attached, &invoke.request_id, invoke.ctx.as_ref(), &invoke.attrs);
        worker.session.send(Payload::Invoke(invoke)).await;
        let end = self.follow(worker, &call, attached, subject).await;
        if call.was_stopped() {
            worker.stopped_a_call();
        }
        end
    }

    /// Carries messages both ways until the call has ended.
    async fn follow(
        &mut self,
        worker: &Arc<Worker>,
        call: &Call,
        attached: &Attached,
        subject: Subject,
    ) -> Result<End, Over> {
        let began = Instant::now();
        let mut ending = Ending { subject, ..Ending::default() };
        loop {
            let (limit, reason) = match ending.grace {
                Some(grace) => (grace, ""),
                None => call.limit(),
            };
            tokio::select! {
                // First, and in this order: a gateway that has its answer goes away, which is no cancel.
                biased;
                end = call.ended() => {
                    ending.subject.ended(end, began.elapsed());
                    return ending.fault.map_or(Ok(end), |fault| Err(fault.into()));
                }
                message = self.inbound.next(), if !ending.half_closed => {
                    self.take(message, worker, call, &mut ending).await;
                }
                () = sleep_until(limit) => match ending.grace {
                    Some(_) => {
                        ending.subject.did_not_end();
                        worker.session.kill(Cause::Deadline);
                        // The worker's end is the call's.
                        ending.grace = Some(Instant::now() + YIELD_GRACE);
                    }
                    // It may have moved since it was read.
                    None if call.limit().0 <= Instant::now() => {
                        cancel(worker, call, reason, &mut ending).await;
                    }
                    None => {}
                },
                () = self.outbox.reader_gone(), if !ending.reader_gone => {
                    ending.reader_gone = true;
                    call.mute();
                    cancel(worker, call, "the caller is gone", &mut ending).await;
                }
                () = attached.cancel.cancelled(), if !ending.cancelled => {
                    ending.cancelled = true;
                    cancel(worker, call, "the tunnel is closed", &mut ending).await;
                }
                () = worker.yields(), if !ending.yielding => {
                    ending.yielding = true;
                    ask_to_yield(worker, call, &ending).await;
                }
                () = worker.closes(), if !ending.closing => {
                    ending.closing = true;
                    call.stop(true);
                    cancel(worker, call, "the plugin is drained", &mut ending).await;
                }
            }
        }
    }

    /// Takes a message of the gateway for the running call.
    async fn take(
        &mut self,
        message: Result<Option<FromGateway>, Status>,
        worker: &Arc<Worker>,
        call: &Call,
        ending: &mut Ending,
    ) {
        let payload = match message {
            Ok(Some(FromGateway::Message(ClientMessage { payload: Some(payload) }))) => payload,
            Ok(Some(_)) => return refuse(worker, call, ending, "a tunnel carries one call").await,
            Ok(None) => {
                ending.half_closed = true;
                return;
            }
            Err(status) => {
                ending.half_closed = true;
                ending.fault = Some(status);
                return cancel(worker, call, "the caller is gone", ending).await;
            }
        };
        let own = match &payload {
            Payload::Cancel(message) => message.request_id == call.request_id,
            Payload::UserInput(message) => message.request_id == call.request_id,
            Payload::DelegationResult(message) => message.request_id == call.request_id,
            Payload::CheckpointAck(message) => message.request_id == call.request_id,
            Payload::Ping(_) | Payload::Init(_) => true,
            Payload::Invoke(_) => false,
        };
        if !own {
            return refuse(worker, call, ending, "the message is of another call").await;
        }
        match &payload {
            Payload::Ping(ping) => {
                let pong = server_message::Payload::Pong(Pong { nonce: ping.nonce.clone() });
                let pong = ServerMessage { payload: Some(pong) };
                self.outbox.offer_now(message_frame(&self.id, &pong));
                return;
            }
            Payload::Init(_) => return,
            Payload::UserInput(answer) => call.answered(false, &answer.elicitation_id),
            Payload::DelegationResult(answer) => call.answered(true, &answer.correlation_id),
            Payload::Cancel(request) => {
                call.stop(false);
                let grace = match request.mode() {
                    Mode::Hard => Some(GRACE),
                    Mode::Preempt => Some(YIELD_GRACE),
                    // The step in hand has as long as the call has.
                    Mode::Soft => None,
                };
                let end = grace.map(|grace| Instant::now() + grace);
                ending.grace = [ending.grace, end].into_iter().flatten().min();
            }
            Payload::CheckpointAck(_) => {
                // A plugin waits for this before it saves again.
                sleep_until(ending.saved.map_or_else(Instant::now, |last| last + SAVE_EVERY)).await;
                ending.saved = Some(Instant::now());
                call.saved();
            }
            Payload::Invoke(_) => {}
        }
        worker.session.send(payload).await;
    }
}

/// Stops the call in its worker; from now on the worker has `GRACE`.
async fn cancel(worker: &Arc<Worker>, call: &Call, reason: &str, ending: &mut Ending) {
    call.stop(false);
    let end = Instant::now() + GRACE;
    let asked = ending.grace.is_some_and(|grace| grace <= end);
    ending.grace = Some(ending.grace.map_or(end, |grace| grace.min(end)));
    if asked {
        return;
    }
    ending.subject.told_to_end(reason);
    let request = CancelRequest {
        request_id: call.request_id.clone(),
        reason: reason.to_owned(),
        mode: Mode::Hard.into(),
    };
    worker.session.send(Payload::Cancel(request)).await;
}

/// Asks a call whose plugin saves its state to yield, unless it is ending already. One that does not has what
/// time there is.
async fn ask_to_yield(worker: &Arc<Worker>, call: &Call, ending: &Ending) {
    if !worker.checkpoints() || ending.grace.is_some() {
        return;
    }
    call.stop(false);
    let request = CancelRequest {
        request_id: call.request_id.clone(),
        reason: "the plugin is drained".to_owned(),
        mode: Mode::Preempt.into(),
    };
    worker.session.send(Payload::Cancel(request)).await;
}

/// Ends the call because of what its gateway did.
async fn refuse(worker: &Arc<Worker>, call: &Call, ending: &mut Ending, text: &'static str) {
    ending.half_closed = true;
    ending.fault = Some(Status::failed_precondition(text));
    cancel(worker, call, text, ending).await;
}
