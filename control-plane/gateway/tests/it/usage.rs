//! Sums of ended calls: who called, with which end, and the CPU time of the worker; all of them are stored at a clean stop.

use std::sync::Arc;

use asp_call::telemetry::usage::{TokenPrice, UsageMeter};
use asp_store::usage::{MemoryUsage, UsageCounts, UsageDimension, UsageQuery, UsageStore};
use serde_json::{Value, json};

use crate::runtime::{Runtime, Script, completed};
use crate::support::{Fixture, Modern, snapshot, token};

fn measured(fixture: &Fixture) -> Arc<MemoryUsage> {
    let store = Arc::new(MemoryUsage::default());
    let meter = UsageMeter::new(store.clone(), TokenPrice::default());
    fixture.gateway.pipeline.count_usage(Arc::new(meter));
    store
}

async fn call(fixture: &Fixture, server: &str, tool: &str, arguments: Value) {
    let params = json!({"name": tool, "arguments": arguments});
    Modern::new(server, &token("alice"), "tools/call", params).send(fixture).await;
}

/// Returns the sums of a server by user.
async fn of_server(store: &MemoryUsage, server: &str) -> Vec<(String, UsageCounts)> {
    let query = UsageQuery {
        org: Some("acme".into()),
        days: (0, i64::MAX),
        user: None,
        server: Some(server.into()),
        primitive: None,
        by: UsageDimension::User,
        limit: 10,
    };
    let groups = store.usage(&query).await.unwrap();
    groups.into_iter().map(|group| (group.name, group.counts)).collect()
}

#[tokio::test]
async fn every_ended_call_is_in_the_store_after_a_clean_stop() {
    let fixture = Fixture::new();
    let store = measured(&fixture);
    for message in [json!("hi"), json!("again"), json!(7)] {
        call(&fixture, "demo", "echo", json!({ "message": message })).await;
    }
    assert!(of_server(&store, "demo").await.is_empty(), "nothing writes before the stop");
    fixture.gateway.stop().await;
    let sums = of_server(&store, "demo").await;
    let [(user, counts)] = sums.as_slice() else { panic!("{sums:?}") };
    assert_eq!((user.as_str(), counts.calls, counts.errors, counts.limited), ("alice", 3, 1, 0));
    assert_eq!((counts.refused, counts.admitted()), (1, 2), "its arguments did not fit");
    assert_eq!(counts.latency.iter().sum::<u64>(), 3);
}

#[tokio::test]
async fn the_cpu_time_of_a_worker_is_charged_to_the_caller() {
    let runtime = Runtime::start(Script::answering(|work| completed(work, |_| json!({"ok": true}))));
    let fixture = Fixture::with(snapshot(), 7, runtime.runtimes());
    let store = measured(&fixture);
    call(&fixture, "plugins", "sweep", json!({})).await;
    fixture.gateway.flush().await;
    let sums = of_server(&store, "plugins").await;
    let [(_, counts)] = sums.as_slice() else { panic!("{sums:?}") };
    assert_eq!((counts.calls, counts.cpu_us), (1, 250_000), "as the runtime reports it");
}
