//! Audit rows of the accounts that users link and remove: who, at which provider, with which outcome, and no token.

use super::*;

impl World {
    /// Returns the rows about links, oldest first: event, user, outcome and reason.
    async fn link_rows(&self) -> Vec<[String; 4]> {
        self.gateways[1].gateway.flush().await;
        let events = self.gateways[1].audit.events();
        let mut rows = Vec::new();
        for event in events {
            let row: Value = serde_json::from_str(&event.event).unwrap();
            if !row["event"].as_str().unwrap().starts_with("link.") {
                continue;
            }
            assert_eq!(
                (event.org.as_str(), &row["provider"], &row["issuer"]),
                ("acme", &json!("hub"), &json!("dev"))
            );
            for secret in ["at-1", "rt-1", "c0de", SECRET] {
                assert!(!event.event.contains(secret), "{secret}: {}", event.event);
            }
            rows.push(
                ["event", "user", "outcome", "reason"].map(|name| row[name].as_str().unwrap().to_owned()),
            );
        }
        rows
    }

    /// Returns the path of a provider's response to the consent of alice, and her cookie.
    pub(super) async fn response(&self, pairs: &[(&str, &str)]) -> (String, String) {
        let (cookie, at_provider) = self.sign_in(&self.page().await, "alice").await;
        let sent = sent_to(&at_provider);
        let pairs: Vec<(&str, &str)> =
            [("state", sent["state"].as_str())].iter().chain(pairs).copied().collect();
        (format!("/account/callback?{}", query(&pairs)), cookie)
    }
}

fn row(event: &str, outcome: &str, reason: &str) -> [String; 4] {
    [event, "alice", outcome, reason].map(str::to_owned)
}

#[tokio::test]
async fn each_account_that_a_user_links_or_removes_leaves_a_row() {
    let world = World::start().await;
    let (path, cookie) = world.response(&[("code", "c0de")]).await;
    assert_eq!(world.get(&path, &cookie).await.status, StatusCode::OK);
    assert_eq!(world.get(&path, &cookie).await.status, StatusCode::BAD_REQUEST, "a state is used once");
    assert_eq!(world.link_rows().await, [row("link.add", "completed", "ok")]);
    let session = world.account().await;
    let page = world.get("/account", &session).await;
    let tag = page.text.split("name=tag value=\"").nth(1).unwrap().split('"').next().unwrap();
    for (tag, status) in
        [("x", StatusCode::BAD_REQUEST), (tag, StatusCode::SEE_OTHER), (tag, StatusCode::SEE_OTHER)]
    {
        let pairs = [("provider", "hub"), ("tag", tag)];
        let answer = world.post("/account/remove", &session, PUBLIC_URL, &pairs).await;
        assert_eq!(answer.status, status, "{}", answer.text);
    }
    let rows = [row("link.add", "completed", "ok"), row("link.remove", "completed", "ok")];
    assert_eq!(world.link_rows().await, rows, "what changes nothing leaves none");
}

#[tokio::test]
async fn an_account_that_is_not_linked_leaves_a_row_with_the_reason() {
    let world = World::start().await;
    let (_, refused) = world.sign_in(&world.page().await, "bob").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let (path, cookie) = world.response(&[("error", "access_denied")]).await;
    assert_eq!(world.get(&path, &cookie).await.status, StatusCode::BAD_REQUEST);
    let rows = [row("link.add", "rejected", "other_user"), row("link.add", "rejected", "no_consent")];
    assert_eq!(world.link_rows().await, rows);
    assert!(world.store.link(&alice()).await.unwrap().is_none());
}

#[tokio::test]
async fn an_account_that_is_linked_after_its_browser_has_left_leaves_a_row() {
    let world = World::start().await;
    let (path, cookie) = world.response(&[("code", "c0de")]).await;
    let gate = Arc::new(Semaphore::new(0));
    *world.heard.gate.lock() = Some(gate.clone());
    tokio::select! {
        answer = world.get(&path, &cookie) => panic!("{}", answer.text),
        () = world.heard.asked.notified() => {}
    }
    gate.add_permits(1);
    let rows = [row("link.add", "completed", "ok")];
    until_async("the audit has the link", async || world.link_rows().await == rows).await;
}
