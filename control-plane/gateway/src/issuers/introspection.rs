//! Who an opaque token belongs to, by asking its issuer (RFC 7662).
//!
//! Keeps true: what an issuer said serves for at most [`KEEP`], and never longer than the token; about one token it is asked
//! once at a time, and at most [`AT_ONCE`] questions are open there, whatever tokens come; an opaque token is shown to one
//! issuer only; an issuer that does not answer proves nobody. Revocation by the platform is
//! evaluated for each request, from the snapshot.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_edge::Caller;
use asp_outbound::{Outbound, body};
use asp_proto::snapshot::{Introspection, IssuerAccess};
use asp_snapshot::{Snapshot, VirtualServer};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;

use super::credentials::{Credentials, User};
use crate::clock::unix_seconds;

/// How long an answer serves.
pub const KEEP: Duration = Duration::from_secs(30);
/// Longest time for an answer.
pub const WITHIN: Duration = Duration::from_secs(5);
/// Questions to one issuer at a time; others wait their turn.
const AT_ONCE: usize = 32;
/// Answers that are kept of tokens that are good, and of those that are not: one kind never takes the other's room.
const MAX_KEPT: usize = 5_000;
/// Largest answer, in bytes.
const MAX_BODY: usize = 16 * 1024;
/// Longest token, in bytes, as for signed ones.
const MAX_TOKEN: usize = 8 * 1024;

/// Why there is no caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCaller {
    /// The token is no good here.
    Invalid,
    /// Nobody could be asked: the request may be tried again.
    Unavailable,
}

type Key = ([u8; 32], String);

/// `None`: the issuer says that it is none of its tokens, or a dead one.
type Said = Option<Arc<Map<String, Value>>>;

struct Kept {
    until: Instant,
    said: Said,
}

/// Somebody asks; whoever comes meanwhile waits for the same answer.
type Question = Arc<OnceCell<Result<Said, String>>>;

#[derive(Default)]
struct Known {
    good: HashMap<Key, Kept>,
    bad: HashMap<Key, Kept>,
    /// As many as there are requests that wait.
    open: HashMap<Key, Question>,
    /// By issuer.
    turns: HashMap<String, Arc<Semaphore>>,
}

impl Known {
    fn keep(&mut self, key: Key, kept: Kept, now: Instant) {
        let map = if kept.said.is_some() { &mut self.good } else { &mut self.bad };
        if map.len() >= MAX_KEPT {
            map.retain(|_, kept| kept.until > now);
            // All of them are in use: begin anew rather than grow.
            if map.len() >= MAX_KEPT {
                map.clear();
            }
        }
        map.insert(key, kept);
    }
}

/// Asks and keeps.
pub struct Introspections {
    outbound: Arc<Outbound>,
    origins: Vec<String>,
    credentials: Arc<Credentials>,
    known: Mutex<Known>,
}

impl Introspections {
    pub(super) fn new(
        outbound: Arc<Outbound>,
        origins: Vec<String>,
        credentials: Arc<Credentials>,
    ) -> Introspections {
        Introspections { outbound, origins, credentials, known: Mutex::default() }
    }

    /// The caller whose token it is, by the first of the server's issuers that knows it.
    pub(crate) async fn caller(
        &self,
        snapshot: &Snapshot,
        server: &VirtualServer,
        token: &str,
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
        match self.said(access, introspection, (token, digest)).await {
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
                        issuer = %access.issuer,
                        "a token that its issuer says is active is refused, and its caller gets a 401: {cause}"
                    );
                    NoCaller::Invalid
                })
            }
            Ok(None) => Err(NoCaller::Invalid),
            Err(fault) => {
                tracing::warn!(issuer = %access.issuer, %fault, "an issuer could not be asked about a token");
                Err(NoCaller::Unavailable)
            }
        }
    }

    async fn said(
        &self,
        access: &IssuerAccess,
        introspection: &Introspection,
        (token, digest): (&str, [u8; 32]),
    ) -> Result<Said, String> {
        let key = (digest, format!("{}\n{}", access.issuer, introspection.url));
        let (question, turns) = {
            let now = Instant::now();
            let mut known = self.known.lock();
            let kept = known.good.get(&key).or_else(|| known.bad.get(&key));
            if let Some(kept) = kept.filter(|kept| kept.until > now) {
                return Ok(kept.said.clone());
            }
            let turns = known.turns.entry(access.issuer.clone());
            let turns = turns.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))).clone();
            (known.open.entry(key.clone()).or_default().clone(), turns)
        };
        let late = || "it did not answer in time".to_owned();
        let asking = async {
            let _turn = turns.acquire().await.map_err(|_| late())?;
            self.ask(introspection, token).await.map(|said| said.map(Arc::new))
        };
        let within = async { tokio::time::timeout(WITHIN, asking).await.unwrap_or_else(|_| Err(late())) };
        let said = question.get_or_init(|| within).await.clone();
        let now = Instant::now();
        let mut known = self.known.lock();
        // Whoever asks after this asks anew, or finds what is kept.
        if known.open.get(&key).is_some_and(|open| Arc::ptr_eq(open, &question)) {
            known.open.remove(&key);
            if let Ok(said) = &said {
                let end = said.as_ref().and_then(|said| said.get("exp")).and_then(Value::as_u64);
                let left = end.map(|end| Duration::from_secs(end.saturating_sub(unix_seconds())));
                let until = now + left.map_or(KEEP, |left| left.min(KEEP));
                known.keep(key, Kept { until, said: said.clone() }, now);
            }
        }
        said
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
        // The error of a request names its URL, and nothing of its body.
        let response = request.send().await.map_err(|error| error.to_string())?;
        if response.status() != 200 {
            return Err(format!("it answers with status {}", response.status().as_u16()));
        }
        let body = body(response, MAX_BODY).await?;
        let said: Map<String, Value> =
            serde_json::from_slice(&body).map_err(|_| "its answer is no JSON object".to_owned())?;
        match said.get("active").and_then(Value::as_bool) {
            Some(true) => Ok(Some(said)),
            Some(false) => Ok(None),
            None => Err("its answer has no `active`".to_owned()),
        }
    }
}
