//! A plugin's reports of changed resources, and the clients that get them.

use asp_proto::plugin::ResourceChanged;
use asp_proto::plugin::server_message::Payload;
use serde_json::json;

use super::{fixture, sweep};
use crate::runtime::{Runtime, Script, Worker};
use crate::subscriptions::{Stream, UPDATED};
use crate::support::{Fixture, Modern, claims, sign, token};

/// A client that watches two pages.
async fn watching(fixture: &Fixture, token: &str) -> Stream {
    let filter = json!({"notifications": {"resourceSubscriptions": ["page://7", "page://8"]}});
    let request = Modern::new("plugins", token, "subscriptions/listen", filter);
    let mut stream = Stream::of(request.open(fixture).await.into_body());
    assert_eq!(stream.method().await, "notifications/subscriptions/acknowledged");
    stream
}

#[tokio::test]
async fn a_resource_that_a_plugin_changed_is_told_to_who_watches_it_in_the_callers_org() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        for uri in ["page://nobody", "page://7", "nope", ""] {
            let request_id = invoke.request_id.clone();
            worker.say(Payload::ResourceChanged(ResourceChanged { request_id, uri: uri.into() })).await;
        }
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = fixture(&runtime);
    let mut bobs = watching(&fixture, &token("bob")).await;
    let mut elsewhere = claims("bob");
    elsewhere["org"] = "globex".into();
    let mut theirs = watching(&fixture, &sign(&elsewhere)).await;
    assert_eq!(sweep(&fixture).await.json()["result"]["structuredContent"]["ok"], true);
    let told = bobs.next().await.unwrap();
    assert_eq!((&told["method"], &told["params"]["uri"]), (&json!(UPDATED), &json!("page://7")));
    for stream in [&mut bobs, &mut theirs] {
        assert!(futures::poll!(std::pin::pin!(stream.next())).is_pending(), "nothing else is told");
    }
}

#[tokio::test]
async fn a_plugin_that_says_it_of_everything_all_the_time_is_told_in_few_passes() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        for number in 0..3000 {
            let changed = ResourceChanged {
                request_id: invoke.request_id.clone(),
                uri: format!("page://{}", number % 1500),
            };
            worker.say(Payload::ResourceChanged(changed)).await;
        }
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = fixture(&runtime);
    let mut stream = watching(&fixture, &token("alice")).await;
    assert_eq!(sweep(&fixture).await.json()["result"]["structuredContent"]["ok"], true);
    assert_eq!(stream.method().await, UPDATED);
    assert_eq!(stream.method().await, UPDATED);
}
