//! Use of limits in the last day: stored ones, and one that is tried.

use asp_platform::clock;
use asp_store::audit::{AuditLog, CallEvent};
use http::StatusCode;
use serde_json::{Value, json};

use super::Api;

const USAGE: &str = "/api/ratelimits/orgs/acme/usage";

/// The end of a call that began so many milliseconds ago.
fn call(user: &str, ago_ms: u64, reason: &str) -> CallEvent {
    let event = json!({ "event": "call.finish", "user": user, "issuer": "dev", "wcit": "t", "server": "demo",
        "primitive": "echo@1.0.0", "reason": reason, "latencyUs": 0, "rateLimitHit": reason == "rate_limited" });
    let at_ms = i64::try_from(clock::now_ms() - ago_ms).unwrap();
    CallEvent { at_ms, org: "acme".into(), event: event.to_string() }
}

async fn with_calls() -> Api {
    let api = Api::start().await;
    let day_ms = 24 * 3600 * 1000;
    let calls = [
        call("alice", day_ms + 60_000, "ok"),
        call("alice", 3_000, "ok"),
        call("bob", 2_000, "ok"),
        call("alice", 1_000, "ok"),
        call("alice", 500, "rate_limited"),
        call("alice", 400, "unknown_primitive"),
    ];
    api.calls.append(&calls).await.unwrap();
    api
}

fn counts(of: &Value) -> [&Value; 4] {
    ["calls", "callers", "wouldRefuse", "wouldRefuseCallers"].map(|member| &of[member])
}

#[tokio::test]
async fn a_limit_is_tried_on_the_calls_of_the_last_day_before_it_is_stored() {
    let api = with_calls().await;
    let tried = api.get("org:acme:read", &format!("{USAGE}?limit=2/h%20for%20each%20user%20on%20echo")).await;
    assert_eq!(tried.status, StatusCode::OK, "{}", tried.body);
    assert_eq!((&tried.body["calls"], &tried.body["rateLimited"]), (&json!(4), &json!(1)));
    let limit = &tried.body["limits"][0];
    assert_eq!(counts(limit), [&json!(4), &json!(2), &json!(1), &json!(1)], "{limit}");
    assert_eq!(limit["refused"], json!([{ "user": "alice", "issuer": "dev", "calls": 3, "wouldRefuse": 1 }]));
    assert_eq!(limit["words"], "2 calls an hour for each user on echo, up to 2 at once");
    assert_eq!(limit["limit"]["selector"]["user"], "each");
    let stored = api.get("org:acme", "/api/ratelimits/orgs/acme").await;
    assert_eq!(stored.body, json!([]), "nothing is stored");
    let bad = api.get("org:acme", &format!("{USAGE}?limit=2/week")).await;
    assert_eq!(bad.status, StatusCode::BAD_REQUEST);
    let detail = bad.body["detail"].as_str().unwrap();
    assert!(detail.starts_with("limit: `2/week` is not a rate per s, min, h or day"), "{detail}");
}

#[tokio::test]
async fn stored_limits_are_counted_each_by_itself_and_for_their_own_org_only() {
    let api = with_calls().await;
    let list = json!([
        { "selector": { "user": "bob" }, "policy": { "capacity": 5, "refill": "5/h" } },
        { "selector": {}, "policy": { "capacity": 1, "refill": "1/h" } },
    ]);
    let put = api.put("org:acme", "/api/ratelimits/orgs/acme", list).await;
    assert_eq!(put.status, StatusCode::OK, "{}", put.body);
    let usage = api.get("org:acme", USAGE).await.body;
    let limits = usage["limits"].as_array().unwrap();
    assert_eq!(counts(&limits[0]), [&json!(1), &json!(1), &json!(0), &json!(0)], "{usage}");
    assert_eq!(counts(&limits[1]), [&json!(4), &json!(2), &json!(3), &json!(2)], "{usage}");
    assert_eq!(api.get("org:other", USAGE).await.status, StatusCode::NOT_FOUND);
    let unknown = api.get("org:acme", &format!("{USAGE}?limits=1/s")).await;
    assert!(unknown.status.is_client_error(), "{}", unknown.body);
}

#[tokio::test]
async fn limits_of_all_orgs_are_listed_after_those_of_the_org() {
    let api = with_calls().await;
    let own = json!([{ "selector": { "user": "bob" }, "policy": { "capacity": 5, "refill": "5/h" } }]);
    let of_all = json!([{ "selector": { "server": "demo" }, "policy": { "capacity": 3, "refill": "3/h" } }]);
    for (path, list) in [("/api/ratelimits/orgs/acme", own), ("/api/ratelimits/platform", of_all)] {
        let put = api.put("platform", path, list).await;
        assert_eq!(put.status, StatusCode::OK, "{}", put.body);
    }
    let usage = api.get("org:acme", USAGE).await.body;
    let limits = usage["limits"].as_array().unwrap();
    let flags: Vec<&Value> = limits.iter().map(|limit| &limit["ofAllOrgs"]).collect();
    assert_eq!(flags, [&json!(false), &json!(true)], "{usage}");
    assert_eq!(counts(&limits[1]), [&json!(4), &json!(2), &json!(1), &json!(1)], "{usage}");
    // Another org sees the same limit, by its own calls.
    let other = api.get("org:globex", "/api/ratelimits/orgs/globex/usage").await.body;
    assert_eq!(other["limits"].as_array().unwrap().len(), 1, "{other}");
    assert_eq!(other["limits"][0]["calls"], 0, "{other}");
    let tried = api.get("org:acme", &format!("{USAGE}?limit=2/h")).await.body;
    assert_eq!(tried["limits"].as_array().unwrap().len(), 1, "a tried limit stands alone: {tried}");
}

#[tokio::test]
async fn an_observed_limit_may_stand_beside_an_enforced_one_and_reaches_no_edge() {
    let mut api = Api::start().await;
    let limit = |observe: bool| {
        let mut policy = json!({ "type": "token-bucket", "capacity": 5, "refill": "5/h" });
        if observe {
            policy["observe"] = json!(true);
        }
        let selector = json!({ "server": "*", "primitive": "*", "user": "each", "wcit": "*" });
        json!({ "selector": selector, "policy": policy })
    };
    let path = "/api/ratelimits/orgs/acme";
    let list = json!([limit(true), limit(false)]);
    let put = api.put("org:acme", path, list.clone()).await;
    assert_eq!((put.status, &put.body), (StatusCode::OK, &list));
    api.published(|snapshot| {
        let coarse = snapshot.edge.as_ref().unwrap().coarse_limits.len();
        let observed = snapshot.limits.iter().filter(|limit| limit.observe).count();
        (snapshot.limits.len(), observed, coarse) == (2, 1, 1)
    })
    .await;
    let twice = api.put("org:acme", path, json!([limit(true), limit(true)])).await;
    assert_eq!(twice.status, StatusCode::BAD_REQUEST, "{}", twice.body);
}
