//! Two issuers that say the same of somebody mean two principals.

#[path = "issuers/asked.rs"]
mod asked;

use asp_proto::snapshot::GatewaySnapshot;
use asp_registry::assemble;
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::{Fixture, Legacy, Modern, claims, inputs, sign, token};

/// The servers of the tests, which take the tokens of another issuer too.
pub(crate) fn two_issuers() -> GatewaySnapshot {
    let mut inputs = inputs();
    let mut twin = inputs.issuers[0].clone();
    twin.name = "twin".into();
    twin.iss = "https://twin.example".into();
    inputs.issuers.push(twin);
    for server in &mut inputs.servers {
        if !server.edge.issuers.is_empty() {
            server.edge.issuers.push("twin".into());
        }
    }
    assemble(inputs)
}

/// A token of the other issuer that says what [`token`] says.
pub(crate) fn twins(user: &str) -> String {
    let mut claims = claims(user);
    claims["iss"] = "https://twin.example".into();
    sign(&claims)
}

fn once(token: &str, name: &str, extra: Value) -> Modern {
    let mut params = json!({"name": name, "arguments": {"message": "m"}});
    for (member, value) in extra.as_object().unwrap() {
        params[member] = value.clone();
    }
    let mut request =
        Modern::new("policy", token, "tools/call", params).capabilities(json!({"elicitation": {}}));
    request.body["params"]["_meta"]["asp/idempotencyKey"] = "k".into();
    request
}

#[tokio::test]
async fn a_session_of_one_issuers_user_is_unknown_to_the_others() {
    let fixture = Fixture::of(two_issuers());
    let mut client = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
    assert_eq!(client.request(2, "ping", json!({})).await.status, StatusCode::OK);
    client.token = twins("alice");
    let foreign = client.request(3, "ping", json!({})).await;
    assert_eq!((foreign.status, foreign.reason().as_str()), (StatusCode::NOT_FOUND, "session_unknown"));
}

#[tokio::test]
async fn an_answer_under_a_key_is_not_replayed_to_the_other_issuers_user() {
    let fixture = Fixture::of(two_issuers());
    for first in [token("alice"), twins("alice")] {
        let answer = once(&first, "policy.once", json!({})).send(&fixture).await.json();
        assert!(answer["result"]["structuredContent"].is_object(), "{answer}");
        assert!(answer["result"]["_meta"].get("asp/replayed").is_none(), "{answer}");
        let again = once(&first, "policy.once", json!({})).send(&fixture).await.json();
        assert_eq!(again["result"]["_meta"]["asp/replayed"], true);
    }
}

#[tokio::test]
async fn a_request_state_of_one_issuers_user_is_none_for_the_others() {
    let fixture = Fixture::of(two_issuers());
    let asked = once(&token("alice"), "policy.wipe", json!({})).send(&fixture).await.json()["result"].clone();
    let accept = json!({"asp.approve": {"action": "accept", "content": {"approve": true}}});
    let answer = json!({"requestState": asked["requestState"], "inputResponses": accept});
    let foreign = once(&twins("alice"), "policy.wipe", answer.clone()).send(&fixture).await.json();
    assert_eq!(foreign["error"]["code"], -32602, "{foreign}");
    let own = once(&token("alice"), "policy.wipe", answer).send(&fixture).await.json();
    assert_eq!(own["result"]["isError"], false, "{own}");
}
