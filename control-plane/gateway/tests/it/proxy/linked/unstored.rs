//! Links that cannot be stored: the tokens that the provider gave are revoked there.

use super::*;
use crate::support::log_lines::LogLines;

const UNREVOKED: &str =
    "tokens of an account whose link could not be stored were not revoked: end the grant at the provider";

impl World {
    /// Closes the database while the provider is asked for tokens; returns the page that alice sees.
    async fn link_without_a_database(&self) -> Answer {
        let (path, cookie) = self.response(&[("code", "c0de")]).await;
        let gate = Arc::new(Semaphore::new(0));
        *self.heard.gate.lock() = Some(gate.clone());
        let closing = async {
            self.heard.asked.notified().await;
            self.store.close().await;
            gate.add_permits(1);
        };
        let (page, ()) = tokio::join!(self.get(&path, &cookie), closing);
        assert!(page.text.contains("could not be stored"), "{}", page.text);
        assert_eq!(page.status, StatusCode::BAD_REQUEST);
        page
    }

    /// Whether one revocation had this outcome.
    fn revocations(&self, outcome: &str) -> bool {
        let metrics = self.gateways[1].gateway.pipeline.internals().metrics.encode();
        metrics.contains(&format!("asp_link_revocations_total{{outcome=\"{outcome}\"}} 1"))
    }
}

#[tokio::test]
async fn tokens_of_a_link_that_is_not_stored_are_revoked_and_not_logged() {
    let world = World::start().await;
    let (lines, _listening) = LogLines::listen();
    let page = world.link_without_a_database().await;
    assert_eq!(*world.heard.revoked.lock(), ["rt-1", "at-1"]);
    let logged = lines.with("provider", "hub");
    assert!(logged.len() == 2, "the fault, and the revocation: {logged:?}");
    let logged = Value::from(logged).to_string();
    for token in ["rt-1", "at-1", "c0de", SECRET] {
        assert!(!logged.contains(token) && !page.text.contains(token), "{token}: {logged}");
    }
    assert!(world.revocations("revoked"));
}

#[tokio::test]
async fn tokens_that_the_provider_does_not_revoke_either_are_named_in_the_log() {
    let world = World::start().await;
    *world.heard.failures.lock() = 1;
    let (lines, _listening) = LogLines::listen();
    world.link_without_a_database().await;
    assert!(world.heard.revoked.lock().is_empty());
    let logged = lines.with("message", UNREVOKED);
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(world.revocations("given_up"));
}
