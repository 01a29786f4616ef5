//! Several responses that follow one call, each of a client of its own.

use asp_call::call::ClientAbilities;
use asp_call::call::authority::Attachment;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{asks_name, fixture, last_result, modern, next_request, progress, user_input, with_token};
use crate::registry::running;
use crate::runtime::{Runtime, Script, Worker};
use crate::support::{Fixture, Modern};

/// A call that asks, shows progress, and waits to be told before it asks `again` or ends.
fn asks_and_waits(again: bool) -> (Runtime, oneshot::Sender<()>) {
    let (script, go) = Script::until_told(move |mut worker: Worker, went| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        user_input(&mut worker).await;
        worker.say(progress(&invoke.request_id, 50.0)).await;
        went.await.unwrap();
        if again {
            worker.say(asks_name(&invoke.request_id)).await;
            user_input(&mut worker).await;
        }
        worker.complete(&invoke, &json!({"ok": true})).await;
    });
    let runtime = Runtime::start(script);
    (runtime, go)
}

fn request(state: &Value, answers: Value, capabilities: Value) -> Modern {
    let extra = match state.is_null() {
        true => json!({}),
        false => json!({"requestState": state, "inputResponses": answers}),
    };
    with_token(modern("sweep", extra).capabilities(capabilities))
}

/// An answer to each question of a result.
fn answered(result: &Value) -> Value {
    let ids = result["inputRequests"].as_object().unwrap().keys();
    let answer = json!({"action": "accept", "content": {"name": "Ada"}});
    Value::Object(ids.map(|id| (id.clone(), answer.clone())).collect())
}

/// The request that brings the answers to a result's questions, of a client that can answer.
fn answering(result: &Value) -> Modern {
    request(&result["requestState"], answered(result), json!({"elicitation": {}}))
}

/// The result of a request whose call asks first.
async fn asked(fixture: &Fixture) -> Value {
    let asked = request(&Value::Null, json!({}), json!({"elicitation": {}})).send(fixture).await;
    let asked = last_result(&asked);
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    asked
}

async fn result(mut body: axum::body::Body) -> Value {
    let read = tokio::time::timeout(std::time::Duration::from_secs(60), next_request(&mut body)).await;
    read.expect("a result")["result"].clone()
}

#[tokio::test]
async fn a_response_that_closes_does_not_end_the_call_for_another() {
    let (runtime, go) = asks_and_waits(false);
    let fixture = fixture(&runtime);
    let asked = asked(&fixture).await;
    let retry = answering(&asked);
    let first = retry.open(&fixture).await;
    let second = retry.open(&fixture).await;
    let call = fixture.gateway.pipeline.internals().registry.running().pop().unwrap();
    drop(first);
    assert!(!call.is_cancelled());
    go.send(()).unwrap();
    let result = result(second.into_body()).await;
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
}

#[tokio::test]
async fn the_last_response_that_closes_cancels_the_call() {
    let (runtime, _go) = asks_and_waits(false);
    let fixture = fixture(&runtime);
    let asked = asked(&fixture).await;
    let retry = answering(&asked);
    let first = retry.open(&fixture).await;
    let second = retry.open(&fixture).await;
    let call = fixture.gateway.pipeline.internals().registry.running().pop().unwrap();
    drop(second);
    assert!(!call.is_cancelled());
    drop(first);
    assert!(call.is_cancelled());
}

#[tokio::test]
async fn who_is_away_to_answer_finds_the_call_when_the_last_response_has_closed() {
    let (runtime, go) = asks_and_waits(true);
    let fixture = fixture(&runtime);
    let asked = asked(&fixture).await;
    let able = answering(&asked);
    let able = able.open(&fixture).await;
    let unable = request(&asked["requestState"], json!({}), json!({})).open(&fixture).await;
    go.send(()).unwrap();
    let again = result(able.into_body()).await;
    assert_eq!(again["resultType"], "input_required", "{again}");
    drop(unable);
    let call = fixture.gateway.pipeline.internals().registry.running().pop().unwrap();
    assert!(!call.is_cancelled());
    let answer = answering(&again);
    let last = last_result(&answer.send(&fixture).await);
    assert_eq!(last["structuredContent"], json!({"ok": true}), "{last}");
}

#[tokio::test]
async fn a_question_is_put_to_those_who_can_answer_it() {
    let (runtime, go) = asks_and_waits(true);
    let fixture = fixture(&runtime);
    let asked = asked(&fixture).await;
    let able = answering(&asked);
    let able = able.open(&fixture).await;
    let unable = request(&asked["requestState"], json!({}), json!({})).open(&fixture).await;
    // Reads along, so that it would see the question while it is open.
    let unable = tokio::spawn(result(unable.into_body()));
    go.send(()).unwrap();
    let again = result(able.into_body()).await;
    assert_eq!(again["resultType"], "input_required", "{again}");
    let answer = answering(&again);
    let last = last_result(&answer.send(&fixture).await);
    assert_eq!(last["structuredContent"], json!({"ok": true}), "{last}");
    assert_eq!(unable.await.unwrap()["structuredContent"], json!({"ok": true}));
}

#[tokio::test]
async fn a_call_may_ask_what_one_of_those_who_follow_it_can_answer() {
    let call = running(&Fixture::new());
    let none = ClientAbilities::default();
    let user = ClientAbilities { elicitation: true, ..none };
    let model = ClientAbilities { sampling: true, ..none };
    let both = ClientAbilities { elicitation: true, sampling: true, ..none };
    assert_eq!(call.abilities(), none, "what it began with");
    let mut first = Attachment::to(call.clone(), user);
    let second = Attachment::to(call.clone(), model);
    let third = Attachment::to(call.clone(), user);
    assert_eq!(call.abilities(), both);
    assert!(!first.close());
    assert_eq!(call.abilities(), both, "the third can still");
    drop(third);
    drop(first);
    assert_eq!(call.abilities(), model);
    drop(second);
    assert_eq!(call.abilities(), none);
    assert!(Attachment::to(call, user).close(), "the last one");
}

#[tokio::test]
async fn a_call_may_ask_what_one_who_is_away_to_answer_can_answer() {
    let call = running(&Fixture::new());
    let none = ClientAbilities::default();
    let user = ClientAbilities { elicitation: true, ..none };
    let mut able = Attachment::to(call.clone(), user);
    let mut unable = Attachment::to(call.clone(), none);
    able.leave_to_answer();
    assert_eq!(call.abilities(), user, "they will be back");
    assert!(!unable.close(), "the one who is away finds the call");
    let mut unable = Attachment::to(call.clone(), none);
    let back = Attachment::to(call.clone(), user);
    drop(back);
    assert_eq!(call.abilities(), none);
    assert!(unable.close(), "the last one");
}
