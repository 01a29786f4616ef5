//! Limits of other kinds than token buckets, of groups, and of all orgs together.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Api;

const LIMITS: &str = "/api/ratelimits/orgs/acme";
const PLATFORM: &str = "/api/ratelimits/platform";

fn limit(policy: &Value) -> Value {
    let selector = json!({ "server": "*", "primitive": "*", "user": "each", "wcit": "*" });
    json!({ "selector": selector, "policy": policy })
}

#[tokio::test]
async fn each_kind_is_stored_as_it_was_written_and_published() {
    let mut api = Api::start().await;
    let of_group = json!({ "server": "*", "primitive": "*", "user": "*", "wcit": "*", "group": "finance" });
    let list = json!([
        limit(&json!({ "type": "token-bucket", "capacity": 60, "refill": "60/m" })),
        limit(&json!({ "type": "fixed-window", "capacity": 1000, "window": "1d" })),
        limit(&json!({ "type": "sliding-window", "capacity": 90, "window": "90s" })),
        limit(&json!({ "type": "concurrency", "capacity": 5 })),
        { "selector": of_group, "policy": { "type": "token-bucket", "capacity": 1, "refill": "1/s" } },
    ]);
    let put = api.put("org:acme", LIMITS, list.clone()).await;
    assert_eq!((put.status, &put.body), (StatusCode::OK, &list));
    assert_eq!(api.get("org:acme", LIMITS).await.body, list);
    api.published(|snapshot| {
        let limits = &snapshot.limits;
        let of = |is: fn(&asp_proto::snapshot::Limit) -> bool| limits.iter().filter(|limit| is(limit)).count();
        // An earlier reader enforces a bucket of every one.
        let readable = of(|limit| limit.capacity > 0 && limit.refill_per_second > 0.0);
        (readable, of(|limit| limit.fixed_window_seconds == 86_400), of(|limit| limit.concurrent)) == (5, 1, 1)
            && of(|limit| limit.sliding_window_seconds == 90) == 1
            && of(|limit| limit.group == "finance") == 1
            // The edge knows neither groups nor the end of a call.
            && snapshot.edge.as_ref().is_some_and(|edge| !edge.coarse_limits.is_empty() && edge.coarse_limits.len() < 4)
    })
    .await;
    let question = json!({ "org": "acme", "user": "bob", "groups": ["finance"], "server": "demo", "primitive": "echo",
        "protocol": "mcp" });
    let explained = api.send("org:acme", Method::POST, "/api/policy/explain", Some(question), &[]).await;
    let levels: Vec<&str> = explained.body["limits"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|limit| limit["level"].as_str())
        .collect();
    assert_eq!(levels, ["user", "user", "user", "user", "group"], "{}", explained.body);
}

#[tokio::test]
async fn what_does_not_belong_to_a_kind_is_refused_with_what_is_wrong() {
    let api = Api::start().await;
    for (policy, fault) in [
        (json!({ "type": "leaky", "capacity": 1, "refill": "1/s" }), "policy.type must be"),
        (json!({ "capacity": 1 }), "policy.refill"),
        (json!({ "capacity": 1, "refill": "1/s", "window": "1d" }), "policy.window is only for"),
        (json!({ "type": "fixed-window", "capacity": 1 }), "policy.window"),
        (json!({ "type": "fixed-window", "capacity": 1, "window": "32d" }), "policy.window"),
        (
            json!({ "type": "sliding-window", "capacity": 1, "window": "1h", "refill": "1/s" }),
            "policy.refill is only for",
        ),
        (json!({ "type": "concurrency", "capacity": 1, "window": "1h" }), "policy.window is only for"),
        (json!({ "type": "concurrency", "capacity": 1, "observe": true }), "cannot be observed"),
        (json!({ "type": "concurrency", "capacity": 0 }), "policy.capacity"),
    ] {
        let put = api.put("org:acme", LIMITS, json!([limit(&policy)])).await;
        let detail = put.body["detail"].as_str().unwrap_or_default();
        assert!(put.status.is_client_error() && detail.contains(fault), "{policy}: {} {detail}", put.status);
    }
}

#[tokio::test]
async fn limits_of_all_orgs_are_the_platforms() {
    let mut api = Api::start().await;
    let policy = json!({ "type": "token-bucket", "capacity": 600, "refill": "10/s" });
    let selector = json!({ "server": "*", "primitive": "*", "user": "*", "wcit": "*" });
    let list = json!([{ "selector": selector, "policy": policy }]);
    for role in ["org:acme", "server:demo", "installer"] {
        let put = api.put(role, PLATFORM, list.clone()).await;
        assert!(put.status.is_client_error(), "{role}: {}", put.status);
    }
    let put = api.send("platform", Method::PUT, PLATFORM, Some(list.clone()), &[]).await;
    assert_eq!((put.status, &put.body), (StatusCode::OK, &list), "{}", put.body);
    for named in [
        json!({ "user": "each" }),
        json!({ "wcit": "each" }),
        json!({ "group": "g" }),
        json!({ "machine": "each" }),
    ] {
        let of_callers = json!([{ "selector": named, "policy": policy }]);
        let refused = api.send("platform", Method::PUT, PLATFORM, Some(of_callers), &[]).await;
        assert!(refused.status.is_client_error(), "the same name in two orgs: {named}: {}", refused.body);
    }
    assert_eq!(api.get("platform:read", PLATFORM).await.body, list);
    assert_eq!(api.get("org:acme", LIMITS).await.body, json!([]), "an org's own are others");
    api.published(|snapshot| snapshot.limits.iter().any(|limit| limit.org == "*" && limit.capacity == 600))
        .await;
    let gone = api.send("platform", Method::DELETE, PLATFORM, None, &[]).await;
    assert_eq!(gone.status, StatusCode::OK, "{}", gone.body);
    api.published(|snapshot| snapshot.limits.is_empty()).await;
}
