//! What a gateway sends on a stream that many tunnels share: gives each frame to its tunnel.
//!
//! Keeps true: a frame that names no tunnel of this stream, cannot be read or is wrong in any other way is answered
//! under the name it came with, and hurts nothing else; no tunnel holds up the reading of the others' frames.

use std::sync::Arc;

use asp_proto::supervisor::{AllocateWorkerRequest, CloseTunnelRequest, PppClientFrame};
use prost::Message;
use prost_types::Any;
use tonic::{Status, Streaming};

use crate::api::places::{self, Closed, no_handle};
use crate::pool::TicketState;
use crate::ppp::inbound::Inbound;
use crate::ppp::outbox::Outbox;
use crate::ppp::outbox::trunk::{Lane, Merged, NoLane, Trunk, trunk};
use crate::ppp::{any_frame, closed_frame, supervisor_message};
use crate::runtime::Runtime;
use crate::tunnel::Tunnel;
use crate::tunnel::peer::Peer;

/// Longest name that a gateway gives a tunnel before it has a handle.
const MAX_NAME: usize = 64;

/// The reading half of a shared stream.
struct Reader {
    runtime: Arc<Runtime>,
    peer: Peer,
    trunk: Arc<Trunk>,
}

/// Whether a stream that begins with this frame carries many tunnels.
pub fn begins(first: &PppClientFrame) -> bool {
    first.keepalive && first.tunnel_id.is_empty() && first.ppp.is_none()
}

/// Serves a shared stream of `peer`: reads in a task of its own, which ends with the stream.
pub fn serve(runtime: Arc<Runtime>, peer: Peer, frames: Streaming<PppClientFrame>) -> Merged {
    let (trunk, merged) = trunk(&runtime.outboxes);
    tokio::spawn(Reader { runtime, peer, trunk }.run(frames));
    merged
}

impl Reader {
    async fn run(self, mut frames: Streaming<PppClientFrame>) {
        loop {
            tokio::select! {
                biased;
                frame = frames.message() => match frame {
                    Ok(Some(frame)) => self.take(frame),
                    Ok(None) => break self.trunk.half_close(),
                    // Nothing after it can be read either.
                    Err(status) => return self.trunk.end(Err(status)),
                },
                () = self.trunk.gone() => return,
                () = self.runtime.stopped() => return self.trunk.end(Ok(())),
            }
        }
        // The gateway sends no more; what runs goes on.
        tokio::select! {
            () = self.trunk.gone() => {}
            () = self.trunk.emptied() => self.trunk.end(Ok(())),
            () = self.runtime.stopped() => self.trunk.end(Ok(())),
        }
    }

    fn take(&self, frame: PppClientFrame) {
        let PppClientFrame { tunnel_id, ppp, keepalive } = frame;
        let lane = self.trunk.lane(&tunnel_id);
        match (ppp, lane) {
            (Some(any), _) if is(&any, "CloseTunnelRequest") => self.close(&tunnel_id, &any),
            (Some(any), None) if is(&any, "AllocateWorkerRequest") => self.allocate(tunnel_id, &any),
            (Some(any), Some(lane)) => lane.put(any),
            (None, Some(lane)) if keepalive => lane.queue.read_on(),
            // Of a tunnel that has just ended; or it says nothing.
            (None, None) if keepalive => {}
            (None, Some(_)) => {}
            (ppp, None) => self.attach(&tunnel_id, ppp),
        }
    }

    /// A request for a place, under the gateway's own name. The tunnel begins on this stream.
    fn allocate(&self, name: String, any: &Any) {
        let refuse = |status: Status| self.trunk.stray(closed_frame(&name, &Err(status)), true);
        let request = match AllocateWorkerRequest::decode(any.value.as_slice()) {
            Ok(request) => request,
            Err(error) => return refuse(Status::invalid_argument(error.to_string())),
        };
        if name.is_empty() || name.len() > MAX_NAME {
            return refuse(Status::invalid_argument("the tunnel's name is empty or too long"));
        }
        let lane = match self.trunk.open_early(&name) {
            Ok(lane) => lane,
            Err(NoLane) => return refuse(full()),
        };
        let (runtime, peer, trunk) = (Arc::clone(&self.runtime), self.peer.clone(), Arc::clone(&self.trunk));
        self.runtime.tasks.spawn(begin(runtime, peer, trunk, lane, (name, request)));
    }

    /// The first frame under a handle that AllocateWorker gave.
    fn attach(&self, tunnel_id: &str, ppp: Option<Any>) {
        let refuse = |status: Status| self.trunk.stray(closed_frame(tunnel_id, &Err(status)), true);
        // Before the handle is used: what was taken up and then has no tunnel would never end.
        let lane = match self.trunk.open(tunnel_id) {
            Ok(lane) => lane,
            Err(NoLane) => return refuse(full()),
        };
        let attached = match self.runtime.handles.attach(&self.peer, tunnel_id) {
            Ok(attached) => attached,
            Err(unknown) => {
                self.trunk.forget(&lane.queue);
                return refuse(no_handle(unknown));
            }
        };
        ppp.into_iter().for_each(|any| lane.put(any));
        let tunnel = tunnel(tunnel_id, &lane);
        let (handles, metrics) = (Arc::clone(&self.runtime.handles), self.runtime.machine.metrics.clone());
        self.runtime.tasks.spawn(tunnel.run(attached, handles, metrics));
    }

    fn close(&self, tunnel_id: &str, any: &Any) {
        let named = CloseTunnelRequest::decode(any.value.as_slice()).map(|request| request.tunnel_id);
        let closed = match named {
            Ok(named) if named.is_empty() || named == tunnel_id => {
                places::close(&self.runtime.handles, &self.peer, tunnel_id)
            }
            Ok(_) => Err(Status::invalid_argument("the request names another tunnel")),
            Err(error) => Err(Status::invalid_argument(error.to_string())),
        };
        match closed {
            Err(status) => self.trunk.stray(closed_frame(tunnel_id, &Err(status)), true),
            Ok(Closed::Now(stats)) => {
                let answer = supervisor_message(&places::closed(&stats));
                self.trunk.stray(any_frame(tunnel_id, answer), false);
            }
            Ok(later) => {
                let (trunk, tunnel_id) = (Arc::clone(&self.trunk), tunnel_id.to_owned());
                self.runtime.tasks.spawn(async move {
                    let answer = supervisor_message(&later.answer().await);
                    trunk.stray(any_frame(&tunnel_id, answer), false);
                });
            }
        }
    }
}

/// A tunnel whose place was asked for on its stream, from the request to its end.
async fn begin(
    runtime: Arc<Runtime>,
    peer: Peer,
    trunk: Arc<Trunk>,
    lane: Lane,
    (name, request): (String, AllocateWorkerRequest),
) {
    let answered = places::allocate(&runtime, &peer, request).await;
    let (answer, allocation) = match answered {
        Ok(answered) => answered,
        Err(status) => {
            trunk.forget(&lane.queue);
            return trunk.stray(closed_frame(&name, &Err(status)), true);
        }
    };
    let answer = any_frame(&name, supervisor_message(&answer));
    let Some(allocation) = allocation else {
        trunk.forget(&lane.queue);
        return trunk.stray(answer, true);
    };
    let id = allocation.tunnel_id;
    let seated = matches!(allocation.state, TicketState::Seated(_));
    if !seated {
        lane.inbox.refuse_early();
    }
    if trunk.name(&id, &lane).is_err() {
        // The stream has gone: the handle goes unused, with its place. Err: somebody closed it already.
        trunk.forget(&lane.queue);
        let _ = runtime.handles.close(&peer, &id);
        return;
    }
    let Ok(attached) = runtime.handles.attach(&peer, &id) else {
        // Somebody closed the tunnel already.
        return trunk.forget(&lane.queue);
    };
    // A worker that has its work goes on meanwhile.
    trunk.stray(answer, !(seated && lane.inbox.has_news()));
    let (handles, metrics) = (Arc::clone(&runtime.handles), runtime.machine.metrics.clone());
    // In a box: the task would be moved about with it.
    Box::pin(tunnel(&id, &lane).run(attached, handles, metrics)).await;
}

fn tunnel(id: &str, lane: &Lane) -> Tunnel {
    let outbox = Outbox::shared(id, Arc::clone(&lane.queue));
    Tunnel::new(id.to_owned(), Inbound::shared(Arc::clone(&lane.inbox)), outbox)
}

fn full() -> Status {
    Status::resource_exhausted("the stream has too many tunnels, or one of this name")
}

/// Whether it is the named message of the API itself.
fn is(any: &Any, name: &str) -> bool {
    any.type_url.strip_suffix(name).is_some_and(|before| before.ends_with("asp.runtime.supervisor.v1."))
}
