//! What streams share.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::XdsStateReceiver;
use super::endpoints::Endpoints;
use super::freshness::Freshness;
use super::keys::RefreshKeys;
use super::peer::Proof;
use super::raised::Raised;
use super::subscribers::Subscribers;

/// What a stream needs to know of the control plane.
#[derive(Clone)]
pub struct Context {
    pub xds_state: XdsStateReceiver,
    pub freshness: Freshness,
    pub subscribers: Arc<Subscribers>,
    pub endpoints: Arc<Endpoints>,
    /// Told of the revisions that subscribers come with.
    pub raised: Arc<Raised>,
    pub proof: Proof,
    /// Fetches the keys that gateways ask for.
    pub keys: Arc<dyn RefreshKeys>,
    pub stop: CancellationToken,
}

/// Reason of the end of every stream of a control plane that stops.
pub(super) const STOPPING: &str = "this control plane ends";

/// Ends a stream with `UNAVAILABLE` and a reason: the subscriber opens one elsewhere. Where messages fill the stream, it ends without
/// them.
pub(super) fn end_stream<T>(outbound: &mpsc::Sender<Result<T, Status>>, reason: &str) {
    // Err: the subscriber has gone, or there is no room.
    let _ = outbound.try_send(Err(Status::unavailable(reason)));
}
