//! Messages between gateways: one channel for each.
//!
//! Owns: the [`Bus`] port. Refuses: to keep messages without a listener, and to guarantee an order; senders must
//! tolerate loss (I-6). Keeps true: a slow gateway delays nobody else.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::records::OwnerId;

#[cfg(any(test, feature = "testing"))]
mod memory;
#[cfg_attr(not(feature = "redis"), allow(dead_code))]
pub(crate) mod queue;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryBus;

/// Maximum size of a message in bytes.
pub const MAX_MESSAGE: usize = 1 << 20;
/// Maximum bytes of unread messages for a gateway; further messages are dropped.
pub const MAX_WAITING_BYTES: usize = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum BusError {
    #[error("messages between gateways are not available: {0}")]
    Unavailable(String),
    #[error("a message for another gateway is larger than {MAX_MESSAGE} bytes")]
    TooLarge,
}

/// Event for a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusEvent<T> {
    Message(T),
    /// Messages may have been lost since the previous event: the bus was unavailable, or the queue was full.
    Gap,
}

/// Carrier of messages between gateways.
#[async_trait]
pub trait Bus: Send + Sync {
    /// Sends a message to a gateway. It is lost if that gateway does not listen.
    async fn tell(&self, gateway: OwnerId, message: Bytes) -> Result<(), BusError>;

    /// Returns the messages for a gateway from about now on. Never ends, and resumes after the bus was unavailable. May
    /// start with [`BusEvent::Gap`].
    fn listen(&self, gateway: OwnerId) -> BoxStream<'static, BusEvent<Bytes>>;
}
