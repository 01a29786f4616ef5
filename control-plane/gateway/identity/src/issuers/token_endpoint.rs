//! Requests to token endpoints for access tokens (RFC 6749 section 3.2), and a cache of the answers.
//!
//! Keeps true: only a bounded answer with a bearer token of visible ASCII is accepted; a token is not used in the last
//! quarter of its life, at most half a minute of it; for each cached token at most one request is open, and a failed
//! one is not repeated at once.

use std::time::Duration;

use asp_outbound::body;
use asp_platform::secret::Secret;
use reqwest::RequestBuilder;
use serde::Deserialize;
use tokio::time::Instant;

/// Timeout of an answer.
pub(super) const WITHIN: Duration = Duration::from_secs(5);
/// Maximum size of an answer and of a token, in bytes.
const MAX_BODY: usize = 64 * 1024;
const MAX_TOKEN: usize = 16 * 1024;
/// Assumed lifetime of a token if the issuer does not report one (RFC 6749 section 5.1: `expires_in` is recommended).
const UNSAID: Duration = Duration::from_secs(60);
/// Longest time that a token is cached, which bounds how late a change at the issuer takes effect.
const LONGEST: Duration = Duration::from_secs(3600);
/// Maximum reduction of a token's life, for clock skew and for requests in transit.
const MARGIN: Duration = Duration::from_secs(30);
/// Delays before the endpoint is asked again after it gave no token.
const AFTER_REFUSAL: Duration = Duration::from_secs(5);
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Age below which a token is kept although a service rejects it.
const YOUNG: Duration = Duration::from_secs(10);

/// The reason why there is no token; contains nothing secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoToken {
    /// The endpoint refused: the error code of RFC 6749 section 5.2, or its status.
    #[error("it refused to issue a token: {0}")]
    Refused(String),
    #[error("{0}")]
    Unavailable(String),
}

/// A token, and the time for which it may be used.
pub(super) struct TokenGrant {
    pub token: Secret,
    pub serves: Duration,
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    token_type: String,
    expires_in: Option<f64>,
}

/// Error response of RFC 6749 section 5.2.
#[derive(Deserialize)]
struct ErrorResponse {
    error: String,
}

/// Sends `form` with `request`, which has the URL and the requester's credentials.
pub(super) async fn ask(request: RequestBuilder, form: &[(&str, &str)]) -> Result<TokenGrant, NoToken> {
    let unavailable = |why: &str| NoToken::Unavailable(why.to_owned());
    let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let request = request.header("content-type", "application/x-www-form-urlencoded");
    let request = request.header("accept", "application/json").body(form);
    let asking = async {
        let response = request.send().await.map_err(|_| unavailable("it could not be reached"))?;
        let status = response.status();
        let body = body(response, MAX_BODY).await.map_err(unavailable)?;
        Ok((status, body))
    };
    let late = |_| unavailable("it did not answer in time");
    let (status, body) = tokio::time::timeout(WITHIN, asking).await.map_err(late)??;
    if status.is_client_error() && !matches!(status.as_u16(), 401 | 429) {
        let code = code(&body).unwrap_or_else(|| format!("status {}", status.as_u16()));
        // The endpoint does not know the gateway, which is the operator's fault and not the caller's.
        if matches!(code.as_str(), "invalid_client" | "unauthorized_client") {
            return Err(NoToken::Unavailable(format!("it refuses the gateway's credential ({code})")));
        }
        return Err(NoToken::Refused(code));
    }
    if !status.is_success() {
        return Err(NoToken::Unavailable(format!("it answers with status {}", status.as_u16())));
    }
    granted(&body).map_err(unavailable)
}

fn granted(body: &[u8]) -> Result<TokenGrant, &'static str> {
    let answer: TokenResponse = serde_json::from_slice(body).map_err(|_| "its answer has no access token")?;
    if !answer.token_type.eq_ignore_ascii_case("bearer") {
        return Err("its token is not a bearer token");
    }
    let token = &answer.access_token;
    if token.is_empty() || token.len() > MAX_TOKEN || !token.bytes().all(|byte| (0x21..0x7f).contains(&byte))
    {
        return Err("its token is too long or has characters other than visible ASCII");
    }
    let lives = match answer.expires_in {
        None => UNSAID,
        Some(seconds) if seconds >= 0.0 => {
            Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST)
        }
        Some(_) => return Err("its token had expired before it was received"),
    };
    Ok(TokenGrant { serves: lives - (lives / 4).min(MARGIN), token: answer.access_token.into() })
}

/// Returns the error code of a refusal, if it has the characters of RFC 6749 section 5.2 and is short enough for a log.
fn code(body: &[u8]) -> Option<String> {
    let refusal: ErrorResponse = serde_json::from_slice(body).ok()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let code = refusal.error;
    ((1..=64).contains(&code.len()) && code.bytes().all(plain)).then_some(code)
}

/// A cached token of one requester for one purpose.
#[derive(Default)]
pub(super) struct KeptToken(tokio::sync::Mutex<Option<CachedResult>>);

struct CachedResult {
    said: Result<Secret, NoToken>,
    since: Instant,
    until: Instant,
}

impl KeptToken {
    /// Returns the cached token, otherwise the result of `ask`; a token is used until `end` at the latest. Concurrent
    /// callers wait for the same request.
    pub(super) async fn get(
        &self,
        end: Option<Instant>,
        ask: impl Future<Output = Result<TokenGrant, NoToken>>,
    ) -> Result<Secret, NoToken> {
        let mut kept = self.0.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.until > Instant::now()) {
            return kept.said.clone();
        }
        let (said, serves) = match ask.await {
            Ok(TokenGrant { token, serves }) => (Ok(token), serves),
            Err(refused @ NoToken::Refused(_)) => (Err(refused), AFTER_REFUSAL),
            Err(failed) => (Err(failed), AFTER_FAILURE),
        };
        let since = Instant::now();
        let until = since + serves;
        let until = end.map_or(until, |end| until.min(end));
        *kept = Some(CachedResult { said: said.clone(), since, until });
        said
    }

    /// Handles a service's rejection of the token; returns whether the next call requests another. A token younger than
    /// [`YOUNG`] is kept, so that a service that rejects every token does not cause a request each time.
    pub(super) async fn forget(&self) -> bool {
        let mut kept = self.0.lock().await;
        let is_old = kept.as_ref().is_some_and(|kept| kept.said.is_ok() && kept.since.elapsed() >= YOUNG);
        if is_old {
            *kept = None;
        }
        is_old
    }

    /// Returns the expiry of the cached result; `None` if there is none.
    pub(super) async fn until(&self) -> Option<Instant> {
        self.0.lock().await.as_ref().map(|kept| kept.until)
    }

    /// Whether there is no valid cached result; false during a request.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.0.try_lock().is_ok_and(|kept| kept.as_ref().is_none_or(|kept| kept.until <= now))
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn what_is_no_bearer_token_is_refused() {
        let long = "x".repeat(MAX_TOKEN + 1);
        let bad = [
            String::new(),
            "[]".into(),
            "null".into(),
            r#"{"access_token":"a"}"#.into(),
            r#"{"access_token":"","token_type":"Bearer"}"#.into(),
            r#"{"access_token":"a b","token_type":"Bearer"}"#.into(),
            r#"{"access_token":"a\nb","token_type":"Bearer"}"#.into(),
            r#"{"access_token":"é","token_type":"Bearer"}"#.into(),
            r#"{"access_token":["a"],"token_type":"Bearer"}"#.into(),
            r#"{"access_token":"a","token_type":"N_A"}"#.into(),
            r#"{"access_token":"a","token_type":"DPoP"}"#.into(),
            r#"{"access_token":"a","token_type":"Bearer","expires_in":-1}"#.into(),
            r#"{"access_token":"a","token_type":"Bearer","expires_in":"soon"}"#.into(),
            format!(r#"{{"access_token":"{long}","token_type":"Bearer"}}"#),
        ];
        for body in bad {
            assert!(granted(body.as_bytes()).is_err(), "{body:.80}");
        }
    }

    #[test]
    fn a_token_is_not_given_out_at_the_end_of_its_life() {
        for (said, serves) in [
            (r#","expires_in":300"#, 270.0),
            (r#","expires_in":60"#, 45.0),
            (r#","expires_in":0"#, 0.0),
            (r#","expires_in":1e300"#, 3570.0),
            ("", 45.0),
        ] {
            let body = format!(r#"{{"access_token":"a","token_type":"bearer"{said}}}"#);
            let granted = granted(body.as_bytes()).unwrap();
            assert_eq!(granted.serves.as_secs_f64(), serves, "{said}");
            assert_eq!(granted.token.expose(), "a");
        }
    }

    #[test]
    fn a_code_is_fit_for_a_log() {
        assert_eq!(code(br#"{"error":"invalid_grant"}"#).unwrap(), "invalid_grant");
        for body in
            [&b"{}"[..], br#"{"error":""}"#, br#"{"error":"a\u001b[0m"}"#, br#"{"error":"a b"}"#, b"<html>"]
        {
            assert_eq!(code(body), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_is_asked_once_and_not_at_once_again_after_a_failure() {
        let kept = KeptToken::default();
        let grant = || async { Ok(TokenGrant { token: "t".into(), serves: Duration::from_secs(10) }) };
        let fail = || async { Err(NoToken::Unavailable("x".into())) };
        let never = || async { panic!("asked again") };
        assert!(kept.get(None, fail()).await.is_err());
        assert!(kept.get(None, never()).await.is_err());
        tokio::time::advance(AFTER_FAILURE).await;
        assert!(kept.get(None, grant()).await.is_ok());
        assert!(kept.get(None, never()).await.is_ok());
        tokio::time::advance(Duration::from_secs(10)).await;
        let end = Instant::now() + Duration::from_secs(1);
        assert!(kept.get(Some(end), grant()).await.is_ok());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(kept.is_over(Instant::now()));
        assert!(kept.get(None, fail()).await.is_err());
    }
}
