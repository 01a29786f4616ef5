//! Subscriptions to resources: a stream of a worker's own that stays, and tells when a resource has changed.
//!
//! Keeps true: it needs a place that was asked for as one; it outlives no hour, and gives way at once where its worker is
//! needed or goes. It is no sign of anything: a quiet one costs its worker nothing, and one that talks much is slowed down.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use asp_proto::plugin::SubscribeRequest;
use asp_proto::plugin::resource_plugin_client::ResourcePluginClient;
use tokio::time::{Instant, sleep};
use tonic::Status;

use super::subject::Subject;
use super::unary::{Place, begin, place};
use super::{Attached, End, FromGateway, Tunnel, TunnelError};
use crate::worker::Worker;
use crate::worker::call::Call;

/// Longest time. Its gateway asks for another one then, so that nothing stays that everybody has forgotten.
const LONGEST: Duration = Duration::from_secs(3600);
/// Least time between two of its messages; the worker waits meanwhile.
const BETWEEN: Duration = Duration::from_millis(1);
/// Largest of its messages: a URI.
const MAX_UPDATE: usize = 16 << 10;

impl Tunnel {
    pub(super) async fn subscribe(
        &mut self,
        worker: &Arc<Worker>,
        request: SubscribeRequest,
        attached: &Attached,
    ) -> Result<End, TunnelError> {
        let place = place(worker)?;
        self.work = Some(FromGateway::Subscribe(request.clone()));
        let call = begin(worker, &request.request_id, None, self.outbox.clone(), attached)?;
        let longest = Instant::now() + LONGEST;
        call.stay_until(attached.soft_deadline.map_or(longest, |end| end.min(longest)));
        let no_trace = BTreeMap::new();
        let subject = Subject::of(worker, attached, &request.request_id, request.ctx.as_ref(), &no_trace);
        let began = Instant::now();
        let work = tell(worker, place, request, &call);
        let end = self.carry(worker, &call, attached, work).await;
        end.inspect(|end| subject.ended(*end, began.elapsed()))
    }
}

/// Passes on what the worker tells until either side has enough.
async fn tell(worker: &Worker, place: Place, request: SubscribeRequest, call: &Call) -> Result<(), Status> {
    let Place::Channel(channel) = place else {
        return Err(Status::unimplemented(
            "an MCP server on standard input and output tells nobody of changes",
        ));
    };
    let told = async {
        let mut client = ResourcePluginClient::new(channel).max_decoding_message_size(MAX_UPDATE);
        let mut updates = client.subscribe(worker.request(request)).await?.into_inner();
        while let Some(update) = updates.message().await? {
            call.forward(&update).await;
            sleep(BETWEEN).await;
        }
        Ok(())
    };
    tokio::select! {
        ended = told => ended,
        () = worker.unsubscribes() => Err(Status::cancelled("its worker is needed or goes")),
    }
}
