//! Conformance suite of [`GatewayRegistry`].

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use super::{GatewayRegistry, GatewayReport};

const LONG: Duration = Duration::from_secs(600);
/// Longer than anything in the suite takes.
const SLACK: Duration = Duration::from_secs(60);

fn heard(address: &str, opened: Duration) -> GatewayReport {
    GatewayReport { pool: "gateway".into(), address: address.into(), opened }
}

/// Returns the addresses in order, each with whether it has left.
async fn known(heard: &dyn GatewayRegistry) -> Vec<(String, bool)> {
    let mut known = Vec::new();
    for one in heard.list_recent(LONG).await.unwrap() {
        assert!(one.pool == "gateway" && one.silent < SLACK && one.left.is_none_or(|left| left < SLACK));
        known.push((one.address, one.left.is_some()));
    }
    known.sort();
    known
}

/// Runs the suite against an empty store.
pub async fn run(store: &dyn GatewayRegistry) {
    assert_eq!(known(store).await, []);
    store.report("one", &[heard("10.0.0.1:1", SLACK), heard("10.0.0.2:1", SLACK)]).await.unwrap();
    store.report("one", &[]).await.unwrap();
    let both = |left: bool| vec![("10.0.0.1:1".to_owned(), left), ("10.0.0.2:1".to_owned(), false)];
    assert_eq!(known(store).await, both(false));
    store.leave("gateway", "10.0.0.1:1", Duration::ZERO).await.unwrap();
    assert_eq!(known(store).await, both(true));
    // Over a stream that it opened before it announced its shutdown.
    store.report("one", &[heard("10.0.0.1:1", LONG)]).await.unwrap();
    assert_eq!(known(store).await, both(true));
    // The gateway has restarted.
    store.report("one", &[heard("10.0.0.1:1", Duration::ZERO)]).await.unwrap();
    assert_eq!(known(store).await, both(false));
    assert_eq!(store.list_recent(Duration::ZERO).await.unwrap(), []);
    // Reported late, after it has restarted.
    store.leave("gateway", "10.0.0.1:1", SLACK / 2).await.unwrap();
    store.report("one", &[heard("10.0.0.1:1", SLACK / 4)]).await.unwrap();
    assert_eq!(known(store).await, both(false));
    store.leave("gateway", "10.0.0.9:1", Duration::ZERO).await.unwrap();
    assert_eq!(known(store).await.last(), Some(&("10.0.0.9:1".to_owned(), true)), "nobody had heard it");
    follows_the_newest_stream(store).await;
}

async fn follows_the_newest_stream(store: &dyn GatewayRegistry) {
    let report = async |control: &str, opened: Duration| {
        store.report(control, &[heard("10.0.0.5:1", opened)]).await.unwrap();
        let known = store.list_recent(LONG).await.unwrap();
        known.into_iter().find(|known| known.address == "10.0.0.5:1").unwrap().follows
    };
    assert_eq!(report("one", LONG).await, "one");
    assert_eq!(report("two", SLACK).await, "two", "it has moved");
    assert_eq!(report("one", LONG).await, "two", "the stream that it left is still there");
    assert_eq!(report("two", SLACK * 2).await, "two");
    assert_eq!(report("one", Duration::ZERO).await, "one", "it is back");
}
