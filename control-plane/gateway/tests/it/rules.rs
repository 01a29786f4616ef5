//! Bindings that ask about the arguments of a call (`when`), and bindings that are observed: a denial and a question in
//! each protocol, lists that do not change, and what is counted and recorded.

use std::time::Duration;

use asp_proto::snapshot::condition::Test;
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{
    Binding, Builtin, Condition, GatewaySnapshot, Protocol, Runtime, Scalars, TargetKind,
};
use asp_registry::{Inputs, assemble};
use http::StatusCode;
use serde_json::{Value, json};

use crate::rest::{Rest, reason};
use crate::support::{Answer, Fixture, Legacy, Modern, inputs, token};

/// A binding on every primitive of the tests' own server for everybody.
fn bound(allowed: bool) -> Binding {
    Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: "*".into(),
        primitive: "policy.*".into(),
        protocol: Protocol::Unspecified.into(),
        allowed,
        ..Binding::default()
    }
}

/// A binding about calls whose message is `text`.
fn rule(text: &str, approval: bool) -> Binding {
    let json = vec![Value::from(text).to_string()];
    let equals = Test::Equals(Scalars { json });
    Binding {
        when: vec![Condition { pointer: "/message".into(), test: Some(equals) }],
        approval,
        name: "loud".into(),
        ..bound(false)
    }
}

fn with(bindings: Vec<Binding>, observed: Vec<Binding>) -> GatewaySnapshot {
    assemble(Inputs { bindings, observed_bindings: observed, ..inputs() })
}

fn call(tool: &str, arguments: Value) -> Modern {
    Modern::new("policy", &token("alice"), "tools/call", json!({"name": tool, "arguments": arguments}))
}

async fn finishes(fixture: &Fixture) -> Vec<Value> {
    fixture.gateway.flush().await;
    let events = fixture.audit.events();
    let events = events.iter().map(|event| serde_json::from_str::<Value>(&event.event).unwrap());
    events.filter(|event| event["event"] == "call.finish").collect()
}

fn counted(fixture: &Fixture) -> Vec<String> {
    let text = fixture.gateway.pipeline.internals().metrics.encode();
    let lines = text.lines().filter(|line| line.starts_with("asp_policy_observed_total"));
    lines.map(str::to_owned).collect()
}

fn assert_refused(answer: &Answer) {
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    let result = &answer.json()["result"];
    assert_eq!(
        (&result["isError"], &result["_meta"]["asp/reason"]),
        (&json!(true), &json!("content_refused"))
    );
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("a rule denies this call for its arguments (/message)"), "{text}");
    assert!(result.get("structuredContent").is_none(), "{result}");
}

#[tokio::test]
async fn a_denial_by_argument_is_told_in_each_protocol_and_changes_no_list() {
    let fixture = Fixture::of(with(vec![rule("loud", false)], vec![]));
    assert_refused(&call("policy.open", json!({"message": "loud"})).send(&fixture).await);
    let passed = call("policy.open", json!({"message": "quiet"})).send(&fixture).await.json();
    assert_eq!(passed["result"]["structuredContent"], json!({"message": "quiet"}));
    for revision in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let client = Legacy::connect(&fixture, "policy", "alice", revision, json!({})).await;
        let params = json!({"name": "policy.open", "arguments": {"message": "loud"}});
        assert_refused(&client.request(2, "tools/call", params).await);
        let listed = client.request(3, "tools/list", json!({})).await;
        assert!(listed.text.contains("policy.open"), "{}", listed.text);
    }
    let rest = Rest::of(&fixture, "policy.open", "1");
    let put = rest.put(&json!({"message": "loud"})).await;
    assert_eq!(reason(&put), (403, "content_refused".into()), "{}", put.text);
    let put = Rest::of(&fixture, "policy.open", "2").put(&json!({"message": "quiet"})).await;
    assert_eq!(put.status, StatusCode::CREATED, "{}", put.text);
    let plain = Fixture::of(with(vec![], vec![]));
    let list = Modern::new("policy", &token("alice"), "tools/list", json!({}));
    assert_eq!(list.send(&fixture).await.json()["result"], list.send(&plain).await.json()["result"]);
    let told = finishes(&fixture).await;
    let ruled: Vec<_> = told.iter().filter(|event| event.get("rule").is_some()).collect();
    assert_eq!(ruled.len(), 5);
    assert!(ruled.iter().all(|event| event["rule"] == "user:* policy.* * loud"), "{ruled:?}");
    assert!(ruled.iter().all(|event| event["reason"] == "content_refused"), "{ruled:?}");
}

#[tokio::test]
async fn what_is_not_given_counts_as_its_default_and_what_does_not_fit_is_no_rules_matter() {
    let fixture = Fixture::of(with(vec![rule("none", false)], vec![]));
    assert_refused(&call("policy.open", json!({})).send(&fixture).await);
    let misfit = call("policy.open", json!({"message": "none", "to": "x"})).send(&fixture).await.json();
    assert_eq!(misfit["result"]["_meta"]["asp/reason"], "invalid_params");
    assert!(finishes(&fixture).await[1].get("rule").is_none());
}

#[tokio::test]
async fn a_resource_that_a_rule_denies_is_an_error_of_the_protocol() {
    let glob = Condition { pointer: "/uri".into(), test: Some(Test::Glob("demo://ab*".into())) };
    let deny = Binding { primitive: "*".into(), when: vec![glob], ..bound(false) };
    let fixture = Fixture::of(with(vec![deny], vec![]));
    let read = Modern::new("demo", &token("alice"), "resources/read", json!({"uri": "demo://about"}));
    let answer = read.send(&fixture).await;
    assert_eq!(
        (answer.json()["error"]["code"].clone(), answer.reason()),
        (json!(-32000), "content_refused".into())
    );
    let list = Modern::new("demo", &token("alice"), "resources/list", json!({}));
    assert!(list.send(&fixture).await.text.contains("demo://about"));
}

#[tokio::test]
async fn a_rule_that_comes_into_force_refuses_the_stored_answer_too() {
    let fixture = Fixture::of(with(vec![], vec![]));
    let request = call("policy.once", json!({"message": "loud"})).with("idempotency-key", "k");
    assert_eq!(request.send(&fixture).await.json()["result"]["isError"], false);
    assert_eq!(request.send(&fixture).await.json()["result"]["_meta"]["asp/replayed"], true);
    fixture
        .gateway
        .apply(GatewaySnapshot { revision: 2, ..with(vec![rule("loud", false)], vec![]) })
        .unwrap();
    assert_refused(&request.send(&fixture).await);
}

#[tokio::test]
async fn a_person_is_asked_about_arguments_that_a_rule_names_and_about_no_others() {
    let fixture = Fixture::of(with(vec![rule("loud", true)], vec![]));
    let can = json!({"elicitation": {}});
    let quiet = call("policy.open", json!({"message": "quiet"}));
    assert_eq!(quiet.send(&fixture).await.json()["result"]["isError"], false, "nobody is asked");
    let loud = call("policy.open", json!({"message": "loud"}));
    let refused = loud.send(&fixture).await.json()["result"].clone();
    assert_eq!(
        (&refused["isError"], &refused["_meta"]["asp/reason"]),
        (&json!(true), &json!("insufficient_scope"))
    );
    assert!(
        refused["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("an approval that this client cannot ask for")
    );
    for (approve, done) in [(true, true), (false, false)] {
        let asked = loud.clone().capabilities(can.clone()).send(&fixture).await.json()["result"].clone();
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let (key, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        let message = request["params"]["message"].as_str().unwrap();
        assert!(message.contains("A rule of your organization"), "{message}");
        let accept = json!({"action": "accept", "content": {"approve": approve}});
        let mut retry = loud.clone().capabilities(can.clone());
        retry.body["params"]["requestState"] = asked["requestState"].clone();
        retry.body["params"]["inputResponses"] = json!({key: accept});
        let result = retry.send(&fixture).await.json()["result"].clone();
        assert_eq!(
            (&result["resultType"], &result["isError"]),
            (&json!("complete"), &json!(!done)),
            "{result}"
        );
    }
    // An approval is of these arguments.
    let asked = loud.clone().capabilities(can.clone()).send(&fixture).await.json()["result"].clone();
    let mut other = call("policy.open", json!({"message": "loud", "to": 2})).capabilities(can);
    other.body["params"]["requestState"] = asked["requestState"].clone();
    other.body["params"]["inputResponses"] =
        json!({"asp.approve": {"action": "accept", "content": {"approve": true}}});
    assert_eq!(other.send(&fixture).await.json()["error"]["code"], -32602);
}

#[tokio::test]
async fn a_person_is_asked_over_rest() {
    let fixture = Fixture::of(with(vec![rule("loud", true)], vec![]));
    let rest = Rest::of(&fixture, "policy.open", "1").with("prefer", "wait=20");
    let asks = rest.put(&json!({"message": "loud"})).await.json();
    assert_eq!(asks["status"], "awaitingElicitationResult", "{asks}");
    assert!(asks["elicitationRequest"].to_string().contains("A rule of your organization"), "{asks}");
    let accept = json!({"result": {"action": "accept", "content": {"approve": true}}, "serverData": asks["serverData"]});
    let tag = format!("\"{}\"", asks["etag"].as_str().unwrap());
    let done = rest.with("if-match", &tag).advance(&accept).await.json();
    assert_eq!(done["result"]["structuredContent"], json!({"message": "loud"}), "{done}");
}

/// A call that could wait for an approval gets no extra time if nobody is asked.
#[tokio::test(start_paused = true)]
async fn a_call_about_which_nobody_is_asked_has_the_time_of_its_spec_and_no_more() {
    let mut snapshot = with(vec![rule("loud", true)], vec![]);
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "policy.open") {
        primitive.max_runtime_seconds = 1;
        primitive.input_timeout_seconds = 60;
        let mode = Mode::Builtin(Builtin { entrypoint: "count".into() });
        primitive.runtime = Some(Runtime { mode: Some(mode) });
    }
    let fixture = Fixture::of(snapshot);
    let began = tokio::time::Instant::now();
    let slow = call("policy.open", json!({"message": "quiet", "to": 100, "delayMs": 100}));
    let answer = slow.send(&fixture).await.json();
    assert!(answer["error"].is_object() || answer["result"]["isError"] == true, "{answer}");
    // By itself the call would run for ten seconds.
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
}

#[tokio::test]
async fn what_is_observed_is_counted_and_recorded_and_changes_nothing() {
    let deny_all = Binding { name: "trial".into(), ..bound(false) };
    let fixture = Fixture::of(with(vec![], vec![deny_all, Binding { org: "globex".into(), ..bound(false) }]));
    let list = Modern::new("policy", &token("alice"), "tools/list", json!({}));
    assert!(list.send(&fixture).await.text.contains("policy.open"));
    assert_eq!(counted(&fixture), Vec::<String>::new(), "lists are not counted");
    for _ in 0..2 {
        let answer = call("policy.open", json!({"message": "hi"})).send(&fixture).await.json();
        assert_eq!(answer["result"]["structuredContent"], json!({"message": "hi"}));
    }
    assert_eq!(counted(&fixture), [r#"asp_policy_observed_total{would="deny",did="allow"} 2"#]);
    let told = finishes(&fixture).await;
    let observed = json!({"would": "deny", "rule": "user:* policy.* * trial"});
    assert!(told.iter().all(|event| event["observed"] == observed && event["reason"] == "ok"), "{told:?}");
}

#[tokio::test]
async fn an_observed_rule_is_counted_for_the_arguments_that_it_names() {
    let fixture = Fixture::of(with(vec![], vec![rule("loud", true)]));
    for message in ["loud", "quiet"] {
        let answer = call("policy.open", json!({"message": message})).send(&fixture).await.json();
        assert_eq!(answer["result"]["isError"], false, "{message}");
    }
    assert_eq!(counted(&fixture), [r#"asp_policy_observed_total{would="approve",did="allow"} 1"#]);
}

#[tokio::test]
async fn an_observed_allow_shows_nothing_and_tells_whom_it_would_let_through() {
    let allow = Binding { target: "alice".into(), primitive: "policy.open".into(), ..bound(true) };
    let fixture = Fixture::of(with(vec![bound(false)], vec![allow]));
    let list = Modern::new("policy", &token("alice"), "tools/list", json!({}));
    assert!(!list.send(&fixture).await.text.contains("policy.open"));
    assert_eq!(call("policy.open", json!({})).send(&fixture).await.reason(), "unknown_primitive");
    let mut other = call("policy.open", json!({}));
    other.headers[0].1 = format!("Bearer {}", token("bob"));
    assert_eq!(other.send(&fixture).await.reason(), "unknown_primitive");
    assert_eq!(counted(&fixture), [r#"asp_policy_observed_total{would="allow",did="deny"} 1"#]);
    assert_eq!(finishes(&fixture).await[0]["observed"]["rule"], "user:alice policy.open *");
}

#[tokio::test]
async fn a_denial_is_unknown_to_the_caller_and_a_denial_with_its_rule_in_the_audit() {
    let fixture = Fixture::of(with(vec![bound(false)], vec![]));
    assert_eq!(call("policy.open", json!({})).send(&fixture).await.reason(), "unknown_primitive");
    let ends = finishes(&fixture).await;
    let of = |member: &str| ends[0][member].as_str().unwrap_or_default().to_owned();
    assert_eq!(ends.len(), 1);
    assert_eq!(
        (of("outcome").as_str(), of("reason").as_str(), of("rule").as_str()),
        ("rejected", "denied", "user:* policy.* *")
    );
}

#[tokio::test]
async fn a_snapshot_whose_condition_does_not_compile_is_refused_whole() {
    let fixture = Fixture::of(with(vec![], vec![]));
    let mut bad = rule("loud", false);
    bad.when[0].pointer = "message".into();
    for snapshot in [with(vec![bad.clone()], vec![]), with(vec![], vec![bad])] {
        let refused = fixture.gateway.apply(GatewaySnapshot { revision: 2, ..snapshot });
        assert!(format!("{:?}", refused.unwrap_err()).contains("JSON Pointer"));
    }
    let answer = call("policy.open", json!({"message": "loud"})).send(&fixture).await.json();
    assert_eq!(answer["result"]["isError"], false, "what was in force stays");
}
