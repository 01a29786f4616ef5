//! Links that the store did not take, although their provider has given tokens: the tokens are revoked, and the link does not count.
//!
//! Keeps true: a store that fails may have stored the link all the same, at once or a little later, as a database does whose
//! connection breaks at the end of a transaction. Such a link is marked dead, so that no call gets its revoked tokens.

use std::sync::Arc;
use std::time::Duration;

use asp_call::telemetry::metrics::LinkRevocation;
use asp_store::linked_accounts::{LinkId, LinkKey, LinkedAccountsError};
use tokio::time::{Instant, sleep};

use super::endpoint::TokenAnswer;
use super::provider::KnownProvider;
use super::{LinkedTokens, OpenedTokens};

/// Interval at which the store is asked whether it has the link.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time after which a statement that failed here is no longer executed there: twice the database's limit of a statement.
const SETTLED: Duration = Duration::from_secs(30);
/// Time for which a store that does not answer is asked: longer than a standby needs to take over.
const WITHIN: Duration = Duration::from_secs(600);

impl LinkedTokens {
    /// Revokes tokens of a link that could not be stored: once, because only this process has them.
    pub(super) async fn revoke_unstored(&self, provider: &KnownProvider, org: &str, answer: TokenAnswer) {
        let tokens = OpenedTokens { access: answer.access, refresh: answer.refresh };
        match self.revoke(provider, &tokens).await {
            Ok(()) => {
                self.metrics.revoked(LinkRevocation::Revoked);
                tracing::warn!(
                    provider = provider.name,
                    org,
                    "tokens of an account were revoked, because its link could not be stored"
                );
            }
            Err(fault) => {
                self.metrics.revoked(LinkRevocation::GivenUp);
                tracing::error!(
                    provider = provider.name, org, %fault,
                    "tokens of an account whose link could not be stored were not revoked: end the grant at the provider"
                );
            }
        }
    }

    /// Marks a link dead that the store has although storing it failed; run it as a task. There are few: the same store has
    /// recorded the state of each just before.
    pub(super) async fn end_unstored(self: Arc<Self>, id: LinkId, key: LinkKey) {
        let began = Instant::now();
        loop {
            let is_settled = began.elapsed() >= SETTLED;
            match self.mark_unstored(id, &key).await {
                Ok(false) if !is_settled => {}
                Ok(_) => return,
                Err(error) if began.elapsed() >= WITHIN => {
                    tracing::warn!(
                        %error, provider = key.provider, org = key.org,
                        "a link whose tokens were revoked may be stored; its first use will ask its user to link the account again"
                    );
                    return;
                }
                Err(_) => {}
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Marks a link dead; returns false if the store does not have it.
    async fn mark_unstored(&self, id: LinkId, key: &LinkKey) -> Result<bool, LinkedAccountsError> {
        match self.store.link(key).await? {
            Some(link) if link.id == id => {
                // Only its own tokens: false if a call has marked it, or its user has linked the account again.
                self.store.mark_dead(id, link.version).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}
