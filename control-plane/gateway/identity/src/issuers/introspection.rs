//! Owners of opaque tokens, as reported by their issuer (RFC 7662).
//!
//! Keeps true: an answer is used for at most [`KEEP`], and never after the token's expiry; for each token at most one
//! request is open, in a task of its own that no client can abort; an opaque token is sent to one issuer only; an
//! issuer that does not answer authenticates nobody. Unknown tokens are limited by peer and by issuer, separately from
//! tokens that were recently valid, so that a flood of them delays no known caller. Revocation by the platform is
//! evaluated for each request, from the snapshot.

mod known;

use std::sync::Arc;
use std::time::Duration;

use asp_call::clock::{unix_ms, unix_seconds};
use asp_call::digest::PeerKey;
use asp_edge::{Budget, Caller};
use asp_outbound::{Outbound, body};
use asp_proto::snapshot::{Introspection, IssuerAccess};
use asp_snapshot::{Snapshot, VirtualServer};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::credentials::{Credentials, User};
use super::permits::Slots;
use known::{AnswerCache, CachedAnswer, Next, OpenQuestion};

/// Time for which an answer is used.
pub const KEEP: Duration = Duration::from_secs(30);
/// Timeout of an issuer's answer.
pub const WITHIN: Duration = Duration::from_secs(5);
/// Budget of one peer for tokens that no issuer knows: burst, and refill per second.
const UNKNOWN_BURST: u32 = 200;
const UNKNOWN_PER_SECOND: u32 = 20;
/// Maximum size of an answer, in bytes.
const MAX_BODY: usize = 16 * 1024;
/// Longest token, in bytes, the same as for signed ones.
const MAX_TOKEN: usize = 8 * 1024;

/// The reason why there is no caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCaller {
    /// The token is not valid here.
    Invalid,
    /// The issuer could not be reached; the request may be retried.
    Unavailable,
    /// The peer sent too many unknown tokens; seconds to wait.
    TooMany(u64),
}

/// Claims of a token; `None` if its issuer does not know it or it is no longer active.
type IntrospectedClaims = Option<Arc<Map<String, Value>>>;

/// Result of one request; the error is for the operator.
type IntrospectionAnswer = Result<IntrospectedClaims, String>;

/// Introspects tokens and caches the answers.
pub struct Introspections {
    asking: Arc<Introspector>,
}

/// State shared with the tasks that send requests; it outlives the HTTP requests that wait.
struct Introspector {
    outbound: Arc<Outbound>,
    origins: Vec<String>,
    credentials: Arc<Credentials>,
    known: Arc<Mutex<AnswerCache>>,
    /// Budget of each peer for tokens that no issuer knows. The charge for a valid token is returned.
    unknown: Budget,
}

impl Introspections {
    pub(super) fn new(
        outbound: Arc<Outbound>,
        origins: Vec<String>,
        credentials: Arc<Credentials>,
    ) -> Introspections {
        let unknown = Budget::new(UNKNOWN_PER_SECOND, UNKNOWN_BURST);
        let asking = Introspector { outbound, origins, credentials, known: Arc::default(), unknown };
        Introspections { asking: Arc::new(asking) }
    }

    /// Returns the token's owner, as reported by the server's issuer of opaque tokens. `peer` is charged for an unknown
    /// token.
    pub async fn caller(
        &self,
        snapshot: &Snapshot,
        server: &VirtualServer,
        token: &str,
        peer: &PeerKey,
    ) -> Result<Arc<Caller>, NoCaller> {
        // RFC 6750 section 2.1.
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if token.is_empty() || token.len() > MAX_TOKEN || !token.bytes().all(is_token) {
            return Err(NoCaller::Invalid);
        }
        let digest: [u8; 32] = Sha256::digest(token).into();
        let asked = server.edge.issuers.iter().filter_map(|name| snapshot.access(name));
        let mut asked = asked.filter_map(|access| Some((access, access.introspection.as_ref()?)));
        let (access, introspection) = match (asked.next(), asked.next()) {
            (Some(only), None) => only,
            (None, _) => return Err(NoCaller::Invalid),
            // The control plane compiles no such server.
            (Some(_), Some(_)) => return Err(NoCaller::Invalid),
        };
        match self.ask_issuer(access, introspection, (token, digest), peer).await? {
            Ok(Some(said)) => {
                let names = (server.message.name.as_str(), access.issuer.as_str());
                let read = snapshot.edge.introspected(
                    names,
                    &said,
                    (digest, &introspection.audiences),
                    unix_seconds(),
                );
                read.map(Arc::new).map_err(|cause| {
                    tracing::warn!(
                        issuer = %access.issuer, %cause,
                        "token reported as active by its issuer was refused with 401"
                    );
                    NoCaller::Invalid
                })
            }
            Ok(None) => Err(NoCaller::Invalid),
            Err(fault) => {
                tracing::warn!(issuer = %access.issuer, %fault, "token introspection failed");
                Err(NoCaller::Unavailable)
            }
        }
    }

    async fn ask_issuer(
        &self,
        access: &IssuerAccess,
        introspection: &Introspection,
        (token, digest): (&str, [u8; 32]),
        peer: &PeerKey,
    ) -> Result<IntrospectionAnswer, NoCaller> {
        let issuer = access.issuer.as_str();
        let id = known::id(&digest, issuer, &introspection.url);
        let next = self.asking.known.lock().next(id, (issuer, peer), Instant::now(), || {
            self.asking.unknown.take(peer, unix_ms()).map_err(NoCaller::TooMany)
        })?;
        let mut answer = match next {
            Next::Kept(said) => return Ok(Ok(said)),
            Next::Join(answer) => answer,
            Next::Ask { answering, answer, permits } => {
                let open = OpenQuestion::new(Arc::clone(&self.asking.known), answering);
                let (at, token) = (introspection.clone(), token.to_owned());
                let question = TokenQuestion { at, token, peer: *peer, open };
                tokio::spawn(Arc::clone(&self.asking).run(question, permits));
                answer
            }
        };
        let said = answer.wait_for(Option::is_some).await.ok().and_then(|said| said.clone());
        Ok(said.unwrap_or_else(|| Err("the question was dropped".to_owned())))
    }
}

/// One token to introspect, and the receivers of the answer.
struct TokenQuestion {
    at: Introspection,
    token: String,
    peer: PeerKey,
    open: OpenQuestion,
}

impl Introspector {
    /// Sends the request and reports the answer to everyone waiting. If this ends early, dropping the question closes
    /// it.
    async fn run(self: Arc<Self>, question: TokenQuestion, permits: Slots) {
        let late = || "it did not answer in time".to_owned();
        let asked = async {
            let _permits = permits.acquire().await.map_err(|_| late())?;
            self.ask(&question.at, &question.token).await.map(|said| said.map(Arc::new))
        };
        let answer = tokio::time::timeout(WITHIN, asked).await.unwrap_or_else(|_| Err(late()));
        let TokenQuestion { peer, open, .. } = question;
        if open.is_unknown() && matches!(answer, Ok(Some(_))) {
            self.unknown.give_back(peer);
        }
        if let Ok(said) = &answer {
            let end = said.as_ref().and_then(|said| said.get("exp")).and_then(Value::as_u64);
            let left = end.map(|end| Duration::from_secs(end.saturating_sub(unix_seconds())));
            let until = Instant::now() + left.map_or(KEEP, |left| left.min(KEEP));
            open.keep(&peer, CachedAnswer { until, said: said.clone() });
        }
        open.report(answer);
    }

    async fn ask(&self, at: &Introspection, token: &str) -> Result<Option<Map<String, Value>>, String> {
        let destination =
            self.outbound.of_origins(&at.url, &self.origins).map_err(|error| error.to_string())?;
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("token", token)
            .append_pair("token_type_hint", "access_token")
            .finish();
        let request = destination.client.post(destination.url.clone()).body(form);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let request = request.header("accept", "application/json");
        let proof = self.credentials.header(&at.credential, User::Platform, &destination.url).await;
        let (name, value) = proof.map_err(|error| error.to_string())?;
        let request = request.header(name, value);
        // The error of a request contains its URL, but nothing of its body.
        let response = request.send().await.map_err(|error| error.to_string())?;
        if response.status() != 200 {
            return Err(format!("it answers with status {}", response.status().as_u16()));
        }
        let body = body(response, MAX_BODY).await?;
        let said: Map<String, Value> =
            serde_json::from_slice(&body).map_err(|_| "its answer is not a JSON object".to_owned())?;
        match said.get("active").and_then(Value::as_bool) {
            Some(true) => Ok(Some(said)),
            Some(false) => Ok(None),
            None => Err("its answer has no `active`".to_owned()),
        }
    }
}
