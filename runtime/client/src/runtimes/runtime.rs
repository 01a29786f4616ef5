//! One runtime: how to reach it, whether it answers, and its load.
//!
//! Owns: its lazy connection and the stream that all tunnels to it share. Keeps true: a runtime that does not answer
//! is tried again only after a backoff, so that its absence costs a call nothing; after a runtime starts to drain,
//! new calls use a new connection, which leads to its successor if the address stays, while its current calls
//! continue over the old one.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use asp_peer::{Peer, Role};
use asp_platform::runtime_health::{RuntimeHealth, RuntimeState};
use asp_proto::supervisor::runtime_supervisor_client::RuntimeSupervisorClient;
use asp_proto::supervisor::{HealthRequest, health_response};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::transport::{Endpoint, Uri};
use tonic::{Code, Status};

use super::{RuntimeTarget, RuntimesError, metrics};
use crate::multiplexer::{Client, Multiplexer};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Keepalive: a runtime that vanished silently is noticed after both together.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum message size: the answer of a stdio server, which may be as large as that of an upstream over HTTP, and
/// its envelope. A PPP message of a plugin has at most 4 MiB (plugin.proto), which the runtime enforces.
const MAX_MESSAGE: usize = (16 << 20) + (64 << 10);
/// First wait after a failed connection attempt; it doubles with every further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after its last answer during which a lost runtime is assumed to be restarting and is waited for.
const JUST_LOST: Duration = Duration::from_secs(10);
/// Time in which a runtime that has never answered is assumed to be starting: both start in it after a reboot.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
/// Time for which other runtimes are preferred after one has refused a call because it drains. Its successor may have
/// its address.
const LEFT_ALONE: Duration = Duration::from_secs(1);

/// Condition of the connection to a runtime, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Link {
    Answers,
    /// The runtime has not answered yet: it may have just been added.
    New,
    Drains,
    /// The runtime does not answer.
    Failing,
}

/// One runtime.
pub struct Runtime {
    pub(super) languages: Vec<String>,
    /// URL as configured.
    url: String,
    /// One of the addresses of the URL's name; `None` if the URL is used itself.
    pub(super) address: Option<SocketAddr>,
    name: String,
    endpoint: Endpoint,
    /// `None` if the endpoint is a Unix socket.
    peer: Option<Peer>,
    /// Name that its certificate must have, if that is not the endpoint's host.
    proves: Option<String>,
    client: Mutex<Client>,
    link: Mutex<State>,
    created: Instant,
    /// Stream that tunnels share; opened when it is needed.
    multiplexer: tokio::sync::Mutex<Option<Multiplexer>>,
    /// Attempts of this gateway's calls at the runtime, including those that wait there.
    pub(super) outstanding: AtomicUsize,
    /// Calls of all gateways that wait for a worker there, as last reported by the runtime.
    waiting: AtomicUsize,
    /// Notified when the runtime is lost: its name may have another address by then.
    lost: Option<Arc<Notify>>,
}

#[derive(Default)]
struct State {
    state: RuntimeState,
    /// Consecutive failed connection attempts.
    failures: u32,
    /// Earliest time of the next attempt.
    retry_at: Option<Instant>,
    /// Time of the last successful answer to a request.
    answered_at: Option<Instant>,
    /// Whether the runtime has ever answered.
    is_known: bool,
    /// Whether its failure has been logged.
    is_logged: bool,
    /// End of the time in which others are preferred, because the runtime drains.
    left_alone_until: Option<Instant>,
}

/// A resolved address of a name, and the notification for when nothing answers there.
pub(super) struct ResolvedAddress {
    pub address: SocketAddr,
    pub lost: Arc<Notify>,
}

impl Runtime {
    /// Creates the runtime that listens on a socket of this machine. It is in no [`super::Runtimes`].
    pub fn local(socket: &Path) -> Result<Arc<Runtime>, RuntimesError> {
        let url = format!("unix:{}", socket.display());
        let target = RuntimeTarget { languages: Vec::new(), url, peer: None };
        Runtime::new(&target, None).map(Arc::new)
    }

    /// Creates a runtime. If `resolved`, it is reached at this address of the URL's name, and still proves the name.
    pub(super) fn new(
        target: &RuntimeTarget,
        resolved: Option<ResolvedAddress>,
    ) -> Result<Runtime, RuntimesError> {
        let RuntimeTarget { languages, url, peer } = target.clone();
        let failed = |source| RuntimesError::Endpoint { url: url.clone(), source };
        let set_up = |endpoint: Endpoint| {
            endpoint
                .connect_timeout(CONNECT_TIMEOUT)
                .tcp_nodelay(true)
                .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
                .keep_alive_timeout(KEEPALIVE_TIMEOUT)
                .keep_alive_while_idle(true)
        };
        let (address, lost) = resolved.map(|resolved| (resolved.address, resolved.lost)).unzip();
        let mut proves = None;
        let endpoint = match (&peer, url.parse::<Uri>()) {
            (None, _) if url.starts_with("unix:") => Endpoint::from_shared(url.clone()).map_err(failed)?,
            (Some(_), Ok(uri)) if uri.scheme_str() == Some("https") => {
                let by_name = asp_peer::endpoint_uri(&uri);
                match address {
                    None => Endpoint::from(by_name),
                    Some(address) => {
                        proves = uri.host().map(str::to_owned);
                        let at = Endpoint::from_shared(format!("http://{address}")).map_err(failed)?;
                        at.origin(by_name)
                    }
                }
            }
            _ => return Err(RuntimesError::Transport(url)),
        };
        let endpoint = set_up(endpoint);
        let client = Mutex::new(connected(&endpoint, peer.as_ref(), proves.as_deref()));
        let name = address.map_or_else(|| url.clone(), |address| format!("{url} ({})", address.ip()));
        Ok(Runtime {
            languages,
            url,
            address,
            name,
            endpoint,
            peer,
            proves,
            client,
            link: Mutex::default(),
            created: Instant::now(),
            multiplexer: tokio::sync::Mutex::default(),
            outstanding: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            lost,
        })
    }

    /// Returns its URL, with its address if the name was resolved.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn languages(&self) -> &[String] {
        &self.languages
    }

    pub fn runs(&self, language: &str) -> bool {
        self.languages.iter().any(|own| own == language)
    }

    /// Returns its load: the open calls of this gateway, then the waiting calls of all gateways.
    pub(super) fn load(&self) -> (usize, usize) {
        (self.outstanding.load(Ordering::Relaxed), self.waiting.load(Ordering::Relaxed))
    }

    /// Records the number of calls that wait there, as reported by the runtime.
    pub fn waiting(&self, calls: usize) {
        self.waiting.store(calls, Ordering::Relaxed);
    }

    /// Returns the condition of its connection.
    pub(super) fn condition(&self) -> Link {
        let link = self.link.lock();
        if link.failures > 0 {
            Link::Failing
        } else if link.left_alone_until.is_some_and(|until| Instant::now() < until) {
            Link::Drains
        } else if link.is_known {
            Link::Answers
        } else {
            Link::New
        }
    }

    /// Records that the runtime reported over this stream that it drains: new calls use a new connection.
    pub async fn drains(&self, over: &Multiplexer) {
        let mut multiplexer = self.multiplexer.lock().await;
        // Another call may have reported it first.
        if multiplexer.as_ref().is_some_and(|open| open.is_same(over)) {
            tracing::info!(runtime = %self.name, "a plugin runtime is draining: new calls go to others of its languages, or over a new connection");
            *self.client.lock() = connected(&self.endpoint, self.peer.as_ref(), self.proves.as_deref());
            *multiplexer = None;
        }
        self.link.lock().left_alone_until = Some(Instant::now() + LEFT_ALONE);
    }

    /// Whether it answered a moment ago, and so may soon be back.
    pub fn is_just_lost(&self) -> bool {
        self.link.lock().answered_at.is_some_and(|at| at.elapsed() < JUST_LOST)
    }

    /// Returns the stream for a new tunnel; fails immediately with `Unavailable` if the runtime is known not to
    /// answer.
    pub async fn multiplexer(self: &Arc<Self>) -> Result<Multiplexer, Status> {
        let unavailable = || Status::unavailable("the runtime does not answer");
        let client = self.client().ok_or_else(unavailable)?;
        // Only one call opens it; the others wait, as they would for a stream of their own.
        let mut multiplexer = self.multiplexer.lock().await;
        if let Some(open) = multiplexer.as_ref().filter(|multiplexer| !multiplexer.is_over()) {
            return Ok(open.clone());
        }
        let listener = Arc::downgrade(self);
        let heard = move |fault: Option<&Status>| {
            if let (Some(runtime), Some(fault)) = (listener.upgrade(), fault) {
                runtime.record_result(Some(fault));
            }
        };
        let opened = Multiplexer::open(client, heard).await;
        self.record_result(opened.as_ref().err());
        Ok(multiplexer.insert(opened?).clone())
    }

    /// Returns a client, unless the runtime is known not to answer.
    pub fn client(&self) -> Option<Client> {
        let waiting = self.link.lock().retry_at.is_some_and(|at| Instant::now() < at);
        (!waiting).then(|| self.client.lock().clone())
    }

    /// Returns a client even if the runtime is known not to answer, for requests that no call waits for.
    pub fn any_client(&self) -> Client {
        self.client.lock().clone()
    }

    /// Returns when a runtime that did not answer may be tried again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.link.lock().retry_at
    }

    /// Records that the runtime sends metrics, which ends a failed state of its connection.
    pub fn lives(&self) {
        let mut link = self.link.lock();
        link.is_known = true;
        if std::mem::take(&mut link.is_logged) {
            tracing::info!(runtime = %self.name, "a plugin runtime answers again; calls go to it");
        }
        if link.failures > 0 {
            (link.state, link.failures, link.retry_at) = (RuntimeState::Ready, 0, None);
        }
    }

    /// Records the result of a request; `None` is success.
    pub fn record_result(&self, fault: Option<&Status>) {
        let unreachable = fault.is_some_and(|status| status.code() == Code::Unavailable);
        let mut link = self.link.lock();
        if !unreachable {
            if link.is_logged {
                tracing::info!(runtime = %self.name, "a plugin runtime answers again; calls go to it");
            }
            // An immediate refusal, as from a runtime that does not know this gateway, does not show that the
            // runtime comes back.
            let answered_at = if fault.is_none() { Some(Instant::now()) } else { link.answered_at };
            let is_known = link.is_known || fault.is_none();
            let left_alone_until = link.left_alone_until;
            let state = RuntimeState::Ready;
            *link = State { state, answered_at, is_known, left_alone_until, ..State::default() };
            return;
        }
        // A runtime that has never answered may be starting, as its gateway is.
        let is_starting = !link.is_known && self.created.elapsed() < STARTS_WITHIN;
        if !link.is_logged && !is_starting {
            link.is_logged = true;
            tracing::warn!(runtime = %self.name, "a plugin runtime does not answer: calls go to the others of its languages, or are refused if there are none; check that asp-runtime runs and that the certificates match");
        }
        let doubled = FIRST_BACKOFF.saturating_mul(2_u32.saturating_pow(link.failures));
        let wait = doubled.min(LONGEST_BACKOFF).mul_f64(rand::random_range(0.5..1.0));
        link.state = RuntimeState::Unreachable;
        link.failures = link.failures.saturating_add(1);
        link.retry_at = Some(Instant::now() + wait);
        if let Some(lost) = &self.lost {
            lost.notify_one();
        }
    }

    pub(super) async fn health(&self) -> RuntimeHealth {
        let mut client = self.any_client();
        let asked = tokio::time::timeout(HEALTH_TIMEOUT, client.health(HealthRequest {})).await;
        let (state, stats) = match asked {
            Ok(Ok(answer)) => {
                let answer = answer.into_inner();
                let state = match answer.status() {
                    health_response::Status::Ok => RuntimeState::Ready,
                    _ => RuntimeState::Degraded,
                };
                (state, answer.runtimes.map(metrics::json).unwrap_or_default())
            }
            Ok(Err(_)) | Err(_) => (RuntimeState::Unreachable, serde_json::Value::Null),
        };
        RuntimeHealth {
            languages: self.languages.clone(),
            url: self.url.clone(),
            address: self.address.map(|address| address.ip()),
            state,
            stats,
            off: Vec::new(),
        }
    }
}

/// Creates a client that connects on first use.
fn connected(endpoint: &Endpoint, peer: Option<&Peer>, proves: Option<&str>) -> Client {
    let channel = match peer {
        None => endpoint.connect_lazy(),
        Some(peer) => {
            let connector = asp_peer::connector(peer.clone(), Role::Runtime, proves.map(str::to_owned));
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

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_does_not_answer_is_left_alone_for_a_while() {
        let target = RuntimeTarget { languages: vec!["python".into()], url: "unix:/a".into(), peer: None };
        let runtime = Runtime::new(&target, None).unwrap();
        assert!(runtime.client().is_some());
        assert_eq!(runtime.condition(), Link::New);
        runtime.record_result(Some(&Status::unavailable("gone")));
        assert!(runtime.client().is_none());
        assert_eq!(runtime.condition(), Link::Failing);
        tokio::time::advance(LONGEST_BACKOFF).await;
        assert!(runtime.client().is_some());
        runtime.record_result(Some(&Status::not_found("an answer all the same")));
        assert!(runtime.client().is_some() && !runtime.is_just_lost(), "it has done nothing yet");
        runtime.record_result(None);
        assert_eq!(runtime.condition(), Link::Answers);
        runtime.record_result(Some(&Status::unavailable("gone")));
        assert!(runtime.is_just_lost());
        tokio::time::advance(JUST_LOST).await;
        assert!(!runtime.is_just_lost());
        runtime.lives();
        assert!(runtime.condition() == Link::Answers && runtime.retry_at().is_none());
        assert!(!runtime.is_just_lost(), "no call was answered lately");
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_starts_with_its_gateway_is_no_failure_until_it_stays_away() {
        let target = RuntimeTarget { languages: vec!["python".into()], url: "unix:/a".into(), peer: None };
        let runtime = Runtime::new(&target, None).unwrap();
        let gone = || runtime.record_result(Some(&Status::unavailable("gone")));
        let is_logged = || runtime.link.lock().is_logged;
        gone();
        assert!(!is_logged(), "it may be starting");
        tokio::time::advance(STARTS_WITHIN).await;
        gone();
        assert!(is_logged());
        runtime.lives();
        assert!(!is_logged());
        gone();
        assert!(is_logged(), "one that has answered was lost");
        runtime.record_result(None);
        assert!(!is_logged());
    }
}
