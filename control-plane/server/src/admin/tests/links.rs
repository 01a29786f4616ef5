//! Providers of linked accounts, and links, for admins of the platform and of their org.

use std::collections::BTreeSet;
use std::time::Duration;

use asp_store::linked_accounts::{LinkFilter, LinkKey, LinkedAccounts, bound_to_token, suite};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Api;
use crate::link_endings;

const GITHUB: &str = "/api/link-providers/github";

fn github() -> Value {
    json!({ "preset": "github", "clientSecret": "s3cret", "document": { "clientId": "c", "for": ["crm/*"] } })
}

#[tokio::test]
async fn a_preset_needs_a_client_and_its_secret_is_sealed() {
    let api = Api::start().await;
    let stored = api.put("platform", GITHUB, github()).await;
    assert_eq!(stored.status, StatusCode::OK, "{}", stored.body);
    let shown = api.get("platform", GITHUB).await.body;
    assert_eq!(shown["document"]["tokenEndpoint"], "https://github.com/login/oauth/access_token");
    assert_eq!((&shown["document"]["for"], &shown["hasSecret"]), (&json!(["crm/*"]), &json!(true)));
    assert!(!shown.to_string().contains("s3cret"));
    let row = api.pushes.provider("github").await.unwrap().unwrap();
    assert!(!String::from_utf8_lossy(&row.sealed).contains("s3cret"));
    // The stored secret is sent nowhere else.
    let github_of = |document: Value| json!({ "preset": "github", "document": document });
    for elsewhere in [
        json!({ "clientId": "c", "tokenEndpoint": "https://evil.example/token" }),
        json!({ "clientId": "c", "revocation": { "endpoint": "https://evil.example/revoke" } }),
    ] {
        let refused = api.put("platform", GITHUB, github_of(elsewhere)).await;
        assert!(refused.status.is_client_error(), "{}", refused.body);
        assert!(refused.body["detail"].as_str().unwrap().contains("clientSecret"), "{}", refused.body);
    }
    // A change without a secret keeps the stored one.
    let changed = json!({ "preset": "github", "document": { "clientId": "d", "for": [] } });
    assert_eq!(api.put("platform", GITHUB, changed).await.status, StatusCode::OK);
    assert_eq!(api.pushes.provider("github").await.unwrap().unwrap().sealed, row.sealed);
    assert_eq!(
        api.get("platform", "/api/link-providers").await.body["providers"][0]["document"]["clientId"],
        "d"
    );
}

#[tokio::test]
async fn a_provider_that_cannot_work_is_refused() {
    let api = Api::start().await;
    for (why, body) in [
        ("no secret", json!({ "preset": "github", "document": { "clientId": "c" } })),
        ("no preset", json!({ "preset": "gitlab", "clientSecret": "s", "document": { "clientId": "c" } })),
        ("no client", json!({ "preset": "github", "clientSecret": "s" })),
        ("two sources", json!({ "preset": "github", "discover": "https://a.example", "clientSecret": "s" })),
        (
            "a private address",
            json!({ "preset": "github", "clientSecret": "s",
                "document": { "clientId": "c", "tokenEndpoint": "http://127.0.0.1:9/token" } }),
        ),
        (
            "an unknown member",
            json!({ "preset": "github", "clientSecret": "s", "document": { "clientId": "c", "x": 1 } }),
        ),
    ] {
        let refused = api.put("platform", GITHUB, body).await;
        assert!(refused.status.is_client_error(), "{why}: {}", refused.body);
    }
    assert_eq!(api.put("org:acme", GITHUB, github()).await.status, StatusCode::FORBIDDEN);
    assert_eq!(api.get("platform", GITHUB).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_provider_stays_until_its_tokens_are_revoked() {
    let api = Api::start().await;
    assert_eq!(api.put("platform", GITHUB, github()).await.status, StatusCode::OK);
    let hour = Duration::from_secs(3_600);
    let key = suite::key("alice", "github");
    api.pushes.put_link([1; 16], &key, &suite::tokens("sealed", 1), hour).await.unwrap();
    let delete = async |path: &str| api.send("platform", Method::DELETE, path, None, &[]).await;
    for wait in ["remove them first", "wait for their revocation"] {
        let refused = delete(GITHUB).await;
        assert!(refused.status.is_client_error(), "{}", refused.body);
        assert!(refused.body["detail"].as_str().unwrap().contains(wait), "{}", refused.body);
        assert_eq!(delete("/api/links?provider=github").await.status, StatusCode::OK);
    }
    let claim = [1; 16];
    assert_eq!(api.pushes.claim_removed(claim, hour, 10).await.unwrap().len(), 1);
    assert!(api.pushes.end_removed([1; 16], claim).await.unwrap());
    assert_eq!(delete(GITHUB).await.status, StatusCode::NO_CONTENT);
    assert_eq!(delete(GITHUB).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_org_sees_and_removes_its_own_links_only() {
    let api = Api::start().await;
    let hour = Duration::from_secs(3_600);
    for (id, key) in [(1, suite::key("alice", "github")), (2, suite::key("bob", "github"))] {
        api.pushes.put_link([id; 16], &key, &suite::tokens("sealed", 1), hour).await.unwrap();
    }
    let count = async |role: &str, path: &str| api.get(role, path).await.body.as_array().map_or(0, Vec::len);
    assert_eq!(count("platform", "/api/links").await, 2);
    assert_eq!(count("org:acme:read", "/api/links?user=alice").await, 1);
    assert_eq!(count("org:globex", "/api/links").await, 0);
    assert_eq!(api.get("org:globex", "/api/links?org=acme").await.status, StatusCode::NOT_FOUND);
    let shown = api.get("platform", "/api/links?user=alice").await.body;
    assert_eq!((&shown[0]["live"], &shown[0]["provider"]), (&json!(true), &json!("github")));
    assert!(!shown.to_string().contains("sealed"));
    let remove = async |role: &str, path: &str| api.send(role, Method::DELETE, path, None, &[]).await;
    assert!(remove("platform", "/api/links").await.status.is_client_error(), "nobody is named");
    assert_eq!(remove("org:acme:read", "/api/links?user=alice").await.status, StatusCode::FORBIDDEN);
    assert_eq!(remove("org:globex", "/api/links?provider=github").await.body["removed"], 0);
    assert_eq!(remove("org:acme", "/api/links?user=alice").await.body["removed"], 1);
    assert_eq!(remove("platform", "/api/links?provider=github").await.body["removed"], 1);
    assert_eq!(count("platform", "/api/links").await, 0);
}

/// Invariant I-6: the links of a revoked caller end also if the process ended before it could end them.
#[tokio::test]
async fn revocations_and_blocks_end_the_links_of_their_callers_alone() {
    let api = Api::start().await;
    let hour = Duration::from_secs(3_600);
    let of =
        |org: &str, user: &str, provider: &str| LinkKey { org: org.into(), ..suite::key(user, provider) };
    let bound = LinkKey { bound: bound_to_token("jti-1"), ..suite::key("gina", "github") };
    let keys = [
        of("acme", "alice", "github"),
        of("acme", "bob", "github"),
        of("acme", "carol", "hub"),
        of("acme", "dave", "github"),
        of("globex", "erin", "github"),
        of("initech", "frank", "github"),
        bound,
        of("globex", "alice", "slack"),
    ];
    for (id, key) in (1..).zip(&keys) {
        api.pushes.put_link([id; 16], key, &suite::tokens("sealed", 1), hour).await.unwrap();
    }
    let left = async || {
        let links = api.pushes.links(LinkFilter::default(), 100).await.unwrap();
        links.into_iter().map(|link| link.key.subject).collect::<BTreeSet<_>>()
    };
    let post = async |role: &str, path: &str, body: Value| {
        api.send(role, Method::POST, path, Some(body), &[]).await.status
    };
    for (role, path, body) in [
        ("org:acme", "/api/revocations", json!({ "type": "user", "org": "acme", "id": "alice" })),
        ("org:acme", "/api/blocks", json!({ "type": "user", "id": "bob" })),
        ("org:acme", "/api/revocations", json!({ "type": "linked_token", "id": "hub" })),
        ("platform", "/api/blocks", json!({ "type": "org", "id": "initech" })),
        ("platform", "/api/revocations", json!({ "type": "token", "id": "jti-1" })),
        ("org:acme", "/api/revocations", json!({ "type": "linked_token", "id": "github/erin" })),
    ] {
        assert_eq!(post(role, path, body.clone()).await, StatusCode::CREATED, "{body}");
    }
    assert_eq!(left().await.len(), 7, "nothing ends them before the task runs");
    // A process that starts after all of this.
    tokio::spawn(link_endings::run(api.store.clone(), api.pushes.clone(), api.stop.clone()));
    // Alice of another org, and erin of another org.
    let expected = BTreeSet::from(["alice", "dave", "erin"].map(str::to_owned));
    while left().await != expected {
        tokio::task::yield_now().await;
    }
    let waiting = api.pushes.claim_removed([1; 16], hour, 100).await.unwrap();
    assert_eq!(waiting.len(), 5, "their tokens wait for their revocation: {waiting:?}");
}
