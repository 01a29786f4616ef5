//! Exchange of the caller's token at its issuer for tokens for services (RFC 8693).
//!
//! Keeps true: the caller's token is sent only to its issuer (I-8); an exchanged token is used only for that caller's
//! token, service and scopes, and not after the caller's token expires; tokens are requested only for services that the
//! operator lists with the issuer, to be sent to their origins, and with scopes that the caller's own token has; an
//! issuer that cannot be reached gives no token; at most [`AT_ONCE`] requests are open at one issuer, and [`OF_ORG`]
//! for one org. Cached tokens are bounded for each user and org.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::principal::owner;
use asp_call::clock::unix_seconds;
use asp_call::digest;
use asp_call::quota_table::{Quota, QuotaTable, Quotas};
use asp_edge::Caller;
use asp_outbound::{Outbound, Requester};
use asp_platform::operator_list;
use asp_platform::secret::Secret;
use asp_proto::snapshot::{ExchangedToken, TokenExchange};
use asp_snapshot::Snapshot;
use parking_lot::Mutex;
use reqwest::Url;
use tokio::time::Instant;

use super::credentials::Credentials;
use super::permits::{Permits, Slots};
use super::token_endpoint::{self, KeptToken, NoToken, TokenGrant};

/// Maximum number of concurrent requests to one issuer; others wait.
const AT_ONCE: usize = 32;
/// Maximum number of these for the callers of one org, so that other orgs get tokens from a slow issuer.
const OF_ORG: usize = 24;
/// Limits of cached tokens; the least recently used are evicted first.
const BOUNDS: Quotas = Quotas { whole: Quota::of(10_000), of_org: Quota::of(2_500), of_user: Quota::of(64) };
/// Idle time after which a token is evicted.
const IDLE: Duration = Duration::from_secs(600);
/// Identifiers of RFC 8693 sections 2.1 and 3.
const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// The reason why a call gets no token from its caller's issuer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoExchange {
    #[error("the issuer {0:?} has no `exchange`: write it, or give the primitive another `auth`")]
    NotHere(String),
    /// A token for one service must not be sent to another.
    #[error(
        "tokens for {audience:?} may not be sent to {to}: if they should be, add the origin to \
         `exchange.audiences` of the issuer {issuer:?}"
    )]
    Audience { issuer: String, audience: String, to: String },
    #[error(
        "{primitive} may not get a token for {audience:?}: if it should, add it to `for` of that service in \
         `exchange.audiences` of the issuer {issuer:?}"
    )]
    NotServed { issuer: String, audience: String, primitive: String },
    /// Scopes may only be narrowed (I-8).
    #[error("the caller's token lacks scopes that the spec asks for: {}", .0.join(" "))]
    Scopes(Vec<String>),
    /// The call continues at another gateway than the one that received its caller's token.
    #[error("the caller's token is not available here, because another gateway started the call")]
    NoSubject,
    #[error("the issuer {0:?}: {1}")]
    Issuer(String, NoToken),
}

/// The subject of an exchange.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    pub caller: &'a Caller,
    /// The caller's token; without it, only a cached token can be used.
    pub token: Option<&'a Secret>,
}

struct ExchangeCache {
    tokens: QuotaTable<Arc<KeptToken>>,
    permits: Permits,
    /// Permits by issuer and org.
    org_permits: Permits<[u8; 16]>,
}

impl ExchangeCache {
    fn new() -> ExchangeCache {
        let (permits, org_permits) = (Permits::new(AT_ONCE), Permits::new(OF_ORG));
        ExchangeCache { tokens: QuotaTable::new(BOUNDS), permits, org_permits }
    }

    /// Returns the permits for a request to the issuer on behalf of the org.
    fn permits(&mut self, issuer: &str, org: &str) -> Slots {
        let of_org = self.org_permits.of(&digest::shortened(&[issuer, org]));
        Slots { of_asker: Some(of_org), of_issuer: self.permits.of(issuer) }
    }
}

/// Exchanges tokens and caches the results.
pub struct Exchanges {
    outbound: Arc<Outbound>,
    origins: Vec<String>,
    credentials: Arc<Credentials>,
    known: Mutex<ExchangeCache>,
}

impl Exchanges {
    pub(super) fn new(
        outbound: Arc<Outbound>,
        origins: Vec<String>,
        credentials: Arc<Credentials>,
    ) -> Exchanges {
        Exchanges { outbound, origins, credentials, known: Mutex::new(ExchangeCache::new()) }
    }

    /// Returns the caller's token for a service at each of the origins `to`.
    pub async fn token(
        &self,
        snapshot: &Snapshot,
        subject: Subject<'_>,
        (wanted, to, by): (&ExchangedToken, &[String], Requester<'_>),
    ) -> Result<Secret, NoExchange> {
        let caller = subject.caller;
        let issuer = &caller.issuer;
        let at = exchange_of(snapshot, caller)?;
        check_audience(at, issuer, wanted, to)?;
        check_primitive(at, issuer, wanted, by)?;
        let lacks = |scope: &&String| !caller.scopes.contains(scope);
        let lacking: Vec<String> = wanted.scopes.iter().filter(lacks).cloned().collect();
        if !lacking.is_empty() {
            return Err(NoExchange::Scopes(lacking));
        }
        let (kept, permits) = self.find(caller, at, wanted);
        let asking = async {
            let Some(token) = subject.token else { return Err(NoToken::Unavailable(String::new())) };
            let late = |_| NoToken::Unavailable("it did not answer in time".to_owned());
            let permit = tokio::time::timeout(token_endpoint::WITHIN, permits.acquire()).await;
            let _permits = permit.map_err(late)?;
            self.ask(at, token, wanted).await
        };
        if subject.token.is_none() && kept.is_over(Instant::now()) {
            return Err(NoExchange::NoSubject);
        }
        Box::pin(kept.get(Some(end_of(caller)), asking)).await.map_err(|fault| match subject.token {
            Some(_) => NoExchange::Issuer(issuer.clone(), fault),
            None => NoExchange::NoSubject,
        })
    }

    /// Handles a service's rejection of a token; returns whether the next request gets another one.
    pub async fn refused(&self, snapshot: &Snapshot, caller: &Caller, wanted: &ExchangedToken) -> bool {
        let Ok(at) = exchange_of(snapshot, caller) else { return false };
        let (kept, _) = self.find(caller, at, wanted);
        kept.forget().await
    }

    fn find(&self, caller: &Caller, at: &TokenExchange, wanted: &ExchangedToken) -> (Arc<KeptToken>, Slots) {
        let scopes = wanted.scopes.join(" ");
        let hex: String = caller.digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let key = digest::shortened(&[&caller.issuer, &at.url, &hex, &wanted.audience, &scopes]);
        let mut known = self.known.lock();
        known.tokens.forget_idle(IDLE);
        let kept = match known.tokens.touch(&key) {
            Some(kept) => kept.clone(),
            None => {
                let kept = Arc::<KeptToken>::default();
                known.tokens.replace(key, owner(caller), kept.clone());
                kept
            }
        };
        let permits = known.permits(&caller.issuer, &caller.org);
        (kept, permits)
    }

    async fn ask(
        &self,
        at: &TokenExchange,
        token: &Secret,
        wanted: &ExchangedToken,
    ) -> Result<TokenGrant, NoToken> {
        let unavailable = |fault: String| NoToken::Unavailable(fault);
        let destination = self.outbound.of_origins(&at.url, &self.origins);
        let destination = destination.map_err(|error| unavailable(error.to_string()))?;
        let proof = self.credentials.client_header(&at.credential, &destination.url).await;
        let (name, value) = proof.map_err(|error| unavailable(error.to_string()))?;
        let request = destination.client.post(destination.url).header(name, value);
        let scope = wanted.scopes.join(" ");
        let mut form = vec![
            ("grant_type", GRANT),
            ("subject_token", token.expose()),
            ("subject_token_type", ACCESS_TOKEN),
            ("requested_token_type", ACCESS_TOKEN),
        ];
        if !wanted.audience.is_empty() {
            form.push(("audience", &wanted.audience));
        }
        if !scope.is_empty() {
            form.push(("scope", &scope));
        }
        token_endpoint::ask(request, &form).await
    }
}

fn exchange_of<'a>(snapshot: &'a Snapshot, caller: &Caller) -> Result<&'a TokenExchange, NoExchange> {
    let exchange = snapshot.access(&caller.issuer).and_then(|access| access.exchange.as_ref());
    exchange.ok_or_else(|| NoExchange::NotHere(caller.issuer.clone()))
}

/// Checks the audience against the origins. A spec's author chooses both, so the operator decides which belong
/// together.
fn check_audience(
    at: &TokenExchange,
    issuer: &str,
    wanted: &ExchangedToken,
    to: &[String],
) -> Result<(), NoExchange> {
    let listed = at.audiences.iter().find(|listed| listed.name == wanted.audience);
    let is_listed = |to: &String| {
        let to = Url::parse(to).map(|to| to.origin());
        let same =
            |origin: &String| Url::parse(origin).is_ok_and(|origin| to.as_ref() == Ok(&origin.origin()));
        listed.is_some_and(|listed| listed.origins.iter().any(same))
    };
    let elsewhere = |to: &str| {
        let (issuer, audience) = (issuer.to_owned(), wanted.audience.clone());
        Err(NoExchange::Audience { issuer, audience, to: to.to_owned() })
    };
    match to.iter().find(|to| !is_listed(to)) {
        Some(to) => elsewhere(to),
        None if to.is_empty() => elsewhere("nobody"),
        None => Ok(()),
    }
}

/// Checks that the operator allows this primitive tokens for the service.
fn check_primitive(
    at: &TokenExchange,
    issuer: &str,
    wanted: &ExchangedToken,
    by: Requester<'_>,
) -> Result<(), NoExchange> {
    let Requester { server, primitive } = by;
    let listed = at.audiences.iter().find(|listed| listed.name == wanted.audience);
    if listed.is_some_and(|listed| operator_list::allows(&listed.primitives, server, primitive)) {
        return Ok(());
    }
    Err(NoExchange::NotServed {
        issuer: issuer.to_owned(),
        audience: wanted.audience.clone(),
        primitive: format!("{server}/{primitive}"),
    })
}

/// Returns the expiry of the caller's token.
fn end_of(caller: &Caller) -> Instant {
    let left = caller.expires_at.saturating_sub(unix_seconds());
    // Tokens without an expiry are cached as long as the issuer allows.
    Instant::now() + Duration::from_secs(left.min(86_400))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn an_org_leaves_permits_of_an_issuer_to_others() {
        let mut known = ExchangeCache::new();
        let of_one: Vec<Slots> = (0..AT_ONCE).map(|_| known.permits("login", "acme")).collect();
        let mut waiting: Vec<_> = of_one.iter().map(|permits| Box::pin(permits.acquire())).collect();
        let held: Vec<_> = waiting.iter_mut().filter_map(|acquiring| acquiring.now_or_never()).collect();
        assert_eq!(held.len(), OF_ORG);
        for (issuer, org) in [("login", "globex"), ("other", "acme")] {
            let permits = known.permits(issuer, org);
            assert!(permits.acquire().now_or_never().is_some(), "{org} at {issuer}");
        }
    }
}
