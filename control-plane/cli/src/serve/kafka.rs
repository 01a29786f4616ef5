//! The topic of revocations, which the control role reads.
//!
//! Owns the way from a message to the control plane's events, and back to its offset. A build without the feature `kafka` has
//! no settings of a topic, and starts none.

use std::sync::Arc;

use asp_control::admission::Admission;
use asp_control::catalog::Compiler;
use asp_control::catalog::usage::Usage;
use asp_control::events::feed::Feed;
use asp_control::events::{MessageOrigin, RevocationEvents};
use asp_control::publisher::Handle;
use asp_kafka::{Receiver, TopicMessage, TopicSettings};
use asp_store::control::sql::ControlStore;
use async_trait::async_trait;

use super::Process;

/// Starts to read the topic; returns its state, or `None` if there is no topic.
pub(super) fn start(
    process: &Process,
    (store, compiler): (&Arc<ControlStore>, &Compiler),
    usage: &Arc<Usage>,
    publisher: &Handle,
) -> Option<Arc<Feed>> {
    let topic = process.settings.kafka.topic()?;
    let feed = Arc::new(Feed::new(&topic.topic));
    let admission = Admission::new(Arc::clone(store), compiler.clone(), Arc::clone(usage));
    let orgs = process.settings.kafka.kafka_orgs.clone();
    let events =
        RevocationEvents::new(Arc::clone(store), admission, publisher.clone(), Arc::clone(&feed), orgs);
    read(process, topic, Inlet { events, feed: Arc::clone(&feed) });
    Some(feed)
}

#[cfg(feature = "kafka")]
fn read(process: &Process, topic: TopicSettings, inlet: Inlet) {
    process.tasks.spawn(asp_kafka::run(topic, Arc::new(inlet), process.stop_background.clone()));
}

/// The settings refuse brokers.
#[cfg(not(feature = "kafka"))]
fn read(_: &Process, _: TopicSettings, _: Inlet) {}

/// Receiver of the topic's messages.
struct Inlet {
    events: RevocationEvents,
    feed: Arc<Feed>,
}

#[async_trait]
impl Receiver for Inlet {
    async fn take(&self, message: TopicMessage<'_>) -> Result<(), String> {
        let TopicMessage { topic, partition, offset, at, payload } = message;
        let origin = MessageOrigin { topic, partition, offset, at };
        self.events.take(origin, payload).await.map(drop).map_err(|error| error.to_string())
    }

    fn connected(&self, lag: Option<u64>) {
        self.feed.connected(lag);
    }

    fn disconnected(&self, why: &str) {
        self.feed.disconnected(why);
    }
}
