//! Calls that have ended at another gateway, as their clients find them here.

use std::sync::Arc;

use asp_store::outbox::{MemoryOutbox, Outbox};
use http::StatusCode;
use serde_json::json;
use tokio::sync::Notify;

use super::inbox::Gateways;
use super::mirrored::call_at;
use super::progress;
use crate::rest::Rest;
use crate::runtime::{Runtime, Script, Worker};

/// Events keep their numbers, and the name of their log, wherever their client comes back.
#[tokio::test]
async fn a_call_that_has_ended_elsewhere_is_found_and_its_events_stay_as_they_are_kept() {
    let ends = Arc::new(Notify::new());
    let told = ends.clone();
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let ends = told.clone();
        async move {
            let invoke = worker.begin(&[]).await;
            worker.say(progress(&invoke.request_id, 70.0)).await;
            ends.notified().await;
            worker.complete(&invoke, &json!({"ok": true})).await;
        }
    }));
    let outbox = Arc::new(MemoryOutbox::default());
    let gateways = Gateways::over(&runtime, outbox.clone());
    let second = gateways.another(runtime.runtimes());
    let call = Rest::at(&gateways.first, "/plugins/rest/tools/order/calls/1");
    let put = call.put(&json!({})).await;
    assert_eq!((put.status, &put.json()["status"]), (StatusCode::CREATED, &json!("running")), "{}", put.text);
    ends.notify_one();
    let ended = call.with("prefer", "wait=20").put(&json!({})).await;
    assert_eq!(ended.json()["status"], "success", "{}", ended.text);
    let id = call_at(&gateways.first, &runtime).await.id.into_bytes();
    let kept = outbox.read(id, 0).await.unwrap();
    assert!(kept.as_ref().is_some_and(|kept| kept.next() > 0));

    let again = call.on(&second).put(&json!({})).await;
    assert_eq!(
        (again.status, &again.json()["status"]),
        (StatusCode::OK, &json!("success")),
        "{}",
        again.text
    );
    let found = call_at(&second, &runtime).await;
    assert!(found.ownership.publication().is_none(), "its own gateway has written all of it");
    assert_eq!(outbox.read(id, 0).await.unwrap(), kept);
}
