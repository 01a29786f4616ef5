//! What streams share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

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
