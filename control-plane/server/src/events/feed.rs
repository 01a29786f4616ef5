//! The state of the topic as this control plane sees it: for `asp status`, readiness and metrics.

use asp_platform::clock;
use asp_platform::time::rfc3339;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::Serialize;
use utoipa::ToSchema;

/// EventOutcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOutcome {
    /// Event whose revocation was stored.
    Revoked,
    /// Repetition of an event that was taken before.
    Repeated,
    /// Event of which no token is alive any more.
    Old,
    /// Parked, because it could not become a revocation.
    Parked,
}

impl EventOutcome {
    const ALL: [EventOutcome; 4] =
        [EventOutcome::Revoked, EventOutcome::Repeated, EventOutcome::Old, EventOutcome::Parked];

    const fn as_str(self) -> &'static str {
        match self {
            EventOutcome::Revoked => "revoked",
            EventOutcome::Repeated => "repeated",
            EventOutcome::Old => "old",
            EventOutcome::Parked => "parked",
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// State of the topic's consumer in this process.
pub struct Feed {
    topic: String,
    state: Mutex<State>,
    taken: Family<OutcomeLabel, Counter>,
    dropped: Counter,
}

struct State {
    connected: bool,
    /// Unix milliseconds of the last change between connected and not.
    since: u64,
    /// Reason why it is not connected.
    fault: Option<String>,
    /// Messages not yet taken, of the partitions that this process reads; `None` before it reads any.
    lag: Option<u64>,
}

/// The topic of revocations as a control plane sees it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeedView {
    topic: String,
    /// Whether its brokers answer.
    connected: bool,
    /// Time since when that is so (RFC 3339).
    since: String,
    /// Reason why it is not connected.
    fault: Option<String>,
    /// Number of messages that wait in the partitions that this control plane reads; `null` if it reads none.
    lag: Option<u64>,
    /// Messages since the start: became a revocation, were repetitions, were too old to revoke, were parked.
    revoked: u64,
    repeated: u64,
    old: u64,
    parked: u64,
}

impl Feed {
    /// Creates the state of a topic that is not connected yet.
    pub fn new(topic: &str) -> Feed {
        let state = State { connected: false, since: clock::now_ms(), fault: None, lag: None };
        let feed = Feed {
            topic: topic.to_owned(),
            state: Mutex::new(state),
            taken: Family::default(),
            dropped: Counter::default(),
        };
        for outcome in EventOutcome::ALL {
            feed.counter(outcome);
        }
        feed
    }

    /// Notes that brokers answer, and the number of waiting messages if partitions are read.
    pub fn connected(&self, lag: Option<u64>) {
        let mut state = self.state.lock();
        state.lag = lag;
        if !state.connected {
            state.connected = true;
            state.since = clock::now_ms();
            let had_fault = state.fault.take().is_some();
            drop(state);
            if had_fault {
                tracing::info!(topic = self.topic, "revocations of the topic are read again");
            }
        }
    }

    /// Notes that the topic cannot be read. Warns once until it is read again.
    pub fn disconnected(&self, why: &str) {
        let mut state = self.state.lock();
        let is_new = state.connected || state.fault.is_none();
        if state.connected {
            state.since = clock::now_ms();
        }
        (state.connected, state.fault) = (false, Some(why.to_owned()));
        drop(state);
        if is_new {
            tracing::warn!(
                topic = self.topic,
                why,
                "revocations of the topic cannot be read and reach nobody until they are, retrying; check the brokers and \
                 ASP_KAFKA_BROKERS"
            );
        }
    }

    pub(super) fn count(&self, outcome: EventOutcome) {
        self.counter(outcome).inc();
    }

    pub(super) fn drop_parked(&self, dropped: u64) {
        self.dropped.inc_by(dropped);
    }

    fn counter(&self, outcome: EventOutcome) -> Counter {
        self.taken.get_or_create(&OutcomeLabel { outcome: outcome.as_str() }).clone()
    }

    /// Whether brokers answer.
    pub fn is_connected(&self) -> bool {
        self.state.lock().connected
    }

    pub fn view(&self) -> FeedView {
        let count = |outcome| self.counter(outcome).get();
        let state = self.state.lock();
        FeedView {
            topic: self.topic.clone(),
            connected: state.connected,
            since: rfc3339(state.since),
            fault: state.fault.clone(),
            lag: state.lag,
            revoked: count(EventOutcome::Revoked),
            repeated: count(EventOutcome::Repeated),
            old: count(EventOutcome::Old),
            parked: count(EventOutcome::Parked),
        }
    }

    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let connected: Gauge = Gauge::default();
        let lag: Gauge = Gauge::default();
        {
            let state = self.state.lock();
            connected.set(i64::from(state.connected));
            lag.set(state.lag.map_or(0, |lag| i64::try_from(lag).unwrap_or(i64::MAX)));
        }
        registry.register("asp_kafka_connected", "1 while the topic of revocations is read", connected);
        registry.register(
            "asp_kafka_lag",
            "Messages that wait in the partitions of the topic that this control plane reads",
            lag,
        );
        registry.register("asp_kafka_messages", "Messages of the topic by outcome", self.taken.clone());
        registry.register(
            "asp_kafka_parked_dropped",
            "Parked messages that were deleted because newer ones took their place",
            self.dropped.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_says_since_when_and_why_it_is_not_read() {
        let feed = Feed::new("t");
        assert!(!feed.is_connected() && feed.view().fault.is_none());
        feed.disconnected("refused");
        feed.disconnected("timed out");
        let lost = feed.view();
        assert_eq!((lost.connected, lost.fault.as_deref(), lost.lag), (false, Some("timed out"), None));
        feed.connected(Some(3));
        let back = feed.view();
        assert_eq!((back.connected, back.fault, back.lag), (true, None, Some(3)));
        feed.count(EventOutcome::Parked);
        feed.drop_parked(2);
        let mut registry = Registry::default();
        feed.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "asp_kafka_connected 1",
            "asp_kafka_lag 3",
            "asp_kafka_messages_total{outcome=\"parked\"} 1",
            "asp_kafka_messages_total{outcome=\"revoked\"} 0",
            "asp_kafka_parked_dropped_total 2",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}: {text}");
        }
    }
}
