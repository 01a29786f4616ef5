//! What gateways tell each other: a channel for each of them.
//!
//! Owns: the [`Bus`] port. Refuses: to keep what nobody listens to, and to promise an order; who tells something bears
//! that it may be lost (I-6). Keeps true: a gateway that does not take what it is told holds nobody up.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::records::OwnerId;

mod memory;
pub(crate) mod queue;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

pub use memory::MemoryBus;

/// Bytes of one message.
pub const MAX_MESSAGE: usize = 1 << 20;
/// Bytes of the messages that wait for a gateway which does not take them; what comes then is lost.
pub const MAX_WAITING_BYTES: usize = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum BusError {
    #[error("the gateways cannot tell each other anything: {0}")]
    Unavailable(String),
    #[error("a message for another gateway is larger than {MAX_MESSAGE} bytes")]
    TooLarge,
}

/// Event of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusEvent<T> {
    Message(T),
    /// Messages may have been lost since the event before: the bus was away, or more came than may wait.
    Gap,
}

/// Carries messages between gateways.
#[async_trait]
pub trait Bus: Send + Sync {
    /// Tells a gateway something. Lost where it does not listen.
    async fn tell(&self, gateway: OwnerId, message: Bytes) -> Result<(), BusError>;

    /// Returns the messages for a gateway from about now on; never ends by itself, and goes on by itself after the bus was away.
    /// It may begin with [`BusEvent::Gap`].
    fn listen(&self, gateway: OwnerId) -> BoxStream<'static, BusEvent<Bytes>>;
}
