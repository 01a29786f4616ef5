//! Refreshes: one at a time for a link, of all gateways.

use std::sync::Arc;
use std::time::Duration;

use asp_call::telemetry::metrics::LinkRefresh;
use asp_store::linked_accounts::{LinkId, LinkRow, LinkTokens};
use tokio::time::Instant;

use super::endpoint::{TokenAnswer, WITHIN};
use super::provider::KnownProvider;
use super::request::{LinkReason, NoLink};
use super::{LinkedTokens, is_fresh, unavailable};

/// Lease of a refresh: longer than the request to the provider and the first attempts to store its result. Later ones count too.
const LEASE: Duration = Duration::from_secs(15);
/// Time for which a call waits for the refresh of another one.
const WAIT: Duration = Duration::from_secs(20);
/// Interval at which a gateway looks for the result of another one.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time for which storing refreshed tokens is attempted, and the pause between two attempts. The provider may have ended the
/// former ones, and a database may take its standby.
const STORE_WITHIN: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(300);

impl LinkedTokens {
    /// Returns the link with an access token that is fresh: refreshed here, or by another gateway.
    pub(super) async fn refreshed(
        self: &Arc<Self>,
        provider: &Arc<KnownProvider>,
        link: &LinkRow,
    ) -> Result<LinkRow, NoLink> {
        if !link.renewable {
            return Err(NoLink::Missing(LinkReason::Rejected));
        }
        let until = Instant::now() + WAIT;
        let turn = self.turn_of(link.id);
        let late = || unavailable("the refresh of the linked account takes too long");
        let _turn = tokio::time::timeout_at(until, turn.lock()).await.map_err(|_| late())?;
        // A key service may take long to unwrap their key, which is cached then; the time of a claim is for the provider.
        self.open(link).await?;
        loop {
            let found = self.store.link(&link.key).await.map_err(unavailable)?;
            let Some(found) = found else { return Err(NoLink::Missing(LinkReason::Never)) };
            if !found.is_live {
                return Err(NoLink::Missing(LinkReason::Rejected));
            }
            if is_fresh(&found) {
                return Ok(found);
            }
            let claimed = self.store.claim_refresh(found.id, found.version, self.holder, LEASE).await;
            if claimed.map_err(unavailable)? {
                let refresh = refresh(Arc::clone(self), Arc::clone(provider), found);
                // Its own task: a call that ends must not lose tokens that the provider has issued.
                let refreshed = tokio::spawn(refresh).await;
                return refreshed.unwrap_or_else(|_| Err(unavailable("the refresh was aborted")));
            }
            if Instant::now() + LOOK_EVERY > until {
                return Err(late());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Returns the lock of this gateway's refreshes of a link.
    fn turn_of(&self, id: LinkId) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock();
        if let Some(turn) = turns.get(&id).and_then(std::sync::Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        turns.insert(id, Arc::downgrade(&turn));
        turn
    }

    /// Stores refreshed tokens; returns false if the link has ended or was replaced in between.
    async fn store_refreshed(&self, link: &LinkRow, tokens: &LinkTokens) -> Result<bool, NoLink> {
        let until = Instant::now() + STORE_WITHIN;
        loop {
            match self.store.end_refresh(link.id, link.version, tokens).await {
                Ok(stored) => return Ok(stored),
                Err(error) if Instant::now() >= until => {
                    tracing::error!(
                        %error, provider = link.key.provider,
                        "refreshed tokens of a linked account could not be stored; its user may have to link it again: check the database"
                    );
                    return Err(unavailable(error));
                }
                Err(_) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Handles tokens that came for a link which has changed: returns what is in its place. If it was removed, the tokens are
    /// revoked; otherwise they are left, because a provider may end those in their place together with them.
    async fn superseded(
        &self,
        provider: &KnownProvider,
        link: &LinkRow,
        answer: &TokenAnswer,
    ) -> Result<LinkRow, NoLink> {
        match self.store.link(&link.key).await.map_err(unavailable)? {
            Some(other) if other.is_live && is_fresh(&other) => Ok(other),
            Some(_) => Err(unavailable("the linked account was refreshed by another gateway")),
            None => {
                self.discard(provider, link, answer).await?;
                Err(NoLink::Missing(LinkReason::Never))
            }
        }
    }
}

/// Refreshes a claimed link.
async fn refresh(
    links: Arc<LinkedTokens>,
    provider: Arc<KnownProvider>,
    link: LinkRow,
) -> Result<LinkRow, NoLink> {
    let began = Instant::now();
    let result = request_and_store(&links, &provider, &link).await;
    let outcome = match &result {
        Ok(_) => LinkRefresh::Done,
        Err(NoLink::Missing(_)) => LinkRefresh::Rejected,
        Err(_) => LinkRefresh::Failed,
    };
    links.metrics.refreshed(outcome, began.elapsed());
    if let Err(fault) = &result {
        let ended = match fault {
            NoLink::Missing(LinkReason::Rejected) => {
                links.store.mark_dead(link.id, link.version).await.map(drop)
            }
            _ => links.store.give_up_refresh(link.id, links.holder).await,
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "a refresh of a linked account could not be ended; others wait until its lease is over");
        }
        tracing::info!(provider = provider.name, %fault, "linked account could not be refreshed");
    }
    result
}

async fn request_and_store(
    links: &LinkedTokens,
    provider: &KnownProvider,
    link: &LinkRow,
) -> Result<LinkRow, NoLink> {
    let former = links.open(link).await?;
    let Some(token) = &former.refresh else { return Err(NoLink::Missing(LinkReason::Rejected)) };
    let form = [("grant_type", "refresh_token"), ("refresh_token", token.expose())];
    let answer = tokio::time::timeout(WITHIN, links.ask_for_tokens(provider, &form)).await;
    let answer = answer.map_err(|_| unavailable("the provider did not answer in time"))??;
    let of_former = Some((&former, &link.sealed[..]));
    let place = (link.id, link.key.org.as_str());
    let tokens = links.sealed_tokens(place, &answer, (of_former, &link.scopes), provider).await?;
    if !links.store_refreshed(link, &tokens).await? {
        return links.superseded(provider, link, &answer).await;
    }
    Ok(LinkRow {
        version: tokens.version,
        renewable: tokens.renewable,
        access_life: tokens.access_life,
        sealed: tokens.sealed,
        ..link.clone()
    })
}
