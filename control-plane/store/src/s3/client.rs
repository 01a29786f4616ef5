//! Requests to the store: put, get, delete, and URLs that say what one of them would.
//!
//! Keeps true: each request is made a few times at most, within a time; a store that fails again and again is left alone for
//! a while, so that nobody waits for it; no redirect is followed; neither an error nor a log line has a URL, because a URL
//! holds a signature. Opening waits for nobody, so that a process starts while the store is away.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use asp_platform::breaker::{Breaker, Outcome};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, redirect};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use url::Url;

use super::Settings;
use super::spool::Content;
use crate::clock::milliseconds;
use crate::link::Link;

/// How often a request is made, the first time included: a store asks for it where it is busy (503 `SlowDown`).
const ATTEMPTS: u32 = 3;
/// Before the second attempt; four times as long before the third.
const PAUSE: Duration = Duration::from_millis(100);
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// Until an answer begins, whatever is sent.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The slowest that bytes are sent or come, in bytes a second: what is slower holds whoever waits for longer than it is worth.
const SLOWEST: u64 = 1 << 20;
/// Of a signed request, which is made at once. Clocks may be a few minutes apart.
const SIGNED_FOR: Duration = Duration::from_secs(900);
/// What is read of an answer that tells of an error.
const MAX_ERROR: usize = 4 << 10;
const IDLE_PER_HOST: usize = 16;
/// What every object is, for whoever comes by its URL without asking for another type: nothing that a browser runs.
const OCTETS: &str = "application/octet-stream";

/// The store gave no good answer.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("the object store does not answer: {0}")]
    Silent(String),
    /// The status, and the code of S3 where there is one.
    #[error("the object store answers {status} {code}")]
    Refused { status: u16, code: String },
    #[error("the object store has failed again and again and is asked again in some seconds")]
    Resting,
    #[error("the object store's client cannot be made: {0}")]
    Client(String),
}

impl Fault {
    /// Whether the same request may succeed in a moment.
    fn may_pass(&self) -> bool {
        match self {
            Fault::Silent(_) => true,
            Fault::Refused { status, .. } => *status >= 500 || matches!(status, 408 | 429),
            Fault::Resting | Fault::Client(_) => false,
        }
    }
}

/// A store.
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
    /// As clients reach it.
    bucket: Bucket,
    life: Duration,
}

impl S3 {
    /// Asks nothing yet.
    pub fn open(settings: &Settings) -> Result<S3, Fault> {
        let place = &settings.place;
        let bucket = |endpoint: Url| {
            let region = settings.region.clone();
            Bucket::new(endpoint, UrlStyle::Path, place.bucket.clone(), region)
                .map_err(|error| Fault::Client(error.to_string()))
        };
        let links = settings.links.as_ref().map(|links| {
            let origin = links.origin.as_deref().map(Url::parse).transpose();
            let origin = origin.map_err(|error| Fault::Client(error.to_string()))?;
            let bucket = bucket(origin.unwrap_or_else(|| place.endpoint.clone()))?;
            Ok(SignedLinks { bucket, life: links.life })
        });
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            // The operator's own store, like the database: it is reached straight.
            .no_proxy()
            .connect_timeout(CONNECT_WITHIN)
            .pool_max_idle_per_host(IDLE_PER_HOST)
            .user_agent(concat!("asp/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Fault::Client(error.to_string()))?;
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

    /// Whether the store takes these credentials and has the bucket; asks once.
    pub async fn check(&self) -> Result<(), Fault> {
        self.get("nothing").await.map(drop)
    }

    /// Puts bytes under a key, whole, or nothing.
    pub(super) async fn put(&self, key: &str, content: &Content) -> Result<(), Fault> {
        let key = self.key(key);
        let checksum = STANDARD.encode(content.sha256());
        let answer = self.ask(within(content.size()), || {
            let mut put = self.0.bucket.put_object(Some(&self.0.credentials), &key);
            // The store compares what it got.
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

    /// The answer whose body an object's bytes are; `None`: there is no such object.
    pub(super) async fn get(&self, key: &str) -> Result<Option<Response>, Fault> {
        let key = self.key(key);
        let answer = self.ask(ANSWER_WITHIN, || {
            let url = self.0.bucket.get_object(Some(&self.0.credentials), &key).sign(SIGNED_FOR);
            self.request(Method::GET, url)
        });
        match answer.await {
            Ok(answer) => Ok(Some(answer)),
            // The same status says that there is no such bucket.
            Err(Fault::Refused { status: 404, code }) if code == "NoSuchKey" => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Deletes an object; one that is not there is deleted.
    pub(super) async fn delete(&self, key: &str) -> Result<(), Fault> {
        let key = self.key(key);
        let answer = self.ask(ANSWER_WITHIN, || {
            let url = self.0.bucket.delete_object(Some(&self.0.credentials), &key).sign(SIGNED_FOR);
            self.request(Method::DELETE, url)
        });
        match answer.await {
            Err(Fault::Refused { status: 404, code }) if code == "NoSuchKey" => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Whether the operator wants signed URLs.
    pub(super) fn gives_links(&self) -> bool {
        self.0.links.is_some()
    }

    /// A URL by which whoever has it reads an object for a while, as a file of this name; `None`: the operator wants none.
    /// Nothing is asked.
    pub(super) fn link(&self, key: &str, name: &str) -> Option<Link> {
        let SignedLinks { bucket, life } = self.0.links.as_ref()?;
        let key = self.key(key);
        let mut get = bucket.get_object(Some(&self.0.credentials), &key);
        // Saved, never shown: what a plugin has written does not run in the store's origin.
        get.query_mut()
            .insert("response-content-disposition", format!("attachment; filename=\"{}\"", plain(name)));
        get.query_mut().insert("response-content-type", OCTETS);
        get.query_mut().insert("response-cache-control", "private, no-store");
        let url = get.sign(*life);
        let until = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + *life;
        Some(Link { url: url.into(), expires_ms: milliseconds(until) })
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.0.prefix)
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.0.client.request(method, url)
    }

    /// Makes a request until it is answered well, a few times at most.
    async fn ask(&self, within: Duration, request: impl Fn() -> RequestBuilder) -> Result<Response, Fault> {
        let mut attempt = 1;
        loop {
            let turn = self.turn()?;
            let answer = turn.judged(answered(within, request())).await;
            match answer {
                Err(fault) if fault.may_pass() && attempt < ATTEMPTS => {
                    tracing::debug!(%fault, attempt, "a request to the object store is made again");
                }
                answer => return answer,
            }
            tokio::time::sleep(jittered(PAUSE * 4_u32.pow(attempt - 1))).await;
            attempt += 1;
        }
    }

    /// A place among the requests, unless the store rests.
    fn turn(&self) -> Result<Turn<'_>, Fault> {
        let number = self.0.requests.fetch_add(1, Ordering::Relaxed);
        match self.0.breaker.lock().admit(number, Instant::now()) {
            true => Ok(Turn { breaker: &self.0.breaker, number, outcome: Outcome::Abandoned }),
            false => Err(Fault::Resting),
        }
    }
}

/// A request that the breaker admitted, and is told of even if nobody waits for it any more.
struct Turn<'a> {
    breaker: &'a Mutex<Breaker>,
    number: u64,
    outcome: Outcome,
}

impl Turn<'_> {
    async fn judged<T>(mut self, answer: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let answer = answer.await;
        self.outcome = match &answer {
            Err(fault) if fault.may_pass() => Outcome::Failure,
            _ => Outcome::Success,
        };
        answer
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.breaker.lock().ended(self.number, self.outcome, Instant::now());
    }
}

/// In which so many bytes are sent, or have come.
pub(super) fn within(bytes: u64) -> Duration {
    ANSWER_WITHIN + Duration::from_secs(bytes / SLOWEST)
}

async fn answered(within: Duration, request: RequestBuilder) -> Result<Response, Fault> {
    let silent = || Fault::Silent(format!("no answer within {} s", within.as_secs()));
    let answer = tokio::time::timeout(within, request.send()).await.map_err(|_| silent())?;
    let answer = answer.map_err(told)?;
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let code = tokio::time::timeout(within, error_code(answer)).await.unwrap_or_default();
    Err(Fault::Refused { status: status.as_u16(), code: code.unwrap_or_else(|| named(status)) })
}

/// A client's error without the URL.
pub(super) fn told(error: reqwest::Error) -> Fault {
    let error = error.without_url();
    // What says why is at the end of the chain.
    let mut cause: &dyn Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    Fault::Silent(format!("{cause}"))
}

/// What S3 calls the error (`<Code>`), where the answer says so.
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

/// Between half of it and all of it: those who were turned away together do not come back together.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)
}

/// A name that needs no quoting in a header.
fn plain(name: &str) -> String {
    let kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '~');
    name.chars().map(|c| if kept(c) { c } else { '_' }).collect()
}
