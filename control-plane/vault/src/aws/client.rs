//! Requests to AWS KMS: signed, bounded, attempted a few times.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use asp_platform::breaker::{Breaker, Outcome};
use asp_platform::clock;
use backon::{ExponentialBuilder, Retryable};
use parking_lot::Mutex;
use reqwest::{Response, redirect};
use serde::Serialize;
use serde::de::DeserializeOwned;
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use super::signature::{self, Scope};
use super::{AwsCredentials, fault_may_pass};

/// Pauses before the second and third attempt of a request: up to 100 and 400 ms, half of it random, so that gateways
/// rejected at the same time do not retry at the same time.
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(50))
    .with_factor(4.0)
    .with_max_times(2)
    .with_jitter();
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// Timeout of one attempt. A call waits for it; KMS answers within some ten milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Maximum length of a response in bytes.
const MAX_ANSWER: usize = 64 * 1024;
/// Maximum number of concurrent requests of this process.
const CONCURRENT: usize = 64;
const TYPE: &str = "application/x-amz-json-1.1";

/// Failure of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KmsFault {
    /// No answer, or none that can be read.
    Silent(String),
    /// HTTP status and the name of the exception.
    Refused { status: u16, code: String },
    /// Outcome of a request that was not sent, because the service failed repeatedly and is left alone for some seconds.
    Resting,
}

impl KmsFault {
    fn may_pass(&self) -> bool {
        match self {
            KmsFault::Silent(_) => true,
            KmsFault::Refused { status, code } => fault_may_pass(*status, code),
            KmsFault::Resting => false,
        }
    }
}

pub(super) struct KmsClient {
    client: reqwest::Client,
    url: reqwest::Url,
    /// Value of the header `host`.
    host: String,
    region: String,
    credentials: AwsCredentials,
    breaker: Mutex<Breaker>,
    requests: AtomicU64,
    permits: Semaphore,
}

impl KmsClient {
    pub(super) fn new(
        endpoint: &str,
        region: String,
        credentials: AwsCredentials,
    ) -> Result<KmsClient, String> {
        let url = reqwest::Url::parse(endpoint).map_err(|error| error.to_string())?;
        let host = url.host_str().ok_or("the endpoint has no host")?;
        let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let client = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            // Reached directly, like the database.
            .no_proxy()
            // Its `host` is signed; HTTP/2 has none.
            .http1_only()
            .connect_timeout(CONNECT_WITHIN)
            .user_agent(concat!("asp/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(KmsClient {
            client,
            url,
            host,
            region,
            credentials,
            breaker: Mutex::default(),
            requests: AtomicU64::new(1),
            permits: Semaphore::new(CONCURRENT),
        })
    }

    /// Makes a request, with a few retries.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        action: &'static str,
        request: &(impl Serialize + Sync),
    ) -> Result<T, KmsFault> {
        let body =
            Zeroizing::new(serde_json::to_vec(request).map_err(|error| KmsFault::Silent(error.to_string()))?);
        let attempt = || async { self.admit()?.judged(self.attempt(action, &body)).await };
        let answer = attempt
            .retry(PAUSES)
            .sleep(tokio::time::sleep)
            .when(KmsFault::may_pass)
            .notify(|fault, _| tracing::debug!(?fault, action, "a request to AWS KMS is retried"))
            .await?;
        serde_json::from_slice(&answer)
            .map_err(|_| KmsFault::Silent(format!("response to {action} cannot be read")))
    }

    async fn attempt(&self, action: &str, body: &[u8]) -> Result<Zeroizing<Vec<u8>>, KmsFault> {
        let attempt = async {
            // Err: the semaphore is never closed.
            let _permit =
                self.permits.acquire().await.map_err(|error| KmsFault::Silent(error.to_string()))?;
            let response = self.request(action, body).send().await.map_err(silent)?;
            let status = response.status();
            let answer = bounded(response).await?;
            match status.is_success() {
                true => Ok(answer),
                false => Err(KmsFault::Refused { status: status.as_u16(), code: exception(&answer) }),
            }
        };
        let timeout = || KmsFault::Silent(format!("no answer within {} s", ANSWER_WITHIN.as_secs()));
        tokio::time::timeout(ANSWER_WITHIN, attempt).await.map_err(|_| timeout())?
    }

    fn request(&self, action: &str, body: &[u8]) -> reqwest::RequestBuilder {
        let seconds = i64::try_from(clock::now_ms() / 1_000).unwrap_or_default();
        let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let date = signature::date_time(time);
        let target = format!("TrentService.{action}");
        let mut headers =
            vec![("content-type", TYPE), ("host", self.host.as_str()), ("x-amz-date", date.as_str())];
        if let Some(token) = &self.credentials.session_token {
            headers.push(("x-amz-security-token", token.expose()));
        }
        headers.push(("x-amz-target", target.as_str()));
        let scope = Scope { region: &self.region, service: "kms", time };
        let authorization = signature::authorization(&self.credentials, scope, &headers, body);
        let mut request = self.client.post(self.url.clone()).header("authorization", authorization);
        // The client adds `host` by itself, in the same form.
        for (name, value) in headers.into_iter().filter(|(name, _)| *name != "host") {
            request = request.header(name, value);
        }
        request.body(body.to_vec())
    }

    /// Admits a request unless the circuit breaker is open.
    fn admit(&self) -> Result<KmsAdmission<'_>, KmsFault> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        match self.breaker.lock().admit(number, Instant::now()) {
            true => Ok(KmsAdmission { breaker: &self.breaker, number, outcome: Outcome::Abandoned }),
            false => Err(KmsFault::Resting),
        }
    }
}

/// A request admitted by the circuit breaker, which learns its outcome even if the request is cancelled.
struct KmsAdmission<'a> {
    breaker: &'a Mutex<Breaker>,
    number: u64,
    outcome: Outcome,
}

impl KmsAdmission<'_> {
    async fn judged<T>(mut self, answer: impl Future<Output = Result<T, KmsFault>>) -> Result<T, KmsFault> {
        let answer = answer.await;
        self.outcome = match &answer {
            Err(fault) if fault.may_pass() => Outcome::Failure,
            _ => Outcome::Success,
        };
        answer
    }
}

impl Drop for KmsAdmission<'_> {
    fn drop(&mut self) {
        self.breaker.lock().ended(self.number, self.outcome, Instant::now());
    }
}

async fn bounded(mut response: Response) -> Result<Zeroizing<Vec<u8>>, KmsFault> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(4_096));
    while let Some(piece) = response.chunk().await.map_err(silent)? {
        if bytes.len() + piece.len() > MAX_ANSWER {
            return Err(KmsFault::Silent(format!("response has more than {MAX_ANSWER} bytes")));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// Returns the name of the exception in an error response, without its namespace.
fn exception(answer: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(answer).unwrap_or_default();
    let name = value.get("__type").and_then(serde_json::Value::as_str).unwrap_or_default();
    let name = name.rsplit('#').next().unwrap_or_default();
    let is_name =
        !name.is_empty() && name.len() <= 100 && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_name { name.to_owned() } else { "without a reason".to_owned() }
}

/// Converts a client's error, without the URL.
fn silent(error: reqwest::Error) -> KmsFault {
    let error = error.without_url();
    // The root cause is at the end of the chain.
    let mut cause: &dyn Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    KmsFault::Silent(cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_is_named_without_its_namespace_and_never_repeats_a_body() {
        for (answer, expected) in [
            (&br#"{"__type":"NotFoundException","message":"x"}"#[..], "NotFoundException"),
            (br#"{"__type":"com.amazonaws.kms#DisabledException"}"#, "DisabledException"),
            (br#"{"message":"x"}"#, "without a reason"),
            (br#"{"__type":7}"#, "without a reason"),
            (br#"{"__type":"a secret, of some sort"}"#, "without a reason"),
            (b"<html>", "without a reason"),
            (b"", "without a reason"),
        ] {
            assert_eq!(exception(answer), expected);
        }
    }
}
