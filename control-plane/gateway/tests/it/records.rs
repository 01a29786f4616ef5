//! What is kept of a call that somebody can come back for, and that every gateway over the same stores tells it (I-3).

use std::time::Duration;

use asp_gateway::call::principal::principal;
use asp_gateway::executors::plugin::runtimes::Runtimes;
use asp_store::records::{CallId, CallRecord, CallRecords, Listing, State};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::registry::caller;
use crate::support::{Answer, Fixture, Modern, token};

const SECRET: &str = "a secret of the caller";

/// A call that asks for an approval before it echoes `message`.
fn wipe(message: &str, extra: &Value) -> Modern {
    let mut params = json!({"name": "policy.wipe", "arguments": {"message": message}});
    params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let request = Modern::new("policy", &token("alice"), "tools/call", params);
    request.capabilities(json!({"elicitation": {}}))
}

fn keyed(mut request: Modern, key: Option<&str>) -> Modern {
    if let Some(key) = key {
        request.body["params"]["_meta"]["asp/idempotencyKey"] = key.into();
    }
    request
}

/// The question of a `wipe`, and the retry that answers it with `action`.
async fn asked(fixture: &Fixture, message: &str, key: Option<&str>, action: &str) -> Modern {
    let asked = keyed(wipe(message, &json!({})), key).send(fixture).await.json()["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    record(fixture, State::InputRequired).await;
    let answer = json!({"asp.approve": {"action": action, "content": {"approve": true}}});
    let retry = json!({"requestState": asked["requestState"], "inputResponses": answer});
    keyed(wipe(message, &retry), key)
}

async fn records(fixture: &Fixture) -> Vec<(CallId, CallRecord)> {
    let principal = principal(&caller("alice"));
    let listing = Listing { principal, server: "policy", before: None, limit: 10 };
    fixture.active.list(&listing).await.unwrap()
}

/// The only record of alice's, once it is in `state`.
async fn record(fixture: &Fixture, state: State) -> (CallId, CallRecord) {
    let looking = async {
        loop {
            let found = records(fixture).await;
            match found.as_slice() {
                [(_, record)] if record.state == state => return found[0].clone(),
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), looking).await.expect("a record in its state")
}

fn other(fixture: &Fixture) -> Fixture {
    fixture.beside(Runtimes::none())
}

async fn at_another(fixture: &Fixture, retry: &Modern) -> Answer {
    fixture.gateway.flush().await;
    retry.send(&other(fixture)).await
}

#[tokio::test]
async fn how_a_suspended_call_ended_is_told_by_every_gateway() {
    let fixture = Fixture::new();
    let retry = asked(&fixture, "gone", None, "accept").await;
    let first = retry.send(&fixture).await.json()["result"].clone();
    assert_eq!(first["structuredContent"], json!({"message": "gone"}), "{first}");
    let again = at_another(&fixture, &retry).await.json();
    assert_eq!(again["result"], first, "{again}");
}

#[tokio::test]
async fn a_refusal_is_told_by_every_gateway_as_it_was() {
    let fixture = Fixture::new();
    let retry = asked(&fixture, "gone", None, "decline").await;
    let first = retry.send(&fixture).await.text;
    assert!(first.contains("was declined"), "{first}");
    assert_eq!(at_another(&fixture, &retry).await.text, first);
}

#[tokio::test]
async fn an_answer_that_the_ledger_has_is_stored_once_and_told_from_there() {
    let fixture = Fixture::new();
    let long = "long ".repeat(1_000);
    let retry = asked(&fixture, &long, Some("k"), "accept").await;
    let first = retry.send(&fixture).await.json()["result"].clone();
    assert_eq!(first["structuredContent"]["message"], long);
    let told = at_another(&fixture, &retry).await.json()["result"].clone();
    assert_eq!(told["structuredContent"], first["structuredContent"]);
    assert_eq!(told["_meta"]["asp/replayed"], true);
    let (_, record) = record(&fixture, State::Completed).await;
    assert!(record.outcome.len() < 1_000, "{} bytes", record.outcome.len());
}

#[tokio::test]
async fn a_record_tells_where_a_suspended_call_stands_and_keeps_nothing_readable() {
    let fixture = Fixture::new();
    let retry = asked(&fixture, SECRET, None, "accept").await;
    let (call, waits) = record(&fixture, State::InputRequired).await;
    assert_eq!((waits.server.as_str(), waits.plugin.as_str()), ("policy", "policy.wipe@1.0.0"));
    assert_eq!((waits.owner.is_some(), waits.resumes, waits.outcome.len()), (true, false, 0));
    retry.send(&fixture).await;
    let (ended_call, ended) = record(&fixture, State::Completed).await;
    assert_eq!((ended_call, ended.owner, ended.created_ms), (call, None, waits.created_ms));
    let kept = i64::try_from(Duration::from_secs(3600).as_millis()).unwrap();
    assert_eq!(ended.expires_ms - ended.updated_ms, kept);
    for record in [waits, ended] {
        let text = format!("{record:?}");
        assert!(!text.contains(SECRET) && !text.contains("alice"), "{text}");
    }
}

#[tokio::test]
async fn nobody_but_its_principal_at_its_server_is_told_of_a_call() {
    let fixture = Fixture::new();
    asked(&fixture, "gone", None, "accept").await.send(&fixture).await;
    fixture.gateway.flush().await;
    let (call, _) = record(&fixture, State::Completed).await;
    let call = Uuid::from_bytes(call);
    let other = other(&fixture).gateway;
    for (user, server, is_told) in
        [("bob", "policy", false), ("alice", "demo", false), ("alice", "policy", true)]
    {
        let attached = other.pipeline.attach(call, &caller(user), server).await;
        assert_eq!(attached.is_some(), is_told, "{user} at {server}");
    }
}

#[tokio::test]
async fn a_call_that_nobody_was_told_of_leaves_nothing() {
    let fixture = Fixture::new();
    let params = json!({"name": "policy.once", "arguments": {"message": "m"}});
    Modern::new("policy", &token("alice"), "tools/call", params).send(&fixture).await;
    fixture.gateway.flush().await;
    assert!(records(&fixture).await.is_empty());
}

#[tokio::test]
async fn who_comes_back_for_a_call_whose_gateway_is_gone_is_told_at_once() {
    let fixture = Fixture::new();
    let active = &fixture.gateway.pipeline.active;
    active.renew().await.unwrap();
    let retry = asked(&fixture, "gone", None, "accept").await;
    let (call, _) = record(&fixture, State::InputRequired).await;
    active.retire().await;
    let told = retry.send(&other(&fixture)).await.json()["result"].clone();
    assert_eq!(told["_meta"]["asp/reason"], "outcome_unknown", "{told}");
    assert!(fixture.active.find(call).await.unwrap().unwrap().is_left, "nothing has changed it");
}
