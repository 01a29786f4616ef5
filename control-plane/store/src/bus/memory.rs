//! The bus between gateways of one process, which only tests have.

use std::collections::HashMap;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{Bus, BusError, MAX_MESSAGE, MAX_WAITING};
use crate::records::OwnerId;

/// Carries messages within the process.
#[derive(Default)]
pub struct MemoryBus {
    channels: Mutex<HashMap<OwnerId, mpsc::Sender<Bytes>>>,
}

#[async_trait]
impl Bus for MemoryBus {
    async fn tell(&self, gateway: OwnerId, message: Bytes) -> Result<(), BusError> {
        if message.len() > MAX_MESSAGE {
            return Err(BusError::TooLarge);
        }
        if let Some(channel) = self.channels.lock().get(&gateway) {
            // Full or closed: it is lost.
            let _ = channel.try_send(message);
        }
        Ok(())
    }

    fn listen(&self, gateway: OwnerId) -> BoxStream<'static, Bytes> {
        let (sender, mut receiver) = mpsc::channel(MAX_WAITING);
        self.channels.lock().insert(gateway, sender);
        futures::stream::poll_fn(move |context| receiver.poll_recv(context)).boxed()
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
