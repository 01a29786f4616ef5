//! Stream of the recent revocations, for gateways that follow another control plane (`asp.control.v1.Revocations`).
//!
//! Refuses callers that may not subscribe as a gateway, and everyone while this control plane is behind its store.

use std::sync::Arc;

use asp_proto::control::revocations_server::{Revocations, RevocationsServer};
use asp_proto::control::{FollowRequest, FollowResponse};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::context::{Context, STOPPING, end_stream};
use super::contract::Kind;
use super::peer::Caller;
use super::published::XdsStateReceiver;

/// Reason sent when a control plane that cannot read its store ends or refuses a stream.
const BEHIND: &str = "this control plane is behind its store";

type FollowResult = Result<FollowResponse, Status>;

pub(super) fn service(context: Context) -> RevocationsServer<impl Revocations> {
    RevocationsServer::new(RevocationsService { context })
}

struct RevocationsService {
    context: Context,
}

#[tonic::async_trait]
impl Revocations for RevocationsService {
    type FollowStream = ReceiverStream<FollowResult>;

    async fn follow(&self, request: Request<FollowRequest>) -> Result<Response<Self::FollowStream>, Status> {
        let caller = Caller::of(&request, &self.context.proof)?;
        caller.may_subscribe(Kind::Gateway).map_err(Status::permission_denied)?;
        if self.context.freshness.is_stale() {
            return Err(Status::unavailable(BEHIND));
        }
        let place = self.context.subscribers.admit(caller.identity());
        let place = place.ok_or_else(|| Status::resource_exhausted("too many subscribers"))?;
        let (outbound, receiver) = mpsc::channel(1);
        let Context { xds_state, freshness, stop, .. } = self.context.clone();
        tokio::spawn(async move {
            // Counts as long as its stream lives.
            let _place = place;
            tokio::select! {
                () = stop.cancelled() => end_stream(&outbound, STOPPING),
                () = freshness.until_stale() => end_stream(&outbound, BEHIND),
                () = send(xds_state, outbound.clone()) => {}
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Sends each list until the gateway disconnects or this process shuts down.
async fn send(mut xds_state: XdsStateReceiver, outbound: mpsc::Sender<FollowResult>) {
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
            changed = xds_state.changed() => if changed.is_err() { return end_stream(&outbound, STOPPING) },
            () = outbound.closed() => return,
        }
    }
}
