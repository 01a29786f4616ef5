//! Questions of a task, answered by messages.

use serde_json::{Value, json};

use super::{Client, message, message_id, with_plugins};
use crate::rest::asking;

fn reply(task: &Value, parts: &Value) -> Value {
    json!({"message": {"messageId": message_id(), "role": "ROLE_USER", "taskId": task["id"],
        "contextId": task["contextId"], "parts": parts}})
}

#[tokio::test]
async fn a_question_is_shown_with_its_fields_and_answered_by_a_message() {
    let runtime = asking();
    let fixture = with_plugins(&runtime);
    let client = Client::of(&fixture, "plugins");
    let task = client.result("SendMessage", message("sweep", json!({}))).await["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task}");
    let parts = task["status"]["message"]["parts"].as_array().unwrap();
    assert_eq!(parts[0]["text"], "Which name?", "{task}");
    assert_eq!(parts[1]["data"]["schema"]["required"], json!(["name"]), "{task}");
    assert!(parts[1]["data"]["questionId"].is_string(), "{task}");

    let misfit = client.call("SendMessage", reply(&task, &json!([{"data": {"name": 7}}]))).await;
    assert!(misfit.text.contains("arguments.name"), "{}", misfit.text);
    let mut elsewhere = reply(&task, &json!([{"text": "Ada"}]));
    elsewhere["message"]["contextId"] = "another".into();
    assert_eq!(client.refused("SendMessage", elsewhere).await, (200, -32602));
    let answer = reply(&task, &json!([{"data": {"name": "Ada"}}]));
    let ended = client.result("SendMessage", answer.clone()).await;
    let ended = &ended["task"];
    assert_eq!(
        (&ended["id"], &ended["status"]["state"]),
        (&task["id"], &json!("TASK_STATE_COMPLETED")),
        "{ended}"
    );
    let history = ended["history"].as_array().unwrap();
    let roles: Vec<&str> = history.iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"], "{ended}");
    assert_eq!(history[0]["parts"][0]["data"]["skill"], "sweep");
    assert_eq!(history[1]["parts"], task["status"]["message"]["parts"]);
    assert_eq!(history[2]["parts"][0]["data"], json!({"name": "Ada"}));
    assert_eq!(history[2]["messageId"], answer["message"]["messageId"]);
    let again = client.result("SendMessage", answer.clone()).await;
    assert_eq!(again["task"], *ended, "the same answer again is the task as it is");
    let mut changed = answer;
    changed["message"]["parts"] = json!([{"data": {"name": "Eve"}}]);
    assert_eq!(client.refused("SendMessage", changed).await, (200, -32602));
    let got = client.result("GetTask", json!({"id": task["id"], "historyLength": 1})).await;
    assert_eq!(got["history"].as_array().unwrap().len(), 1);
    let late = reply(&task, &json!([{"text": "Ada"}]));
    assert_eq!(client.refused("SendMessage", late).await, (200, -32004));
}

#[tokio::test]
async fn a_stream_of_the_earlier_version_ends_with_the_question() {
    let runtime = asking();
    let fixture = with_plugins(&runtime);
    let client = Client::of(&fixture, "plugins");
    let params = json!({"message": {"kind": "message", "messageId": message_id(), "role": "user",
        "parts": [{"kind": "data", "data": {"skill": "sweep", "arguments": {}}}]}});
    let events = client.call("message/stream", params).await.events();
    let last = &events.last().unwrap()["result"];
    assert_eq!(
        (&last["status"]["state"], &last["final"]),
        (&json!("input-required"), &json!(true)),
        "{last}"
    );
    let answer = json!({"message": {"kind": "message", "messageId": message_id(), "role": "user",
        "taskId": last["taskId"], "parts": [{"kind": "text", "text": "Ada"}]}});
    let task = client.result("message/send", answer).await;
    assert_eq!(task["status"]["state"], "completed", "{task}");
}
