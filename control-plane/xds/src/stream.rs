//! One xDS stream of an Envoy: requests in, pushes out, for every kind of resource that it asks for and may have.

use std::collections::BTreeMap;
use std::time::Duration;

use asp_proto::xds::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tonic::{Status, Streaming};

use super::context::{Context, STOPPING, end_stream};
use super::participant::Participant;
use super::peer::Caller;
use super::subscription::Subscription;

use super::contract::{BACKOFF_MS, CONNECT_TIMEOUT, Kind};
use super::published::XdsStateReceiver;

/// Maximum number of queued pushes: at most one of each kind is unanswered.
const OUTBOUND: usize = Kind::ALL.len();

/// Time after its first gateway for which a control plane leaves an Envoy the endpoints of an earlier one. Gateways
/// reconnect one by one, each within one attempt and its backoff (`client.rs`); the first of them would get all
/// requests. A gateway that notices the loss only by its keepalive reconnects later and is added then.
const SETTLE: Duration = CONNECT_TIMEOUT.saturating_add(Duration::from_millis(BACKOFF_MS.end + 500));

type PushResult = Result<DiscoveryResponse, Status>;

/// Serves one stream in a task of its own. `default_kind` is for services whose requests may omit the type URL.
pub fn serve(
    context: &Context,
    inbound: Streaming<DiscoveryRequest>,
    default_kind: Option<Kind>,
    caller: Caller,
) -> Result<mpsc::Receiver<PushResult>, Status> {
    let other = Participant::admit(context, caller)?;
    let (outbound, receiver) = mpsc::channel(OUTBOUND);
    let stream = StreamState {
        xds_state: context.xds_state.clone(),
        default_kind,
        other,
        subscriptions: BTreeMap::new(),
    };
    let stop = context.stop.clone();
    let freshness = context.freshness.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = stop.cancelled() => end_stream(&outbound, STOPPING),
            // Health checks alone do not move an Envoy: it keeps its open streams.
            () = freshness.until_envoys_leave() => {
                end_stream(&outbound, "this control plane cannot read its store");
            }
            () = stream.run(inbound, outbound.clone()) => {}
        }
    });
    Ok(receiver)
}

struct StreamState {
    xds_state: XdsStateReceiver,
    default_kind: Option<Kind>,
    other: Participant,
    subscriptions: BTreeMap<Kind, Subscription>,
}

impl StreamState {
    async fn run(mut self, mut inbound: Streaming<DiscoveryRequest>, outbound: mpsc::Sender<PushResult>) {
        loop {
            let xds_state = self.xds_state.borrow_and_update().clone();
            let settled = xds_state.endpoints.since.map(|since| since + SETTLE);
            let mut held = None;
            for (kind, subscription) in &mut self.subscriptions {
                if *kind == Kind::Endpoints && subscription.is_resumed() {
                    held = settled.filter(|settled| Instant::now() < *settled);
                    if held.is_some() {
                        continue;
                    }
                }
                let Some(push) = subscription.next_push(&xds_state) else {
                    if let Some(refusal) = subscription.take_refusal() {
                        self.other.refused(*kind, refusal);
                    }
                    continue;
                };
                self.other.entry.pushed(*kind, subscription.pushed_revision().unwrap_or(0));
                if outbound.send(Ok(push)).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                request = inbound.message() => match request {
                    Ok(Some(request)) => {
                        if let Err(status) = self.on_request(request).await {
                            // The receiver may be gone already.
                            let _ = outbound.send(Err(status)).await;
                            return;
                        }
                    }
                    Ok(None) => return,
                    Err(status) => {
                        tracing::debug!(node = %self.other.node.id, %status, "xds stream broke");
                        return;
                    }
                },
                changed = self.xds_state.changed() => if changed.is_err() { return end_stream(&outbound, STOPPING) },
                () = sleep_until(held.unwrap_or_else(Instant::now)), if held.is_some() => {}
            }
        }
    }

    async fn on_request(&mut self, mut request: DiscoveryRequest) -> Result<(), Status> {
        if let Some(node) = request.node.take() {
            self.other.name(node, !self.subscriptions.is_empty())?;
        }
        let url = match (request.type_url.as_str(), self.default_kind) {
            ("", Some(kind)) => kind.type_url(),
            (url, None) => url,
            (url, Some(kind)) if url == kind.type_url() => url,
            // ADS clients may ask for types that this server does not have; the protocol's answer is silence.
            _ => return Ok(()),
        };
        let kind = match Kind::of(url, &request.resource_names) {
            None | Some(Kind::Gateway) => return Ok(()),
            Some(kind) => kind,
        };
        if !self.subscriptions.contains_key(&kind) {
            self.other.authorize(kind).await?;
        }
        let subscription = self.subscriptions.entry(kind).or_insert_with(|| Subscription::new(kind));
        let event = subscription.on_request(request);
        self.other.note(kind, event, (subscription.in_force(), subscription.version()))
    }
}
