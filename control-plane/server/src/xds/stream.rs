//! One xDS stream: requests in, pushes out, for every kind of resource it asks for.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::google::protobuf::value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::client;
use super::endpoints::{Alive, Endpoints};
use super::subscribers::{self, Subscribers};
use super::subscription::{Event, Subscription};
use super::{Kind, WorldReceiver};
use crate::settings::DEFAULT_POOL;

/// At most one push of each kind is unanswered, so no more than this can wait.
const OUTBOUND: usize = Kind::ALL.len();

/// How long after its first gateway a control plane leaves an Envoy the endpoints of an earlier one. Gateways come back
/// one by one, each within a try and a pause (`client.rs`): the first of them would get everybody's requests. One that
/// notices the loss by its keepalive only comes later, and is added then.
const SETTLE: Duration =
    client::CONNECT_TIMEOUT.saturating_add(Duration::from_millis(client::BACKOFF_MS.end + 500));

/// What a stream needs to know of the control plane.
#[derive(Clone)]
pub struct Context {
    pub world: WorldReceiver,
    pub subscribers: Arc<Subscribers>,
    pub endpoints: Arc<Endpoints>,
    pub stop: CancellationToken,
}

type Push = Result<DiscoveryResponse, Status>;

/// Serves one stream in a task of its own. `default_kind` is for services whose requests may leave the
/// type url out.
pub fn serve(
    context: &Context,
    inbound: Streaming<DiscoveryRequest>,
    default_kind: Option<Kind>,
) -> Result<mpsc::Receiver<Push>, Status> {
    let Some(entry) = context.subscribers.admit() else {
        return Err(Status::resource_exhausted("too many subscribers"));
    };
    let (outbound, receiver) = mpsc::channel(OUTBOUND);
    let stream = StreamState {
        world: context.world.clone(),
        endpoints: Arc::clone(&context.endpoints),
        entry,
        default_kind,
        node: Node::default(),
        subscriptions: BTreeMap::new(),
        alive: None,
    };
    let stop = context.stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            // Dropping the sender ends the stream; the subscriber reconnects.
            () = stop.cancelled() => {}
            () = stream.run(inbound, outbound) => {}
        }
    });
    Ok(receiver)
}

struct StreamState {
    world: WorldReceiver,
    endpoints: Arc<Endpoints>,
    entry: subscribers::Stream,
    default_kind: Option<Kind>,
    /// Sent with the first request only.
    node: Node,
    subscriptions: BTreeMap<Kind, Subscription>,
    /// Set once a gateway has acknowledged a snapshot.
    alive: Option<Alive>,
}

impl StreamState {
    async fn run(mut self, mut inbound: Streaming<DiscoveryRequest>, outbound: mpsc::Sender<Push>) {
        loop {
            let world = self.world.borrow_and_update().clone();
            let settled = world.endpoints.since.map(|since| since + SETTLE);
            let mut held = None;
            for (kind, subscription) in &mut self.subscriptions {
                if *kind == Kind::Endpoints && subscription.is_resumed() {
                    held = settled.filter(|settled| Instant::now() < *settled);
                    if held.is_some() {
                        continue;
                    }
                }
                let Some(push) = subscription.next_push(&world) else {
                    continue;
                };
                self.entry.pushed(*kind, subscription.pushed_revision().unwrap_or(0));
                if outbound.send(Ok(push)).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                request = inbound.message() => match request {
                    Ok(Some(request)) => {
                        if let Err(status) = self.on_request(request) {
                            // The receiver may be gone already.
                            let _ = outbound.send(Err(status)).await;
                            return;
                        }
                    }
                    Ok(None) => return,
                    Err(status) => {
                        tracing::debug!(node = %self.node.id, %status, "xds stream broke");
                        return;
                    }
                },
                changed = self.world.changed() => if changed.is_err() { return },
                () = sleep_until(held.unwrap_or_else(Instant::now)), if held.is_some() => {}
            }
        }
    }

    fn on_request(&mut self, mut request: DiscoveryRequest) -> Result<(), Status> {
        if let Some(node) = request.node.take() {
            self.node = node;
        }
        let kind = match (request.type_url.as_str(), self.default_kind) {
            ("", Some(kind)) => kind,
            (url, allowed) => match Kind::from_type_url(url) {
                Some(kind) if allowed.is_none_or(|allowed| allowed == kind) => kind,
                // ADS clients may ask for more than we serve; silence is the protocol's answer.
                _ => return Ok(()),
            },
        };
        let address = metadata(&self.node, "advertise").unwrap_or_default().to_owned();
        self.entry.subscribed(kind, &self.node.id, &address);
        let subscription = self.subscriptions.entry(kind).or_insert_with(|| Subscription::new(kind));
        match subscription.on_request(request) {
            Event::Subscribed => tracing::info!(node = %self.node.id, kind = kind.as_str(), "subscribed"),
            Event::Acknowledged { revision } => {
                self.entry.acknowledged(kind, revision);
                if kind == Kind::Gateway {
                    self.join(&address);
                }
            }
            Event::Rejected { revision, reason } => {
                tracing::error!(node = %self.node.id, kind = kind.as_str(), revision, %reason, "snapshot rejected");
                self.entry.rejected(kind, revision, &reason);
            }
            Event::Ignored => {}
            Event::TooMany => return Err(Status::invalid_argument("too many resource names")),
        }
        Ok(())
    }

    /// A gateway that has a snapshot takes part in its cluster.
    fn join(&mut self, address: &str) {
        if self.alive.is_some() || address.is_empty() {
            return;
        }
        let pool = metadata(&self.node, "pool").unwrap_or(DEFAULT_POOL).to_owned();
        match address.parse::<SocketAddr>() {
            Ok(address) => self.alive = Some(self.endpoints.join(pool, address)),
            Err(_) => {
                tracing::warn!(node = %self.node.id, address, "gateway advertises no <ip>:<port>, not served");
            }
        }
    }
}

fn metadata<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    match node.metadata.as_ref()?.fields.get(key)?.kind.as_ref()? {
        value::Kind::StringValue(text) => Some(text),
        _ => None,
    }
}
