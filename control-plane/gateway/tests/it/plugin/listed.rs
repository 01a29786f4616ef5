//! Lists by a plugin: the resources behind a template.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use asp_proto::envelope::packed;
use asp_proto::plugin::client_message::Payload as ToPlugin;
use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::{
    ClientMessage, Failed, ListResourcesRequest, ListResourcesResponse, ResourceChanged, ResourceInfo,
};
use asp_proto::snapshot::{Binding, Protocol, TargetKind};
use asp_registry::assemble;
use prost::Message;
use serde_json::{Value, json};

use super::sweep;
use crate::runtime::{Runtime, Script, Worker};
use crate::subscriptions::Stream;
use crate::support::{Fixture, Legacy, Modern, inputs, token};

/// The plugin behind `page://{id}` lists; dave may not see it.
fn fixture(runtime: &Runtime) -> Fixture {
    let mut inputs = inputs();
    inputs.bindings.push(Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: "dave".into(),
        primitive: "page".into(),
        protocol: Protocol::Unspecified.into(),
        allowed: false,
        ..Binding::default()
    });
    let mut snapshot = assemble(inputs);
    snapshot.primitives.iter_mut().find(|primitive| primitive.id == "page").unwrap().listed_by_runtime = true;
    Fixture::with(snapshot, 7, runtime.runtimes())
}

/// A plugin that lists a page for its user, a foreign one, and how often it was asked; that fails once it was asked
/// `fails_after` times; and that says of its template that it lists otherwise when it is called.
fn listing(fails_after: usize) -> (Runtime, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let counted = counted.clone();
        async move {
            worker.any().await.unwrap();
            let work = worker.any().await.unwrap();
            if !work.type_url.ends_with("ListResourcesRequest") {
                let message = ClientMessage::decode(work.value.as_slice()).unwrap();
                let Some(ToPlugin::Invoke(invoke)) = message.payload else { panic!("{message:?}") };
                let request_id = invoke.request_id.clone();
                let uri = "page://{id}".to_owned();
                worker.say(Payload::ResourceChanged(ResourceChanged { request_id, uri })).await;
                return worker.complete(&invoke, &json!({"ok": true})).await;
            }
            let asked = ListResourcesRequest::decode(work.value.as_slice()).unwrap();
            let times = counted.fetch_add(1, Ordering::Relaxed) + 1;
            if times > fails_after {
                let request_id = asked.request_id;
                let failed = Failed { request_id, code: "INTERNAL".into(), ..Failed::default() };
                return worker.say(Payload::Failed(failed)).await;
            }
            let info = |uri: String, title: &str| ResourceInfo {
                uri,
                name: "A page".into(),
                title: title.into(),
                mime_type: "text/plain".into(),
                ..ResourceInfo::default()
            };
            let user = asked.ctx.unwrap().user_id;
            let resources = vec![
                info(format!("page://{user}"), "Yours"),
                info("https://example.com/".into(), ""),
                info(format!("page://{times}"), ""),
            ];
            worker.say_packed(packed(&ListResourcesResponse { resources, mcp: None })).await;
        }
    }));
    (runtime, asked)
}

async fn listed(fixture: &Fixture, user: &str) -> Vec<Value> {
    let answer = Modern::new("plugins", &token(user), "resources/list", json!({})).send(fixture).await.json();
    answer["result"]["resources"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}

fn uris(resources: &[Value]) -> Vec<&str> {
    resources.iter().filter_map(|resource| resource["uri"].as_str()).collect()
}

#[tokio::test]
async fn a_plugin_lists_what_is_behind_its_template_in_both_eras() {
    let (runtime, _) = listing(usize::MAX);
    let fixture = fixture(&runtime);
    let yours = json!({"uri": "page://alice", "name": "A page", "title": "Yours", "mimeType": "text/plain"});
    let first = json!({"uri": "page://1", "name": "A page", "mimeType": "text/plain"});
    assert_eq!(listed(&fixture, "alice").await, [yours.clone(), first.clone()]);
    for revision in ["2025-11-25", "2025-03-26"] {
        let client = Legacy::connect(&fixture, "plugins", "alice", revision, json!({})).await;
        let answer = client.request(2, "resources/list", json!({})).await.json();
        let mut yours = yours.clone();
        if revision == "2025-03-26" {
            yours.as_object_mut().unwrap().remove("title");
        }
        assert_eq!(answer["result"], json!({"resources": [yours, first]}), "{answer}");
    }
}

#[tokio::test]
async fn a_list_is_kept_for_a_moment_for_each_user_alone() {
    let (runtime, asked) = listing(usize::MAX);
    let fixture = fixture(&runtime);
    for _ in 0..3 {
        assert_eq!(uris(&listed(&fixture, "alice").await), ["page://alice", "page://1"]);
    }
    assert_eq!(uris(&listed(&fixture, "bob").await), ["page://bob", "page://2"]);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

/// Invariant I-10.
#[tokio::test]
async fn who_cannot_see_a_template_is_told_nothing_behind_it_and_no_plugin_hears_of_it() {
    let (runtime, asked) = listing(usize::MAX);
    let fixture = fixture(&runtime);
    assert_eq!(listed(&fixture, "dave").await, [] as [Value; 0]);
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_plugin_that_fails_hides_nothing_that_it_has_listed_and_troubles_no_client() {
    let (runtime, asked) = listing(0);
    let fixture = fixture(&runtime);
    for _ in 0..2 {
        assert_eq!(listed(&fixture, "alice").await, [] as [Value; 0]);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1, "one that fails is not asked more often");
}

#[tokio::test]
async fn what_is_said_of_a_template_is_told_as_a_change_of_the_list() {
    let (runtime, asked) = listing(usize::MAX);
    let fixture = fixture(&runtime);
    let filter = json!({"notifications": {"resourcesListChanged": true}});
    let mut streams = Vec::new();
    for user in ["alice", "dave"] {
        let request = Modern::new("plugins", &token(user), "subscriptions/listen", filter.clone());
        let mut stream = Stream::of(request.open(&fixture).await.into_body());
        assert_eq!(stream.method().await, "notifications/subscriptions/acknowledged");
        streams.push(stream);
    }
    listed(&fixture, "alice").await;
    assert_eq!(sweep(&fixture).await.json()["result"]["structuredContent"]["ok"], true);
    assert_eq!(streams[0].method().await, "notifications/resources/list_changed");
    assert!(futures::poll!(std::pin::pin!(streams[1].next())).is_pending(), "dave sees no such list");
    assert_eq!(uris(&listed(&fixture, "alice").await), ["page://alice", "page://2"]);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}
