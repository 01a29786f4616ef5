//! The bus in Redis: one publish-subscribe channel per gateway.
//!
//! A Cluster forwards published messages to all of its nodes, so that listening at one node suffices. Keeps true: a
//! listener whose connection is lost, or silent, reconnects to the next node, and learns that it may have missed
//! messages.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use redis::Client;

use super::{CONNECT_WITHIN, RECONNECT_EVERY, Redis};
use crate::bus::queue::{QueueSender, queue};
use crate::bus::{Bus, BusError, BusEvent, MAX_MESSAGE};
use crate::hex::hex;
use crate::records::OwnerId;

/// Interval of pings, because a connection does not notice that its other end is gone.
const PING_EVERY: Duration = Duration::from_secs(2);

/// A bus in Redis.
pub struct RedisBus {
    redis: Redis,
}

impl RedisBus {
    pub fn new(redis: Redis) -> RedisBus {
        RedisBus { redis }
    }
}

#[async_trait]
impl Bus for RedisBus {
    async fn tell(&self, gateway: OwnerId, message: Bytes) -> Result<(), BusError> {
        if message.len() > MAX_MESSAGE {
            return Err(BusError::TooLarge);
        }
        let channel = channel(gateway);
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(&channel).arg(message.as_ref());
        let told: Result<i64, _> = self.redis.ask_large(&channel, &publish, message.len()).await;
        told.map(drop).map_err(|fault| BusError::Unavailable(fault.to_string()))
    }

    fn listen(&self, gateway: OwnerId) -> BoxStream<'static, BusEvent<Bytes>> {
        let (sender, messages) = queue();
        let nodes = self.redis.nodes.clone();
        let channel = channel(gateway);
        tokio::spawn(async move {
            tokio::select! {
                () = listen(&nodes, &channel, &sender) => {}
                () = sender.closed() => {}
            }
        });
        messages
    }
}

fn channel(gateway: OwnerId) -> String {
    format!("asp:bus:{}", hex(&gateway.0))
}

/// Listens at one node after another, for ever.
async fn listen(nodes: &[Client], channel: &str, sender: &QueueSender) {
    let mut is_told = false;
    for node in nodes.iter().cycle() {
        match listen_at(node, channel, sender).await {
            Ok(()) => is_told = false,
            // Logged once per outage, not for each attempt.
            Err(error) if !is_told => {
                tracing::warn!(%error, "messages from other gateways are lost until Redis is available");
                is_told = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(RECONNECT_EVERY).await;
    }
}

/// Listens until the connection ends; fails if it could not be made.
async fn listen_at(node: &Client, channel: &str, sender: &QueueSender) -> redis::RedisResult<()> {
    let subscribing = async {
        let mut subscribed = node.get_async_pubsub().await?;
        subscribed.subscribe(channel).await?;
        Ok::<_, redis::RedisError>(subscribed)
    };
    let silent = || redis::RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
    let subscribed = tokio::time::timeout(CONNECT_WITHIN, subscribing).await.map_err(|_| silent())??;
    sender.gap();
    let (mut sink, mut messages) = subscribed.split();
    let mut ping = tokio::time::interval(PING_EVERY);
    loop {
        tokio::select! {
            message = messages.next() => match message {
                // If the queue is full, messages are dropped rather than kept here.
                Some(message) => {
                    let _ = sender.offer(Bytes::copy_from_slice(message.get_payload_bytes()));
                }
                None => return Ok(()),
            },
            _ = ping.tick() => {
                let answer = tokio::time::timeout(CONNECT_WITHIN, sink.ping::<redis::Value>()).await;
                if !matches!(answer, Ok(Ok(_))) {
                    return Ok(());
                }
            }
        }
    }
}
