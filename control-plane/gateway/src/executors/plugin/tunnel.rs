//! One tunnel to a worker: a handle from the runtime, and the frames that go through it.
//!
//! Owns: the lease on the worker's place. Refuses: meaning; the session reads the messages. Keeps true:
//! whatever becomes of the call, its place is given back; a call that was cancelled leaves its worker a while
//! to stop; what cannot be decoded is a fault of the worker, never skipped.

use std::sync::Arc;
use std::time::Duration;

use asp_proto::plugin::{
    ClientMessage, ContentChunk, GetPromptResponse, ServerMessage, client_message, server_message,
};
use asp_proto::supervisor::{
    AllocateWorkerRequest, PppClientFrame, PppServerFrame, TunnelEvent, ppp_server_frame, tunnel_event,
};
use prost::Message;
use prost_types::Any;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use super::admission::{self, Allocation, Rejection};
use super::lease::{Closing, Lease, Seat};
use super::runtimes::{Client, Runtime};
use crate::call::Call;

/// Most frames that wait for the runtime: answers and acknowledgements, of which a call has few at a time.
const OUTGOING: usize = 32;
/// How long the runtime may take to decide on an allocation.
const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a cancelled worker may take to stop before its place is closed; the runtime has its own grace.
const LINGER: Duration = Duration::from_secs(5);
const TYPE_PREFIX: &str = "type.googleapis.com/asp.plugin.v1.";

/// What came through the tunnel.
#[derive(Debug)]
pub(super) enum Heard {
    Message(server_message::Payload),
    Content(ContentChunk),
    Prompt(GetPromptResponse),
    Event(TunnelEvent),
    /// The runtime ended the stream.
    End,
}

/// The tunnel is of no more use.
#[derive(Debug, thiserror::Error)]
pub(super) enum TunnelFault {
    #[error("the runtime is gone: {0}")]
    Cut(Status),
    #[error("the worker broke the protocol: {0}")]
    Garbage(&'static str),
}

/// A worker's place, from the allocation to its closing.
pub(super) struct Tunnel {
    lease: Lease,
    runtime: Arc<Runtime>,
    tunnel_id: String,
    frames: mpsc::Sender<PppClientFrame>,
    incoming: Option<Streaming<PppServerFrame>>,
    /// The work of a queued call.
    held: Option<Any>,
    /// A cancel was sent and the end has not come.
    stopping: bool,
}

/// Why no tunnel opened.
#[derive(Debug)]
pub(super) enum OpenFault {
    /// Nothing reached a worker.
    Rejected(Rejection),
    /// The runtime went away while the tunnel opened; what it had taken by then is not known.
    Lost(Status),
}

impl From<Rejection> for OpenFault {
    fn from(rejection: Rejection) -> OpenFault {
        OpenFault::Rejected(rejection)
    }
}

/// What a tunnel begins with.
pub(super) struct Opening<'a> {
    pub init: Any,
    pub work: Any,
    pub call: &'a Call,
}

/// What the runtime is asked for.
pub(super) struct Wanted {
    pub runtime: Arc<Runtime>,
    pub language: &'static str,
    pub request: AllocateWorkerRequest,
    pub closing: Closing,
}

impl Tunnel {
    /// Asks for a worker and opens the tunnel. A worker that is there gets the work at once; a queued call's
    /// work is sent when the tunnel is [`Tunnel::ready`].
    pub(super) async fn open(
        wanted: Wanted,
        opening: Opening<'_>,
    ) -> Result<(Tunnel, Allocation), OpenFault> {
        let Wanted { runtime, language, request, closing } = wanted;
        let mut client = runtime.client().ok_or(Rejection::Unreachable)?;
        let mcp_request_id = request.ctx.as_ref().map(|ctx| ctx.mcp_request_id.clone()).unwrap_or_default();
        let allocation = allocate(&runtime, &mut client, request).await?;
        let tunnel_id = allocation.tunnel_id.clone();
        let attached = allocation.place.is_none();
        let seat = Seat {
            runtime: runtime.clone(),
            language,
            tunnel_id: tunnel_id.clone(),
            mcp_request_id,
            ready: attached,
            reason: "client_closed",
            metrics: closing.metrics,
        };
        let mut lease = Lease { seat: Some(seat), tasks: closing.tasks };
        let (frames, outgoing) = mpsc::channel(OUTGOING);
        let Opening { init, work, call } = opening;
        let (first, held) = if attached { (vec![init, work], None) } else { (vec![init], Some(work)) };
        let handed_over_before = call.was_handed_over();
        if attached {
            call.hand_over();
        }
        for ppp in first {
            let frame = PppClientFrame { tunnel_id: tunnel_id.clone(), ppp: Some(ppp), keepalive: false };
            // The channel is new and holds more than two.
            frames.try_send(frame).map_err(|_| Rejection::Unreachable)?;
        }
        match client.proxy_ppp(ReceiverStream::new(outgoing)).await {
            Ok(incoming) => {
                let incoming = Some(incoming.into_inner());
                let tunnel = Tunnel { lease, runtime, tunnel_id, frames, incoming, held, stopping: false };
                Ok((tunnel, allocation))
            }
            Err(status) => {
                lease.reason("proxy_failed");
                runtime.heard(Some(&status));
                if is_refusal(&status) {
                    // The runtime judged the tunnel before it read the work.
                    if !handed_over_before {
                        call.take_back();
                    }
                    return Err(Rejection::of_status(&status).into());
                }
                Err(OpenFault::Lost(status))
            }
        }
    }

    /// The worker is attached: a call that was queued gets on its way.
    pub(super) async fn ready(&mut self, call: &Call) -> Result<(), TunnelFault> {
        if let Some(seat) = &mut self.lease.seat {
            seat.ready = true;
        }
        match self.held.take() {
            None => Ok(()),
            Some(work) => {
                call.hand_over();
                self.send_any(work).await
            }
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.lease.seat.as_ref().is_some_and(|seat| seat.ready)
    }

    /// Why the tunnel is closed, for the runtime.
    pub(super) fn closes_because(&mut self, reason: &'static str) {
        self.lease.reason(reason);
    }

    /// The call has its end: nothing more is expected.
    pub(super) fn ended(&mut self) {
        self.stopping = false;
    }

    /// Sends a message to the worker; an error says that the tunnel is gone.
    pub(super) async fn send(&mut self, message: client_message::Payload) -> Result<(), TunnelFault> {
        self.stopping |= matches!(message, client_message::Payload::Cancel(_));
        self.send_any(pack(message)).await
    }

    async fn send_any(&mut self, ppp: Any) -> Result<(), TunnelFault> {
        let frame = PppClientFrame { tunnel_id: self.tunnel_id.clone(), ppp: Some(ppp), keepalive: false };
        self.frames
            .send(frame)
            .await
            .map_err(|_| TunnelFault::Cut(Status::unavailable("the tunnel takes no more frames")))
    }

    /// The next thing heard. May be dropped while it waits.
    pub(super) async fn next(&mut self) -> Result<Heard, TunnelFault> {
        let Some(incoming) = &mut self.incoming else { return Ok(Heard::End) };
        match incoming.message().await {
            Ok(Some(frame)) => read(&self.tunnel_id, frame),
            Ok(None) => Ok(Heard::End),
            Err(status) => {
                self.runtime.heard(Some(&status));
                Err(TunnelFault::Cut(status))
            }
        }
    }
}

/// Whether a runtime answers so without having passed anything on.
fn is_refusal(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::NotFound
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::ResourceExhausted
            | Code::Unimplemented
    )
}

async fn allocate(
    runtime: &Runtime,
    client: &mut Client,
    request: AllocateWorkerRequest,
) -> Result<Allocation, Rejection> {
    let answered = tokio::time::timeout(ALLOCATE_TIMEOUT, client.allocate_worker(request)).await;
    let answered = answered.unwrap_or_else(|_| Err(Status::unavailable("no decision in time")));
    runtime.heard(answered.as_ref().err());
    admission::read(answered.map_err(|status| Rejection::of_status(&status))?.into_inner())
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let Some(mut incoming) = self.incoming.take().filter(|_| self.stopping) else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let (frames, tunnel_id) = (self.frames.clone(), self.tunnel_id.clone());
        let tasks = self.lease.tasks.clone();
        let lease = Lease { seat: self.lease.seat.take(), tasks: tasks.clone() };
        tasks.spawn_on(
            async move {
                let stopped = async {
                    while let Ok(Some(frame)) = incoming.message().await {
                        if read(&tunnel_id, frame).map_or(true, |heard| heard.is_end()) {
                            return;
                        }
                    }
                };
                // Either it has stopped, or the close makes the runtime stop it.
                let _ = tokio::time::timeout(LINGER, stopped).await;
                drop((frames, lease));
            },
            &runtime,
        );
    }
}

impl Heard {
    /// Whether nothing of the call follows.
    fn is_end(&self) -> bool {
        use server_message::Payload;
        match self {
            Heard::Message(Payload::Completed(_) | Payload::Failed(_)) | Heard::Prompt(_) | Heard::End => {
                true
            }
            Heard::Event(event) => matches!(
                event.r#type(),
                tunnel_event::Type::WorkerCrashed
                    | tunnel_event::Type::TunnelClosed
                    | tunnel_event::Type::AdmissionRejected
            ),
            _ => false,
        }
    }
}

/// A client message in its envelope.
pub(super) fn pack(message: client_message::Payload) -> Any {
    let message = ClientMessage { payload: Some(message) };
    pack_as("ClientMessage", &message)
}

/// A message of the PPP package, by its name there.
pub(super) fn pack_as(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("{TYPE_PREFIX}{name}"), value: message.encode_to_vec() }
}

fn read(tunnel_id: &str, frame: PppServerFrame) -> Result<Heard, TunnelFault> {
    if frame.tunnel_id != tunnel_id {
        return Err(TunnelFault::Garbage("a frame of another tunnel"));
    }
    let any = match frame.payload {
        Some(ppp_server_frame::Payload::Event(event)) => return Ok(Heard::Event(event)),
        Some(ppp_server_frame::Payload::Ppp(any)) => any,
        None => return Err(TunnelFault::Garbage("an empty frame")),
    };
    let name = any.type_url.rsplit('/').next().unwrap_or_default();
    let value = any.value.as_slice();
    let undecodable = |_| TunnelFault::Garbage("an undecodable message");
    match name {
        "asp.plugin.v1.ServerMessage" => ServerMessage::decode(value)
            .map_err(undecodable)?
            .payload
            .map(Heard::Message)
            .ok_or(TunnelFault::Garbage("an empty message")),
        "asp.plugin.v1.ContentChunk" => ContentChunk::decode(value).map(Heard::Content).map_err(undecodable),
        "asp.plugin.v1.GetPromptResponse" => {
            GetPromptResponse::decode(value).map(Heard::Prompt).map_err(undecodable)
        }
        _ => Err(TunnelFault::Garbage("a message of an unknown type")),
    }
}
