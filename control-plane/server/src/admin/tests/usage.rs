//! Sums of calls, and the primitives that nobody used.

use std::time::Duration;

use asp_platform::clock;
use asp_store::usage::{DAY_MS, UsageBatch, UsageCounts, UsageKey, UsageStore};
use http::StatusCode;
use serde_json::{Value, json};

use super::{Api, DEMO, sample};

fn row(org: &str, user: &str, primitive: &str, days_ago: i64) -> (UsageKey, UsageCounts) {
    let today = i64::try_from(clock::now_ms()).unwrap() / DAY_MS;
    let key = UsageKey {
        org: org.into(),
        day: today - days_ago,
        user: user.into(),
        issuer: "dev".into(),
        server: "demo".into(),
        primitive: primitive.into(),
    };
    (key, UsageCounts::of_call(Duration::from_millis(15), user == "bob", false))
}

async fn with_usage() -> Api {
    let api = Api::start().await;
    let rows = [
        row("acme", "alice", "echo", 0),
        row("acme", "bob", "echo", 0),
        row("acme", "alice", "echo", 40),
        row("globex", "carol", "echo", 0),
    ];
    let batch = UsageBatch { writer: [1; 16], number: 1, rows: rows.into() };
    api.call_usage.add_usage(&batch).await.unwrap();
    api
}

fn names(report: &Value) -> Vec<&str> {
    report["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn usage_is_summed_by_group_and_each_org_sees_its_own() {
    let api = with_usage().await;
    let report = api.get("org:acme:read", "/api/usage?by=user").await;
    assert_eq!(report.status, StatusCode::OK, "{}", report.body);
    let report = report.body;
    assert_eq!(names(&report), ["alice", "bob"], "{report}");
    let bob = &report["groups"][1];
    assert_eq!((&bob["calls"], &bob["errors"], &bob["issuer"]), (&json!(1), &json!(1), &json!("dev")));
    assert_eq!(bob["latency"]["sumMs"], json!(15));
    let p99 = bob["latency"]["p99Ms"].as_f64().unwrap();
    assert!((10.0..=20.0).contains(&p99), "{p99}");
    assert_eq!((&report["total"]["calls"], &report["more"]), (&json!(2), &json!(false)));
    let one = api.get("org:acme", "/api/usage?by=user&limit=1").await.body;
    assert_eq!((names(&one).len(), &one["more"]), (1, &json!(true)));
    let long = api.get("org:acme", "/api/usage?by=day&from=1970-01-01").await.body;
    assert_eq!((names(&long).len(), &long["total"]["calls"]), (2, &json!(3)));
    let all = api.get("platform", "/api/usage?by=org").await.body;
    assert_eq!(names(&all), ["acme", "globex"]);
    assert_eq!(names(&api.get("org:acme", "/api/usage?by=org").await.body), ["acme"]);
    assert_eq!(api.get("org:acme", "/api/usage?org=globex").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_bad_question_about_usage_is_refused_with_what_is_wrong() {
    let api = Api::start().await;
    for (query, fault) in [
        ("by=color", "by must be org, user, primitive, server or day"),
        ("from=yesterday", "from must be a day such as 2026-01-31"),
        ("to=2026-02-30", "to must be a day such as 2026-01-31"),
        ("from=2026-02-02&to=2026-02-01", "from is after to"),
    ] {
        let refused = api.get("platform", &format!("/api/usage?{query}")).await;
        assert_eq!(refused.body["detail"], json!(fault), "{query}");
    }
    for query in ["usage?users=bob", "usage/unused?days=0", "usage/unused?days=401"] {
        assert!(api.get("platform", &format!("/api/{query}")).await.status.is_client_error(), "{query}");
    }
}

#[tokio::test]
async fn primitives_that_nobody_used_are_listed_with_their_server() {
    let api = with_usage().await;
    let put = api.put("platform", DEMO, sample("demo")).await;
    assert!(put.status.is_success(), "{}", put.body);
    let unused = api.get("platform", "/api/usage/unused").await.body;
    let all = unused["primitives"].as_u64().unwrap();
    let listed = unused["unused"].as_array().unwrap();
    assert_eq!(listed.len() as u64, all - 1, "{unused}");
    assert!(!listed.contains(&json!({ "server": "demo", "primitive": "echo" })), "{unused}");
    assert_eq!(unused["unknownCalls"], json!(0));
}

#[tokio::test]
async fn the_unused_primitives_say_since_when_usage_is_recorded() {
    let api = with_usage().await;
    let first = async |role: &str, query: &str| {
        let answer = api.get(role, &format!("/api/usage/unused?{query}")).await.body;
        (answer["recordedFrom"].clone(), answer["from"].as_str().unwrap().to_owned())
    };
    let (acme, from) = first("org:acme", "days=41").await;
    assert_eq!(acme, json!(from), "its oldest call is 40 days old");
    let (globex, from) = first("org:globex", "days=1").await;
    assert_eq!(globex, json!(from), "of its own calls alone");
    assert_eq!(first("platform", "").await.0, acme);
    assert_eq!(first("org:nobody", "").await.0, Value::Null);
}

#[tokio::test]
async fn a_refused_call_is_no_use() {
    let api = with_usage().await;
    let put = api.put("platform", DEMO, sample("demo")).await;
    assert!(put.status.is_success(), "{}", put.body);
    let refused = |(key, counts): (UsageKey, UsageCounts)| (key, UsageCounts { refused: 1, ..counts });
    let rest = row("acme", "bob", "echo", 0).0.rest();
    let rows = [
        refused(row("acme", "bob", "clock", 0)),
        // One of alice's calls of `echo` was admitted today.
        refused(row("acme", "alice", "echo", 0)),
        (rest, UsageCounts { calls: 3, refused: 2, ..UsageCounts::default() }),
    ];
    let batch = UsageBatch { writer: [2; 16], number: 1, rows: rows.into() };
    api.call_usage.add_usage(&batch).await.unwrap();
    let is_unused = |answer: &Value, primitive: &str| {
        let one = json!({ "server": "demo", "primitive": primitive });
        answer["unused"].as_array().unwrap().contains(&one)
    };
    let answer = api.get("platform", "/api/usage/unused").await.body;
    assert!(is_unused(&answer, "clock") && !is_unused(&answer, "echo"), "{answer}");
    assert_eq!(answer["unknownCalls"], json!(1));
    let admitted = [row("acme", "alice", "clock", 0)];
    let batch = UsageBatch { writer: [2; 16], number: 2, rows: admitted.into() };
    api.call_usage.add_usage(&batch).await.unwrap();
    let answer = api.get("platform", "/api/usage/unused").await.body;
    assert!(!is_unused(&answer, "clock"), "{answer}");
}
