//! Shared context of streams.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::endpoints::Endpoints;
use super::freshness::Freshness;
use super::keys::RefreshKeys;
use super::peer::PeerProof;
use super::published::XdsStateReceiver;
use super::subscribers::{SeenRevisions, Subscribers};

/// The parts of the control plane that a stream needs.
#[derive(Clone)]
pub struct Context {
    pub xds_state: XdsStateReceiver,
    pub freshness: Freshness,
    pub subscribers: Arc<Subscribers>,
    pub endpoints: Arc<Endpoints>,
    /// Collects the revisions that subscribers have in force.
    pub seen_revisions: Arc<SeenRevisions>,
    pub proof: PeerProof,
    /// Fetches the keys that gateways ask for.
    pub keys: Arc<dyn RefreshKeys>,
    pub stop: CancellationToken,
}

/// Returns the next request of the stream of a node; `None` if the stream ended or broke.
pub(super) async fn next_request<T>(inbound: &mut Streaming<T>, node: &str) -> Option<T> {
    inbound.message().await.unwrap_or_else(|status| {
        tracing::debug!(%node, %status, "xds stream broke");
        None
    })
}

/// Reason sent when a control plane that shuts down ends a stream.
pub(super) const STOPPING: &str = "this control plane ends";

/// Ends a stream with `UNAVAILABLE` and a reason, so that the subscriber opens one elsewhere. If the stream's queue is
/// full, the stream ends without them.
pub(super) fn end_stream<T>(outbound: &mpsc::Sender<Result<T, Status>>, reason: &str) {
    // Err: the subscriber is gone, or the queue is full.
    let _ = outbound.try_send(Err(Status::unavailable(reason)));
}
