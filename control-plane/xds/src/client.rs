//! The gateway's subscription: receives changes over ADS, applies them, and acknowledges or rejects them.
//!
//! Keeps true:
//! - Whatever happens to the control plane, the gateway keeps its snapshot. When it reconnects it reports the version, so
//!   that only the changes since are sent.
//! - All messages of one revision are applied together.
//! - A rejected snapshot is answered with the reason; an accepted one with the parts that could not be applied as sent.
//! - A gateway that shuts down announces it.
//! - It reports which upstreams fail and which items it does not serve as accepted; a report that cannot be sent at once waits for the next time.
//! - A gateway leaves a control plane that is behind its store only for one that is not.
//! - It also receives revocations from a second control plane, so that a stale first one does not delay them.

mod controls;
mod freshness;
mod reports;
mod revision;
mod revocations;

use std::collections::BTreeMap;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use asp_peer::Peer;
use asp_proto::snapshot::RecentRevocations;
use asp_proto::xds::envoy::config::core::v3::Node;
use asp_proto::xds::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use asp_proto::xds::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use asp_proto::xds::google::rpc;
use asp_snapshot::{PartChanges, PartFaults, parts};
use prost::Message;
use prost_types::{Struct, Value, value};
use rand::RngExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::{Channel, Uri};

use self::controls::{ControlPlane, resolve};
use self::reports::NodeReports;
pub use self::reports::ReportSources;
use self::revision::{AppliedRevision, take};
use self::revocations::RevocationLists;
use super::contract::{ADVERTISE, BACKOFF_MS, EVERY_PART, IN_FORCE, Kind, LEAVING, MAX_MESSAGE};
use super::failing_upstreams::REPORT_EVERY;
use super::published::reach;
use super::refused_parts;

/// Longest wait for one control plane to confirm the announcement of a shutdown, and for all of them together.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
const LEAVE_WITHIN: Duration = Duration::from_secs(4);
/// gRPC status code INVALID_ARGUMENT, in a rejection.
const INVALID_ARGUMENT: i32 = 3;

/// Applies changes: takes a revision, the revision up to which everything is published with it, and the changes. The
/// second revision is lower if only revocations have the first. Returns the parts that are not in force as sent, or why
/// nothing was applied.
pub type Apply = Arc<dyn Fn(u64, u64, PartChanges) -> Result<Arc<PartFaults>, String> + Send + Sync>;
/// Called whenever the followed control plane has published everything in its store.
pub type NoteFresh = Arc<dyn Fn() + Send + Sync>;
/// Maximum bytes of a revision that is being received.
const MAX_STAGED: usize = 512 * 1024 * 1024;

/// Identity of the subscriber, and the control planes that it subscribes to.
#[derive(Clone, Debug)]
pub struct SubscriptionTarget {
    /// Control planes, e.g. `http://127.0.0.1:18000`. All use one store, so any of them will do. A name with several
    /// addresses stands for all of them.
    pub uris: Vec<Uri>,
    pub node_id: String,
    /// `<ip>:<port>` at which Envoy reaches this gateway.
    pub advertise: String,
    /// Envoy cluster that the gateway belongs to.
    pub pool: String,
    /// Certificates for mutual TLS; `None` on one machine or within a mesh.
    pub peer: Option<Peer>,
    /// Name in the control planes' certificates; the host of each by default.
    pub name: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum StreamError {
    // Only the source of a connect error says why it failed.
    #[error("connect: {}", root_cause(.0))]
    Connect(#[from] tonic::transport::Error),
    #[error("stream: {0}")]
    Status(#[from] tonic::Status),
    #[error("the control plane ended the stream")]
    Ended,
    #[error("no control plane is configured")]
    Nobody,
    #[error("the control plane is behind its store or does not answer, and another one is fresh")]
    Stale,
    #[error("a snapshot of more than {MAX_STAGED} bytes")]
    TooMuch,
    #[error("no answer within {} s", LEAVE_TIMEOUT.as_secs())]
    Silent,
    #[error("this process is shutting down")]
    Stopped,
}

/// Result of a step of a stream.
type Result<T, E = StreamError> = std::result::Result<T, E>;

/// Subscribes until `stop` is cancelled, and reconnects forever.
pub async fn run(
    target: SubscriptionTarget,
    (apply, note_fresh): (Apply, NoteFresh),
    sources: ReportSources,
    stop: CancellationToken,
) {
    // The same fault is logged once, not for every attempt.
    let mut told = String::new();
    let mut subscriber = SnapshotFollower::new(target, (apply, note_fresh), sources);
    loop {
        let fault = match Box::pin(subscriber.follow(&stop)).await {
            StreamError::Stopped => return,
            StreamError::Stale => {
                // No backoff: gateways notice it at different moments within a second and do not stampede.
                let control = subscriber.control.to_string();
                tracing::warn!(%control, "the control plane is behind its store or does not answer, following another one");
                continue;
            }
            ended => ended.to_string(),
        };
        if fault == told {
            tracing::debug!(error = %fault, "snapshot subscription broke");
        } else {
            let control = &subscriber.control.to_string();
            tracing::warn!(error = %fault, %control, "snapshot subscription broke, retrying; the last snapshot stays");
            told = fault;
        }
        let backoff = Duration::from_millis(rand::rng().random_range(BACKOFF_MS));
        if stop.run_until_cancelled(tokio::time::sleep(backoff)).await.is_none() {
            // Without the announcement it might count as lost and stay an endpoint.
            return subscriber.announce_leave(ready(Err(StreamError::Ended))).await;
        }
    }
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.last().map_or_else(|| error.to_string(), ToString::to_string)
}

struct SnapshotFollower {
    target: Arc<SubscriptionTarget>,
    /// Control plane that is, or was last, followed.
    control: Uri,
    /// Index of the next control plane to try.
    next: usize,
    /// Fresh control plane to follow next.
    found: Option<(ControlPlane, Channel)>,
    apply: Apply,
    note_fresh: NoteFresh,
    reports: NodeReports,
    /// Version in force here; empty before the first. Reported on every new stream: this gateway becomes an endpoint
    /// again with it, whatever happens to the next push.
    applied: String,
    /// Versions of the parts in force here, by name; "" for a part that is not in force as sent, so that a new stream
    /// sends it again.
    versions: BTreeMap<String, String>,
    refused: Arc<PartFaults>,
    revocations: RevocationLists,
    staged: StagedRevision,
}

/// Messages of a revision that is not complete yet.
#[derive(Default)]
struct StagedRevision {
    messages: Vec<DeltaDiscoveryResponse>,
    bytes: usize,
}

impl SnapshotFollower {
    fn new(
        target: SubscriptionTarget,
        (apply, note_fresh): (Apply, NoteFresh),
        sources: ReportSources,
    ) -> SnapshotFollower {
        let control = target.uris.first().cloned().unwrap_or_default();
        SnapshotFollower {
            target: Arc::new(target),
            control,
            // Spreads gateways over the control planes.
            next: usize::from(rand::random::<u8>()),
            found: None,
            apply,
            note_fresh,
            reports: NodeReports::new(sources),
            applied: String::new(),
            versions: BTreeMap::new(),
            refused: Arc::default(),
            revocations: RevocationLists::default(),
            staged: StagedRevision::default(),
        }
    }

    /// Follows one stream, to the fresh control plane that was found or else the next one, until it breaks, another
    /// control plane is fresher, or this process shuts down.
    async fn follow(&mut self, stop: &CancellationToken) -> StreamError {
        let (control, channel) = match self.connected(stop).await {
            Ok(connected) => connected,
            Err(error) => return error,
        };
        self.control = control.uri.clone();
        self.staged = StagedRevision::default();
        let (requests, mut pushes) = match self.open(channel.clone(), stop).await {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        let (target, note_fresh) = (Arc::clone(&self.target), Arc::clone(&self.note_fresh));
        let (lists, mut other_lists) = mpsc::channel(1);
        let mut listening = pin!(revocations::listen(Arc::clone(&target), control.clone(), lists));
        let mut fresher = pin!(freshness::find_fresher(target, control, channel, note_fresh));
        let mut reports = tokio::time::interval(REPORT_EVERY);
        loop {
            let push = tokio::select! {
                biased;
                () = stop.cancelled() => {
                    self.announce_leave(ready(Ok((requests, pushes)))).await;
                    return StreamError::Stopped;
                }
                push = pushes.message() => match push {
                    Ok(Some(push)) => push,
                    Ok(None) => return StreamError::Ended,
                    Err(status) => return StreamError::Status(status),
                },
                found = &mut fresher => {
                    self.found = Some(found);
                    return StreamError::Stale;
                }
                Some(list) = other_lists.recv() => {
                    self.revoke(list).await;
                    continue;
                }
                _ = reports.tick() => {
                    self.report_changes(&requests);
                    continue;
                }
                never = &mut listening => match never {},
            };
            let is_last = !push.system_version_info.is_empty();
            self.staged.bytes += push.encoded_len();
            if self.staged.bytes > MAX_STAGED {
                return StreamError::TooMuch;
            }
            self.staged.messages.push(push);
            if !is_last {
                continue;
            }
            let reply = self.answer().await;
            if requests.send(reply).await.is_err() {
                return StreamError::Ended;
            }
        }
    }

    /// Connects to the control plane that was found, or to the first reachable one starting from the next.
    async fn connected(&mut self, stop: &CancellationToken) -> Result<(ControlPlane, Channel)> {
        if let Some(found) = self.found.take() {
            return Ok(found);
        }
        if let Some(connected) = stop.run_until_cancelled(self.connect_next()).await {
            return connected;
        }
        // Without the announcement it might count as lost and stay an endpoint.
        self.announce_leave(ready(Err(StreamError::Ended))).await;
        Err(StreamError::Stopped)
    }

    async fn connect_next(&mut self) -> Result<(ControlPlane, Channel)> {
        let controls = resolve(&self.target).await;
        let mut fault = StreamError::Nobody;
        for _ in 0..controls.len() {
            let next = self.next % controls.len();
            self.next = next + 1;
            let Some(control) = controls.get(next) else { continue };
            match control.connect(&self.target).await {
                Ok(channel) => return Ok((control.clone(), channel)),
                Err(error) => {
                    self.control = control.uri.clone();
                    fault = StreamError::Connect(error);
                }
            }
        }
        Err(fault)
    }

    /// Opens a stream. The control plane may have received the first request, which makes this gateway an endpoint,
    /// before it answers. A shutdown during that time is therefore announced, too.
    async fn open(&self, channel: Channel, stop: &CancellationToken) -> Result<Stream> {
        let mut opened = pin!(open(channel, self.node(), &self.versions));
        if let Some(opened) = stop.run_until_cancelled(opened.as_mut()).await {
            return opened;
        }
        self.announce_leave(opened).await;
        Err(StreamError::Stopped)
    }

    /// Announces to a control plane that this gateway shuts down, so that Envoy sends it no new requests. Uses the
    /// current stream, or if that fails a new stream to any of them. A gateway that never had a snapshot is not an
    /// endpoint and announces nothing.
    async fn announce_leave(&self, stream: impl Future<Output = Result<Stream>>) {
        if self.applied.is_empty() {
            return;
        }
        let announced = async {
            let mut heard = in_time(self.leave(stream)).await;
            let count = self.target.uris.len();
            for uri in self.target.uris.iter().cycle().skip(self.next % count.max(1)).take(count) {
                if heard.is_ok() {
                    break;
                }
                heard = in_time(self.leave_on_new_stream(uri)).await;
            }
            heard
        };
        let cause = match tokio::time::timeout(LEAVE_WITHIN, announced).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", LEAVE_WITHIN.as_secs()),
        };
        tracing::warn!(%cause, "the shutdown of this gateway could not be announced to any control plane; Envoy's health checks will notice it");
    }

    /// Sends the announcement on a stream once that is open.
    async fn leave(&self, stream: impl Future<Output = Result<Stream>>) -> Result<()> {
        let (requests, pushes) = stream.await?;
        requests.send(self.last_request()).await.map_err(|_| StreamError::Ended)?;
        drop(requests);
        wait_for_end(pushes).await
    }

    /// Sends the announcement on a new stream that serves only this purpose: it does not make this gateway an endpoint
    /// again, and a process that is connected with its address by now is another one.
    async fn leave_on_new_stream(&self, control: &Uri) -> Result<()> {
        let channel = connect(&self.target, control).await?;
        let mut client =
            AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
        let only = tokio_stream::once(self.last_request());
        wait_for_end(client.delta_aggregated_resources(only).await?.into_inner()).await
    }

    fn node(&self) -> Node {
        let mut node = node(&self.target, &self.applied, &self.refused);
        node.metadata.get_or_insert_default().fields.extend(self.reports.members());
        node
    }

    /// Reports the upstreams that fail and the items that are not served as accepted, if they have changed.
    fn report_changes(&mut self, requests: &mpsc::Sender<DeltaDiscoveryRequest>) {
        let Some(former) = self.reports.refresh() else { return };
        let report = DeltaDiscoveryRequest { node: Some(self.node()), ..request() };
        // Another request waits to be sent.
        if requests.try_send(report).is_err() {
            self.reports.restore(former);
        }
    }

    fn last_request(&self) -> DeltaDiscoveryRequest {
        let mut node = self.node();
        let leaving = Value { kind: Some(value::Kind::StringValue("true".to_owned())) };
        node.metadata.get_or_insert_default().fields.insert(LEAVING.to_owned(), leaving);
        DeltaDiscoveryRequest { node: Some(node), ..request() }
    }

    /// Applies newer revocations of another control plane.
    async fn revoke(&mut self, list: RecentRevocations) {
        let revision = list.revision;
        let (in_force, covers) = reach(&self.applied);
        let Some(part) = self.revocations.take(list, in_force) else { return };
        let apply = Arc::clone(&self.apply);
        let changes = vec![(parts::RECENT.to_owned(), Some(part))];
        match tokio::task::spawn_blocking(move || apply(in_force, covers, changes)).await {
            Ok(Ok(_)) => {
                tracing::info!(
                    revision,
                    in_force,
                    "revocations of a newer revision applied, from another control plane"
                );
            }
            Ok(Err(reason)) => {
                tracing::error!(revision, %reason, "revocations of another control plane were refused");
            }
            Err(error) => {
                // What is in force is unknown now: the next stream sends everything again.
                self.versions.clear();
                tracing::error!(revision, %error, "revocations of another control plane could not be applied");
            }
        }
    }

    /// Applies the staged messages and returns the ACK or NACK.
    async fn answer(&mut self) -> DeltaDiscoveryRequest {
        let apply = Arc::clone(&self.apply);
        let messages = std::mem::take(&mut self.staged).messages;
        let last = messages.last();
        let nonce = last.map(|last| last.nonce.clone()).unwrap_or_default();
        let version = last.map(|last| last.system_version_info.clone()).unwrap_or_default();
        let reach = reach(&version);
        let revocations = self.revocations.clone();
        // Compiling schemas takes milliseconds, so not on a thread that serves requests.
        let applied = tokio::task::spawn_blocking(move || take(&messages, reach, &apply, revocations)).await;
        let outcome = applied.unwrap_or_else(|error| {
            // What is in force is unknown now: the next stream sends everything again.
            self.versions.clear();
            Err(format!("apply failed: {error}"))
        });
        let error_detail = match outcome {
            Ok(AppliedRevision { put, removed, refused, revocations }) => {
                let (parts, gone) = (put.len(), removed.len());
                tracing::info!(%version, parts, removed = gone, refused = refused.len(), "snapshot applied");
                self.applied = version;
                self.versions.extend(put);
                removed.iter().for_each(|name| drop(self.versions.remove(name)));
                self.versions.extend(refused.keys().map(|name| (name.clone(), String::new())));
                self.refused = refused;
                self.revocations = revocations;
                None
            }
            Err(reason) => {
                tracing::error!(%version, %reason, "snapshot refused, the last good one stays");
                Some(rpc::Status { code: INVALID_ARGUMENT, message: reason })
            }
        };
        // An acknowledgement reports the parts that are not in force as sent.
        let node = error_detail.is_none().then(|| self.node());
        DeltaDiscoveryRequest { node, response_nonce: nonce, error_detail, ..request() }
    }
}

async fn in_time(leaves: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::time::timeout(LEAVE_TIMEOUT, leaves).await.unwrap_or(Err(StreamError::Silent))
}

/// Waits until the control plane ends the stream, which it does once it has read all of it.
async fn wait_for_end(mut pushes: Streaming<DeltaDiscoveryResponse>) -> Result<()> {
    while pushes.message().await?.is_some() {}
    Ok(())
}

type Stream = (mpsc::Sender<DeltaDiscoveryRequest>, Streaming<DeltaDiscoveryResponse>);

/// Connects to a control plane with the target's certificate.
pub(super) async fn connect(
    target: &SubscriptionTarget,
    uri: &Uri,
) -> Result<Channel, tonic::transport::Error> {
    ControlPlane::new(target, uri.clone()).connect(target).await
}

async fn open(channel: Channel, node: Node, versions: &BTreeMap<String, String>) -> Result<Stream> {
    let mut client = AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
    // One request answers one push, so at most one waits.
    let (requests, receiver) = mpsc::channel(1);
    let first = DeltaDiscoveryRequest {
        node: Some(node),
        resource_names_subscribe: vec![EVERY_PART.into()],
        initial_resource_versions: versions.iter().map(|(name, is)| (name.clone(), is.clone())).collect(),
        ..request()
    };
    if requests.send(first).await.is_err() {
        return Err(StreamError::Ended);
    }
    let pushes = client.delta_aggregated_resources(ReceiverStream::new(receiver)).await?.into_inner();
    Ok((requests, pushes))
}

/// Returns the common part of all requests.
fn request() -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { type_url: Kind::Gateway.type_url().into(), ..DeltaDiscoveryRequest::default() }
}

fn node(target: &SubscriptionTarget, applied: &str, refused: &PartFaults) -> Node {
    let fields = [(ADVERTISE, target.advertise.as_str()), ("pool", &target.pool), (IN_FORCE, applied)];
    let said = fields.into_iter().filter(|(_, value)| !value.is_empty());
    let mut fields: BTreeMap<String, Value> =
        said.map(|(name, value)| (name.to_owned(), refused_parts::text_value(value.to_owned()))).collect();
    fields.extend(refused_parts::members(refused));
    Node {
        id: target.node_id.clone(),
        cluster: target.pool.clone(),
        metadata: Some(Struct { fields }),
        user_agent_name: "asp".into(),
    }
}
