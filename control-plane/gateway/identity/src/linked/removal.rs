//! Tokens of links that have ended: they are revoked at their providers, also after a restart.

use std::sync::Weak;
use std::time::Duration;

use asp_call::telemetry::metrics::LinkRevocation;
use asp_store::linked_accounts::{
    HolderId, LINK_TABLE, LinkId, LinkRow, LinkedAccountsError, RemovedLink, link_row,
};
use asp_vault::Place;
use futures::future::join_all;

use super::endpoint::TokenAnswer;
use super::provider::KnownProvider;
use super::request::NoLink;
use super::{LinkedTokens, read_tokens, unavailable};

/// Interval at which a gateway looks for tokens to revoke.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Number of looks between two for expired links.
const LOOKS: u32 = 60;
/// Claim of removals: longer than their requests take, which run at the same time.
const LEASE: Duration = Duration::from_secs(120);
/// Maximum number of removals of one claim, and of links that expire in one step. A provider that does not answer delays
/// those of others by the time of its own requests.
const AT_ONCE: u32 = 32;
const EXPIRE: u32 = 200;
/// Longest pause between two attempts, and the time after which tokens are given up.
const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);
const GIVE_UP: Duration = Duration::from_secs(7 * 86_400);

impl LinkedTokens {
    /// Revokes what is due and ends expired links, until the owner drops the gateway's links; run it as a task.
    pub async fn keep(links: Weak<LinkedTokens>) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut looks = 0_u32;
        let mut is_failing = false;
        loop {
            ticks.tick().await;
            let Some(links) = links.upgrade() else { return };
            let expires = looks.is_multiple_of(LOOKS);
            looks = looks.wrapping_add(1);
            let done = links.revoke_due(expires).await;
            if let (Err(error), false) = (&done, is_failing) {
                tracing::warn!(%error, "ended linked accounts cannot be read; their tokens are revoked once the database answers");
            }
            is_failing = done.is_err();
        }
    }

    async fn revoke_due(&self, expires: bool) -> Result<(), LinkedAccountsError> {
        if expires {
            self.store.expire_links(EXPIRE).await?;
            self.vault.sweep();
        }
        let claim: HolderId = rand::random();
        let removed = self.store.claim_removed(claim, LEASE, AT_ONCE).await?;
        let ending = removed.iter().map(|removed| self.end_tokens(removed, claim));
        join_all(ending).await.into_iter().collect()
    }

    /// Revokes the tokens of a claimed removal, and stores what became of them.
    async fn end_tokens(&self, removed: &RemovedLink, claim: HolderId) -> Result<(), LinkedAccountsError> {
        match self.revoke_removed(removed).await {
            Ok(()) => {
                self.metrics.revoked(LinkRevocation::Revoked);
                self.store.end_removed(removed.id, claim).await.map(drop)
            }
            Err(fault) if removed.age >= GIVE_UP => {
                self.metrics.revoked(LinkRevocation::GivenUp);
                tracing::error!(
                    provider = removed.provider, org = removed.org, %fault,
                    "tokens of a removed linked account were not revoked within a week and are deleted; end the grant at the provider"
                );
                self.store.end_removed(removed.id, claim).await.map(drop)
            }
            Err(fault) => {
                self.metrics.revoked(LinkRevocation::Retried);
                let after = pause(removed.attempts);
                tracing::warn!(
                    provider = removed.provider, attempts = removed.attempts, %fault,
                    "tokens of a removed linked account could not be revoked; retrying"
                );
                self.store.retry_removed(removed.id, claim, after).await.map(drop)
            }
        }
    }

    async fn revoke_removed(&self, removed: &RemovedLink) -> Result<(), NoLink> {
        let provider = match self.provider(&removed.provider).await {
            Ok(provider) => provider,
            Err(NoLink::UnknownProvider(_)) => {
                tracing::warn!(
                    provider = removed.provider,
                    "tokens were deleted and not revoked, because their provider was deleted before"
                );
                return Ok(());
            }
            Err(fault) => return Err(fault),
        };
        let row = link_row(removed.id);
        let place = Place { tenant: &removed.org, table: LINK_TABLE, row: &row };
        let opened = self.vault.open(&place, &removed.sealed).await;
        let opened = opened.map_err(|error| NoLink::Vault(error.to_string()))?;
        self.revoke(&provider, &read_tokens(&opened.plain)?).await
    }

    /// Hands tokens that came for a link which has ended to the revocation.
    pub(super) async fn discard(
        &self,
        provider: &KnownProvider,
        link: &LinkRow,
        answer: &TokenAnswer,
    ) -> Result<(), NoLink> {
        // A place of its own: the link's former tokens wait under the id of the link.
        let id: LinkId = rand::random();
        let place = (id, link.key.org.as_str());
        let tokens = self.sealed_tokens(place, answer, (None, &link.scopes), provider).await?;
        let put = self.store.put_removed(id, &link.key.org, &link.key.provider, &tokens.sealed).await;
        put.map_err(unavailable)
    }
}

/// Returns the pause after an attempt: it doubles from a second on.
fn pause(attempts: u32) -> Duration {
    let doubled = 1_u64.checked_shl(attempts.saturating_sub(1)).unwrap_or(u64::MAX);
    Duration::from_secs(doubled).min(LONGEST_PAUSE)
}
