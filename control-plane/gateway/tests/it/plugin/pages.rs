//! Users who are sent to a page (elicitation mode `url`), and calls that need a user who can be asked.

use asp_proto::plugin::{
    ElicitationCompleted, ElicitationRequested, deliver_user_input::Action, server_message::Payload,
};
use asp_proto::snapshot::GatewaySnapshot;
use serde_json::{Value, json};

use super::{fixture, last_result, next_message, user_input};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::{Fixture, Legacy, Modern, snapshot, token};

const PAGE: &str = "https://pay.example.com/cards/7?state=x";

/// A plugin that sends the user to `url`, says that the user is done there, and checks how the user was asked.
fn paying(url: &'static str, action: Action, error: &'static str) -> Runtime {
    Runtime::start(Script::of(move |_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let request_id = invoke.request_id.clone();
        worker
            .say(Payload::Elicitation(ElicitationRequested {
                request_id: request_id.clone(),
                elicitation_id: "plugins.card".into(),
                url: url.into(),
                ..ElicitationRequested::default()
            }))
            .await;
        let input = user_input(&mut worker).await;
        assert_eq!((input.action(), input.error.as_str()), (action, error));
        if action == Action::Accept {
            assert_eq!(input.fields.unwrap().value, b"{}");
        }
        let elicitation_id = "plugins.card".to_owned();
        worker.say(Payload::ElicitationCompleted(ElicitationCompleted { request_id, elicitation_id })).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }))
}

fn modern(extra: Value) -> Modern {
    let mut params = json!({"name": "pay", "arguments": {}});
    params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    Modern::new("pay", &token("alice"), "tools/call", params)
}

fn call() -> Value {
    json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "pay", "arguments": {}}})
}

#[tokio::test]
async fn a_legacy_user_is_sent_to_a_page_and_the_client_is_told_when_that_is_done() {
    let runtime = paying(PAGE, Action::Accept, "");
    let can = json!({"elicitation": {"url": {}}});
    let client = Legacy::connect(&fixture(&runtime), "pay", "alice", "2025-11-25", can).await;
    let mut body = client.open(&call()).await.into_body();
    let asked = next_message(&mut body).await;
    assert_eq!(asked["method"], "elicitation/create");
    let id = &asked["params"]["elicitationId"];
    assert_eq!(
        asked["params"],
        json!({"mode": "url", "message": "Enter your card.", "url": PAGE, "elicitationId": id})
    );
    let agreed = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}});
    assert_eq!(client.post(&agreed).await.status.as_u16(), 202);
    let told = next_message(&mut body).await;
    assert_eq!(
        (&told["method"], &told["params"]),
        (&json!("notifications/elicitation/complete"), &json!({"elicitationId": id}))
    );
    assert_eq!(next_message(&mut body).await["result"]["structuredContent"], json!({"ok": true}));
}

#[tokio::test]
async fn nobody_is_told_to_be_done_on_a_page_that_was_refused() {
    for (action, answer) in [(Action::Decline, "decline"), (Action::Cancel, "cancel")] {
        let runtime = paying(PAGE, action, "");
        let can = json!({"elicitation": {"url": {}}});
        let client = Legacy::connect(&fixture(&runtime), "pay", "alice", "2025-11-25", can).await;
        let mut body = client.open(&call()).await.into_body();
        let asked = next_message(&mut body).await;
        client.post(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": answer}})).await;
        let next = next_message(&mut body).await;
        assert_eq!(next["result"]["structuredContent"], json!({"ok": true}), "{answer}: {next}");
    }
}

#[tokio::test]
async fn a_modern_user_is_sent_to_a_page_that_has_no_id() {
    let runtime = paying("", Action::Accept, "");
    let fixture = fixture(&runtime);
    let can = json!({"elicitation": {"url": {}}});
    let asked = last_result(&modern(json!({})).capabilities(can.clone()).send(&fixture).await);
    let page = "https://pay.example.com/cards";
    assert_eq!(
        asked["inputRequests"]["plugins.card"],
        json!({"method": "elicitation/create", "params": {"mode": "url", "message": "Enter your card.", "url": page}})
    );
    let agreed = json!({"plugins.card": {"action": "accept"}});
    let extra = json!({"requestState": asked["requestState"], "inputResponses": agreed});
    let answer = modern(extra).capabilities(can).send(&fixture).await;
    assert!(!answer.text.contains("elicitation/complete"), "{}", answer.text);
    assert_eq!(last_result(&answer)["structuredContent"], json!({"ok": true}));
}

#[tokio::test]
async fn who_cannot_show_a_page_is_not_asked_to_and_no_other_page_is_shown() {
    for (revision, can, url, error) in [
        ("2025-06-18", json!({"elicitation": {"url": {}}}), PAGE, "unsupported"),
        ("2025-11-25", json!({"elicitation": {}}), PAGE, "unsupported"),
        ("2025-11-25", json!({"elicitation": {"url": {}}}), "https://evil.example.net/cards", "undeclared"),
    ] {
        let runtime = paying(url, Action::Cancel, error);
        let client = Legacy::connect(&fixture(&runtime), "pay", "alice", revision, can).await;
        let result = last_result(&client.post(&call()).await);
        assert_eq!(result["structuredContent"], json!({"ok": true}), "{revision}: {result}");
    }
}

/// The snapshot where `pay` needs a user whom it can ask.
fn asking_only() -> GatewaySnapshot {
    let mut snapshot = snapshot();
    snapshot
        .primitives
        .iter_mut()
        .filter(|one| one.id == "pay")
        .for_each(|one| one.elicitation_required = true);
    snapshot
}

#[tokio::test]
async fn a_call_that_needs_a_user_is_refused_before_anything_runs_where_nobody_can_be_asked() {
    let runtime = paying("", Action::Accept, "");
    let fixture = Fixture::with(asking_only(), 7, runtime.runtimes());
    let both = json!({"elicitation": {"form": {}, "url": {}}});
    for (can, required) in [
        (json!({}), both.clone()),
        (json!({"elicitation": {}}), json!({"elicitation": {"url": {}}})),
        (json!({"elicitation": {"url": {}}}), json!({"elicitation": {"form": {}}})),
    ] {
        let answer = modern(json!({})).capabilities(can).send(&fixture).await;
        let error = &answer.json()["error"];
        assert_eq!((answer.status.as_u16(), &error["code"]), (400, &json!(-32021)), "{error}");
        assert_eq!(error["data"]["requiredCapabilities"], required);
    }
    // That revision has no pages, whatever its client says.
    let legacy = Legacy::connect(&fixture, "pay", "alice", "2025-06-18", both.clone()).await;
    let error = legacy.post(&call()).await.json()["error"].clone();
    assert_eq!(error["code"], -32600, "{error}");
    assert_eq!(error["data"]["requiredCapabilities"], json!({"elicitation": {"url": {}}}));
    assert!(runtime.told.allocations.lock().is_empty(), "nothing ran");
    let asked = last_result(&modern(json!({})).capabilities(both).send(&fixture).await);
    assert_eq!(asked["resultType"], "input_required", "{asked}");
}

/// SEP-2243: a retry is a request of its own, and is held to the tool's headers as the first one was.
#[tokio::test]
async fn a_retry_without_the_header_of_its_argument_is_refused_and_the_call_waits_on() {
    let runtime = paying("", Action::Accept, "");
    let mut snapshot = snapshot();
    let pay = snapshot.primitives.iter_mut().find(|one| one.id == "pay").unwrap();
    pay.input_schema =
        r#"{"type": "object", "properties": {"shop": {"type": "string", "x-mcp-header": "Shop"}}}"#.into();
    let fixture = Fixture::with(snapshot, 7, runtime.runtimes());
    let can = json!({"elicitation": {"url": {}}});
    let asking = |extra: Value| {
        let mut request = modern(extra).capabilities(can.clone());
        request.body["params"]["arguments"] = json!({"shop": "north"});
        request
    };
    let first = asking(json!({})).with("mcp-param-shop", "north").send(&fixture).await;
    let asked = last_result(&first);
    assert_eq!(asked["resultType"], "input_required", "{}", first.text);
    let agreed = json!({"plugins.card": {"action": "accept"}});
    let extra = json!({"requestState": asked["requestState"], "inputResponses": agreed});
    for refused in [asking(extra.clone()), asking(extra.clone()).with("mcp-param-shop", "south")] {
        let answer = refused.send(&fixture).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (400, &json!(-32020)));
    }
    let answer = asking(extra).with("mcp-param-shop", "north").send(&fixture).await;
    assert_eq!(last_result(&answer)["structuredContent"], json!({"ok": true}), "{}", answer.text);
}
