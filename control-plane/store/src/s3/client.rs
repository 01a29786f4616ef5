//! Requests to the store: put, get, delete, and signed URLs for reading.
//!
//! Keeps true: each request is attempted a few times at most, within a timeout; a store that fails repeatedly is left
//! alone for a while, so that no caller waits for it; no redirect is followed; neither an error nor a log line contains
//! a URL, because a URL holds a signature. Opening does not connect, so that a process starts while the store is
//! unavailable.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use asp_platform::breaker::{Breaker, Outcome};
use backon::{ExponentialBuilder, Retryable};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, redirect};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use url::Url;

use super::Settings;
use super::spool::SpooledContent;
use crate::clock::{milliseconds, now_ms};
use crate::link::Link;

/// Pauses before the second and third attempt of a request, because a busy store asks for retries (503 `SlowDown`): up to
/// 100 and 400 ms, half of it random, so that callers rejected at the same time do not retry at the same time.
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(50))
    .with_factor(4.0)
    .with_max_times(2)
    .with_jitter();
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// Timeout until an answer begins.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Minimum throughput in bytes per second; slower transfers would block the caller for longer than they are worth.
const SLOWEST: u64 = 1 << 20;
/// Validity of a signed request, which is sent at once. Clocks may differ by a few minutes.
const SIGNED_FOR: Duration = Duration::from_secs(900);
/// Maximum bytes read of an error response.
const MAX_ERROR: usize = 4 << 10;
const IDLE_PER_HOST: usize = 16;
/// Content type of every object, for clients that use its URL without requesting another type: nothing that a browser
/// executes.
const OCTETS: &str = "application/octet-stream";

/// Failure of a request to the store.
#[derive(Debug, thiserror::Error)]
pub enum S3Fault {
    #[error("the object store does not answer: {0}")]
    Silent(String),
    /// HTTP status, and the S3 error code if there is one.
    #[error("the object store answers {status} {code}")]
    Refused { status: u16, code: String },
    #[error("the object store has failed repeatedly and is tried again in some seconds")]
    Resting,
    #[error("the object store's client cannot be created: {0}")]
    Client(String),
}

impl S3Fault {
    /// Whether a retry may succeed.
    fn may_pass(&self) -> bool {
        match self {
            S3Fault::Silent(_) => true,
            S3Fault::Refused { status, .. } => *status >= 500 || matches!(status, 408 | 429),
            S3Fault::Resting | S3Fault::Client(_) => false,
        }
    }

    /// Whether the object does not exist. A missing bucket has the same status.
    fn is_missing(&self) -> bool {
        matches!(self, S3Fault::Refused { status: 404, code } if code == "NoSuchKey")
    }
}

/// Client of an object store.
#[derive(Clone)]
pub struct S3(Arc<Inner>);

struct Inner {
    client: Client,
    bucket: Bucket,
    credentials: Credentials,
    prefix: String,
    breaker: Mutex<Breaker>,
    requests: AtomicU64,
    links: Option<SignedLinks>,
}

struct SignedLinks {
    /// The bucket as clients reach it.
    bucket: Bucket,
    life: Duration,
}

impl S3 {
    /// Creates the client, without connecting yet.
    pub fn open(settings: &Settings) -> Result<S3, S3Fault> {
        let place = &settings.place;
        let bucket = |endpoint: Url| {
            let region = settings.region.clone();
            Bucket::new(endpoint, UrlStyle::Path, place.bucket.clone(), region)
                .map_err(|error| S3Fault::Client(error.to_string()))
        };
        let links = settings.links.as_ref().map(|links| {
            let origin = links.origin.as_deref().map(Url::parse).transpose();
            let origin = origin.map_err(|error| S3Fault::Client(error.to_string()))?;
            let bucket = bucket(origin.unwrap_or_else(|| place.endpoint.clone()))?;
            Ok(SignedLinks { bucket, life: links.life })
        });
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            // The operator's own store is reached directly, like the database.
            .no_proxy()
            .connect_timeout(CONNECT_WITHIN)
            .pool_max_idle_per_host(IDLE_PER_HOST)
            .user_agent(concat!("asp/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| S3Fault::Client(error.to_string()))?;
        let super::Credentials { access_key, secret_key, session_token } = &settings.credentials;
        let credentials = match session_token {
            Some(token) => Credentials::new_with_token(access_key, secret_key.expose(), token.expose()),
            None => Credentials::new(access_key, secret_key.expose()),
        };
        Ok(S3(Arc::new(Inner {
            client,
            bucket: bucket(place.endpoint.clone())?,
            credentials,
            prefix: place.prefix.clone(),
            breaker: Mutex::default(),
            requests: AtomicU64::new(1),
            links: links.transpose()?,
        })))
    }

    /// Checks with one request that the store accepts the credentials and has the bucket.
    pub async fn check(&self) -> Result<(), S3Fault> {
        self.get("nothing").await.map(drop)
    }

    /// Stores bytes under a key, whole or not at all.
    pub(super) async fn put(&self, key: &str, content: &SpooledContent) -> Result<(), S3Fault> {
        let key = self.key(key);
        let checksum = STANDARD.encode(content.sha256());
        let answer = self.ask(within(content.size()), || {
            let mut put = self.0.bucket.put_object(Some(&self.0.credentials), &key);
            // The store verifies the checksum.
            put.headers_mut().insert("x-amz-checksum-sha256", checksum.clone());
            put.headers_mut().insert("content-type", OCTETS);
            let url = put.sign(SIGNED_FOR);
            self.request(Method::PUT, url)
                .header("x-amz-checksum-sha256", &checksum)
                .header("content-type", OCTETS)
                .header("content-length", content.size())
                .body(content.body())
        });
        answer.await.map(drop)
    }

    /// Returns the response whose body has an object's bytes; `None` if the object does not exist.
    pub(super) async fn get(&self, key: &str) -> Result<Option<Response>, S3Fault> {
        let key = self.key(key);
        let answer = self.ask(ANSWER_WITHIN, || {
            let url = self.0.bucket.get_object(Some(&self.0.credentials), &key).sign(SIGNED_FOR);
            self.request(Method::GET, url)
        });
        match answer.await {
            Ok(answer) => Ok(Some(answer)),
            Err(fault) if fault.is_missing() => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Deletes an object; succeeds if it does not exist.
    pub(super) async fn delete(&self, key: &str) -> Result<(), S3Fault> {
        let key = self.key(key);
        let answer = self.ask(ANSWER_WITHIN, || {
            let url = self.0.bucket.delete_object(Some(&self.0.credentials), &key).sign(SIGNED_FOR);
            self.request(Method::DELETE, url)
        });
        match answer.await {
            Err(fault) if fault.is_missing() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Whether the operator enabled signed URLs.
    pub(super) fn gives_links(&self) -> bool {
        self.0.links.is_some()
    }

    /// Returns a URL with which anyone can read an object for a while, as a file of this name; `None` if signed URLs
    /// are disabled. Makes no request.
    pub(super) fn link(&self, key: &str, name: &str) -> Option<Link> {
        let SignedLinks { bucket, life } = self.0.links.as_ref()?;
        let key = self.key(key);
        let mut get = bucket.get_object(Some(&self.0.credentials), &key);
        // Downloaded, never displayed, so that a plugin's content is not executed in the store's origin.
        get.query_mut()
            .insert("response-content-disposition", format!("attachment; filename=\"{}\"", plain(name)));
        get.query_mut().insert("response-content-type", OCTETS);
        get.query_mut().insert("response-cache-control", "private, no-store");
        let url = get.sign(*life);
        Some(Link { url: url.into(), expires_ms: now_ms().saturating_add(milliseconds(*life)) })
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.0.prefix)
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.0.client.request(method, url)
    }

    /// Makes a request, with a few retries.
    async fn ask(&self, within: Duration, request: impl Fn() -> RequestBuilder) -> Result<Response, S3Fault> {
        let attempt = || async { self.turn()?.judged(answered(within, request())).await };
        attempt
            .retry(PAUSES)
            .sleep(tokio::time::sleep)
            .when(S3Fault::may_pass)
            .notify(|fault, _| tracing::debug!(%fault, "a request to the object store is retried"))
            .await
    }

    /// Admits a request unless the circuit breaker is open.
    fn turn(&self) -> Result<AdmittedRequest<'_>, S3Fault> {
        let number = self.0.requests.fetch_add(1, Ordering::Relaxed);
        match self.0.breaker.lock().admit(number, Instant::now()) {
            true => Ok(AdmittedRequest { breaker: &self.0.breaker, number, outcome: Outcome::Abandoned }),
            false => Err(S3Fault::Resting),
        }
    }
}

/// A request admitted by the circuit breaker, which learns its outcome even if the request is cancelled.
struct AdmittedRequest<'a> {
    breaker: &'a Mutex<Breaker>,
    number: u64,
    outcome: Outcome,
}

impl AdmittedRequest<'_> {
    async fn judged<T>(mut self, answer: impl Future<Output = Result<T, S3Fault>>) -> Result<T, S3Fault> {
        let answer = answer.await;
        self.outcome = match &answer {
            Err(fault) if fault.may_pass() => Outcome::Failure,
            _ => Outcome::Success,
        };
        answer
    }
}

impl Drop for AdmittedRequest<'_> {
    fn drop(&mut self) {
        self.breaker.lock().ended(self.number, self.outcome, Instant::now());
    }
}

/// Returns the timeout of a transfer of the given number of bytes.
pub(super) fn within(bytes: u64) -> Duration {
    ANSWER_WITHIN + Duration::from_secs(bytes / SLOWEST)
}

async fn answered(within: Duration, request: RequestBuilder) -> Result<Response, S3Fault> {
    let silent = || S3Fault::Silent(format!("no answer within {} s", within.as_secs()));
    let answer = tokio::time::timeout(within, request.send()).await.map_err(|_| silent())?;
    let answer = answer.map_err(request_fault)?;
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let code = tokio::time::timeout(within, error_code(answer)).await.unwrap_or_default();
    Err(S3Fault::Refused { status: status.as_u16(), code: code.unwrap_or_else(|| named(status)) })
}

/// Converts a client's error, without the URL.
pub(super) fn request_fault(error: reqwest::Error) -> S3Fault {
    let error = error.without_url();
    // The root cause is at the end of the chain.
    let mut cause: &dyn Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    S3Fault::Silent(format!("{cause}"))
}

/// Returns the S3 error code (`<Code>`) of a response, if any.
async fn error_code(mut answer: Response) -> Option<String> {
    let mut text = Vec::new();
    while let Ok(Some(piece)) = answer.chunk().await {
        text.extend_from_slice(&piece);
        if text.len() > MAX_ERROR {
            break;
        }
    }
    let text = String::from_utf8_lossy(&text);
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    (!code.is_empty() && code.bytes().all(|byte| byte.is_ascii_alphanumeric())).then(|| code.to_owned())
}

fn named(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or_default().to_owned()
}

/// Returns a name that needs no quoting in a header.
fn plain(name: &str) -> String {
    let kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '~');
    name.chars().map(|c| if kept(c) { c } else { '_' }).collect()
}
