//! The port through which control planes on one database share their connected gateways, so that all of them announce
//! these to Envoy.
//!
//! Keeps true: a gateway that announced its shutdown serves no more until a control plane has a message from it on a
//! stream opened later; an older stream, at another control plane, is a remainder of its former run. A gateway follows the
//! control plane that holds its most recently opened stream.

use std::time::Duration;

use async_trait::async_trait;

#[cfg(any(test, feature = "testing"))]
pub mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

/// Retention of a row after the last message from its gateway.
pub const KEPT: Duration = Duration::from_secs(3_600);
/// Maximum number of known gateways; beyond it, those with the most recent messages count.
pub const MAX_GATEWAYS: u32 = 4_096;

/// A gateway that is connected to a control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayReport {
    /// Envoy cluster of the gateway.
    pub pool: String,
    /// `<ip>:<port>`
    pub address: String,
    /// Time since the gateway opened the stream.
    pub opened: Duration,
}

/// A gateway that was connected to some control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownGateway {
    pub pool: String,
    pub address: String,
    /// Time since its last message.
    pub silent: Duration,
    /// Time since it announced its shutdown; `None` if it did not.
    pub left: Option<Duration>,
    /// Name of the control plane that it follows; empty if unknown.
    pub follows: String,
}

/// Failure of the store; the text is for the log.
#[derive(Debug, thiserror::Error)]
#[error("the registry of gateways is not available: {0}")]
pub struct Unavailable(pub String);

/// Registry of the gateways that are connected to control planes.
#[async_trait]
pub trait GatewayRegistry: Send + Sync {
    /// Records the gateways that are connected to the named control plane.
    async fn report(&self, control: &str, reports: &[GatewayReport]) -> Result<(), Unavailable>;
    /// Records that a gateway announced its shutdown `ago`.
    async fn leave(&self, pool: &str, address: &str, ago: Duration) -> Result<(), Unavailable>;
    /// Returns the gateways with a message within this time, at most [`MAX_GATEWAYS`].
    async fn list_recent(&self, within: Duration) -> Result<Vec<KnownGateway>, Unavailable>;
}
