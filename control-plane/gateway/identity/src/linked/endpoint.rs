//! Requests to providers: tokens for a code or a refresh token, and the revocation of tokens.
//!
//! Keeps true: only https to public addresses, or an origin that the operator lists; answers are bounded; errors contain the
//! code of the provider and no token.

use std::time::Duration;

use asp_outbound::body;
use asp_platform::secret::Secret;
use asp_store::linked_accounts::{ClientAuth, Revocation, RevocationStyle};
use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Map, Value, json};

use super::provider::KnownProvider;
use super::request::{LinkReason, NoLink};
use super::{LinkedTokens, OpenedTokens, unavailable};

/// Timeout of an answer.
pub(super) const WITHIN: Duration = Duration::from_secs(8);
/// Maximum size of an answer and of a token, in bytes.
const MAX_BODY: usize = 64 * 1024;
const MAX_TOKEN: usize = 16 * 1024;
/// Longest believed life of an access token.
const LONGEST: Duration = Duration::from_secs(90 * 86_400);
/// Errors with which providers say that a code or a refresh token does not count any more.
const ENDED: [&str; 9] = [
    "invalid_grant",
    "access_denied",
    "bad_refresh_token",
    "invalid_refresh_token",
    "token_revoked",
    "token_expired",
    "consent_required",
    "interaction_required",
    "bad_verification_code",
];

/// Tokens from a provider.
pub(super) struct TokenAnswer {
    pub access: Secret,
    pub refresh: Option<Secret>,
    /// Life of the access token; `None` if the provider names none.
    pub life: Option<Duration>,
}

impl LinkedTokens {
    /// Requests tokens. [`LinkReason::Rejected`] if the provider says that the grant has ended.
    pub(super) async fn ask_for_tokens(
        &self,
        provider: &KnownProvider,
        form: &[(&str, &str)],
    ) -> Result<TokenAnswer, NoLink> {
        let secret = self.secret_of(provider).await?;
        let mut form = form.to_vec();
        let request = self.request(&provider.document.token_endpoint, |destination| {
            destination.client.post(destination.url)
        })?;
        let request = authenticated(request, provider, secret.as_ref(), &mut form);
        let (status, body) = send(with_form(request, &form)).await?;
        read_answer(status, &body)
    }

    /// Revokes the tokens of a link that has ended; `Ok` if the provider does not accept them any more.
    pub(super) async fn revoke(&self, provider: &KnownProvider, tokens: &OpenedTokens) -> Result<(), NoLink> {
        let Some(Revocation { endpoint, style }) = &provider.document.revocation else { return Ok(()) };
        let url = endpoint.replace("{client_id}", &encoded(&provider.document.client_id));
        let secret = self.secret_of(provider).await?;
        match style {
            RevocationStyle::Rfc7009 => {
                let refresh = tokens.refresh.as_ref().map(|token| (token, "refresh_token"));
                for (token, hint) in refresh.into_iter().chain([(&tokens.access, "access_token")]) {
                    let mut form = vec![("token", token.expose()), ("token_type_hint", hint)];
                    let request =
                        self.request(&url, |destination| destination.client.post(destination.url))?;
                    let request = authenticated(request, provider, secret.as_ref(), &mut form);
                    revoked(send(with_form(request, &form)).await?.0)?;
                }
                Ok(())
            }
            RevocationStyle::Delete => {
                let request = self.request(&url, |destination| destination.client.delete(destination.url))?;
                let secret = secret.as_ref().map(Secret::expose);
                let request = request.basic_auth(&provider.document.client_id, secret);
                let request = request.json(&json!({ "access_token": tokens.access.expose() }));
                revoked(send(request).await?.0)
            }
            RevocationStyle::Bearer => {
                let request = self.request(&url, |destination| destination.client.post(destination.url))?;
                revoked(send(request.bearer_auth(tokens.access.expose())).await?.0)
            }
        }
    }

    fn request(
        &self,
        url: &str,
        build: impl FnOnce(asp_outbound::Destination<'_>) -> RequestBuilder,
    ) -> Result<RequestBuilder, NoLink> {
        self.outbound.of_origins(url, &self.origins).map(build).map_err(unavailable)
    }
}

/// Adds the client's authentication to a request, or to its form.
fn authenticated<'a>(
    request: RequestBuilder,
    provider: &'a KnownProvider,
    secret: Option<&'a Secret>,
    form: &mut Vec<(&'a str, &'a str)>,
) -> RequestBuilder {
    let id = &provider.document.client_id;
    let auth = match secret {
        Some(_) => provider.document.client_auth,
        None => ClientAuth::None,
    };
    match auth {
        // RFC 6749 section 2.3.1: both parts are form-encoded.
        ClientAuth::Basic => request.basic_auth(encoded(id), secret.map(|secret| encoded(secret.expose()))),
        ClientAuth::Post => {
            form.push(("client_id", id));
            form.extend(secret.map(|secret| ("client_secret", secret.expose())));
            request
        }
        ClientAuth::None => {
            form.push(("client_id", id));
            request
        }
    }
}

fn with_form(request: RequestBuilder, form: &[(&str, &str)]) -> RequestBuilder {
    let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    request.header("content-type", "application/x-www-form-urlencoded").body(form)
}

async fn send(request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), NoLink> {
    let asking = async {
        let response = request.header("accept", "application/json").send().await;
        let response = response.map_err(|_| unavailable("the provider could not be reached"))?;
        let status = response.status();
        let body = body(response, MAX_BODY).await.map_err(unavailable)?;
        Ok((status, body))
    };
    let answered = tokio::time::timeout(WITHIN, asking).await;
    answered.unwrap_or_else(|_| Err(unavailable("the provider did not answer in time")))
}

/// Returns whether a revocation is done: a provider answers 200 also for a token that it does not know (RFC 7009 section 2.2),
/// and some answer with 400 or 404 instead.
fn revoked(status: StatusCode) -> Result<(), NoLink> {
    match status.as_u16() {
        200..=299 | 400 | 404 | 410 | 422 => Ok(()),
        other => Err(unavailable(format!("the provider answers a revocation with status {other}"))),
    }
}

/// Reads an answer of the token endpoint. Some providers report errors with status 200.
fn read_answer(status: StatusCode, body: &[u8]) -> Result<TokenAnswer, NoLink> {
    let answer: Map<String, Value> = serde_json::from_slice(body).map_err(|_| {
        unavailable(format!("the provider's answer with status {} is not a JSON object", status.as_u16()))
    })?;
    let text = |name: &str| answer.get(name).and_then(Value::as_str);
    if let Some(code) = text("error") {
        if ENDED.contains(&code) {
            return Err(NoLink::Missing(LinkReason::Rejected));
        }
        return Err(unavailable(format!("the provider refuses with {}", printable(code))));
    }
    if !status.is_success() {
        return Err(unavailable(format!("the provider answers with status {}", status.as_u16())));
    }
    let is_bearer = text("token_type").is_none_or(|kind| {
        // Slack calls tokens of users so.
        kind.eq_ignore_ascii_case("bearer") || kind.eq_ignore_ascii_case("user")
    });
    let access = text("access_token").filter(|token| is_bearer && is_token(token));
    let access = access.ok_or_else(|| unavailable("the provider's answer has no bearer token"))?;
    Ok(TokenAnswer {
        access: access.into(),
        refresh: text("refresh_token").filter(|token| is_token(token)).map(Secret::from),
        life: answer.get("expires_in").and_then(seconds),
    })
}

/// Reads a life in seconds, which some providers write as a text; 0 and less stand for none.
fn seconds(value: &Value) -> Option<Duration> {
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
    let life = Duration::try_from_secs_f64(number).ok()?;
    (!life.is_zero()).then(|| life.min(LONGEST))
}

fn is_token(token: &str) -> bool {
    !token.is_empty() && token.len() <= MAX_TOKEN && token.bytes().all(|byte| (0x21..0x7f).contains(&byte))
}

/// Returns an error code if it may stand in a log.
fn printable(code: &str) -> &str {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if code.len() <= 64 && code.bytes().all(plain) { code } else { "an unreadable error" }
}

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, body: &str) -> Result<TokenAnswer, NoLink> {
        read_answer(StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    #[test]
    fn answers_of_different_providers_are_read() {
        for (body, refresh, life) in [
            (
                r#"{"access_token":"t","token_type":"Bearer","expires_in":60,"refresh_token":"r"}"#,
                true,
                Some(60),
            ),
            (r#"{"access_token":"t","token_type":"bearer","scope":"repo,user"}"#, false, None),
            (
                r#"{"ok":true,"access_token":"t","token_type":"user","expires_in":"43200"}"#,
                false,
                Some(43_200),
            ),
            (r#"{"access_token":"t","expires_in":0}"#, false, None),
            (r#"{"access_token":"t","expires_in":-5}"#, false, None),
        ] {
            let answer = read(200, body).unwrap_or_else(|fault| panic!("{body}: {fault}"));
            assert_eq!(answer.access.expose(), "t");
            assert_eq!(
                (answer.refresh.is_some(), answer.life.map(|life| life.as_secs())),
                (refresh, life),
                "{body}"
            );
        }
    }

    #[test]
    fn bad_answers_are_refused_and_an_ended_grant_asks_for_a_link() {
        let long = format!(r#"{{"access_token":"{}"}}"#, "x".repeat(MAX_TOKEN + 1));
        for (status, body) in [
            (200, ""),
            (200, "[]"),
            (200, "{}"),
            (200, r#"{"access_token":""}"#),
            (200, r#"{"access_token":"a b"}"#),
            (200, r#"{"access_token":"t","token_type":"mac"}"#),
            (200, r#"{"access_token":7}"#),
            (200, &long),
            (503, r#"{"access_token":"t"}"#),
            (400, r#"{"error":"invalid_client"}"#),
            (200, r#"{"ok":false,"error":"a\u0000b"}"#),
        ] {
            let fault = read(status, body).err().unwrap();
            assert!(matches!(fault, NoLink::Unavailable(_)), "{body:.40}: {fault}");
            assert!(!fault.to_string().contains('\0'), "{fault}");
        }
        for (status, body) in
            [(400, r#"{"error":"invalid_grant"}"#), (200, r#"{"error":"bad_refresh_token"}"#)]
        {
            assert_eq!(read(status, body).err(), Some(NoLink::Missing(LinkReason::Rejected)), "{body}");
        }
    }

    #[test]
    fn a_revocation_is_done_unless_the_provider_fails_or_refuses_the_client() {
        for (status, done) in
            [(200, true), (204, true), (400, true), (404, true), (401, false), (429, false), (503, false)]
        {
            assert_eq!(revoked(StatusCode::from_u16(status).unwrap()).is_ok(), done, "{status}");
        }
    }
}
