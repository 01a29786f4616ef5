//! Links that the store has although storing them failed.

use asp_store::linked_accounts::{HolderId, LinkRow, LinkedAccountsError, ProviderRow, RemovedLink};
use async_trait::async_trait;
use bytes::Bytes;

use super::*;

type Result<T> = std::result::Result<T, LinkedAccountsError>;

/// The real store behind a connection that breaks once it has stored a link; all else reaches it.
struct BrokenAfterPut(Arc<SqliteCalls>);

#[async_trait]
impl LinkedAccounts for BrokenAfterPut {
    async fn put_link(&self, id: LinkId, key: &LinkKey, tokens: &LinkTokens, keep: Duration) -> Result<()> {
        self.0.put_link(id, key, tokens, keep).await?;
        Err(LinkedAccountsError::Unavailable("the connection broke".into()))
    }

    async fn put_provider(&self, name: &str, document: &str, sealed: &Bytes) -> Result<bool> {
        self.0.put_provider(name, document, sealed).await
    }

    async fn provider(&self, name: &str) -> Result<Option<ProviderRow>> {
        self.0.provider(name).await
    }

    async fn providers(&self) -> Result<Vec<ProviderRow>> {
        self.0.providers().await
    }

    async fn delete_provider(&self, name: &str) -> Result<bool> {
        self.0.delete_provider(name).await
    }

    async fn link(&self, key: &LinkKey) -> Result<Option<LinkRow>> {
        self.0.link(key).await
    }

    async fn links(&self, filter: LinkFilter<'_>, limit: u32) -> Result<Vec<LinkRow>> {
        self.0.links(filter, limit).await
    }

    async fn note_use(&self, id: LinkId, every: Duration) -> Result<()> {
        self.0.note_use(id, every).await
    }

    async fn claim_refresh(&self, id: LinkId, version: i64, by: HolderId, lease: Duration) -> Result<bool> {
        self.0.claim_refresh(id, version, by, lease).await
    }

    async fn end_refresh(&self, id: LinkId, version: i64, tokens: &LinkTokens) -> Result<bool> {
        self.0.end_refresh(id, version, tokens).await
    }

    async fn give_up_refresh(&self, id: LinkId, by: HolderId) -> Result<()> {
        self.0.give_up_refresh(id, by).await
    }

    async fn reseal(&self, id: LinkId, version: i64, sealed: &Bytes) -> Result<bool> {
        self.0.reseal(id, version, sealed).await
    }

    async fn mark_dead(&self, id: LinkId, version: i64) -> Result<bool> {
        self.0.mark_dead(id, version).await
    }

    async fn remove_links(&self, filter: LinkFilter<'_>) -> Result<u64> {
        self.0.remove_links(filter).await
    }

    async fn expire_links(&self, limit: u32) -> Result<u64> {
        self.0.expire_links(limit).await
    }

    async fn put_removed(&self, id: LinkId, org: &str, provider: &str, sealed: &Bytes) -> Result<()> {
        self.0.put_removed(id, org, provider, sealed).await
    }

    async fn claim_removed(&self, claim: HolderId, lease: Duration, limit: u32) -> Result<Vec<RemovedLink>> {
        self.0.claim_removed(claim, lease, limit).await
    }

    async fn end_removed(&self, id: LinkId, claim: HolderId) -> Result<bool> {
        self.0.end_removed(id, claim).await
    }

    async fn retry_removed(&self, id: LinkId, claim: HolderId, after: Duration) -> Result<bool> {
        self.0.retry_removed(id, claim, after).await
    }

    async fn use_state(&self, state: [u8; 16], keep: Duration) -> Result<bool> {
        self.0.use_state(state, keep).await
    }
}

#[tokio::test]
async fn a_link_that_was_stored_after_all_is_dead_before_a_call_uses_its_revoked_tokens() {
    let mut world = World::start().await;
    let deps = IssuerDeps { origins: vec![world.origin.clone()], ..IssuerDeps::default() };
    let store = Arc::new(BrokenAfterPut(world.store.clone()));
    world.gateways[1] = Fixture::linking(linked_snapshot(&world.origin), deps, store);
    let (path, cookie) = world.response(&[("code", "c0de")]).await;
    let page = world.get(&path, &cookie).await;
    assert!(page.text.contains("could not be stored"), "{}", page.text);
    assert_eq!(*world.heard.revoked.lock(), ["rt-1", "at-1"]);
    until_async("the link is dead", async || {
        world.store.link(&alice()).await.unwrap().is_some_and(|link| !link.is_live)
    })
    .await;
    // The next call asks for the account, and its service gets no token.
    world.page().await;
    assert_eq!(world.heard.calls.lock().len(), 0);
}
