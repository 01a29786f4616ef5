//! Tokens of accounts that users have linked at other services.
//!
//! Owns: which call gets which token, and the life of a link. Refuses: machines and callers without a token, who have no
//! account. Keeps true: a token is sent only to the origins of its provider, for the primitives and orgs that the operator
//! lists there; it is read from the store for each request, so that a removal holds at every gateway at once; of all gateways
//! one at a time refreshes a link, and the others wait a bounded time for its result; a refresh that has begun ends even if
//! its call does not; tokens are sealed wherever they rest, and never printed.

mod endings;
mod endpoint;
mod provider;
mod refresh;
mod removal;
mod request;
mod sealing;
mod ticket;
mod unstored;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use asp_call::clock::{unix_ms, unix_seconds};
use asp_call::seal::{Purpose, Sealer};
use asp_call::telemetry::metrics::{LinkMetrics, LinkUse};
use asp_outbound::Outbound;
use asp_platform::secret::Secret;
use asp_store::linked_accounts::{
    HolderId, LinkFilter, LinkId, LinkKey, LinkRow, LinkedAccounts, bound_to_session, link_row,
};
use asp_vault::Vault;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

pub use asp_store::linked_accounts::LinkRow as LinkedAccount;
use endpoint::TokenAnswer;
pub use provider::KnownProvider;
pub use request::{LinkReason, LinkRequest, NoLink};
use sealing::read_tokens;
pub use ticket::{LinkTicket, context as link_context};

/// Remaining life below which an access token is renewed: for clock skew and for requests in transit.
const MARGIN: Duration = Duration::from_secs(30);
/// Interval at which the use of a link is noted.
const NOTE_EVERY: Duration = Duration::from_secs(60);
/// Number of the latest calls whose links are remembered, for services that reject their tokens.
const REMEMBERED: usize = 4_096;
/// Interval at which a waiting call looks for a link that another gateway has stored.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Longest sealed ticket, in bytes: it travels in URLs.
const MAX_TICKET: usize = 4_096;
/// Maximum number of scopes of one link.
const MAX_SCOPES: usize = 128;
/// Maximum number of a user's links on a page.
const MAX_SHOWN: u32 = 500;

/// Dependencies of linked accounts.
#[derive(Clone)]
pub struct LinkDeps {
    pub store: Arc<dyn LinkedAccounts>,
    pub vault: Vault,
    pub metrics: LinkMetrics,
}

/// The linked accounts of a gateway.
pub struct LinkedTokens {
    store: Arc<dyn LinkedAccounts>,
    vault: Vault,
    metrics: LinkMetrics,
    outbound: Arc<Outbound>,
    /// Origins of providers that may be plain http or private.
    origins: Vec<String>,
    sealer: Arc<Sealer>,
    /// Origin that clients use, without a trailing slash.
    public_url: String,
    /// This gateway as the holder of refreshes.
    holder: HolderId,
    providers: Mutex<provider::ProviderCache>,
    /// Refreshes of this gateway, one a link.
    turns: Mutex<HashMap<LinkId, Weak<tokio::sync::Mutex<()>>>>,
    /// The link and version that each of the latest calls got.
    given: Mutex<VecDeque<GivenLink>>,
    /// Changes with each link that is stored here.
    stored: watch::Sender<u64>,
}

#[derive(Clone)]
struct GivenLink {
    call: [u8; 16],
    key: LinkKey,
    id: LinkId,
    version: i64,
    /// Time at which the link expires; never later than the store's.
    ends: Instant,
}

/// Opened tokens of a link.
struct OpenedTokens {
    access: Secret,
    refresh: Option<Secret>,
}

/// A link to store.
pub struct NewLink {
    pub ticket: LinkTicket,
    /// Scopes of the authorization request.
    pub scopes: Vec<String>,
    pub code: Secret,
    pub verifier: Secret,
}

impl LinkedTokens {
    pub(crate) fn new(
        deps: LinkDeps,
        (outbound, origins): (Arc<Outbound>, Vec<String>),
        (sealer, public_url): (Arc<Sealer>, String),
    ) -> LinkedTokens {
        LinkedTokens {
            store: deps.store,
            vault: deps.vault,
            metrics: deps.metrics,
            outbound,
            origins,
            sealer,
            public_url,
            holder: rand::random(),
            providers: Mutex::default(),
            turns: Mutex::default(),
            given: Mutex::default(),
            stored: watch::Sender::new(0),
        }
    }

    /// Returns the redirect URL that is registered at every provider.
    pub fn redirect(&self) -> String {
        format!("{}/account/callback", self.public_url)
    }

    /// Returns the token of the caller's linked account for a request.
    pub async fn token(self: &Arc<Self>, request: &LinkRequest<'_>) -> Result<Secret, NoLink> {
        let found = self.find(request).await;
        self.metrics.used(match &found {
            Ok((_, true)) => LinkUse::Refreshed,
            Ok((_, false)) => LinkUse::Used,
            Err(NoLink::Missing(LinkReason::Rejected | LinkReason::Unreadable)) => LinkUse::Dead,
            Err(NoLink::Missing(LinkReason::Never | LinkReason::Scopes)) => LinkUse::Missing,
            Err(NoLink::Vault(_) | NoLink::Unavailable(_)) => LinkUse::Failed,
            Err(_) => LinkUse::Refused,
        });
        found.map(|(token, _)| token)
    }

    /// Returns the token of the caller's linked account, and whether it was refreshed first.
    async fn find(self: &Arc<Self>, request: &LinkRequest<'_>) -> Result<(Secret, bool), NoLink> {
        let provider = self.provider_of(request).await?;
        let read_at = Instant::now();
        let link = self.store.link(&request.key()?).await.map_err(unavailable)?;
        let Some(link) = link else { return Err(NoLink::Missing(LinkReason::Never)) };
        if !link.is_live {
            return Err(NoLink::Missing(LinkReason::Rejected));
        }
        if !has_scopes(&link, &request.wanted.scopes) {
            return Err(NoLink::Missing(LinkReason::Scopes));
        }
        let stale = !is_fresh(&link);
        let link = match stale {
            true => self.refreshed(&provider, &link).await?,
            false => link,
        };
        let tokens = self.open(&link).await?;
        self.note(request, &link, read_at.checked_add(link.life).unwrap_or(read_at)).await;
        Ok((tokens.access, stale))
    }

    /// Waits until the caller has linked an account with which [`LinkedTokens::token`] has a token.
    pub async fn wait_for_token(self: &Arc<Self>, request: &LinkRequest<'_>) -> Result<Secret, NoLink> {
        let mut stored = self.stored.subscribe();
        loop {
            match self.find(request).await {
                Err(NoLink::Missing(_)) => {}
                found => return found.map(|(token, _)| token),
            }
            tokio::select! {
                // Err: cannot happen, the sender is in `self`.
                _ = stored.changed() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Handles a service's rejection of the token that a call got: marks the link dead; returns whether it did, so that the
    /// caller can be asked again.
    pub async fn rejected(&self, call: [u8; 16]) -> bool {
        let given = {
            let mut given = self.given.lock();
            let at = given.iter().rposition(|given| given.call == call);
            at.and_then(|at| given.remove(at))
        };
        let Some(GivenLink { id, version, .. }) = given else { return false };
        match self.store.mark_dead(id, version).await {
            Ok(was_alive) => {
                if was_alive {
                    tracing::info!(
                        link = link_row(id),
                        "linked account marked dead, because its service rejected the token"
                    );
                }
                true
            }
            Err(error) => {
                tracing::warn!(%error, "rejected linked account could not be marked dead; the next call may fail again");
                false
            }
        }
    }

    /// Returns the address of the page at which the caller links the account that a request needs; `None` if it is too long.
    pub fn page(&self, request: &LinkRequest<'_>) -> Option<String> {
        let ticket = LinkTicket::of(request)?;
        let plain = serde_json::to_vec(&ticket).ok()?;
        let sealed = self.sealer.seal(Purpose::Login, &ticket::context(request.server), &plain).ok()?;
        if sealed.len() > MAX_TICKET {
            return None;
        }
        Some(format!("{}/{}/oauth/link?ticket={sealed}", self.public_url, request.server))
    }

    /// Redeems the code of a provider and stores the link.
    pub async fn link(self: &Arc<Self>, new: NewLink) -> Result<(), NoLink> {
        let links = Arc::clone(self);
        // Its own task: a browser that leaves must not lose tokens that the provider has issued.
        let linked = tokio::spawn(async move { links.redeem(&new).await }).await;
        linked.unwrap_or_else(|_| Err(unavailable("linking the account was aborted")))
    }

    async fn redeem(self: &Arc<Self>, new: &NewLink) -> Result<(), NoLink> {
        let NewLink { ticket, code, verifier, .. } = new;
        let known = self.provider(&ticket.provider).await?;
        let redirect = self.redirect();
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code.expose()),
            ("redirect_uri", redirect.as_str()),
        ];
        if known.document.pkce {
            form.push(("code_verifier", verifier.expose()));
        }
        let answer = self.ask_for_tokens(&known, &form).await?;
        let id: LinkId = rand::random();
        match self.store_link((id, new), &known, &answer).await {
            Ok(()) => {
                self.stored.send_modify(|stored| *stored = stored.wrapping_add(1));
                Ok(())
            }
            Err(fault) => {
                tokio::spawn(Arc::clone(self).end_unstored(id, ticket.key()));
                self.revoke_unstored(&known, &ticket.org, answer).await;
                Err(NoLink::NotStored(fault.to_string()))
            }
        }
    }

    /// Stores the link of an answer to a code.
    async fn store_link(
        &self,
        (id, new): (LinkId, &NewLink),
        known: &KnownProvider,
        answer: &TokenAnswer,
    ) -> Result<(), NoLink> {
        let NewLink { ticket, scopes, .. } = new;
        // Providers may name the granted scopes otherwise; one that the user left out is refused by the service.
        let requested = scopes.join(" ");
        let tokens = self.sealed_tokens((id, &ticket.org), answer, (None, &requested), known).await?;
        let keep = match ticket.until {
            0 => known.keep(),
            until => known.keep().min(Duration::from_secs(until.saturating_sub(unix_seconds()))),
        };
        self.store.put_link(id, &ticket.key(), &tokens, keep).await.map_err(unavailable)
    }

    /// Returns the scopes to request for a ticket: those of the provider, of the ticket, and of the link that the new one
    /// replaces.
    pub async fn scopes_to_request(&self, ticket: &LinkTicket) -> Result<Vec<String>, NoLink> {
        let known = self.provider(&ticket.provider).await?;
        let former = self.store.link(&ticket.key()).await.map_err(unavailable)?;
        let former = former.iter().flat_map(|link| link.scopes.split(' ')).filter(|scope| !scope.is_empty());
        let mut scopes: Vec<String> = known.document.scopes.iter().chain(&ticket.scopes).cloned().collect();
        scopes.extend(former.map(str::to_owned));
        let mut seen = std::collections::HashSet::new();
        scopes.retain(|scope| seen.insert(scope.clone()));
        scopes.truncate(MAX_SCOPES);
        Ok(scopes)
    }

    /// Returns a user's links, newest first.
    pub async fn links_of(&self, org: &str, issuer: &str, subject: &str) -> Result<Vec<LinkRow>, NoLink> {
        let filter = LinkFilter { org, issuer, subject, ..LinkFilter::default() };
        self.store.links(filter, MAX_SHOWN).await.map_err(unavailable)
    }

    /// Ends a user's link at a provider; returns whether there was one.
    pub async fn remove(
        &self,
        (org, issuer, subject): (&str, &str, &str),
        provider: &str,
    ) -> Result<bool, NoLink> {
        // An empty part of a filter would match every link.
        if [org, issuer, subject, provider].iter().any(|part| part.is_empty()) {
            return Ok(false);
        }
        let removed = self.store.remove_links(LinkFilter { org, issuer, subject, provider, bound: "" }).await;
        removed.map(|removed| removed > 0).map_err(unavailable)
    }

    /// Ends the links that end with a session, in a task of its own. If the store does not answer they end with the token.
    pub fn end_session(self: &Arc<Self>, org: &str, session: &str) {
        // A session that is not kept has no id, and no links.
        if session.is_empty() {
            return;
        }
        let links = Arc::clone(self);
        let org = org.to_owned();
        let bound = bound_to_session(session);
        tokio::spawn(async move {
            let filter = LinkFilter { org: &org, bound: &bound, ..LinkFilter::default() };
            let ended = match links.store.links(filter, 1).await {
                Ok(found) if found.is_empty() => Ok(0),
                Ok(_) => links.store.remove_links(filter).await,
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                tracing::warn!(%error, "linked accounts of an ended session could not be removed; they end with their token");
            }
        });
    }

    /// Records the use of a state; returns false if it was used before.
    pub async fn use_state(&self, state: [u8; 16], keep: Duration) -> Result<bool, NoLink> {
        self.store.use_state(state, keep).await.map_err(unavailable)
    }

    /// Notes the use of a link, and which link the call got.
    async fn note(&self, request: &LinkRequest<'_>, link: &LinkRow, ends: Instant) {
        {
            let mut given = self.given.lock();
            if given.len() >= REMEMBERED {
                given.pop_front();
            }
            given.push_back(GivenLink {
                call: request.call,
                key: link.key.clone(),
                id: link.id,
                version: link.version,
                ends,
            });
        }
        let used = u64::try_from(link.used_ms).unwrap_or_default();
        if used + NOTE_EVERY.as_secs() * 1_000 > unix_ms() {
            return;
        }
        if let Err(error) = self.store.note_use(link.id, NOTE_EVERY).await {
            tracing::warn!(%error, "use of a linked account could not be noted");
        }
    }
}

/// Whether an access token lives long enough for a request; one that cannot be renewed is used to its end.
fn is_fresh(link: &LinkRow) -> bool {
    match link.access_life {
        None => true,
        Some(life) if link.renewable => life > MARGIN,
        Some(life) => !life.is_zero(),
    }
}

fn has_scopes(link: &LinkRow, wanted: &[String]) -> bool {
    wanted.iter().all(|wanted| link.scopes.split(' ').any(|scope| scope == wanted))
}

fn unavailable(error: impl std::fmt::Display) -> NoLink {
    NoLink::Unavailable(error.to_string())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn link(life: Option<u64>, renewable: bool) -> LinkRow {
        LinkRow {
            id: [1; 16],
            key: LinkKey {
                org: "acme".into(),
                issuer: "dev".into(),
                subject: "alice".into(),
                provider: "github".into(),
                bound: String::new(),
            },
            is_live: true,
            version: 1,
            scopes: "repo user".into(),
            renewable,
            access_life: life.map(Duration::from_secs),
            created_ms: 0,
            used_ms: 0,
            expires_ms: 0,
            life: Duration::ZERO,
            sealed: Bytes::new(),
        }
    }

    #[test]
    fn a_token_is_renewed_before_its_end_and_used_to_its_end_without_a_refresh_token() {
        for (life, renewable, fresh) in [
            (None, false, true),
            (None, true, true),
            (Some(3_600), true, true),
            (Some(30), true, false),
            (Some(30), false, true),
            (Some(0), false, false),
        ] {
            assert_eq!(is_fresh(&link(life, renewable)), fresh, "{life:?} {renewable}");
        }
    }

    #[test]
    fn a_link_needs_every_scope_as_a_whole_word() {
        let has = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|scope| (*scope).to_owned()).collect();
            has_scopes(&link(None, false), &wanted)
        };
        assert!(has(&[]) && has(&["repo"]) && has(&["user", "repo"]));
        assert!(!has(&["rep"]) && !has(&["repo", "gist"]) && !has(&["repo user"]));
    }
}
