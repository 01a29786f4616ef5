//! The bus within one process, for tests only.

use std::collections::HashMap;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use parking_lot::Mutex;

use super::queue::{QueueSender, queue};
use super::{Bus, BusError, BusEvent, MAX_MESSAGE};
use crate::records::OwnerId;

/// Bus within one process.
#[derive(Default)]
pub struct MemoryBus {
    channels: Mutex<HashMap<OwnerId, QueueSender>>,
}

#[async_trait]
impl Bus for MemoryBus {
    async fn tell(&self, gateway: OwnerId, message: Bytes) -> Result<(), BusError> {
        if message.len() > MAX_MESSAGE {
            return Err(BusError::TooLarge);
        }
        if let Some(channel) = self.channels.lock().get(&gateway) {
            // Lost if the queue is full, which the listener learns, or closed.
            let _ = channel.offer(message);
        }
        Ok(())
    }

    fn listen(&self, gateway: OwnerId) -> BoxStream<'static, BusEvent<Bytes>> {
        let (sender, messages) = queue();
        self.channels.lock().insert(gateway, sender);
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn does_what_every_bus_must() {
        super::super::suite::run(&MemoryBus::default()).await;
    }
}
