//! Exact limits are one for both eras, and answer in the caller's own protocol (I-2, ADR 10).

use asp_pipeline::pipeline::admission::MEMORY_OF_NOBODY;
use asp_proto::snapshot::Limit;
use asp_registry::assemble;
use axum::body::{Body, Bytes};
use futures::future::join_all;
use futures::{StreamExt, stream};
use http::{Method, StatusCode};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::login::FORM;
use crate::plugin::until_async;
use crate::rest::Rest;
use crate::revocation::in_two_halves;
use crate::support::{Answer, Fixture, Modern, inputs, snapshot, token};

pub(crate) fn star(capacity: u64) -> Limit {
    Limit {
        org: "acme".into(),
        server: "*".into(),
        primitive: "*".into(),
        user: "*".into(),
        wcit: "*".into(),
        issuer: String::new(),
        capacity,
        refill_per_second: 0.001,
        observe: false,
        ..Limit::default()
    }
}

#[tokio::test]
async fn the_specs_own_limit_is_a_tool_error_with_the_time_to_wait() {
    let fixture = Fixture::new();
    let call = Modern::new("policy", &token("alice"), "tools/call", json!({"name": "policy.few"}));
    for _ in 0..2 {
        assert_eq!(call.send(&fixture).await.json()["result"]["isError"], false);
    }
    let answer = call.send(&fixture).await;
    assert_eq!(answer.status, StatusCode::OK);
    let result = &answer.json()["result"];
    assert_eq!(result["isError"], true);
    assert_eq!(result["_meta"]["asp/reason"], "rate_limited");
    assert_eq!(result["_meta"]["asp/limit"], "primitive");
    assert_eq!(result["_meta"]["asp/remaining"], 0);
    assert!(result["_meta"]["asp/retryAfterMs"].as_u64().unwrap() > 0);
    assert!(result.get("structuredContent").is_none());
    // Lists and other primitives are not touched by it.
    let list = Modern::new("policy", &token("alice"), "tools/list", json!({})).send(&fixture).await;
    assert!(list.json()["result"]["tools"].is_array());
    let other = Modern::new("policy", &token("alice"), "tools/call", json!({"name": "policy.open"}));
    assert_eq!(other.send(&fixture).await.json()["result"]["isError"], false);
}

#[tokio::test]
async fn the_tenants_limit_counts_everything_of_the_org_and_others_not() {
    let mut inputs = inputs();
    inputs.limits.push(star(3));
    let fixture = Fixture::of(assemble(inputs));
    let mut granted = 0;
    for (user, server, tool) in [
        ("alice", "demo", "clock"),
        ("bob", "demo", "clock"),
        ("alice", "policy", "policy.open"),
        ("carol", "policy", "policy.open"),
        ("alice", "demo", "clock"),
    ] {
        let answer = Modern::new(server, &token(user), "tools/call", json!({"name": tool}))
            .send(&fixture)
            .await
            .json();
        if answer["result"]["isError"] == false {
            granted += 1;
        } else {
            assert_eq!(answer["result"]["_meta"]["asp/limit"], "tenant");
        }
    }
    assert_eq!(granted, 3);
    let mut claims = crate::support::claims("dora");
    claims["org"] = "globex".into();
    let other = crate::support::sign(&claims);
    let answer =
        Modern::new("demo", &other, "tools/call", json!({"name": "clock"})).send(&fixture).await.json();
    assert_eq!(answer["result"]["isError"], false);
}

#[tokio::test]
async fn each_user_and_each_token_has_a_limit_of_its_own() {
    let granted = async |limit: Limit, tokens: &[String]| {
        let mut inputs = inputs();
        inputs.limits.push(limit);
        let fixture = Fixture::of(assemble(inputs));
        let mut granted = Vec::new();
        for token in tokens {
            let call = Modern::new("demo", token, "tools/call", json!({"name": "clock"}));
            let answer = call.send(&fixture).await.json();
            let passed = answer["result"]["isError"] == false;
            assert!(passed || answer["result"]["_meta"]["asp/limit"] == "user", "{answer}");
            granted.push(passed);
        }
        granted
    };
    let tokens = ["alice", "alice", "alice", "bob", "bob", "bob", "each"].map(token);
    let each_user = Limit { user: "each".into(), ..star(2) };
    assert_eq!(granted(each_user, &tokens).await, [true, true, false, true, true, false, true]);

    let of_alice = |jti: &str| {
        let mut claims = crate::support::claims("alice");
        claims["jti"] = jti.into();
        crate::support::sign(&claims)
    };
    let tokens = ["j1", "j1", "j2", "j1", "j2", "j2"].map(of_alice);
    let each_token = Limit { wcit: "each".into(), ..star(2) };
    assert_eq!(granted(each_token, &tokens).await, [true, true, true, false, true, false]);
}

/// Levels that refused the calls of a user in this order; "" for a call that was admitted.
async fn refused_by(limits: Vec<Limit>, groups: &[&str], calls: usize) -> Vec<String> {
    let mut inputs = inputs();
    inputs.limits.extend(limits);
    let fixture = Fixture::of(assemble(inputs));
    let mut claims = crate::support::claims("alice");
    claims["groups"] = json!(groups);
    let call = Modern::new("demo", &crate::support::sign(&claims), "tools/call", json!({"name": "clock"}));
    let mut levels = Vec::new();
    for _ in 0..calls {
        let answer = call.send(&fixture).await.json();
        levels.push(answer["result"]["_meta"]["asp/limit"].as_str().unwrap_or_default().to_owned());
    }
    levels
}

#[tokio::test]
async fn groups_all_orgs_and_windows_have_limits_and_the_answer_names_the_level() {
    let of_group = Limit { group: "finance".into(), ..star(1) };
    assert_eq!(refused_by(vec![of_group.clone()], &["sales", "finance"], 2).await, ["", "group"]);
    assert_eq!(refused_by(vec![of_group], &["sales"], 2).await, ["", ""]);
    let of_all = Limit { org: "*".into(), ..star(1) };
    let at_server = Limit { server: "demo".into(), ..of_all.clone() };
    assert_eq!(refused_by(vec![of_all.clone()], &[], 2).await, ["", "global"]);
    assert_eq!(refused_by(vec![at_server], &[], 2).await, ["", "server"]);
    let month = 31 * 86_400;
    let fixed = Limit { user: "each".into(), fixed_window_seconds: month, ..star(1) };
    let sliding = Limit { sliding_window_seconds: month, ..star(2) };
    assert_eq!(refused_by(vec![fixed], &[], 2).await, ["", "user"]);
    assert_eq!(refused_by(vec![sliding], &[], 3).await, ["", "", "tenant"]);
    // A call that the org's limit refuses draws nothing from that of all orgs.
    let large = Limit { capacity: 3, ..of_all };
    let own = Limit { refill_per_second: 1e-9, ..star(1) };
    assert_eq!(
        refused_by(vec![large, own], &[], 6).await,
        ["", "tenant", "tenant", "tenant", "tenant", "tenant"]
    );
}

#[tokio::test]
async fn calls_that_run_hold_a_slot_and_give_it_back_when_they_end() {
    let mut inputs = inputs();
    inputs.limits.push(Limit { concurrent: true, ..star(1) });
    let fixture = Fixture::of(assemble(inputs));
    let running = remembered(1, 60);
    let takes = fixture.clone();
    let running = tokio::spawn(async move { running.send(&takes).await });
    active(&fixture, 1).await;
    let call = Modern::new("demo", &token("bob"), "tools/call", json!({"name": "clock"}));
    let refused = call.send(&fixture).await.json();
    assert_eq!(refused["result"]["_meta"]["asp/limit"], "tenant", "{refused}");
    assert_eq!(refused["result"]["_meta"]["asp/retryAfterMs"], 1000);
    // Its client is gone, and so is the call.
    running.abort();
    active(&fixture, 0).await;
    for _ in 0..3 {
        assert_eq!(call.send(&fixture).await.json()["result"]["isError"], false, "one after the other");
    }
}

#[tokio::test]
async fn an_observed_limit_counts_what_it_would_refuse_and_refuses_nothing() {
    let mut inputs = inputs();
    let observed = Limit { user: "each".into(), observe: true, ..star(1) };
    inputs.limits.extend([observed, Limit { user: "each".into(), ..star(3) }]);
    let fixture = Fixture::of(assemble(inputs));
    let call = Modern::new("demo", &token("alice"), "tools/call", json!({"name": "clock"}));
    let mut passed = Vec::new();
    for _ in 0..4 {
        passed.push(call.send(&fixture).await.json()["result"]["isError"] == false);
    }
    assert_eq!(passed, [true, true, true, false], "only the enforced limit refuses, after its own three");
    let metrics = fixture.send(Method::GET, "/metrics", &[], "").await.text;
    let counted = |outcome: &str, count: u32| {
        metrics
            .contains(&format!("asp_limit_decisions_total{{level=\"user\",outcome=\"{outcome}\"}} {count}\n"))
    };
    assert!(counted("would_refuse", 2) && counted("refused", 1), "{metrics}");
}

#[tokio::test]
async fn other_methods_get_an_error_with_data() {
    let mut inputs = inputs();
    inputs.limits.push(star(1));
    let fixture = Fixture::of(assemble(inputs));
    let read = Modern::new("demo", &token("alice"), "resources/read", json!({"uri": "demo://about"}));
    assert!(read.send(&fixture).await.json()["result"].is_object());
    let answer = read.send(&fixture).await.json();
    assert_eq!(answer["error"]["code"], -32000);
    assert_eq!(answer["error"]["data"]["reason"], "rate_limited");
    assert!(answer["error"]["data"]["retryAfterMs"].as_u64().unwrap() > 0);
    assert_eq!(answer["error"]["data"]["remaining"], 0);
}

/// A call that runs so long, with as many values where no schema looks.
fn remembered(values: usize, seconds: u32) -> Modern {
    let arguments = json!({"to": seconds, "delayMs": 1000});
    let params = json!({"name": "count", "arguments": arguments});
    let mut call = Modern::new("demo", &token("alice"), "tools/call", params);
    call.body["params"]["_meta"]["x"] = vec![json!([0]); values].into();
    call
}

async fn active(fixture: &Fixture, calls: usize) {
    let is_active = format!("asp_calls_active {calls}\n");
    let metrics = async || fixture.send(http::Method::GET, "/metrics", &[], "").await.text;
    until_async("so many calls run", async || metrics().await.contains(&is_active)).await;
}

#[tokio::test]
async fn what_calls_take_of_memory_is_bounded_of_an_org_and_given_back() {
    let fixture = Fixture::remembering(snapshot(), 16 << 20);
    let (running, takes) = (remembered(6_000, 60), fixture.clone());
    let running = tokio::spawn(async move { running.send(&takes).await });
    active(&fixture, 1).await;
    let refused = remembered(6_000, 1).send(&fixture).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.text);
    assert_eq!(refused.json()["error"]["data"]["reason"], "rate_limited", "{}", refused.text);
    assert_eq!(refused.json()["id"], 7, "of its own request");
    let put = Rest::at(&fixture, "/demo/rest/tools/count/calls/1");
    let put = put.put(&json!({"to": 1, "x": vec![json!([0]); 6_000]})).await;
    assert_eq!(put.json()["reason"], "rate_limited", "{}", put.text);
    let little = Modern::new("demo", &token("alice"), "tools/call", json!({"name": "clock"}));
    assert_eq!(little.send(&fixture).await.json()["result"]["isError"], false, "little takes nothing");
    // Its client is gone, and so is the call.
    running.abort();
    active(&fixture, 0).await;
    let after = remembered(6_000, 1).send(&fixture).await;
    assert!(after.json()["result"].is_object(), "{}", after.text);
    // Alone it is more than an org may have: later is no better.
    let much = remembered(20_000, 1).send(&fixture).await;
    assert_eq!(much.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(much.json()["error"]["data"]["reason"], "body_too_large", "{}", much.text);
    assert!(much.json()["error"]["message"].as_str().unwrap().contains("too many values"), "{}", much.text);
}

/// A call whose body has as many bytes beside its few values.
fn long(bytes: usize) -> Modern {
    let params = json!({"name": "count", "arguments": {"to": 1}, "_meta": {"progressToken": 1}});
    let mut call = Modern::new("demo", &token("alice"), "tools/call", params);
    call.body["params"]["_meta"]["x"] = "a".repeat(bytes).into();
    call
}

#[tokio::test]
async fn what_was_received_of_bodies_that_have_not_ended_is_bounded_of_an_org_and_given_back() {
    let fixture = Fixture::remembering(snapshot(), 1 << 20);
    let first = long(160 << 10);
    let headers: Vec<(&str, &str)> =
        first.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let meanwhile = async || {
        let refused = long(400 << 10).send(&fixture).await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.text);
        assert_eq!(refused.headers["retry-after"], "1");
        assert_eq!(refused.json()["error"]["data"]["reason"], "rate_limited", "{}", refused.text);
        let put = Rest::at(&fixture, "/demo/rest/tools/count/calls/1");
        let put = put.put(&json!({"to": 1, "x": "a".repeat(400 << 10)})).await;
        assert_eq!(put.status, StatusCode::TOO_MANY_REQUESTS, "{}", put.text);
        assert_eq!(
            (&put.headers["retry-after"], put.json()["reason"].as_str()),
            (&"1".parse().unwrap(), Some("rate_limited"))
        );
        let little = Modern::new("demo", &token("alice"), "tools/call", json!({"name": "clock"}));
        assert_eq!(little.send(&fixture).await.json()["result"]["isError"], false, "little takes nothing");
    };
    let answer = in_two_halves(&fixture, &headers, &first.body.to_string(), meanwhile).await;
    assert!(answer.json()["result"].is_object(), "{}", answer.text);
    // All was given back: now it is refused because it is more than an org may have at all.
    assert_eq!(long(400 << 10).send(&fixture).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(long(160 << 10).send(&fixture).await.json()["result"].is_object());
}

/// A form of a login that has begun to come and ends when `rest` does.
async fn begun_form(fixture: Fixture, bytes: usize, rest: CancellationToken) -> Answer {
    let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from("a".repeat(bytes)))]);
    let rest = stream::once(async move {
        rest.cancelled().await;
        Ok(Bytes::from("=b"))
    });
    let body = Body::from_stream(first.chain(rest));
    fixture.send_body(Method::POST, "/demo/oauth/token", &[FORM], body).await
}

#[tokio::test]
async fn what_nobody_sends_takes_of_a_memory_of_its_own_and_gives_it_back() {
    let fixture = Fixture::new();
    let bytes: usize = 40 << 10;
    // Room is made by powers of two.
    let fit = MEMORY_OF_NOBODY.per_org / bytes.next_power_of_two();
    let rest = CancellationToken::new();
    let begun = (0..fit).map(|_| tokio::spawn(begun_form(fixture.clone(), bytes, rest.clone())));
    let begun: Vec<_> = begun.collect();
    let another = async || fixture.send(Method::POST, "/demo/oauth/token", &[FORM], &"a".repeat(bytes)).await;
    until_async("they take all of it", async || another().await.status == StatusCode::TOO_MANY_REQUESTS)
        .await;
    let refused = another().await;
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(refused.json()["reason"], "rate_limited", "{}", refused.text);
    let known = long(160 << 10).send(&fixture).await;
    assert!(known.json()["result"].is_object(), "who is known has other memory: {}", known.text);
    rest.cancel();
    for form in begun {
        assert_eq!(form.await.unwrap().status, StatusCode::NOT_FOUND, "no login is at this server");
    }
    let again = join_all((0..fit).map(|_| begun_form(fixture.clone(), bytes, rest.clone()))).await;
    assert!(again.iter().all(|form| form.status == StatusCode::NOT_FOUND), "all of it was given back");
    let long = fixture.send(Method::POST, "/demo/oauth/token", &[FORM], &"a".repeat(65 << 10)).await;
    assert_eq!(long.status, StatusCode::PAYLOAD_TOO_LARGE);
}
