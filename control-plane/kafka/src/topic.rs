//! A topic, its messages, and their receiver.

use asp_platform::secret::Secret;
use async_trait::async_trait;

/// A topic, and how to read it.
#[derive(Clone, Debug)]
pub struct TopicSettings {
    /// `host:port,…`
    pub brokers: String,
    pub topic: String,
    /// Consumers of one group share the partitions, and continue where another one of it stopped.
    pub group: String,
    /// User and password (SASL/PLAIN, in clear).
    pub login: Option<(String, Secret)>,
}

/// A message of the topic.
#[derive(Clone, Copy, Debug)]
pub struct TopicMessage<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    /// Time of the message, in Unix milliseconds.
    pub at: Option<u64>,
    /// Empty if the message has no value.
    pub payload: &'a [u8],
}

/// Receiver of a topic's messages.
#[async_trait]
pub trait Receiver: Send + Sync {
    /// Answers for a message. After an error it comes again.
    async fn take(&self, message: TopicMessage<'_>) -> Result<(), String>;

    /// Brokers answer; the number of messages that wait if this process reads a partition.
    fn connected(&self, lag: Option<u64>);

    /// The topic cannot be read at present.
    fn disconnected(&self, why: &str);
}
