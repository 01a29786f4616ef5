//! Who an opaque token belongs to, by asking its issuer (RFC 7662).
//!
//! Keeps true: what an issuer said serves for at most [`KEEP`], and never longer than the token; at most [`AT_ONCE`]
//! questions are open, whatever tokens come; an issuer that does not answer proves nobody. Revocation by the platform is
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
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::credentials::Credentials;
use crate::clock::unix_seconds;

/// How long an answer serves.
pub const KEEP: Duration = Duration::from_secs(30);
/// Longest time for an answer.
pub const WITHIN: Duration = Duration::from_secs(5);
/// Open questions.
const AT_ONCE: usize = 64;
/// Answers that are kept: tokens in use within half a minute.
const MAX_KEPT: usize = 20_000;
/// Largest answer, in bytes.
const MAX_BODY: usize = 64 * 1024;
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

struct Kept {
    until: Instant,
    /// `None`: the issuer said that it is none of its tokens, or a dead one.
    said: Option<Arc<Map<String, Value>>>,
}

/// Asks and keeps.
pub struct Introspections {
    outbound: Arc<Outbound>,
    origins: Vec<String>,
    credentials: Credentials,
    open: Semaphore,
    kept: Mutex<HashMap<Key, Kept>>,
}

impl Introspections {
    pub(super) fn new(
        outbound: Arc<Outbound>,
        origins: Vec<String>,
        credentials: Credentials,
    ) -> Introspections {
        Introspections {
            outbound,
            origins,
            credentials,
            open: Semaphore::new(AT_ONCE),
            kept: Mutex::default(),
        }
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
        let mut outcome = NoCaller::Invalid;
        for access in server.edge.issuers.iter().filter_map(|name| snapshot.access(name)) {
            let Some(introspection) = &access.introspection else { continue };
            match self.said(access, introspection, (token, digest)).await {
                Ok(Some(said)) => {
                    let accepted = &introspection.audiences;
                    let read = snapshot.edge.introspected(
                        (&server.message.name, &access.issuer),
                        &said,
                        (digest, accepted),
                        unix_seconds(),
                    );
                    return read.map(Arc::new).map_err(|cause| {
                        tracing::warn!(
                            issuer = %access.issuer,
                            "a token that its issuer says is active is refused, and its caller gets a 401: {cause}"
                        );
                        NoCaller::Invalid
                    });
                }
                Ok(None) => {}
                Err(fault) => {
                    tracing::warn!(issuer = %access.issuer, %fault, "an issuer could not be asked about a token");
                    outcome = NoCaller::Unavailable;
                }
            }
        }
        Err(outcome)
    }

    async fn said(
        &self,
        access: &IssuerAccess,
        introspection: &Introspection,
        (token, digest): (&str, [u8; 32]),
    ) -> Result<Option<Arc<Map<String, Value>>>, String> {
        let key = (digest, format!("{}\n{}", access.issuer, introspection.url));
        let now = Instant::now();
        if let Some(kept) = self.kept.lock().get(&key).filter(|kept| kept.until > now) {
            return Ok(kept.said.clone());
        }
        let _open = self.open.try_acquire().map_err(|_| format!("{AT_ONCE} questions are open"))?;
        let late = || "it did not answer in time".to_owned();
        let asked = tokio::time::timeout(WITHIN, self.ask(introspection, token)).await;
        let said = asked.map_err(|_| late())??.map(Arc::new);
        let left = said.as_ref().and_then(|said| said.get("exp")).and_then(Value::as_u64);
        let left = left.map(|exp| Duration::from_secs(exp.saturating_sub(unix_seconds())));
        let until = now + left.map_or(KEEP, |left| left.min(KEEP));
        let mut kept = self.kept.lock();
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, kept| kept.until > now);
            // All of them are in use: begin anew rather than grow.
            if kept.len() >= MAX_KEPT {
                kept.clear();
            }
        }
        kept.insert(key, Kept { until, said: said.clone() });
        Ok(said)
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
        let request = self.credentials.apply(&at.credential, &destination.url, request);
        let request = request.map_err(|error| error.to_string())?;
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
