//! One runtime: how to reach it, whether it answers, and how much it has to do.
//!
//! Owns: its lazy connection and the stream that all tunnels to it share. Keeps true: one that does not answer is tried
//! again only after a backoff, so that its absence costs a call nothing; from one that drains the next calls go over a new
//! connection, which leads to its successor where the address stays, while those that it has go on over the old one.

use std::net::SocketAddr;
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

use super::choice::Link;
use super::{RuntimeTarget, RuntimesError, figures};
use crate::executors::plugin::multiplexer::{Client, Multiplexer};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A runtime that vanished silently is noticed after the two together.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// The answer of a stdio server, which may be as large as that of an upstream over HTTP, and its envelope. A PPP message of
/// a plugin has at most 4 MiB (plugin.proto), which the runtime holds it to.
const MAX_MESSAGE: usize = (16 << 20) + (64 << 10);
/// The first wait after a failed connect; it doubles with every further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
/// One that answered within this time is being replaced, as far as anybody knows: it is waited for.
const JUST_LOST: Duration = Duration::from_secs(10);
/// How long others are asked first after one has refused a call because it drains. Its successor may have its address.
const LEFT_ALONE: Duration = Duration::from_secs(1);

/// One runtime.
pub(in super::super) struct Runtime {
    pub(super) languages: Vec<String>,
    /// As it is configured.
    url: String,
    /// One of those that the URL's name has; `None`: the URL's own.
    pub(super) address: Option<SocketAddr>,
    name: String,
    endpoint: Endpoint,
    /// `None`: the endpoint is a Unix socket.
    peer: Option<Peer>,
    /// What its certificate must name, where that is not the endpoint's host.
    proves: Option<String>,
    client: Mutex<Client>,
    link: Mutex<State>,
    /// The stream that tunnels share; opened when it is needed.
    multiplexer: tokio::sync::Mutex<Option<Multiplexer>>,
    /// Attempts of this gateway's calls that it has, those that wait there too.
    pub(super) outstanding: AtomicUsize,
    /// Calls of all gateways that wait for a worker there, as it has said last.
    waiting: AtomicUsize,
    /// Told when it is lost: its name may have another address by now.
    lost: Option<Arc<Notify>>,
}

struct State {
    state: RuntimeState,
    /// Connects that failed one after the other.
    failures: u32,
    /// Not tried before this moment.
    retry_at: Option<Instant>,
    /// When it answered somebody's call.
    answered_at: Option<Instant>,
    /// It has said anything at all.
    is_known: bool,
    /// It drains; others are better until then.
    left_alone_until: Option<Instant>,
}

/// Which address a name stands for, and who is told when nobody answers there.
pub(super) struct Resolved {
    pub address: SocketAddr,
    pub lost: Arc<Notify>,
}

impl Runtime {
    /// `resolved`: it is reached at this address of the URL's name, and proves the name all the same.
    pub(super) fn new(target: &RuntimeTarget, resolved: Option<Resolved>) -> Result<Runtime, RuntimesError> {
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
            link: Mutex::new(State {
                state: RuntimeState::Unused,
                failures: 0,
                retry_at: None,
                answered_at: None,
                is_known: false,
                left_alone_until: None,
            }),
            multiplexer: tokio::sync::Mutex::default(),
            outstanding: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            lost,
        })
    }

    /// Its URL, and which of the name's addresses it has.
    pub(in super::super) fn name(&self) -> &str {
        &self.name
    }

    pub(in super::super) fn languages(&self) -> &[String] {
        &self.languages
    }

    pub(in super::super) fn runs(&self, language: &str) -> bool {
        self.languages.iter().any(|own| own == language)
    }

    /// How much it has to do: the calls of this gateway, then those of all that wait there.
    pub(super) fn load(&self) -> (usize, usize) {
        (self.outstanding.load(Ordering::Relaxed), self.waiting.load(Ordering::Relaxed))
    }

    /// It says that so many calls wait there.
    pub(in super::super) fn waiting(&self, calls: usize) {
        self.waiting.store(calls, Ordering::Relaxed);
    }

    /// How good it is as far as its connection tells.
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

    /// It has said over this stream that it drains: the next calls go over a new connection.
    pub(in super::super) async fn drains(&self, over: &Multiplexer) {
        let mut multiplexer = self.multiplexer.lock().await;
        // Another call may have heard it first.
        if multiplexer.as_ref().is_some_and(|open| open.is_same(over)) {
            tracing::info!(runtime = %self.name, "a plugin runtime drains: the next calls go to others of its languages, or over a new connection");
            *self.client.lock() = connected(&self.endpoint, self.peer.as_ref(), self.proves.as_deref());
            *multiplexer = None;
        }
        self.link.lock().left_alone_until = Some(Instant::now() + LEFT_ALONE);
    }

    /// Whether it answered a moment ago, and so may be back in another one.
    pub(in super::super) fn is_just_lost(&self) -> bool {
        self.link.lock().answered_at.is_some_and(|at| at.elapsed() < JUST_LOST)
    }

    /// The stream for a new tunnel. `Unavailable` at once when the runtime is known not to answer.
    pub(in super::super) async fn multiplexer(self: &Arc<Self>) -> Result<Multiplexer, Status> {
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
    pub(in super::super) fn client(&self) -> Option<Client> {
        let waiting = self.link.lock().retry_at.is_some_and(|at| Instant::now() < at);
        (!waiting).then(|| self.client.lock().clone())
    }

    /// A client, whatever is known of the runtime: nobody's call waits for the answer.
    pub(in super::super) fn any_client(&self) -> Client {
        self.client.lock().clone()
    }

    /// When a runtime that did not answer is tried again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.link.lock().retry_at
    }

    /// It tells its figures: what is known of its connection otherwise is over.
    pub(in super::super) fn lives(&self) {
        let mut link = self.link.lock();
        link.is_known = true;
        if link.failures > 0 {
            tracing::info!(runtime = %self.name, "a plugin runtime answers again; calls go to it");
            (link.state, link.failures, link.retry_at) = (RuntimeState::Ready, 0, None);
        }
    }

    /// Learns from an answer: `None` is a good one.
    pub(in super::super) fn heard(&self, fault: Option<&Status>) {
        let unreachable = fault.is_some_and(|status| status.code() == Code::Unavailable);
        let mut link = self.link.lock();
        if !unreachable {
            if link.state == RuntimeState::Unreachable {
                tracing::info!(runtime = %self.name, "a plugin runtime answers again; calls go to it");
            }
            // What it refuses at once, as one that does not know this gateway, is no sign that it comes back.
            let answered_at = if fault.is_none() { Some(Instant::now()) } else { link.answered_at };
            let is_known = link.is_known || fault.is_none();
            let left_alone_until = link.left_alone_until;
            let state = RuntimeState::Ready;
            *link = State { state, failures: 0, retry_at: None, answered_at, is_known, left_alone_until };
            return;
        }
        if link.state != RuntimeState::Unreachable {
            tracing::warn!(runtime = %self.name, "a plugin runtime does not answer: calls go to the others of its languages, and without any are refused until it does; check that asp-runtime runs and that the certificates fit");
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
                (state, answer.runtimes.map(figures::json).unwrap_or_default())
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

/// Connects when it is first used.
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
        runtime.heard(Some(&Status::unavailable("gone")));
        assert!(runtime.client().is_none());
        assert_eq!(runtime.condition(), Link::Failing);
        tokio::time::advance(LONGEST_BACKOFF).await;
        assert!(runtime.client().is_some());
        runtime.heard(Some(&Status::not_found("an answer all the same")));
        assert!(runtime.client().is_some() && !runtime.is_just_lost(), "it has done nothing yet");
        runtime.heard(None);
        assert_eq!(runtime.condition(), Link::Answers);
        runtime.heard(Some(&Status::unavailable("gone")));
        assert!(runtime.is_just_lost());
        tokio::time::advance(JUST_LOST).await;
        assert!(!runtime.is_just_lost());
        runtime.lives();
        assert!(runtime.condition() == Link::Answers && runtime.retry_at().is_none());
        assert!(!runtime.is_just_lost(), "no call was answered lately");
    }
}
