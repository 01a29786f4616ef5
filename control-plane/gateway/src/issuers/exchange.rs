//! Tokens for services that the caller's issuer gives for the caller's own (RFC 8693).
//!
//! Keeps true: the caller's token goes to the issuer that made it and to nobody else (I-8); what was given serves that caller's
//! token, service and scopes only, and not beyond the end of the caller's token; an issuer that cannot be asked gives
//! nothing; at most [`AT_ONCE`] questions are open at one issuer.

use std::collections::HashMap;
use std::sync::Arc;

use asp_edge::Caller;
use asp_outbound::Outbound;
use asp_proto::snapshot::{ExchangedToken, TokenExchange};
use asp_snapshot::Snapshot;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::credentials::{Credentials, User};
use super::token_endpoint::{self, Granted, KeptToken, NoToken};
use crate::clock::unix_seconds;
use crate::digest;

/// Questions to one issuer at a time; others wait their turn.
const AT_ONCE: usize = 32;
/// Tokens that are kept; beyond them it is begun anew.
const MAX_KEPT: usize = 10_000;
/// RFC 8693 sections 2.1 and 3.
const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// Why a call gets no token of its caller's issuer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoExchange {
    #[error("the issuer {0:?} has no `exchange`: write it, or give the primitive another `auth`")]
    NotHere(String),
    /// The call goes on elsewhere than where its caller's token came to.
    #[error("the caller's token is not here any more, because another gateway began the call")]
    NoSubject,
    #[error("the issuer {0:?}: {1}")]
    Issuer(String, NoToken),
}

/// Whose token is exchanged.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub caller: &'a Caller,
    /// `None`: where a token is kept that was given before, it serves.
    pub token: Option<&'a SecretString>,
}

#[derive(Default)]
struct Known {
    tokens: HashMap<[u8; 16], Arc<KeptToken>>,
    /// By issuer.
    turns: HashMap<String, Arc<Semaphore>>,
}

/// Asks and keeps.
pub(crate) struct Exchanges {
    outbound: Arc<Outbound>,
    origins: Vec<String>,
    credentials: Arc<Credentials>,
    known: Mutex<Known>,
}

impl Exchanges {
    pub(super) fn new(
        outbound: Arc<Outbound>,
        origins: Vec<String>,
        credentials: Arc<Credentials>,
    ) -> Exchanges {
        Exchanges { outbound, origins, credentials, known: Mutex::default() }
    }

    /// The token by which the caller is known to a service.
    pub(crate) async fn token(
        &self,
        snapshot: &Snapshot,
        subject: Subject<'_>,
        wanted: &ExchangedToken,
    ) -> Result<SecretString, NoExchange> {
        let issuer = &subject.caller.issuer;
        let not_here = || NoExchange::NotHere(issuer.clone());
        let at = snapshot.access(issuer).and_then(|access| access.exchange.as_ref()).ok_or_else(not_here)?;
        let (kept, turns) = self.kept(subject.caller, at, wanted);
        let asking = async {
            let Some(token) = subject.token else { return Err(NoToken::Unavailable(String::new())) };
            let late = |_| NoToken::Unavailable("it did not answer in time".to_owned());
            let turn = tokio::time::timeout(token_endpoint::WITHIN, turns.acquire()).await;
            let _turn = turn.map_err(late)?;
            self.ask(at, token, wanted).await
        };
        if subject.token.is_none() && kept.is_over(Instant::now()) {
            return Err(NoExchange::NoSubject);
        }
        Box::pin(kept.get(Some(end_of(subject.caller)), asking)).await.map_err(|fault| match subject.token {
            Some(_) => NoExchange::Issuer(issuer.clone(), fault),
            None => NoExchange::NoSubject,
        })
    }

    fn kept(
        &self,
        caller: &Caller,
        at: &TokenExchange,
        wanted: &ExchangedToken,
    ) -> (Arc<KeptToken>, Arc<Semaphore>) {
        let scopes = wanted.scopes.join(" ");
        let hex: String = caller.digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let key = digest::shortened(&[&caller.issuer, &at.url, &hex, &wanted.audience, &scopes]);
        let mut known = self.known.lock();
        if known.tokens.len() >= MAX_KEPT && !known.tokens.contains_key(&key) {
            let now = Instant::now();
            known.tokens.retain(|_, kept| !kept.is_over(now));
            // All of them are in use: begin anew rather than grow.
            if known.tokens.len() >= MAX_KEPT {
                known.tokens.clear();
            }
        }
        let kept = known.tokens.entry(key).or_default().clone();
        let turns = known.turns.entry(caller.issuer.clone());
        (kept, turns.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))).clone())
    }

    async fn ask(
        &self,
        at: &TokenExchange,
        token: &SecretString,
        wanted: &ExchangedToken,
    ) -> Result<Granted, NoToken> {
        let unavailable = |fault: String| NoToken::Unavailable(fault);
        let destination = self.outbound.of_origins(&at.url, &self.origins);
        let destination = destination.map_err(|error| unavailable(error.to_string()))?;
        let proof = self.credentials.header(&at.credential, User::Platform, &destination.url).await;
        let (name, value) = proof.map_err(|error| unavailable(error.to_string()))?;
        let request = destination.client.post(destination.url).header(name, value);
        let scope = wanted.scopes.join(" ");
        let mut form = vec![
            ("grant_type", GRANT),
            ("subject_token", token.expose_secret()),
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

/// When the caller's token ends.
fn end_of(caller: &Caller) -> Instant {
    let left = caller.expires_at.saturating_sub(unix_seconds());
    // Tokens without an end are kept for what the issuer says.
    Instant::now() + std::time::Duration::from_secs(left.min(86_400))
}
