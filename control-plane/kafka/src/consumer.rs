//! The consumer of a topic.

use std::sync::Arc;
use std::time::Duration;

use asp_platform::pauses::doubling;
use parking_lot::Mutex;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use rdkafka::{ClientConfig, ClientContext, Message, Statistics, TopicPartitionList};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::topic::{Receiver, TopicMessage, TopicSettings};

/// Pauses before a message is given to its receiver again, and before another attempt to make a consumer.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Longest time for leaving the group.
const LEAVE: Duration = Duration::from_secs(5);
/// Interval in milliseconds of reports about brokers and lag.
const REPORT_EVERY: &str = "1000";
/// State of a broker that answers.
const UP: &str = "UP";

/// Reads the topic until `stop` is cancelled.
pub async fn run(settings: TopicSettings, receiver: Arc<dyn Receiver>, stop: CancellationToken) {
    let mut pauses = doubling(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        let Err(error) = consume(&settings, &receiver, &stop).await else { return };
        receiver.disconnected(&error.to_string());
        let pause = pauses.next().unwrap_or(LONGEST_PAUSE);
        if stop.run_until_cancelled(sleep(pause)).await.is_none() {
            return;
        }
    }
}

/// Reads the topic with one consumer, until `stop` is cancelled or the consumer is of no use any more.
async fn consume(
    settings: &TopicSettings,
    receiver: &Arc<dyn Receiver>,
    stop: &CancellationToken,
) -> Result<(), KafkaError> {
    let context = TopicMonitor {
        topic: settings.topic.clone(),
        receiver: Arc::clone(receiver),
        fault: Mutex::new(None),
        last_error: Mutex::new(String::new()),
    };
    let consumer: StreamConsumer<TopicMonitor> = config(settings).create_with_context(context)?;
    consumer.subscribe(&[settings.topic.as_str()])?;
    let outcome = read(&consumer, receiver.as_ref(), stop).await;
    // Leaving the group waits for brokers. Whoever comes next need not wait until they miss this consumer.
    let left = timeout(LEAVE, spawn_blocking(move || drop(consumer))).await;
    if left.is_err() {
        tracing::debug!(topic = settings.topic, "the group is left without an answer of the brokers");
    }
    outcome
}

fn config(settings: &TopicSettings) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &settings.brokers)
        .set("group.id", &settings.group)
        .set("client.id", "asp")
        // Offsets are committed message by message, after the receiver has answered.
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        // A new group begins with what is there: old events change nothing, and one left out would.
        .set("auto.offset.reset", "earliest")
        .set("isolation.level", "read_committed")
        .set("allow.auto.create.topics", "false")
        // A topic that is made later is found soon.
        .set("topic.metadata.refresh.interval.ms", "5000")
        .set("reconnect.backoff.max.ms", "2000")
        .set("session.timeout.ms", "10000")
        .set("statistics.interval.ms", REPORT_EVERY)
        // Bounds of what waits here: messages are small.
        .set("queued.max.messages.kbytes", "4096")
        .set("fetch.message.max.bytes", "1048576")
        .set_log_level(RDKafkaLogLevel::Warning);
    if let Some((user, password)) = &settings.login {
        config
            .set("security.protocol", "sasl_plaintext")
            .set("sasl.mechanism", "PLAIN")
            .set("sasl.username", user)
            .set("sasl.password", password.expose());
    }
    config
}

/// Gives each message to the receiver, then commits its offset.
async fn read(
    consumer: &StreamConsumer<TopicMonitor>,
    receiver: &dyn Receiver,
    stop: &CancellationToken,
) -> Result<(), KafkaError> {
    loop {
        let Some(next) = stop.run_until_cancelled(consumer.recv()).await else { return Ok(()) };
        match next {
            Ok(message) => {
                if stop.run_until_cancelled(deliver(&message, receiver)).await.is_none() {
                    return Ok(());
                }
                // Lost with the broker or with a rebalance, it is a repetition.
                if let Err(error) = consumer.commit_message(&message, CommitMode::Async) {
                    tracing::debug!(%error, "offset is not committed; the message comes again");
                }
            }
            Err(error @ KafkaError::MessageConsumptionFatal(_)) => return Err(error),
            Err(error) => consumer.context().refused(&error),
        }
    }
}

/// Gives a message to the receiver until it answers for it.
async fn deliver(message: &BorrowedMessage<'_>, receiver: &dyn Receiver) {
    let delivered = TopicMessage {
        topic: message.topic(),
        partition: message.partition(),
        offset: message.offset(),
        at: message.timestamp().to_millis().and_then(|at| u64::try_from(at).ok()),
        payload: message.payload().unwrap_or_default(),
    };
    let mut pauses = doubling(FIRST_PAUSE, LONGEST_PAUSE);
    let mut is_first = true;
    while let Err(error) = receiver.take(delivered).await {
        if is_first {
            tracing::warn!(
                error,
                topic = delivered.topic,
                "message of the topic is not stored and holds up later ones, retrying; check the database"
            );
        }
        is_first = false;
        sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
    }
}

/// Receives what the client reports about itself.
struct TopicMonitor {
    topic: String,
    receiver: Arc<dyn Receiver>,
    /// Reason why the topic cannot be read though brokers answer.
    fault: Mutex<Option<String>>,
    last_error: Mutex<String>,
}

impl TopicMonitor {
    /// Notes an error that reading gave. The client itself tries again.
    fn refused(&self, error: &KafkaError) {
        let is_lasting = matches!(
            error.rdkafka_error_code(),
            Some(
                RDKafkaErrorCode::UnknownTopic
                    | RDKafkaErrorCode::UnknownTopicOrPartition
                    | RDKafkaErrorCode::TopicAuthorizationFailed
                    | RDKafkaErrorCode::GroupAuthorizationFailed
            )
        );
        if is_lasting {
            let why = error.to_string();
            self.receiver.disconnected(&why);
            *self.fault.lock() = Some(why);
        } else {
            tracing::debug!(%error, topic = self.topic, "the topic was not read for a moment");
        }
    }

    /// Returns the number of messages that wait, if any partition is read.
    fn lag(&self, statistics: &Statistics) -> Option<u64> {
        let topic = statistics.topics.get(&self.topic)?;
        let lags = topic.partitions.values().filter(|partition| partition.partition >= 0);
        // Negative: not known yet, or not read here.
        lags.filter_map(|partition| u64::try_from(partition.consumer_lag).ok()).reduce(u64::saturating_add)
    }
}

impl ClientContext for TopicMonitor {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, line = message, "line of the Kafka client");
    }

    fn stats(&self, statistics: Statistics) {
        if !statistics.brokers.values().any(|broker| broker.state == UP) {
            let error = self.last_error.lock().clone();
            let why = if error.is_empty() { "no broker answers".to_owned() } else { error };
            self.receiver.disconnected(&why);
            return;
        }
        let fault = self.fault.lock().clone();
        match fault {
            Some(why) => self.receiver.disconnected(&why),
            None => self.receiver.connected(self.lag(&statistics)),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "error of the Kafka client");
        *self.last_error.lock() = reason.to_owned();
    }
}

impl ConsumerContext for TopicMonitor {
    fn post_rebalance(&self, _consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(partitions) = rebalance
            && partitions.count() > 0
        {
            *self.fault.lock() = None;
        }
    }

    fn commit_callback(&self, result: Result<(), KafkaError>, _offsets: &TopicPartitionList) {
        if let Err(error) = result {
            tracing::debug!(%error, topic = self.topic, "offset is not committed; the message comes again");
        }
    }
}
