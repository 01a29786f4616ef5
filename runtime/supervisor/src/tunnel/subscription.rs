//! Subscriptions to resources: a long-lived stream from a worker that reports changes of a resource.
//!
//! Keeps true: a subscription needs a slot that was requested for one; it lasts an hour at most, and ends at once when
//! its worker is needed or stops. It is not taken as a sign of life or of failure: a quiet one costs its worker
//! nothing, and a busy one is slowed down.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use asp_proto::plugin::SubscribeRequest;
use asp_proto::plugin::resource_plugin_client::ResourcePluginClient;
use tokio::time::{Instant, sleep};
use tonic::Status;
use tonic::transport::Channel;

use super::subject::LogSubject;
use super::unary::{begin, channel};
use super::{AttachedTunnel, CallEnd, FromGateway, Result, Tunnel};
use crate::worker::Worker;
use crate::worker::call::Call;

/// Maximum duration. The gateway then renews it, so that no forgotten subscription remains.
const LONGEST: Duration = Duration::from_secs(3600);
/// Minimum interval between two messages; the worker waits in between.
const BETWEEN: Duration = Duration::from_millis(1);
/// Maximum size of a message: a URI.
const MAX_UPDATE: usize = 16 << 10;

impl Tunnel {
    pub(super) async fn subscribe(
        &mut self,
        worker: &Arc<Worker>,
        request: SubscribeRequest,
        attached: &AttachedTunnel,
    ) -> Result<CallEnd> {
        let channel = channel(worker)?;
        self.work = Some(FromGateway::Subscribe(request.clone()));
        let named = (&*request.request_id, &*request.primitive);
        let call = begin(worker, named, None, self.outbox.clone(), attached)?;
        let longest = Instant::now() + LONGEST;
        call.stay_until(attached.soft_deadline.map_or(longest, |end| end.min(longest)));
        let no_trace = BTreeMap::new();
        let subject = LogSubject::of(worker, attached, &request.request_id, request.ctx.as_ref(), &no_trace);
        let began = Instant::now();
        let work = forward_updates(worker, channel, request, &call);
        let end = self.run_cancellable(worker, &call, attached, work).await;
        end.inspect(|end| subject.log_end(*end, began.elapsed()))
    }
}

/// Forwards the worker's updates until either side ends the subscription.
async fn forward_updates(
    worker: &Worker,
    channel: Channel,
    request: SubscribeRequest,
    call: &Call,
) -> Result<(), Status> {
    let forwarding = async {
        let mut client = ResourcePluginClient::new(channel).max_decoding_message_size(MAX_UPDATE);
        let mut updates = client.subscribe(worker.request(request)).await?.into_inner();
        while let Some(update) = updates.message().await? {
            call.forward(&update).await;
            sleep(BETWEEN).await;
        }
        Ok(())
    };
    tokio::select! {
        ended = forwarding => ended,
        () = worker.unsubscribes.notified() => Err(Status::cancelled("its worker is needed for calls or stops")),
    }
}
