//! One tunnel to a worker: a handle from the runtime, and the frames that go through it.
//!
//! Owns: the lease on the worker's place. Refuses: interpretation; the session reads the messages. Keeps true:
//! however the call ends, its place is returned at once, off the call's path, and the runtime gives a cancelled call its
//! grace; a process that ends leaves that to its socket; a message that cannot be decoded is a fault of the worker and
//! never skipped, while unknown messages of a newer runtime are skipped (contracts only grow).

use std::sync::Arc;
use std::time::Duration;

use asp_proto::envelope::packed;
use asp_proto::plugin::{
    ClientMessage, ContentChunk, GetPromptResponse, ListResourcesResponse, ResourceUpdated, ServerMessage,
    client_message, server_message,
};
use asp_proto::supervisor::{
    AllocateWorkerRequest, CancelAllocationRequest, CloseTunnelRequest, TunnelEvent, ppp_server_frame,
    tunnel_event,
};
use prost::Message;
use prost_types::Any;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tonic::Status;

use super::admission::{
    self, Account, Allocation, EndedTunnel, QueuePosition, Rejection, UsageRecorder, fault,
};
use super::multiplexer::{FrameSender, MAX_MESSAGE, Multiplexer, StreamEvent, TunnelStream};
use super::runtimes::Runtime;

/// Timeout of the runtime's decision on an allocation.
const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(5);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of work that is sent with the request for a place: it is wasted if no worker is available at once.
const EARLY: usize = 64 << 10;

/// State that all tunnels of a client share.
#[derive(Clone)]
pub struct TunnelContext {
    pub tasks: TaskTracker,
    pub usage: UsageRecorder,
}

impl TunnelContext {
    /// Returns the account of a tunnel to a plugin of this language.
    pub fn account(&self, language: &'static str) -> Account {
        Account { language, usage: self.usage.clone(), tasks: self.tasks.clone() }
    }
}

/// Records no cost.
impl Default for TunnelContext {
    fn default() -> TunnelContext {
        TunnelContext { tasks: TaskTracker::new(), usage: Arc::new(|_, _| ()) }
    }
}

/// Mark of work that may have an effect, as the work's owner keeps it.
pub trait WorkMark: Send + Sync {
    /// Sets the mark: the work is about to leave, and may arrive whatever becomes of the wait for its answer.
    fn mark_sent(&mut self);

    /// Takes the mark back: the work certainly did not arrive, or was dropped unread.
    fn undelivered(&mut self);
}

/// Message or event of a tunnel.
#[derive(Debug)]
pub enum TunnelMessage {
    Message(server_message::Payload),
    Content(ContentChunk),
    Prompt(GetPromptResponse),
    Listed(ListResourcesResponse),
    Updated(ResourceUpdated),
    Event(TunnelEvent),
    /// The runtime ended the tunnel.
    End,
}

/// Failure after which the tunnel is unusable.
#[derive(Debug, thiserror::Error)]
pub enum TunnelFault {
    #[error("the tunnel is gone: {0}")]
    Cut(Status),
    #[error("the worker broke the protocol: {0}")]
    Garbage(&'static str),
}

/// A worker's place, from the allocation to its closing.
pub struct Tunnel {
    // Dropped before the stream: closing takes over its place on the stream.
    lease: WorkerLease,
    stream: TunnelStream,
    /// Id of the worker, if it was assigned at once.
    worker: Option<String>,
    /// The runtime has reported that nothing follows.
    over: bool,
    /// Mark of its work; `None` if the work belongs to no call.
    mark: Option<Box<dyn WorkMark>>,
    /// Messages that no worker has yet.
    held: Vec<Any>,
    /// The result, if the runtime answered the allocation with it.
    answer: Option<ppp_server_frame::Payload>,
    /// Renews the worker's leased credential.
    _renewing: Option<AbortOnDropHandle<()>>,
    /// A message was skipped, and this was logged.
    has_skipped: bool,
}

/// Reason why no tunnel opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenFault {
    /// Rejection before anything reached a worker.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The runtime was lost while the tunnel opened; it is unknown what it had accepted by then.
    #[error("the runtime was lost: {0}")]
    Lost(Status),
}

impl Tunnel {
    /// Asks for a worker and opens the tunnel. An assigned worker gets the work at once; otherwise it is sent when
    /// the tunnel is [`Tunnel::ready`], which may be after a wait at the returned place in a queue. `mark` is `None`
    /// if the work belongs to no call: a look at a package's lists, or a subscription.
    pub async fn open(
        runtime: Arc<Runtime>,
        account: Account,
        mut request: AllocateWorkerRequest,
        [init, work]: [Any; 2],
        mut mark: Option<Box<dyn WorkMark>>,
    ) -> Result<(Tunnel, Option<QueuePosition>), OpenFault> {
        let mcp_request_id = request.ctx.as_ref().map(|ctx| ctx.mcp_request_id.clone()).unwrap_or_default();
        if work.value.len() > MAX_MESSAGE {
            return Err(Rejection::Unusable("the call is too large for a plugin".into()).into());
        }
        let multiplexer =
            runtime.multiplexer().await.map_err(|status| match Rejection::of_status(&status) {
                Rejection::Unreachable if runtime.is_just_lost() => Rejection::JustLost,
                rejection => rejection,
            })?;
        let stream = multiplexer.stream(account.clone());
        let mut stream = stream.map_err(|status| Rejection::of_status(&status))?;
        // A fresh process is never available at once.
        let early = !request.force_fresh_process && work.value.len() <= EARLY;
        request.work = early.then(|| work.clone());
        if early {
            mark.iter_mut().for_each(|mark| mark.mark_sent());
        }
        let decided = timeout(ALLOCATE_TIMEOUT, allocate(&mut stream, &request)).await;
        let decided = decided.unwrap_or_else(|_| Err(OpenFault::Lost(no_decision(&runtime))));
        let tasks = account.tasks.clone();
        let lease = WorkerLease { assignment: None, multiplexer: multiplexer.clone(), tasks };
        let mut tunnel = Tunnel::of(lease, stream, mark);
        let allocation = match decided {
            Ok(PlaceDecision::Allocated(allocation)) => allocation,
            Ok(PlaceDecision::Answered(answer)) => {
                runtime.record_result(None);
                tunnel.answer = Some(answer);
                return Ok((tunnel, None));
            }
            Err(OpenFault::Lost(status)) if early => return Err(OpenFault::Lost(status)),
            Err(OpenFault::Lost(status)) => return Err(Rejection::of_status(&status).into()),
            Err(OpenFault::Rejected(rejection)) => {
                tunnel.undelivered();
                if rejection == Rejection::Draining {
                    runtime.drains(&multiplexer).await;
                }
                return Err(rejection.into());
            }
        };
        runtime.record_result(None);
        tunnel.stream.rename(&allocation.tunnel_id);
        let ready = allocation.place.is_none();
        let ended = EndedTunnel { id: allocation.tunnel_id.clone(), reason: "client_closed", account };
        tunnel.lease.assignment = Some(Assignment { runtime, tunnel: ended, mcp_request_id, ready });
        if !allocation.took {
            tunnel.held = vec![init, work];
            // Work that was sent with the request was dropped unread.
            tunnel.undelivered();
        }
        tunnel.worker = allocation.worker;
        if tunnel.worker.is_some() {
            let sent = tunnel.ready().await;
            sent.map_err(|_| OpenFault::Lost(Status::unavailable("the stream is over")))?;
        }
        Ok((tunnel, allocation.place))
    }

    fn of(lease: WorkerLease, stream: TunnelStream, mark: Option<Box<dyn WorkMark>>) -> Tunnel {
        Tunnel {
            lease,
            stream,
            worker: None,
            over: false,
            mark,
            held: Vec::new(),
            answer: None,
            _renewing: None,
            has_skipped: false,
        }
    }

    /// Renews the worker's leased credential for as long as the tunnel is open.
    pub fn renews(&mut self, follow: impl FnOnce(FrameSender) -> Option<AbortOnDropHandle<()>>) {
        if self.answer.is_none() {
            self._renewing = follow(self.stream.sender());
        }
    }

    /// Records that the worker is attached, and sends it the work that was held back.
    pub async fn ready(&mut self) -> Result<(), TunnelFault> {
        if let Some(assignment) = &mut self.lease.assignment {
            assignment.ready = true;
        }
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            self.mark.iter_mut().for_each(|mark| mark.mark_sent());
        }
        for message in held {
            self.send_any(message).await?;
        }
        Ok(())
    }

    /// Returns the id of the worker, if it was assigned at once and the result did not arrive with the assignment.
    pub fn worker(&self) -> Option<&str> {
        self.worker.as_deref()
    }

    pub fn is_ready(&self) -> bool {
        self.lease.assignment.as_ref().is_some_and(|assignment| assignment.ready)
    }

    /// Records that nothing of the call reached a worker through this tunnel.
    pub fn undelivered(&mut self) {
        self.mark.iter_mut().for_each(|mark| mark.undelivered());
    }

    /// Sets the reason for closing the tunnel that the runtime is given.
    pub fn closes_because(&mut self, reason: &'static str) {
        if let Some(assignment) = &mut self.lease.assignment {
            assignment.tunnel.reason = reason;
        }
    }

    /// Sends a message to the worker. `Err`: the tunnel is gone.
    pub async fn send(&mut self, message: client_message::Payload) -> Result<(), TunnelFault> {
        self.send_any(pack(message)).await
    }

    async fn send_any(&mut self, ppp: Any) -> Result<(), TunnelFault> {
        self.stream.send(ppp).await.map_err(TunnelFault::Cut)
    }

    /// Waits for the next message or event. Cancel-safe.
    pub async fn next(&mut self) -> Result<TunnelMessage, TunnelFault> {
        while !self.over {
            let arrived = match self.answer.take() {
                Some(answer) => StreamEvent::Last(answer),
                None => self.stream.next().await,
            };
            let last = matches!(arrived, StreamEvent::Last(_));
            if last {
                // The runtime has closed the tunnel itself.
                self.lease.assignment = None;
            }
            let heard = read(arrived);
            self.over = last || matches!(heard, Ok(Some(TunnelMessage::End)) | Err(_));
            match heard {
                Ok(Some(heard)) => return Ok(heard),
                Ok(None) => self.skipped(),
                Err(fault) => return Err(fault),
            }
        }
        Ok(TunnelMessage::End)
    }

    fn skipped(&mut self) {
        if !std::mem::replace(&mut self.has_skipped, true) {
            let tunnel = self.lease.assignment.as_ref().map(|assignment| assignment.tunnel.id.as_str());
            tracing::debug!(
                tunnel,
                "unknown messages of a worker were skipped; its runtime is newer than this gateway"
            );
        }
    }
}

/// Obligation to return an assignment; dropping it returns the assignment.
struct WorkerLease {
    assignment: Option<Assignment>,
    multiplexer: Multiplexer,
    tasks: TaskTracker,
}

/// A handle and what is needed to close it.
struct Assignment {
    runtime: Arc<Runtime>,
    tunnel: EndedTunnel,
    mcp_request_id: String,
    ready: bool,
}

impl Drop for WorkerLease {
    fn drop(&mut self) {
        let Some(mut assignment) = self.assignment.take() else { return };
        if assignment.ready {
            // On the tunnel's own stream, one frame is enough.
            match self.multiplexer.close(assignment.tunnel) {
                Ok(()) => return,
                Err(tunnel) => assignment.tunnel = tunnel,
            }
        }
        // Without a runtime the process is ending, and the socket with it.
        let Ok(runtime) = Handle::try_current() else { return };
        // Off the call's path: the caller already has its answer.
        self.tasks.spawn_on(
            async move {
                if timeout(CLOSE_TIMEOUT, close(&assignment)).await.is_err() {
                    tracing::debug!(
                        language = assignment.tunnel.account.language,
                        "runtime did not close a tunnel in time"
                    );
                }
            },
            &runtime,
        );
    }
}

/// Returns the place by separate requests: for a tunnel that was never used, or whose stream is full or gone.
async fn close(assignment: &Assignment) {
    // A lost runtime has no place to return.
    let Some(mut client) = assignment.runtime.client() else { return };
    if !assignment.ready {
        let request = CancelAllocationRequest {
            tunnel_id: assignment.tunnel.id.clone(),
            mcp_request_id: assignment.mcp_request_id.clone(),
        };
        // An allocation that became ready in between is closed below.
        let _ = client.cancel_allocation(request).await;
    }
    let request = CloseTunnelRequest {
        tunnel_id: assignment.tunnel.id.clone(),
        reason: assignment.tunnel.reason.into(),
    };
    match client.close_tunnel(request).await {
        Ok(answer) => assignment.tunnel.closed(answer.get_ref().stats.as_ref()),
        Err(status) => tracing::debug!(code = %status.code(), "tunnel had ended before it was closed"),
    }
}

fn no_decision(runtime: &Runtime) -> Status {
    let status = Status::unavailable("no decision in time");
    runtime.record_result(Some(&status));
    status
}

/// Answer to a request for a place.
enum PlaceDecision {
    Allocated(Allocation),
    /// The work that was sent with the request is done, and this is the result.
    Answered(ppp_server_frame::Payload),
}

/// Requests a place.
async fn allocate(
    stream: &mut TunnelStream,
    request: &AllocateWorkerRequest,
) -> Result<PlaceDecision, OpenFault> {
    stream.send(packed(request)).await.map_err(OpenFault::Lost)?;
    match stream.next().await {
        StreamEvent::Allocated(answer) => Ok(PlaceDecision::Allocated(admission::read(answer)?)),
        StreamEvent::Last(answer @ ppp_server_frame::Payload::Ppp(_)) => Ok(PlaceDecision::Answered(answer)),
        StreamEvent::End(status) => {
            Err(OpenFault::Lost(status.unwrap_or_else(|| Status::unavailable("the stream ended"))))
        }
        // The runtime rejects the request.
        StreamEvent::Payload(ppp_server_frame::Payload::Event(event))
        | StreamEvent::Last(ppp_server_frame::Payload::Event(event)) => {
            let status = fault(&event).unwrap_or_else(|| Status::unknown("the runtime closed the tunnel"));
            Err(Rejection::of_status(&status).into())
        }
        StreamEvent::Payload(ppp_server_frame::Payload::Ppp(_)) => {
            Err(OpenFault::Lost(Status::internal("a message before the place")))
        }
    }
}

/// Packs a client message into its envelope.
pub fn pack(message: client_message::Payload) -> Any {
    packed(&ClientMessage { payload: Some(message) })
}

/// Decodes what has arrived; `None` for a message of an unknown kind.
fn read(arrived: StreamEvent) -> Result<Option<TunnelMessage>, TunnelFault> {
    use ppp_server_frame::Payload;
    let any = match arrived {
        StreamEvent::End(None) => return Ok(Some(TunnelMessage::End)),
        StreamEvent::End(Some(status)) => return Err(TunnelFault::Cut(status)),
        StreamEvent::Allocated(_) => return Err(TunnelFault::Garbage("a second place")),
        StreamEvent::Payload(Payload::Event(event)) | StreamEvent::Last(Payload::Event(event))
            if event.r#type() == tunnel_event::Type::TunnelClosed =>
        {
            return fault(&event)
                .map_or(Ok(Some(TunnelMessage::End)), |status| Err(TunnelFault::Cut(status)));
        }
        StreamEvent::Payload(Payload::Event(event)) | StreamEvent::Last(Payload::Event(event)) => {
            return Ok(Some(TunnelMessage::Event(event)));
        }
        StreamEvent::Payload(Payload::Ppp(any)) | StreamEvent::Last(Payload::Ppp(any)) => any,
    };
    let name = any.type_url.rsplit('/').next().unwrap_or_default();
    let value = any.value.as_slice();
    let undecodable = |_| TunnelFault::Garbage("an undecodable message");
    let heard = match name {
        "asp.plugin.v1.ServerMessage" if value.is_empty() => {
            return Err(TunnelFault::Garbage("an empty message"));
        }
        "asp.plugin.v1.ServerMessage" => {
            return ServerMessage::decode(value)
                .map(|message| message.payload.map(TunnelMessage::Message))
                .map_err(undecodable);
        }
        "asp.plugin.v1.ContentChunk" => ContentChunk::decode(value).map(TunnelMessage::Content),
        "asp.plugin.v1.GetPromptResponse" => GetPromptResponse::decode(value).map(TunnelMessage::Prompt),
        "asp.plugin.v1.ListResourcesResponse" => {
            ListResourcesResponse::decode(value).map(TunnelMessage::Listed)
        }
        "asp.plugin.v1.ResourceUpdated" => ResourceUpdated::decode(value).map(TunnelMessage::Updated),
        _ => return Err(TunnelFault::Garbage("a message of an unknown type")),
    };
    heard.map(Some).map_err(undecodable)
}
