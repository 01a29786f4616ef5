//! Two issuers that say the same of somebody mean two principals.

#[path = "issuers/asked.rs"]
mod asked;

use asp_proto::snapshot::{Binding, GatewaySnapshot, Limit, TargetKind};
use asp_registry::{Inputs, assemble};
use http::StatusCode;
use serde_json::{Value, json};

use crate::limits::star;
use crate::support::{Fixture, Legacy, Modern, claims, inputs, sign, token};

/// The servers of the tests, which take the tokens of another issuer too.
pub(crate) fn two_issuers() -> GatewaySnapshot {
    assemble(of_two_issuers())
}

fn of_two_issuers() -> Inputs {
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
    inputs
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

#[tokio::test]
async fn policy_that_names_an_issuer_is_about_its_users_and_groups_alone() {
    let of_group = |user: &str, issuer: &str| {
        let mut claims = claims(user);
        claims["groups"] = json!(["finance"]);
        claims["iss"] = issuer.into();
        sign(&claims)
    };
    let (own, others) = (of_group("alice", "asp-dev"), of_group("alice", "https://twin.example"));
    for kind in [TargetKind::User, TargetKind::Group] {
        let target = if kind == TargetKind::User { "alice" } else { "finance" };
        for (issuer, expected) in [("dev", [true, false]), ("twin", [false, true]), ("", [true, true])] {
            let mut inputs = of_two_issuers();
            inputs.bindings.push(Binding {
                org: "acme".into(),
                target_kind: kind.into(),
                target: target.into(),
                issuer: issuer.into(),
                primitive: "policy.open".into(),
                allowed: false,
                ..Binding::default()
            });
            let fixture = Fixture::of(assemble(inputs));
            for (token, denied) in [&own, &others].into_iter().zip(expected) {
                let call = Modern::new("policy", token, "tools/call", json!({"name": "policy.open"}));
                let answer = call.send(&fixture).await.json();
                assert_eq!(answer["error"].is_object(), denied, "{kind:?} of {issuer:?}: {answer}");
                let list = Modern::new("policy", token, "tools/list", json!({})).send(&fixture).await;
                assert_eq!(!list.text.contains("policy.open"), denied, "list and call agree");
            }
        }
    }
}

#[tokio::test]
async fn the_same_user_of_two_issuers_has_two_buckets_and_a_limit_may_be_of_one_issuer() {
    let granted = async |limit: Limit| {
        let mut inputs = of_two_issuers();
        inputs.limits.push(limit);
        let fixture = Fixture::of(assemble(inputs));
        let mut granted = Vec::new();
        for token in [token("alice"), twins("alice"), token("alice"), twins("alice")] {
            let call = Modern::new("demo", &token, "tools/call", json!({"name": "clock"}));
            granted.push(call.send(&fixture).await.json()["result"]["isError"] == false);
        }
        granted
    };
    for user in ["alice", "each"] {
        let limit = Limit { user: user.into(), ..star(1) };
        assert_eq!(granted(limit.clone()).await, [true, true, false, false], "{user}");
        let of_twin = Limit { issuer: "twin".into(), ..limit };
        assert_eq!(granted(of_twin).await, [true, true, true, false], "{user}");
    }
    assert_eq!(granted(star(1)).await, [true, false, false, false], "one for all");
    assert_eq!(granted(Limit { issuer: "dev".into(), ..star(1) }).await, [true, true, false, true]);
}
