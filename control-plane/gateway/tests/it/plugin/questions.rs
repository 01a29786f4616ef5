//! Questions of a plugin to the user and the model, in both eras.

use std::sync::Arc;

use asp_proto::plugin::{
    ElicitationRequested, Failed, client_message, deliver_user_input::Action, server_message::Payload,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{
    asks_model, asks_name, fixture, last_result, modern, next_message, next_request, progress, sweep,
    user_input, with_token,
};
use crate::runtime::{Runtime, Script, Worker, json_of};
use crate::support::Legacy;

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "one round, told whole")]
async fn a_modern_client_answers_the_user_and_the_model_in_one_round() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        worker.say(asks_model(&invoke.request_id)).await;
        let mut seen = Vec::new();
        for _ in 0..2 {
            match worker.next().await {
                Some(client_message::Payload::UserInput(input)) => {
                    assert_eq!((input.action(), input.error.as_str()), (Action::Accept, ""));
                    seen.push(String::from_utf8(input.fields.unwrap().value).unwrap());
                }
                Some(client_message::Payload::DelegationResult(result)) => {
                    assert_eq!((result.correlation_id.as_str(), result.error.as_str()), ("d-1", ""));
                    let value: Value = serde_json::from_slice(&result.result.unwrap().value).unwrap();
                    seen.push(value["json"]["label"].as_str().unwrap().into());
                }
                other => panic!("{other:?}"),
            }
        }
        seen.sort();
        assert_eq!(seen, ["high", r#"{"name":"Ada"}"#]);
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = fixture(&runtime);
    let can = json!({"elicitation": {}, "sampling": {}});
    let answers = json!({
        "plugins.name": {"action": "accept", "content": {"name": "Ada"}},
        "plugins.label": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "{\"label\": \"high\"}"}}});
    let mut state = Value::Null;
    let mut asked = serde_json::Map::new();
    for _round in 0..3 {
        let mut extra = json!({});
        if !state.is_null() {
            let given: serde_json::Map<String, Value> = asked
                .keys()
                .map(|key: &String| (key.clone(), answers[key.trim_end_matches(".2")].clone()))
                .collect();
            extra = json!({"requestState": state, "inputResponses": given});
        }
        let answer = modern("sweep", extra).capabilities(can.clone());
        let answer = with_token(answer).send(&fixture).await;
        let result = last_result(&answer);
        if result["resultType"] == "complete" {
            assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
            return;
        }
        assert_eq!(result["resultType"], "input_required");
        state = result["requestState"].clone();
        asked = result["inputRequests"].as_object().unwrap().clone();
        for (key, request) in &asked {
            if key.starts_with("plugins.name") {
                assert_eq!(request["method"], "elicitation/create");
                assert_eq!(request["params"]["message"], "Which name?");
                assert_eq!(request["params"]["requestedSchema"]["required"], json!(["name"]));
            } else {
                assert_eq!(request["method"], "sampling/createMessage");
                assert_eq!(request["params"]["systemPrompt"], "Answer in JSON.");
                assert_eq!(request["params"]["messages"][0]["content"]["text"], r#"{"text":"hello"}"#);
            }
        }
    }
    panic!("the call did not end");
}

#[tokio::test]
async fn a_legacy_client_is_asked_on_its_stream_for_both_kinds() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        assert_eq!(user_input(&mut worker).await.action(), Action::Decline);
        worker.say(asks_model(&invoke.request_id)).await;
        match worker.next().await {
            Some(client_message::Payload::DelegationResult(result)) => {
                assert_eq!(result.error, "failed: User rejected sampling request");
            }
            other => panic!("{other:?}"),
        }
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let can = json!({"elicitation": {}, "sampling": {}});
    let client = Legacy::connect(&fixture(&runtime), "plugins", "alice", "2025-11-25", can).await;
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "sweep", "arguments": {}}});
    let mut body = client.open(&request).await.into_body();
    let asked = next_request(&mut body).await;
    assert_eq!(asked["method"], "elicitation/create");
    let declined = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}});
    assert_eq!(client.post(&declined).await.status.as_u16(), 202);
    let asked = next_request(&mut body).await;
    assert_eq!(asked["method"], "sampling/createMessage");
    assert_eq!(asked["params"]["maxTokens"], 64);
    let refused = json!({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "User rejected sampling request"}});
    assert_eq!(client.post(&refused).await.status.as_u16(), 202);
    assert_eq!(next_request(&mut body).await["result"]["structuredContent"], json!({"ok": true}));
}

#[tokio::test]
async fn a_plugin_is_told_at_once_that_nobody_can_be_asked_and_what_it_may_not_ask() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        assert_eq!(user_input(&mut worker).await.error, "unsupported");
        worker.say(asks_model(&invoke.request_id)).await;
        match worker.next().await {
            Some(client_message::Payload::DelegationResult(result)) => {
                assert_eq!(result.error, "unsupported")
            }
            other => panic!("{other:?}"),
        }
        let other = ElicitationRequested {
            request_id: invoke.request_id.clone(),
            elicitation_id: "gather_missing_policy".into(),
            ..ElicitationRequested::default()
        };
        worker.say(Payload::Elicitation(other)).await;
        assert_eq!(user_input(&mut worker).await.error, "undeclared");
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let result = sweep(&fixture(&runtime)).await.json()["result"].clone();
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
}

#[tokio::test]
async fn a_question_that_expires_fails_the_call_only_if_the_plugin_does_not_go_on() {
    for goes_on in [true, false] {
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| async move {
            let invoke = worker.begin(&[]).await;
            worker.say(asks_name(&invoke.request_id)).await;
            assert_eq!(user_input(&mut worker).await.error, "expired");
            if goes_on {
                worker.complete(&invoke, &json!({"ok": true})).await;
            } else {
                let end =
                    Failed { request_id: invoke.request_id, code: "INTERNAL".into(), ..Failed::default() };
                worker.say(Payload::Failed(end)).await;
            }
        }));
        let can = json!({"elicitation": {}});
        let client = Legacy::connect(&fixture(&runtime), "plugins", "alice", "2025-11-25", can).await;
        let answer = client.request(9, "tools/call", json!({"name": "sweep", "arguments": {}})).await;
        let events = answer.events();
        let asked = events.iter().find(|event| event["method"] == "elicitation/create").unwrap();
        let taken_back: Vec<_> =
            events.iter().filter(|event| event["method"] == "notifications/cancelled").collect();
        assert_eq!(taken_back.len(), 1, "{events:?}");
        assert_eq!(taken_back[0]["params"]["requestId"], asked["id"]);
        let result = events.last().unwrap()["result"].clone();
        if goes_on {
            assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
        } else {
            assert_eq!(result["content"][0]["text"], "a question to the user was not answered in time");
        }
    }
}

#[tokio::test]
async fn what_a_call_that_ends_has_asked_is_taken_back_and_what_was_answered_is_not() {
    let shown = Arc::new(Notify::new());
    let is_shown = shown.clone();
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let is_shown = is_shown.clone();
        async move {
            let invoke = worker.begin(&[]).await;
            worker.say(asks_name(&invoke.request_id)).await;
            user_input(&mut worker).await;
            worker.say(asks_model(&invoke.request_id)).await;
            is_shown.notified().await;
            worker.complete(&invoke, &json!({"ok": true})).await;
        }
    }));
    let can = json!({"elicitation": {}, "sampling": {}});
    let client = Legacy::connect(&fixture(&runtime), "plugins", "alice", "2025-06-18", can).await;
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "sweep", "arguments": {}}});
    let mut body = client.open(&request).await.into_body();
    let asked = next_request(&mut body).await;
    let declined = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}});
    assert_eq!(client.post(&declined).await.status.as_u16(), 202);
    let asked = next_request(&mut body).await;
    assert_eq!(asked["method"], "sampling/createMessage");
    shown.notify_one();
    let taken_back = next_message(&mut body).await;
    assert_eq!(taken_back["method"], "notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], asked["id"]);
    assert_eq!(next_request(&mut body).await["result"]["structuredContent"], json!({"ok": true}));
}

#[tokio::test]
async fn a_form_or_a_models_input_beyond_its_bound_is_not_asked() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let properties: serde_json::Map<String, Value> =
            (0..60).map(|n| (n.to_string(), json!({"type": "string", "title": "x".repeat(2000)}))).collect();
        let form = ElicitationRequested {
            request_id: invoke.request_id.clone(),
            elicitation_id: "plugins.name".into(),
            requested_schema: json_of(&json!({"type": "object", "properties": properties})),
            ..ElicitationRequested::default()
        };
        worker.say(Payload::Elicitation(form)).await;
        assert_eq!(user_input(&mut worker).await.error, "too_large");
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let request = modern("sweep", json!({})).capabilities(json!({"elicitation": {}}));
    let result = last_result(&with_token(request).send(&fixture(&runtime)).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
}

#[tokio::test]
async fn what_happens_between_a_question_and_its_answer_is_shown_with_the_rest() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(progress(&invoke.request_id, 10.0)).await;
        worker.say(asks_name(&invoke.request_id)).await;
        worker.say(progress(&invoke.request_id, 40.0)).await;
        user_input(&mut worker).await;
        worker.say(progress(&invoke.request_id, 80.0)).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = fixture(&runtime);
    let can = json!({"elicitation": {}});
    let shown = |answer: &crate::support::Answer| -> Vec<f64> {
        answer.events().iter().filter_map(|event| event["params"]["progress"].as_f64()).collect()
    };
    let first = with_token(modern("sweep", json!({})).capabilities(can.clone())).send(&fixture).await;
    assert_eq!(shown(&first), [10.0]);
    let state = last_result(&first)["requestState"].clone();
    let given = json!({"plugins.name": {"action": "accept", "content": {"name": "Ada"}}});
    let retry = modern("sweep", json!({"requestState": state, "inputResponses": given})).capabilities(can);
    let second = with_token(retry).send(&fixture).await;
    assert_eq!(shown(&second), [40.0, 80.0]);
    assert_eq!(last_result(&second)["structuredContent"], json!({"ok": true}));
}
