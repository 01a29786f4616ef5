//! Events of MetricsStream: workers and calls, sent to its subscribers.
//!
//! Bounds: a subscriber has a backlog of `BACKLOG` events; a slower one misses the oldest.

use std::collections::BTreeMap;
use std::time::SystemTime;

use asp_proto::supervisor::MetricsEvent;
use prost_types::Struct;
use tokio::sync::broadcast;

const BACKLOG: usize = 1024;

#[derive(Clone, Debug)]
pub struct Metrics(broadcast::Sender<MetricsEvent>);

impl Metrics {
    pub fn subscribe(&self) -> broadcast::Receiver<MetricsEvent> {
        self.0.subscribe()
    }

    /// Whether there is a subscriber.
    pub fn has_subscribers(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Sends an event, if there are subscribers.
    pub fn emit<const N: usize>(&self, name: &str, labels: [(&str, &str); N], fields: Struct) {
        if self.has_subscribers() {
            self.send(event(name, labels, fields));
        }
    }

    pub fn send(&self, event: MetricsEvent) {
        // Err: the last subscriber has just gone.
        let _ = self.0.send(event);
    }
}

/// Builds an event with the current time.
pub fn event<const N: usize>(name: &str, labels: [(&str, &str); N], fields: Struct) -> MetricsEvent {
    let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let at = Some(SystemTime::now().into());
    MetricsEvent { at, name: name.to_owned(), labels, fields: Some(fields) }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics(broadcast::Sender::new(BACKLOG))
    }
}

/// Whether an event passes a request's filter: `name`, or a label's exact value.
pub fn passes(event: &MetricsEvent, filter: &BTreeMap<String, String>) -> bool {
    filter.iter().all(
        |(key, value)| {
            if key == "name" { event.name == *value } else { event.labels.get(key) == Some(value) }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_names_the_event_or_its_labels() {
        let event = MetricsEvent {
            name: "call".into(),
            labels: [("plugin".to_owned(), "echo@1".to_owned())].into(),
            ..MetricsEvent::default()
        };
        let filter = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
        assert!(passes(&event, &BTreeMap::new()));
        assert!(passes(&event, &filter("name", "call")) && passes(&event, &filter("plugin", "echo@1")));
        assert!(!passes(&event, &filter("name", "other")) && !passes(&event, &filter("worker", "x")));
    }
}
