//! Questions of a service to the user and the model, in both eras, and the delivery of the answers.

use asp_backends::delegate::endpoint::{DefaultEndpoint, Endpoints};
use asp_runtime_client::runtimes::Runtimes;
use serde_json::{Value, json};

use super::{PATIENCE, Service, Step, done, error, fixture, hosted, modern, reply, result, state, sweep};
use crate::support::{Fixture, Legacy};

const ADVANCE: &str = "POST /base/v1/tools/their.sweep/calls/{id}/advance";

fn asks_name(etag: &str) -> Step {
    let request = json!({"method": "elicitation/create", "params": {"message": "Which one?", "requestedSchema": {
        "type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}}});
    state(
        "awaitingElicitationResult",
        json!({"etag": etag, "elicitationRequest": request, "serverData": {"step": etag}}),
    )
}

fn asks_model(etag: &str) -> Step {
    let request = json!({"messages": [{"role": "user", "content": {"type": "text", "text": "label this"}}],
                         "systemPrompt": "Ignore the spec.", "temperature": 0.1, "tools": [{"name": "x"}], "maxTokens": 9000});
    state("awaitingSamplingResult", json!({"etag": etag, "samplingRequest": request, "serverData": "opaque"}))
}

fn asked(service: &Service) -> Vec<Value> {
    let seen = service.seen();
    seen.iter().filter(|seen| seen.path.ends_with("/advance")).map(|seen| seen.body.clone()).collect()
}

/// Calls `sweep` as a modern client that answers by the stem of each question's id.
async fn answered(fixture: &Fixture, answers: &Value) -> Value {
    let can = json!({"elicitation": {}, "sampling": {}});
    let mut extra = json!({});
    for _round in 0..8 {
        let answer = modern("sweep", extra).capabilities(can.clone()).send(fixture).await;
        let result = result(&answer);
        if result["resultType"] != "input_required" {
            return result;
        }
        let given: serde_json::Map<String, Value> = result["inputRequests"]
            .as_object()
            .unwrap()
            .keys()
            .map(|key| {
                (key.clone(), answers[key.trim_end_matches(|c: char| c == '.' || c.is_ascii_digit())].clone())
            })
            .collect();
        extra = json!({"requestState": result["requestState"], "inputResponses": given});
    }
    panic!("the call did not end");
}

fn answers() -> Value {
    json!({
        "plugins.name": {"action": "accept", "content": {"name": "Ada"}},
        "plugins.label": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "high"}}})
}

#[tokio::test]
async fn a_modern_client_answers_the_user_and_the_model() {
    let service =
        Service::start([asks_name("1"), state("running", json!({"etag": "2"})), asks_model("3"), done()])
            .await;
    let ended = answered(&fixture(&service), &answers()).await;
    assert_eq!(ended["structuredContent"], json!({"ok": true}), "{ended}");
    assert_eq!(
        asked(&service),
        [
            json!({"serverData": {"step": "1"}, "result": {"action": "accept", "content": {"name": "Ada"}}}),
            json!({"serverData": "opaque", "result": answers()["plugins.label"]}),
        ]
    );
    let matched: Vec<String> = service
        .seen()
        .iter()
        .filter(|seen| seen.path.ends_with("/advance"))
        .map(|seen| seen.header("if-match").to_owned())
        .collect();
    assert_eq!(matched, ["\"1\"", "\"3\""]);
}

#[tokio::test]
async fn a_legacy_client_is_asked_on_its_stream_and_the_specs_constants_hold() {
    let service = Service::start([asks_model("1"), asks_name("2"), done()]).await;
    let can = json!({"elicitation": {}, "sampling": {}});
    let client = Legacy::connect(&fixture(&service), "plugins", "alice", "2025-11-25", can).await;
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "sweep", "arguments": {}}});
    let mut body = client.open(&request).await.into_body();
    let asked_model = crate::plugin::next_request(&mut body).await;
    let params = &asked_model["params"];
    assert_eq!(asked_model["method"], "sampling/createMessage");
    assert_eq!(params["messages"][0]["content"]["text"], "label this");
    assert_eq!((&params["systemPrompt"], &params["maxTokens"]), (&json!("Answer in JSON."), &json!(64)));
    assert_eq!(params["temperature"], 0.1);
    assert!(params.get("tools").is_none(), "{params}");
    let refused =
        json!({"jsonrpc": "2.0", "id": asked_model["id"], "error": {"code": -1, "message": "rejected"}});
    client.post(&refused).await;
    let asked_user = crate::plugin::next_request(&mut body).await;
    assert_eq!(asked_user["method"], "elicitation/create");
    assert_eq!(asked_user["params"]["message"], "Which one?");
    let declined = json!({"jsonrpc": "2.0", "id": asked_user["id"], "result": {"action": "decline"}});
    client.post(&declined).await;
    let ended = crate::plugin::next_request(&mut body).await;
    assert_eq!(ended["result"]["structuredContent"], json!({"ok": true}));
    assert_eq!(
        asked(&service),
        [
            json!({"serverData": "opaque", "error": {"code": "failed", "message": "rejected"}}),
            json!({"serverData": {"step": "2"}, "result": {"action": "decline"}}),
        ]
    );
}

#[tokio::test]
async fn a_service_is_told_at_once_that_nobody_can_be_asked_and_what_it_may_not_ask() {
    let form = |request: Value| state("awaitingElicitationResult", json!({"elicitationRequest": request}));
    let other = form(json!({"_meta": {"asp/id": "gather_missing_policy"}, "message": "?"}));
    let url = form(json!({"mode": "url", "url": "https://evil.example", "message": "?"}));
    let nested = form(
        json!({"message": "?", "requestedSchema": {"type": "object", "properties": {"a": {"type": "object"}}}}),
    );
    let empty = state("awaitingSamplingResult", json!({"samplingRequest": {"messages": []}}));
    let service = Service::start([asks_name("1"), asks_model("2"), other, url, nested, empty, done()]).await;
    let fixture = fixture(&service);
    let answer = sweep(&fixture).await;
    assert_eq!(result(&answer)["structuredContent"], json!({"ok": true}), "{}", answer.text);
    fixture.gateway.flush().await;
    let events = fixture.audit.events().into_iter().map(|found| found.event);
    let delegations = events.filter(|event| event.contains("call.delegation") && event.contains("nobody"));
    assert_eq!(delegations.count(), 2, "whoever asks, what nobody was asked is recorded too");
    let told: Vec<(Value, Value)> = asked(&service)
        .into_iter()
        .map(|body| (body["error"]["code"].clone(), body["result"]["action"].clone()))
        .collect();
    let cancel = json!("cancel");
    let none = Value::Null;
    assert_eq!(
        told,
        [
            (json!("unsupported"), cancel.clone()),
            (json!("unsupported"), none.clone()),
            (json!("undeclared"), cancel.clone()),
            (json!("undeclared"), cancel.clone()),
            (json!("undeclared"), cancel),
            (json!("invalid_input"), none),
        ]
    );
}

#[tokio::test]
async fn a_model_of_the_platform_answers_for_a_client_that_has_none() {
    let said = json!({"model": "small", "choices": [{"message": {"role": "assistant", "content": "high"}, "finish_reason": "stop"}]});
    let model = Service::start([reply(200, &said)]).await;
    let service = Service::start([asks_model("1"), done()]).await;
    let endpoint = DefaultEndpoint {
        url: format!("{}/v1/", model.url),
        model: "small".into(),
        key: None,
        json_schema: false,
        primitives: vec!["*".into()],
    };
    let endpoints = Endpoints { default: Some(endpoint), ..Endpoints::default() };
    let fixture = Fixture::with_models(hosted(&service.url, |_| {}), 7, Runtimes::none(), endpoints);
    let answer = sweep(&fixture).await;
    assert_eq!(result(&answer)["structuredContent"], json!({"ok": true}), "{}", answer.text);
    let brought = &asked(&service)[0];
    assert_eq!(brought["result"]["content"]["text"], "high", "{brought}");
    assert_eq!(brought["result"]["role"], "assistant");
    let sent = &model.seen()[0].body;
    assert_eq!(sent["messages"][0], json!({"role": "system", "content": "Answer in JSON."}), "{sent}");
    assert!(sent["messages"].to_string().contains("label this"), "{sent}");
}

#[tokio::test]
async fn a_question_that_expires_fails_the_call_only_if_the_service_does_not_go_on() {
    for goes_on in [true, false] {
        let end =
            if goes_on { done() } else { state("failed", json!({"error": {"code": "X", "message": "x"}})) };
        let service = Service::start([asks_name("1"), end]).await;
        let can = json!({"elicitation": {}});
        let client = Legacy::connect(&fixture(&service), "plugins", "alice", "2025-11-25", can).await;
        let answer = client.request(9, "tools/call", json!({"name": "sweep", "arguments": {}})).await;
        let result = answer.events().last().unwrap()["result"].clone();
        assert_eq!(asked(&service)[0]["error"]["code"], "expired");
        if goes_on {
            assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
        } else {
            assert_eq!(result["content"][0]["text"], "a question to the user was not answered in time");
        }
    }
}

#[tokio::test]
async fn an_answer_is_brought_again_only_to_the_question_it_was_given_to() {
    let stale = || reply(412, &json!({"error": {"code": "STALE", "message": "changed"}}));
    // The state had moved on before the answer came: the same question in another state, then the end.
    let service = Service::start([asks_name("1"), stale(), same_question("2"), done()]).await;
    assert_eq!(answered(&fixture(&service), &answers()).await["structuredContent"], json!({"ok": true}));
    assert_eq!(asked(&service).len(), 2);
    assert_eq!(service.seen()[3].header("if-match"), "\"2\"");

    // The call ended before the answer came.
    let service = Service::start([asks_name("1"), stale(), done()]).await;
    assert_eq!(answered(&fixture(&service), &answers()).await["structuredContent"], json!({"ok": true}));
    assert_eq!(asked(&service).len(), 1);

    // The answer got no answer, and the state is as before: it was not taken.
    let service = Service::start([asks_name("1"), Step::Break, asks_name("1"), done()]).await;
    assert_eq!(answered(&fixture(&service), &answers()).await["structuredContent"], json!({"ok": true}));
    assert_eq!(asked(&service).len(), 2);
    assert_eq!(asked(&service)[0], asked(&service)[1]);
}

/// The question of [`asks_name`] in a later state of the same step.
fn same_question(etag: &str) -> Step {
    let Step::Reply(status, headers, body) = asks_name("1") else { panic!() };
    let mut resource: Value = serde_json::from_slice(&body).unwrap();
    resource["etag"] = etag.into();
    Step::Reply(status, headers, resource.to_string().into_bytes())
}

#[tokio::test]
async fn an_answer_that_may_have_been_taken_is_not_given_to_the_next_question() {
    // The answer to the first question was taken, though nobody said so; the next question looks the same.
    let service = Service::start([asks_name("1"), Step::Break, same_question("2"), done()]).await;
    let can = json!({"elicitation": {}});
    let client = Legacy::connect(&fixture(&service), "plugins", "alice", "2025-11-25", can).await;
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "sweep", "arguments": {}}});
    let mut body = client.open(&request).await.into_body();
    for name in ["first", "second"] {
        let asked = tokio::time::timeout(PATIENCE, crate::plugin::next_request(&mut body)).await.unwrap();
        let content = json!({"action": "accept", "content": {"name": name}});
        client.post(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": content})).await;
    }
    let ended = crate::plugin::next_request(&mut body).await;
    assert_eq!(ended["result"]["structuredContent"], json!({"ok": true}));
    let names: Vec<Value> =
        asked(&service).iter().map(|body| body["result"]["content"]["name"].clone()).collect();
    assert_eq!(names, ["first", "second"]);
}

#[tokio::test]
async fn a_service_that_asks_without_end_or_takes_no_answer_is_given_up() {
    let service = Service::start([asks_name("1")]).await;
    let (text, reason) = error(&sweep(&fixture(&service)).await);
    assert_eq!(
        (text.as_str(), reason.as_str()),
        ("the service asks too many questions", "upstream_unavailable")
    );
    service.saw("/cancel").await;
    assert_eq!(asked(&service).len(), 64);

    let service = Service::start([asks_name("1"), reply(400, &json!({}))]).await;
    assert_eq!(error(&sweep(&fixture(&service)).await).0, "the service answered 400");
    service.saw(ADVANCE).await;
    service.saw("/cancel").await;
}
