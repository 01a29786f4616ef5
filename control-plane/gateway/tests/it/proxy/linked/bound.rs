//! Links of primitives whose risk is not low: they end with the session, or with the token of a call without one.

use asp_store::linked_accounts::{LinkRow, bound_to_token};

use super::*;
use crate::support::{claims, now, sign};

impl World {
    /// A gateway where `echo` has a medium risk.
    fn of_medium_risk(&self) -> Fixture {
        let mut snapshot = linked_snapshot(&self.origin);
        for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
            primitive.set_risk_class(RiskClass::Medium);
        }
        let deps = IssuerDeps { origins: vec![self.origin.clone()], ..IssuerDeps::default() };
        Fixture::linking(snapshot, deps, self.store.clone())
    }

    /// Links the account of alice at the page in an answer; returns the link.
    async fn link_at(&self, answer: &str) -> LinkRow {
        let (cookie, at_provider) = self.sign_in(&page_in(answer), "alice").await;
        let back = query(&[("state", sent_to(&at_provider)["state"].as_str()), ("code", "c0de")]);
        let linked = self.get(&format!("/account/callback?{back}"), &cookie).await;
        assert_eq!(linked.status, StatusCode::OK, "{}", linked.text);
        self.links().await.remove(0)
    }

    async fn links(&self) -> Vec<LinkRow> {
        self.store.links(LinkFilter::default(), 10).await.unwrap()
    }
}

#[tokio::test]
async fn a_link_of_medium_risk_belongs_to_the_token_of_a_call_without_a_session() {
    let world = World::start().await;
    let gateway = world.of_medium_risk();
    let link = world.link_at(&echo(&gateway, "m").await.to_string()).await;
    assert_eq!(link.key.bound, bound_to_token("t-alice"));
    let ends = u64::try_from(link.expires_ms).unwrap() / 1_000;
    assert!(ends <= now() + 600, "it ends with the token, not in 90 days");
    assert!(is_done(&echo(&gateway, "m").await));
    assert!(!is_done(&world.call(0).await), "a primitive of low risk needs a lasting link");
    let mut other = claims("alice");
    other["jti"] = "t-other".into();
    let params = json!({"name": "echo", "arguments": {"message": "m"}});
    let answer = Modern::new("demo", &sign(&other), "tools/call", params).send(&gateway).await.json();
    assert!(!is_done(&answer), "{answer}");
    let metrics = gateway.gateway.pipeline.internals().metrics.encode();
    for (outcome, count) in [("missing", 2), ("used", 1)] {
        let line = format!("asp_link_uses_total{{outcome=\"{outcome}\"}} {count}");
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn a_link_of_medium_risk_ends_with_its_session() {
    let world = World::start().await;
    let gateway = world.of_medium_risk();
    let connect = || Legacy::connect(&gateway, "demo", "alice", "2025-11-25", json!({}));
    let client = connect().await;
    let other = connect().await;
    let params = || json!({"name": "echo", "arguments": {"message": "m"}});
    let asked = client.request(2, "tools/call", params()).await;
    let link = world.link_at(&asked.text).await;
    assert!(link.key.bound.starts_with("session:"), "{link:?}");
    let answer = client.request(3, "tools/call", params()).await;
    assert!(answer.text.contains("\"done\":true"), "{}", answer.text);
    let answer = other.request(2, "tools/call", params()).await;
    assert!(answer.text.contains("/demo/oauth/link?ticket="), "{}", answer.text);
    let headers = client.headers();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(gateway.send(Method::DELETE, "/demo/mcp", &headers, "").await.status, StatusCode::OK);
    until_async("the link is gone", async || world.links().await.is_empty()).await;
    let waiting = world.store.claim_removed([1; 16], HOUR, 10).await.unwrap();
    assert_eq!(waiting.len(), 1, "its tokens wait for their revocation");
}
