//! Stream of the recent revocations for gateways that follow another control plane (`asp.control.v1.Revocations`).
//!
//! Refuses: who may not subscribe as a gateway, and everybody while this control plane is behind its store.

use std::sync::Arc;

use asp_proto::control::revocations_server::{Revocations, RevocationsServer};
use asp_proto::control::{FollowRequest, FollowResponse};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::context::Context;
use super::peer::Caller;
use super::{Kind, XdsStateReceiver};

type Answer = Result<FollowResponse, Status>;

pub(super) fn service(context: Context) -> RevocationsServer<impl Revocations> {
    RevocationsServer::new(Service { context })
}

struct Service {
    context: Context,
}

#[tonic::async_trait]
impl Revocations for Service {
    type FollowStream = ReceiverStream<Answer>;

    async fn follow(&self, request: Request<FollowRequest>) -> Result<Response<Self::FollowStream>, Status> {
        let caller = Caller::of(&request, &self.context.proof)?;
        caller.may_subscribe(Kind::Gateway).map_err(Status::permission_denied)?;
        if self.context.freshness.is_stale() {
            return Err(behind());
        }
        let place = self.context.subscribers.admit();
        let place = place.ok_or_else(|| Status::resource_exhausted("too many subscribers"))?;
        let (outbound, receiver) = mpsc::channel(1);
        let Context { xds_state, freshness, stop, .. } = self.context.clone();
        tokio::spawn(async move {
            // It counts as long as its stream.
            let _place = place;
            tokio::select! {
                () = stop.cancelled() => {}
                () = freshness.until_stale() => {
                    // Err: the gateway has gone, or there is no room; the stream ends in any case.
                    let _ = outbound.try_send(Err(behind()));
                }
                () = send(xds_state, outbound.clone()) => {}
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

fn behind() -> Status {
    Status::unavailable("this control plane is behind its store")
}

/// Sends each list until the gateway has gone, or this process ends.
async fn send(mut xds_state: XdsStateReceiver, outbound: mpsc::Sender<Answer>) {
    let mut sent = String::new();
    loop {
        let snapshot = xds_state.borrow_and_update().snapshot.clone();
        if let Some(recent) = snapshot.map(|published| Arc::clone(&published.recent))
            && recent.version != sent
        {
            sent.clone_from(&recent.version);
            let answer = FollowResponse { recent: recent.content.encode_to_vec() };
            if outbound.send(Ok(answer)).await.is_err() {
                return;
            }
        }
        tokio::select! {
            changed = xds_state.changed() => if changed.is_err() { return },
            () = outbound.closed() => return,
        }
    }
}
