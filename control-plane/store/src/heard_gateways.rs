//! The port to what control planes on one database know of gateways: whom one of them hears, the others tell Envoy of.
//!
//! Keeps true: a gateway that has said that it ends serves no more until somebody hears it over a stream that it opened
//! later: an older one, of another control plane, is its own leftover. A gateway follows the control plane that hears it over the
//! stream that it opened last.

use std::time::Duration;

use async_trait::async_trait;

pub mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

/// Rows are kept so long after somebody has heard the gateway.
pub const KEPT: Duration = Duration::from_secs(3_600);
/// Gateways known at once; beyond, the ones that were heard last count.
pub const MAX_GATEWAYS: u32 = 4_096;

/// A gateway that is heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The Envoy cluster it belongs to.
    pub pool: String,
    /// `<ip>:<port>`
    pub address: String,
    /// How long ago it opened the stream over which it is heard.
    pub opened: Duration,
}

/// A gateway that some control plane has heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub pool: String,
    pub address: String,
    /// How long ago it was heard last.
    pub silent: Duration,
    /// How long ago it said that it ends; `None`: it has not.
    pub left: Option<Duration>,
    /// Name of the control plane that it follows; empty where that is not known.
    pub follows: String,
}

/// The store did not answer; the text is for the log.
#[derive(Debug, thiserror::Error)]
#[error("gateways that are heard: {0}")]
pub struct Unavailable(pub String);

/// The port.
#[async_trait]
pub trait HeardGateways: Send + Sync {
    /// Says whom the control plane of this name hears now.
    async fn hear(&self, control: &str, heard: &[Heard]) -> Result<(), Unavailable>;
    /// Says that a gateway said so long ago that it ends.
    async fn leave(&self, pool: &str, address: &str, ago: Duration) -> Result<(), Unavailable>;
    /// Those that somebody heard within this time, at most [`MAX_GATEWAYS`].
    async fn known(&self, within: Duration) -> Result<Vec<Known>, Unavailable>;
}
