//! The port through which control planes on one database share the gateways that they hear from, so that all of them
//! announce these to Envoy.
//!
//! Keeps true: a gateway that announced its shutdown serves no more until a control plane hears from it over a stream
//! opened later; an older stream, at another control plane, is a remainder of its former run. A gateway follows the
//! control plane that holds its most recently opened stream.

use std::time::Duration;

use async_trait::async_trait;

#[cfg(any(test, feature = "testing"))]
pub mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

/// Retention of a row after the last message from its gateway.
pub const KEPT: Duration = Duration::from_secs(3_600);
/// Maximum number of known gateways; beyond it, those heard from most recently count.
pub const MAX_GATEWAYS: u32 = 4_096;

/// A gateway that a control plane currently hears from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeardGateway {
    /// Envoy cluster of the gateway.
    pub pool: String,
    /// `<ip>:<port>`
    pub address: String,
    /// Time since the gateway opened the stream.
    pub opened: Duration,
}

/// A gateway that some control plane has heard from.
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

/// Registry of gateways that control planes hear from.
#[async_trait]
pub trait HeardGateways: Send + Sync {
    /// Records the gateways that the named control plane hears from now.
    async fn hear(&self, control: &str, heard: &[HeardGateway]) -> Result<(), Unavailable>;
    /// Records that a gateway announced its shutdown `ago`.
    async fn leave(&self, pool: &str, address: &str, ago: Duration) -> Result<(), Unavailable>;
    /// Returns the gateways heard from within this time, at most [`MAX_GATEWAYS`].
    async fn list_recent(&self, within: Duration) -> Result<Vec<KnownGateway>, Unavailable>;
}
