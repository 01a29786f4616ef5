//! Dispatches the frames that a gateway sends on a shared stream to their tunnels.
//!
//! Keeps true: a frame that names no tunnel of this stream, cannot be decoded or is wrong in any other way is answered
//! under the name that it carries, and affects nothing else; no tunnel blocks the reading of other tunnels' frames.

use std::sync::Arc;

use asp_proto::supervisor::{AllocateWorkerRequest, CloseTunnelRequest, PppClientFrame, PppServerFrame};
use prost::Message;
use prost_types::Any;
use tonic::{Status, Streaming};

use crate::api::allocation::{self, FinalStats, unknown_handle};
use crate::pool::TicketState;
use crate::ppp::closed_frame;
use crate::ppp::inbound::Inbound;
use crate::ppp::outbox::Outbox;
use crate::ppp::outbox::multiplexer::{MergedStream, Multiplexer, NoStream, TunnelStream, multiplexer};
use crate::runtime::{Allocation, Runtime};
use crate::tunnel::Tunnel;
use crate::tunnel::peer::Peer;

/// Maximum length of the name that a gateway gives a tunnel before it has a handle.
const MAX_NAME: usize = 64;

/// The reading half of a shared stream.
struct SharedStreamReader {
    runtime: Arc<Runtime>,
    peer: Peer,
    multiplexer: Arc<Multiplexer>,
}

/// Whether a stream that begins with this frame carries many tunnels.
pub fn is_multiplexed(first: &PppClientFrame) -> bool {
    first.keepalive && first.tunnel_id.is_empty() && first.ppp.is_none()
}

/// Serves a shared stream of `peer`: reads in a task of its own, which ends with the stream.
pub fn serve(runtime: Arc<Runtime>, peer: Peer, frames: Streaming<PppClientFrame>) -> MergedStream {
    let (multiplexer, merged) = multiplexer(&runtime.outboxes);
    tokio::spawn(SharedStreamReader { runtime, peer, multiplexer }.run(frames));
    merged
}

impl SharedStreamReader {
    async fn run(self, mut frames: Streaming<PppClientFrame>) {
        loop {
            tokio::select! {
                biased;
                frame = self.next(&mut frames) => match frame {
                    Ok(Some(frame)) => self.take(frame),
                    Ok(None) => break self.multiplexer.half_close(),
                    // Nothing after it can be read either.
                    Err(status) => return self.multiplexer.end(Err(status)),
                },
                () = self.multiplexer.wait_for_close() => return,
                () = self.runtime.wait_until_stopped() => return self.multiplexer.end(Ok(())),
            }
        }
        // The gateway sends no more; running calls continue.
        tokio::select! {
            () = self.multiplexer.wait_for_close() => {}
            () = self.multiplexer.wait_until_empty() => self.multiplexer.end(Ok(())),
            () = self.runtime.wait_until_stopped() => self.multiplexer.end(Ok(())),
        }
    }

    /// Returns the next frame, once there is capacity for an answer. Cancel-safe.
    async fn next(&self, frames: &mut Streaming<PppClientFrame>) -> Result<Option<PppClientFrame>, Status> {
        self.multiplexer.wait_for_capacity().await;
        frames.message().await
    }

    fn take(&self, frame: PppClientFrame) {
        let PppClientFrame { tunnel_id, ppp, keepalive } = frame;
        let stream = self.multiplexer.stream(&tunnel_id);
        match (ppp, stream) {
            (Some(any), _) if is(&any, "CloseTunnelRequest") => self.close(&tunnel_id, &any),
            (Some(any), None) if is(&any, "AllocateWorkerRequest") => self.allocate(tunnel_id, &any),
            (Some(any), Some(stream)) => stream.put(any),
            (None, Some(stream)) if keepalive => stream.queue.extend_window(),
            // The tunnel has just ended, or the frame is empty.
            (None, None) if keepalive => {}
            (None, Some(_)) => {}
            (ppp, None) => self.attach(&tunnel_id, ppp),
        }
    }

    /// Handles a request for a worker under the gateway's own name. The tunnel begins on this stream.
    fn allocate(&self, name: String, any: &Any) {
        let refuse =
            |status: Status| self.multiplexer.send_streamless(closed_frame(&name, &Err(status)), true);
        let mut request = match AllocateWorkerRequest::decode(any.value.as_slice()) {
            Ok(request) => request,
            Err(error) => return refuse(Status::invalid_argument(error.to_string())),
        };
        if name.is_empty() || name.len() > MAX_NAME {
            return refuse(Status::invalid_argument("the tunnel's name is empty or too long"));
        }
        let stream = match self.multiplexer.open_early(&name) {
            Ok(stream) => stream,
            Err(NoStream) => return refuse(full()),
        };
        let work = request.work.take();
        let brief = work.is_some();
        work.into_iter().for_each(|work| stream.put(work));
        let runtime = Arc::clone(&self.runtime);
        let peer = self.peer.clone();
        let multiplexer = Arc::clone(&self.multiplexer);
        self.runtime.tasks.spawn(begin(
            runtime,
            peer,
            multiplexer,
            stream,
            NamedRequest { name, request, brief },
        ));
    }

    /// Handles the first frame under a handle that AllocateWorker returned.
    fn attach(&self, tunnel_id: &str, ppp: Option<Any>) {
        let refuse =
            |status: Status| self.multiplexer.send_streamless(closed_frame(tunnel_id, &Err(status)), true);
        // Opened before the handle is used: a call that was attached and then has no tunnel would never end.
        let stream = match self.multiplexer.open(tunnel_id) {
            Ok(stream) => stream,
            Err(NoStream) => return refuse(full()),
        };
        let attached = match self.runtime.handles.attach(&self.peer, tunnel_id) {
            Ok(attached) => attached,
            Err(unknown) => {
                self.multiplexer.forget(&stream.queue);
                return refuse(unknown_handle(unknown));
            }
        };
        ppp.into_iter().for_each(|any| stream.put(any));
        let tunnel = tunnel(tunnel_id, &stream);
        let handles = Arc::clone(&self.runtime.handles);
        let metrics = self.runtime.machine.metrics.clone();
        self.runtime.tasks.spawn(tunnel.run(attached, handles, metrics));
    }

    fn close(&self, tunnel_id: &str, any: &Any) {
        let named = CloseTunnelRequest::decode(any.value.as_slice()).map(|request| request.tunnel_id);
        let closed = match named {
            Ok(named) if named.is_empty() || named == tunnel_id => {
                allocation::close(&self.runtime.handles, &self.peer, tunnel_id)
            }
            Ok(_) => Err(Status::invalid_argument("the request names another tunnel")),
            Err(error) => Err(Status::invalid_argument(error.to_string())),
        };
        match closed {
            Err(status) => self.multiplexer.send_streamless(closed_frame(tunnel_id, &Err(status)), true),
            Ok(FinalStats::Now(stats)) => {
                let answer = allocation::close_response(&stats);
                self.multiplexer.send_streamless(PppServerFrame::carrying(tunnel_id, &answer), false);
            }
            Ok(later) => {
                let multiplexer = Arc::clone(&self.multiplexer);
                let tunnel_id = tunnel_id.to_owned();
                self.runtime.tasks.spawn(async move {
                    let answer = later.answer().await;
                    multiplexer.send_streamless(PppServerFrame::carrying(&tunnel_id, &answer), false);
                });
            }
        }
    }
}

/// A request for a worker.
struct NamedRequest {
    /// Name that the gateway gave the tunnel.
    name: String,
    request: AllocateWorkerRequest,
    /// Whether the request brought its work.
    brief: bool,
}

/// Runs a tunnel whose worker was requested on its stream, from the request to its end.
async fn begin(
    runtime: Arc<Runtime>,
    peer: Peer,
    multiplexer: Arc<Multiplexer>,
    stream: TunnelStream,
    NamedRequest { name, request, brief }: NamedRequest,
) {
    let answered = allocation::allocate(&runtime, &peer, request).await;
    let (mut answer, allocation) = match answered {
        Ok(answered) => answered,
        Err(status) => {
            multiplexer.forget(&stream.queue);
            return multiplexer.send_streamless(closed_frame(&name, &Err(status)), true);
        }
    };
    let assigned = allocation.as_ref().is_some_and(|given| matches!(given.state, TicketState::Assigned(_)));
    answer.took = brief && assigned;
    let answer = PppServerFrame::carrying(&name, &answer);
    let Some(Allocation { tunnel_id: id, .. }) = allocation else {
        multiplexer.forget(&stream.queue);
        return multiplexer.send_streamless(answer, true);
    };
    if !assigned {
        stream.inbox.refuse_early();
    }
    if multiplexer.name(&id, &stream).is_err() {
        // The stream has gone: the handle and its slot are released unused. Err: it has been closed already.
        multiplexer.forget(&stream.queue);
        let _ = runtime.handles.close(&peer, &id);
        return;
    }
    let Ok(attached) = runtime.handles.attach(&peer, &id) else {
        // The tunnel has been closed already.
        return multiplexer.forget(&stream.queue);
    };
    let handles = Arc::clone(&runtime.handles);
    let metrics = runtime.machine.metrics.clone();
    let mut tunnel = tunnel(&id, &stream);
    if !(brief && assigned) {
        // A worker that has its work runs in the meantime.
        multiplexer.send_streamless(answer, !(assigned && stream.inbox.has_news()));
        // Boxed: otherwise the task would be moved with the future in it.
        return Box::pin(tunnel.run(attached, handles, metrics)).await;
    }
    let outbox = tunnel.begin_with_work(answer);
    tokio::select! {
        biased;
        () = Box::pin(tunnel.run(attached, handles, metrics)) => {}
        () = outbox.open_late() => {}
    }
}

fn tunnel(id: &str, stream: &TunnelStream) -> Tunnel {
    let outbox = Outbox::shared(id, Arc::clone(&stream.queue));
    Tunnel::new(id.to_owned(), Inbound::shared(Arc::clone(&stream.inbox)), outbox)
}

fn full() -> Status {
    Status::resource_exhausted("the stream has too many tunnels, or one of this name")
}

/// Whether `any` is the named message of the API itself.
fn is(any: &Any, name: &str) -> bool {
    any.type_url.strip_suffix(name).is_some_and(|before| before.ends_with("asp.runtime.supervisor.v1."))
}
