//! The language runtimes a gateway uses: which one runs a language, how to reach it, and whether it answers.
//!
//! Owns: one lazy connection to each runtime. Refuses: plain TCP; a runtime is reached over a Unix socket or
//! by mutual TLS. Keeps true: a runtime that does not answer is tried again only after a backoff,
//! so that its absence costs a call nothing; from one that drains the next calls go over a new connection, which leads to
//! its successor where the address is a Service's, while those that it has go on over the old one.

pub mod figures;
pub(super) mod watch;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_peer::{Peer, Role};
use asp_platform::runtime_health::{RuntimeHealth, RuntimeState};
use asp_proto::supervisor::runtime_supervisor_client::RuntimeSupervisorClient;
use asp_proto::supervisor::{HealthRequest, health_response};
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::transport::{Endpoint, Uri};
use tonic::{Code, Status};

use super::multiplexer::{Client, Multiplexer};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A runtime that vanished silently is noticed after the two together.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// A PPP message of 4 MiB (plugin.proto) and its envelope.
const MAX_MESSAGE: usize = (4 << 20) + (64 << 10);
/// The first wait after a failed connect; it doubles with every further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
/// One that answered within this time is being replaced, as far as anybody knows: it is waited for.
const JUST_LOST: Duration = Duration::from_secs(10);

/// Where a runtime is and what it runs.
#[derive(Clone, Debug)]
pub struct RuntimeTarget {
    /// `python`, `node`, `java`, `mcp-stdio`.
    pub languages: Vec<String>,
    /// `unix:/path` or `https://host:port`.
    pub url: String,
    /// How the gateway proves itself, and knows the runtime; needed for `https`, refused for `unix`.
    pub peer: Option<Peer>,
}

/// A runtime's address is not usable.
#[derive(Debug, thiserror::Error)]
pub enum RuntimesError {
    #[error("runtime {0}: reach it by unix:/path, or by https:// with a client certificate")]
    Transport(String),
    #[error("runtime {url}: {source}")]
    Endpoint {
        url: String,
        #[source]
        source: tonic::transport::Error,
    },
    #[error("language {0} has two runtimes")]
    Twice(String),
}

/// The runtimes of one gateway, by language.
#[derive(Default)]
pub struct Runtimes {
    all: Vec<Arc<Runtime>>,
    by_language: HashMap<String, Arc<Runtime>>,
}

impl Runtimes {
    /// No runtime: every plugin call is refused.
    pub fn none() -> Runtimes {
        Runtimes::default()
    }

    /// Connects to nothing yet; the first call does. Needs a running tokio runtime.
    pub fn new(targets: Vec<RuntimeTarget>) -> Result<Runtimes, RuntimesError> {
        let mut runtimes = Runtimes::default();
        for target in targets {
            let runtime = Arc::new(Runtime::new(target)?);
            for language in &runtime.languages {
                if runtimes.by_language.insert(language.clone(), runtime.clone()).is_some() {
                    return Err(RuntimesError::Twice(language.clone()));
                }
            }
            runtimes.all.push(runtime);
        }
        Ok(runtimes)
    }

    /// Each of them once.
    pub(super) fn all(&self) -> &[Arc<Runtime>] {
        &self.all
    }

    pub(super) fn get(&self, language: &str) -> Option<&Arc<Runtime>> {
        self.by_language.get(language)
    }

    /// Asks every runtime how it is.
    pub async fn health(&self) -> Vec<RuntimeHealth> {
        futures::future::join_all(self.all.iter().map(|runtime| runtime.health())).await
    }
}

/// One runtime.
pub(super) struct Runtime {
    languages: Vec<String>,
    url: String,
    endpoint: Endpoint,
    /// `None`: the endpoint is a Unix socket.
    peer: Option<Peer>,
    client: Mutex<Client>,
    link: Mutex<Link>,
    /// The stream that tunnels share; opened when it is needed.
    multiplexer: tokio::sync::Mutex<Option<Multiplexer>>,
}

struct Link {
    state: RuntimeState,
    /// Connects that failed one after the other.
    failures: u32,
    /// Not tried before this moment.
    retry_at: Option<Instant>,
    answered_at: Option<Instant>,
}

impl Runtime {
    fn new(target: RuntimeTarget) -> Result<Runtime, RuntimesError> {
        let RuntimeTarget { languages, url, peer } = target;
        let failed = |source| RuntimesError::Endpoint { url: url.clone(), source };
        let set_up = |endpoint: Endpoint| {
            endpoint
                .connect_timeout(CONNECT_TIMEOUT)
                .tcp_nodelay(true)
                .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
                .keep_alive_timeout(KEEPALIVE_TIMEOUT)
                .keep_alive_while_idle(true)
        };
        let endpoint = match (&peer, url.parse::<Uri>()) {
            (None, _) if url.starts_with("unix:") => {
                set_up(Endpoint::from_shared(url.clone()).map_err(failed)?)
            }
            (Some(_), Ok(uri)) if uri.scheme_str() == Some("https") => {
                set_up(Endpoint::from(asp_peer::endpoint_uri(&uri)))
            }
            _ => return Err(RuntimesError::Transport(url)),
        };
        let client = Mutex::new(connected(&endpoint, peer.as_ref()));
        let link = Link { state: RuntimeState::Unused, failures: 0, retry_at: None, answered_at: None };
        let multiplexer = tokio::sync::Mutex::default();
        Ok(Runtime { languages, url, endpoint, peer, client, link: Mutex::new(link), multiplexer })
    }

    /// It has said over this stream that it drains: the next calls go over a new connection.
    pub(super) async fn drains(&self, over: &Multiplexer) {
        let mut multiplexer = self.multiplexer.lock().await;
        // Another call may have heard it first.
        if multiplexer.as_ref().is_some_and(|open| open.is_same(over)) {
            tracing::info!(runtime = %self.url, "a plugin runtime drains: the next calls go over a new connection");
            *self.client.lock() = connected(&self.endpoint, self.peer.as_ref());
            *multiplexer = None;
        }
    }

    /// Whether it answered a moment ago, and so may be back in another one.
    pub(super) fn is_just_lost(&self) -> bool {
        self.link.lock().answered_at.is_some_and(|at| at.elapsed() < JUST_LOST)
    }

    /// The stream for a new tunnel. `Unavailable` at once when the runtime is known not to answer.
    pub(super) async fn multiplexer(self: &Arc<Self>) -> Result<Multiplexer, Status> {
        let unavailable = || Status::unavailable("the runtime does not answer");
        let client = self.client().ok_or_else(unavailable)?;
        // Only one opens it; the others wait, which they would do for their own as well.
        let mut multiplexer = self.multiplexer.lock().await;
        if let Some(open) = multiplexer.as_ref().filter(|multiplexer| !multiplexer.is_over()) {
            return Ok(open.clone());
        }
        let listener = Arc::downgrade(self);
        let heard = move |fault: Option<&Status>| {
            if let (Some(runtime), Some(fault)) = (listener.upgrade(), fault) {
                runtime.heard(Some(fault));
            }
        };
        let opened = Multiplexer::open(client, heard).await;
        self.heard(opened.as_ref().err());
        Ok(multiplexer.insert(opened?).clone())
    }

    /// A client, unless the runtime is known not to answer.
    pub(super) fn client(&self) -> Option<Client> {
        let waiting = self.link.lock().retry_at.is_some_and(|at| Instant::now() < at);
        (!waiting).then(|| self.client.lock().clone())
    }

    /// When a runtime that did not answer is tried again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.link.lock().retry_at
    }

    /// Learns from an answer: `None` is a good one.
    pub(super) fn heard(&self, fault: Option<&Status>) {
        let unreachable = fault.is_some_and(|status| status.code() == Code::Unavailable);
        let mut link = self.link.lock();
        if !unreachable {
            if link.state == RuntimeState::Unreachable {
                tracing::info!(runtime = %self.url, "a plugin runtime answers again; calls go to it");
            }
            // What it refuses at once, as one that does not know this gateway, is no sign that it comes back.
            let answered_at = if fault.is_none() { Some(Instant::now()) } else { link.answered_at };
            *link = Link { state: RuntimeState::Ready, failures: 0, retry_at: None, answered_at };
            return;
        }
        if link.state != RuntimeState::Unreachable {
            tracing::warn!(runtime = %self.url, "a plugin runtime does not answer: calls of its plugins are refused until it does; check that asp-runtime runs and that the certificates fit");
        }
        let doubled = FIRST_BACKOFF.saturating_mul(2_u32.saturating_pow(link.failures));
        let wait = doubled.min(LONGEST_BACKOFF).mul_f64(rand::random_range(0.5..1.0));
        link.state = RuntimeState::Unreachable;
        link.failures = link.failures.saturating_add(1);
        link.retry_at = Some(Instant::now() + wait);
    }

    async fn health(&self) -> RuntimeHealth {
        let mut client = self.client.lock().clone();
        let asked = tokio::time::timeout(HEALTH_TIMEOUT, client.health(HealthRequest {})).await;
        let (state, stats) = match asked {
            Ok(Ok(answer)) => {
                let answer = answer.into_inner();
                let state = match answer.status() {
                    health_response::Status::Ok => RuntimeState::Ready,
                    _ => RuntimeState::Degraded,
                };
                (state, answer.runtimes.map(figures::json).unwrap_or_default())
            }
            Ok(Err(_)) | Err(_) => (RuntimeState::Unreachable, serde_json::Value::Null),
        };
        let off = Vec::new();
        RuntimeHealth { languages: self.languages.clone(), url: self.url.clone(), state, stats, off }
    }
}

/// Connects when it is first used.
fn connected(endpoint: &Endpoint, peer: Option<&Peer>) -> Client {
    let channel = match peer {
        None => endpoint.connect_lazy(),
        Some(peer) => {
            let connector = asp_peer::connector(peer.clone(), Role::Runtime, None);
            endpoint.connect_with_connector_lazy(connector)
        }
    };
    RuntimeSupervisorClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(languages: &[&str], url: &str) -> RuntimeTarget {
        let languages = languages.iter().map(|language| (*language).to_owned()).collect();
        RuntimeTarget { languages, url: url.into(), peer: None }
    }

    #[tokio::test]
    async fn a_runtime_is_reached_by_socket_or_mutual_tls_only() {
        assert!(Runtimes::new(vec![target(&["python"], "unix:/run/asp/runtime.sock")]).is_ok());
        for url in ["http://127.0.0.1:1", "https://127.0.0.1:1", "127.0.0.1:1", ""] {
            assert!(Runtimes::new(vec![target(&["python"], url)]).is_err(), "{url}");
        }
    }

    #[tokio::test]
    async fn a_language_has_one_runtime() {
        let targets = vec![target(&["python", "node"], "unix:/a"), target(&["node"], "unix:/b")];
        assert!(matches!(Runtimes::new(targets), Err(RuntimesError::Twice(language)) if language == "node"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_does_not_answer_is_left_alone_for_a_while() {
        let runtimes = Runtimes::new(vec![target(&["python"], "unix:/a")]).unwrap();
        let runtime = runtimes.get("python").unwrap();
        assert!(runtime.client().is_some());
        runtime.heard(Some(&Status::unavailable("gone")));
        assert!(runtime.client().is_none());
        tokio::time::advance(LONGEST_BACKOFF).await;
        assert!(runtime.client().is_some());
        runtime.heard(Some(&Status::not_found("an answer all the same")));
        assert!(runtime.client().is_some() && !runtime.is_just_lost(), "it has done nothing yet");
        runtime.heard(None);
        runtime.heard(Some(&Status::unavailable("gone")));
        assert!(runtime.is_just_lost());
        tokio::time::advance(JUST_LOST).await;
        assert!(!runtime.is_just_lost());
    }
}
