//! Streams of tasks.

use http::Method;
use serde_json::{Value, json};

use super::{Client, fixture, message, message_id};

/// The results in a stream of JSON-RPC responses.
fn results(events: Vec<Value>) -> Vec<Value> {
    events.into_iter().map(|event| event["result"].clone()).collect()
}

#[tokio::test]
async fn a_stream_has_the_task_its_changes_its_result_and_the_task_again() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let params = message("count", json!({"to": 3, "delayMs": 10}));
    let events = results(client.call("SendStreamingMessage", params).await.events());
    assert_eq!(events[0]["task"]["status"]["state"], "TASK_STATE_SUBMITTED", "{events:?}");
    let steps: Vec<u64> = events
        .iter()
        .filter_map(|event| event["statusUpdate"]["metadata"].get("asp/progress"))
        .filter_map(|progress| progress["progress"].as_u64())
        .collect();
    assert_eq!(steps, [1, 2, 3]);
    let [.., result, status, task] = events.as_slice() else { panic!("{events:?}") };
    let artifact = &result["artifactUpdate"];
    assert_eq!(
        (&artifact["artifact"]["artifactId"], &artifact["lastChunk"]),
        (&json!("result"), &json!(true))
    );
    assert_eq!(status["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(task["task"]["artifacts"][0], artifact["artifact"]);
    let id = events[0]["task"]["id"].clone();
    assert_eq!(client.refused("SubscribeToTask", json!({"id": id})).await, (200, -32004), "it has ended");
}

#[tokio::test]
async fn a_stream_of_the_earlier_version_ends_with_its_final_state() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let params = json!({"message": {"kind": "message", "messageId": message_id(), "role": "user",
        "parts": [{"kind": "data", "data": {"skill": "count", "arguments": {"to": 1, "delayMs": 0}}}]}});
    let events = results(client.call("message/stream", params).await.events());
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["kind"].as_str()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "task").count(), 1, "clients accept one: {kinds:?}");
    let finals: Vec<bool> = events.iter().filter_map(|event| event["final"].as_bool()).collect();
    assert_eq!((finals.last(), finals.iter().filter(|is_final| **is_final).count()), (Some(&true), 1));
    assert_eq!(events.last().unwrap()["status"]["state"], "completed");
}

#[tokio::test]
async fn a_task_is_followed_over_rest_from_where_it_is_and_goes_on_without_a_stream() {
    let fixture = fixture();
    let client = Client::of(&fixture, "demo");
    let mut params = message("count", json!({"to": 5, "delayMs": 100}));
    params["configuration"] = json!({"returnImmediately": true});
    let id = client.result("SendMessage", params).await["task"]["id"].as_str().unwrap().to_owned();
    for method in [Method::GET, Method::POST] {
        let headers: Vec<(&str, &str)> =
            client.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        // Dropped at once: the task does not end.
        fixture.open(method, &format!("/demo/a2a/tasks/{id}:subscribe"), &headers, "").await;
    }
    let events = client.send(Method::POST, &format!("/tasks/{id}:subscribe"), "").await.events();
    assert_eq!(events[0]["task"]["id"], id.as_str(), "{events:?}");
    let last = &events.last().unwrap()["task"];
    assert_eq!((&last["status"]["state"], &last["id"]), (&json!("TASK_STATE_COMPLETED"), &json!(id)));
}
