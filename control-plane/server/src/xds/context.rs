//! What streams share.

use std::sync::Arc;

use asp_peer::Peer;
use tokio_util::sync::CancellationToken;

use super::XdsStateReceiver;
use super::endpoints::Endpoints;
use super::keys::RefreshKeys;
use super::raised::Raised;
use super::subscribers::Subscribers;

/// What a stream needs to know of the control plane.
#[derive(Clone)]
pub struct Context {
    pub xds_state: XdsStateReceiver,
    pub subscribers: Arc<Subscribers>,
    pub endpoints: Arc<Endpoints>,
    /// Told of the revisions that subscribers come with.
    pub raised: Arc<Raised>,
    /// This process's own certificate, where subscribers have to show one.
    pub peer: Option<Peer>,
    /// Fetches the keys that gateways ask for.
    pub keys: Arc<dyn RefreshKeys>,
    pub stop: CancellationToken,
}
