//! The state that is pushed to subscribers.

use std::sync::Arc;

use tokio::sync::watch;

use crate::contract::Kind;
use crate::endpoints::EndpointSet;
use crate::published::Publication;
use crate::version::covered_by_version;

/// State that is pushed to subscribers; always replaced as a whole.
#[derive(Clone, Default)]
pub struct XdsState {
    pub snapshot: Option<Arc<Publication>>,
    /// Revision of the store up to which everything is published.
    pub covers: u64,
    pub endpoints: Arc<EndpointSet>,
}

impl XdsState {
    /// Returns the store revision up to which everything is in force at a subscriber of `kind` that acknowledged
    /// `acked` at `version`. Later changes may not have concerned it.
    pub fn covered(&self, kind: &str, acked: u64, version: &str) -> u64 {
        let Some(published) = &self.snapshot else { return acked };
        let edge = &published.edge.version;
        let recent = &published.recent.version;
        let is_newest = match kind {
            kind if kind == Kind::Edge.as_str() => version == edge || version == format!("{edge}+{recent}"),
            kind if kind == Kind::Revocations.as_str() => version == recent,
            kind if kind == Kind::Gateway.as_str() => version == published.gateway.version,
            _ => false,
        };
        if is_newest { published.revision } else { acked.min(covered_by_version(version)) }
    }
}

/// Receiver of new [`XdsState`]s.
pub type XdsStateReceiver = watch::Receiver<XdsState>;
