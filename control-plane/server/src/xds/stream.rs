//! One xDS stream: requests in, pushes out, for every kind of resource it asks for and may have.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use asp_peer::Peer;
use asp_proto::xds::envoy::config::core::v3::Node;
use asp_proto::xds::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use prost_types::value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::endpoints::{Endpoints, Registration};
use super::keys::RefreshKeys;
use super::peer::Caller;
use super::subscribers::{self, Subscribers};
use super::subscription::{Event, Subscription};
use super::{ADVERTISE, BACKOFF_MS, CONNECT_TIMEOUT, DEFAULT_POOL, Kind, LEAVING, XdsStateReceiver};

/// Member of a node's metadata: the Envoy cluster a gateway belongs to.
const POOL: &str = "pool";

/// At most one push of each kind is unanswered, so no more than this can wait.
const OUTBOUND: usize = Kind::ALL.len();

/// How long after its first gateway a control plane leaves an Envoy the endpoints of an earlier one. Gateways come back
/// one by one, each within a try and a pause (`client.rs`): the first of them would get everybody's requests. One that
/// notices the loss by its keepalive only comes later, and is added then.
const SETTLE: Duration = CONNECT_TIMEOUT.saturating_add(Duration::from_millis(BACKOFF_MS.end + 500));

/// What a stream needs to know of the control plane.
#[derive(Clone)]
pub struct Context {
    pub xds_state: XdsStateReceiver,
    pub subscribers: Arc<Subscribers>,
    pub endpoints: Arc<Endpoints>,
    /// This process's own certificate, where subscribers have to show one.
    pub peer: Option<Peer>,
    /// Fetches the keys that gateways ask for.
    pub keys: Arc<dyn RefreshKeys>,
    pub stop: CancellationToken,
}

type Push = Result<DiscoveryResponse, Status>;

/// Serves one stream in a task of its own. `default_kind` is for services whose requests may leave the
/// type url out.
pub fn serve(
    context: &Context,
    inbound: Streaming<DiscoveryRequest>,
    default_kind: Option<Kind>,
    caller: Caller,
) -> Result<mpsc::Receiver<Push>, Status> {
    let Some(entry) = context.subscribers.admit() else {
        return Err(Status::resource_exhausted("too many subscribers"));
    };
    let (outbound, receiver) = mpsc::channel(OUTBOUND);
    let stream = StreamState {
        xds_state: context.xds_state.clone(),
        endpoints: Arc::clone(&context.endpoints),
        entry,
        default_kind,
        caller,
        node: Node::default(),
        subscriptions: BTreeMap::new(),
        presence: Presence::Absent,
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
    xds_state: XdsStateReceiver,
    endpoints: Arc<Endpoints>,
    entry: subscribers::Stream,
    default_kind: Option<Kind>,
    caller: Caller,
    /// Sent with the first request, and with a gateway's last one.
    node: Node,
    subscriptions: BTreeMap<Kind, Subscription>,
    presence: Presence,
}

/// Whether the gateway at the other end takes part in its cluster.
enum Presence {
    /// It is none, or it has no snapshot.
    Absent,
    Serving(Registration),
    /// It has said that it ends.
    Left,
}

impl StreamState {
    async fn run(mut self, mut inbound: Streaming<DiscoveryRequest>, outbound: mpsc::Sender<Push>) {
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
                        tracing::error!(
                            node = %self.node.id, kind = kind.as_str(), revision = refusal.offered,
                            in_force = refusal.in_force,
                            "the published snapshot is older than the one this subscriber has in force, as after the \
                             restore of an older database; it keeps its own until the revision has passed it. To go \
                             back to what is published, restart the subscriber"
                        );
                        self.entry.rejected(*kind, refusal.offered, &refusal.to_string());
                    }
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
                        if let Err(status) = self.on_request(request).await {
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
                changed = self.xds_state.changed() => if changed.is_err() { return },
                () = sleep_until(held.unwrap_or_else(Instant::now)), if held.is_some() => {}
            }
        }
    }

    async fn on_request(&mut self, mut request: DiscoveryRequest) -> Result<(), Status> {
        if let Some(node) = request.node.take() {
            self.name(node)?;
        }
        let kind = match (request.type_url.as_str(), self.default_kind) {
            ("", Some(kind)) => kind,
            (url, allowed) => match Kind::from_type_url(url) {
                Some(kind) if allowed.is_none_or(|allowed| allowed == kind) => kind,
                // ADS clients may ask for more than we serve; silence is the protocol's answer.
                _ => return Ok(()),
            },
        };
        if !self.subscriptions.contains_key(&kind) {
            self.authorize(kind).await?;
        }
        if metadata(&self.node, LEAVING).is_some() {
            self.leave();
        }
        let has_snapshot = kind == Kind::Gateway && !request.version_info.is_empty();
        let subscription = self.subscriptions.entry(kind).or_insert_with(|| Subscription::new(kind));
        match subscription.on_request(request) {
            Event::Subscribed => {
                let in_force = subscription.in_force();
                let address = metadata(&self.node, ADVERTISE).unwrap_or_default();
                self.entry.subscribed(kind, &self.node.id, address, in_force);
                tracing::info!(node = %self.node.id, kind = kind.as_str(), in_force, "subscribed");
            }
            Event::Acknowledged { revision } => self.entry.acknowledged(kind, revision),
            Event::Rejected { revision, reason } => {
                tracing::error!(
                    node = %self.node.id, kind = kind.as_str(), revision, %reason,
                    "a subscriber rejected the snapshot and keeps its last one; the reason says what to mend"
                );
                self.entry.rejected(kind, revision, &reason);
            }
            Event::Ignored => {}
            Event::TooMany => return Err(Status::invalid_argument("too many resource names")),
        }
        if has_snapshot {
            self.join();
        }
        Ok(())
    }

    /// Takes what the subscriber says of itself. The address and the pool of its first request were authorised, so
    /// they stay for the whole stream; a later node may add that its gateway ends.
    fn name(&mut self, node: Node) -> Result<(), Status> {
        let differs = |key| metadata(&node, key) != metadata(&self.node, key);
        if !self.subscriptions.is_empty() && (differs(ADVERTISE) || differs(POOL)) {
            tracing::warn!(
                caller = %self.caller, node = %self.node.id,
                "a subscriber changes its address or pool on an open stream, which is refused and the stream ended"
            );
            return Err(Status::permission_denied(
                "a stream keeps the address and the pool of its first request",
            ));
        }
        self.node = node;
        Ok(())
    }

    /// Refuses the stream where this kind of resource, or the address at which it wants requests, is not for
    /// this caller.
    async fn authorize(&self, kind: Kind) -> Result<(), Status> {
        let mut evaluated = self.caller.may_subscribe(kind);
        let address = metadata(&self.node, ADVERTISE).unwrap_or_default();
        if evaluated.is_ok()
            && kind == Kind::Gateway
            && let Ok(address) = address.parse()
        {
            evaluated = self.caller.may_advertise(address).await;
        }
        evaluated.map_err(|reason| {
            tracing::warn!(
                caller = %self.caller, node = %self.node.id, kind = kind.as_str(), address, %reason,
                "subscription refused: nothing is sent to it, and no request is routed to its address"
            );
            Status::permission_denied(reason)
        })
    }

    /// A gateway that has a snapshot, this one or an earlier one, takes part in its cluster.
    fn join(&mut self) {
        let address = metadata(&self.node, ADVERTISE).unwrap_or_default();
        if !matches!(self.presence, Presence::Absent) || address.is_empty() {
            return;
        }
        let pool = metadata(&self.node, POOL).unwrap_or(DEFAULT_POOL).to_owned();
        match address.parse::<SocketAddr>() {
            Ok(address) => self.presence = Presence::Serving(self.endpoints.join(pool, address)),
            Err(_) => {
                tracing::warn!(
                    node = %self.node.id, address,
                    "a gateway advertises no <ip>:<port>: Envoy is not told of it; set its ASP_ADVERTISE"
                );
            }
        }
    }

    fn leave(&mut self) {
        if let Presence::Serving(registration) = std::mem::replace(&mut self.presence, Presence::Left) {
            tracing::info!(node = %self.node.id, "gateway ends, withdrawn");
            registration.leave();
        }
    }
}

fn metadata<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    match node.metadata.as_ref()?.fields.get(key)?.kind.as_ref()? {
        value::Kind::StringValue(text) => Some(text),
        _ => None,
    }
}
