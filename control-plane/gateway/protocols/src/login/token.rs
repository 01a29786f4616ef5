//! The token endpoint (RFC 6749 sections 4.1.3 and 6): forwards a client's request to the issuer under the client id
//! registered there.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use asp_call::seal::Purpose;
use asp_outbound::body;
use asp_proto::snapshot::Login;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value};

use super::client::RegisteredClient;
use super::code::{self, Redemption};
use super::{LoginRequest, answer, error, form, redirect, too_many};

/// Timeout of the issuer's answer.
const WITHIN: Duration = Duration::from_secs(10);
/// Seconds until a peer with too many open exchanges may retry.
const RETRY_AFTER: u64 = 1;
/// Maximum size of an answer, in bytes.
const MAX_BODY: usize = 256 * 1024;
/// Parameters of the request to the issuer.
pub(super) type Parameters<'a> = Vec<(&'static str, Cow<'a, str>)>;

/// Longest code, verifier or refresh token, in bytes.
const MAX_VALUE: usize = 8 * 1024;

pub(super) async fn exchange(asked: &LoginRequest<'_>) -> Response {
    let Some(given) = form(asked) else {
        return refuse("invalid_request", "a form is needed, with each parameter once");
    };
    let callback = asked.front.callback();
    let sent = match request(asked, &given, &callback) {
        Ok(sent) => sent,
        Err(refusal) => return *refusal,
    };
    let client_id = given.get("client_id").map(String::as_str).unwrap_or_default();
    match ask_within_limits(asked, client_id, &sent).await {
        Ok((status, said)) => answer(status, &Value::Object(said)),
        Err(refusal) => *refusal,
    }
}

/// Sends a request to the issuer, within the limits of the peer, of the client and of the issuer.
pub(super) async fn ask_within_limits(
    asked: &LoginRequest<'_>,
    client_id: &str,
    sent: &Parameters<'_>,
) -> Result<(StatusCode, Map<String, Value>), Box<Response>> {
    let logins = &asked.gateway.issuers.logins;
    if let Err(seconds) = logins.charge_token(asked.peer, client_id) {
        return Err(Box::new(too_many(seconds)));
    }
    let issuer = &asked.front.upstream.name;
    let Some(_exchange) = logins.begin(asked.peer, issuer) else {
        return Err(Box::new(too_many(RETRY_AFTER)));
    };
    // Anybody may send requests here, so few run at each issuer at a time and the others wait.
    let turns = logins.turns(issuer);
    let turn = tokio::time::timeout(WITHIN, turns.acquire()).await;
    let Ok(Ok(_turn)) = turn else {
        return Err(Box::new(error(
            StatusCode::SERVICE_UNAVAILABLE,
            "temporarily_unavailable",
            "too many logins: try again",
        )));
    };
    let late = || Err("it did not answer in time".to_owned());
    match tokio::time::timeout(WITHIN, ask(asked, sent)).await.unwrap_or_else(|_| late()) {
        Ok(answered) => Ok(answered),
        Err(fault) => {
            tracing::warn!(
                server = asked.front.name(), %issuer, %fault,
                "client gets no token: the issuer's token endpoint failed"
            );
            Err(Box::new(error(
                StatusCode::BAD_GATEWAY,
                "temporarily_unavailable",
                "the issuer could not be reached: try again",
            )))
        }
    }
}

fn refuse(code: &str, description: &str) -> Response {
    error(StatusCode::BAD_REQUEST, code, description)
}

/// Builds the issuer's request from the client's.
fn request<'a>(
    asked: &'a LoginRequest<'_>,
    given: &'a HashMap<String, String>,
    callback: &'a str,
) -> Result<Parameters<'a>, Box<Response>> {
    let no = |code, description| Box::new(refuse(code, description));
    if given.values().any(|value| value.len() > MAX_VALUE) {
        return Err(no("invalid_request", "a parameter is too long"));
    }
    let text = |name: &str| given.get(name).map(String::as_str).filter(|text| !text.is_empty());
    let client = text("client_id").and_then(|id| asked.open::<RegisteredClient>(Purpose::Client, id));
    let unknown =
        || error(StatusCode::UNAUTHORIZED, "invalid_client", "the client is not registered at this server");
    let client = client.ok_or_else(|| Box::new(unknown()))?;
    let mut sent: Parameters<'a> = vec![("client_id", asked.front.login.client_id.as_str().into())];
    match text("grant_type") {
        Some("authorization_code") => {
            let (Some(code), Some(verifier)) = (text("code"), text("code_verifier")) else {
                return Err(no("invalid_request", "code and code_verifier are needed"));
            };
            let is_its = |given: &str| client.redirects.iter().any(|own| redirect::is_registered(own, given));
            if !text("redirect_uri").is_none_or(is_its) {
                return Err(no("invalid_grant", "redirect_uri is not registered for this client"));
            }
            let client_id = text("client_id").unwrap_or_default();
            let shown = Redemption { code, verifier, client_id, redirect: text("redirect_uri") };
            let of_issuer =
                code::redeem(asked, &shown).map_err(|description| no("invalid_grant", description))?;
            sent.extend([
                ("grant_type", "authorization_code".into()),
                ("code", of_issuer.into()),
                ("code_verifier", verifier.into()),
                ("redirect_uri", callback.into()),
            ]);
        }
        Some("refresh_token") => {
            let token =
                text("refresh_token").ok_or_else(|| no("invalid_request", "refresh_token is needed"))?;
            sent.extend([("grant_type", "refresh_token".into()), ("refresh_token", token.into())]);
            sent.extend(renewed_scope(asked.front.login, text("scope")).map(|scope| ("scope", scope)));
        }
        _ => {
            let description = "grant_type must be authorization_code or refresh_token";
            return Err(no("unsupported_grant_type", description));
        }
    }
    Ok(sent)
}

/// Returns the scope of a renewal: the client's or, for an issuer that needs one, that of every login.
fn renewed_scope<'a>(login: &Login, named: Option<&'a str>) -> Option<Cow<'a, str>> {
    let of_login =
        || (login.scopes_on_refresh && !login.scopes.is_empty()).then(|| login.scopes.join(" ").into());
    named.map(Cow::Borrowed).or_else(of_login)
}

async fn ask(
    asked: &LoginRequest<'_>,
    sent: &Parameters<'_>,
) -> Result<(StatusCode, Map<String, Value>), String> {
    let issuers = &asked.gateway.issuers;
    let url = &asked.front.login.token_endpoint;
    let destination =
        issuers.outbound.of_origins(url, &issuers.origins).map_err(|error| error.to_string())?;
    let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(sent).finish();
    let request = destination.client.post(destination.url).body(form);
    let request = request.header("content-type", "application/x-www-form-urlencoded");
    let response = request.header("accept", "application/json").send().await;
    let response = response.map_err(|error| error.to_string())?;
    let status = response.status();
    let body = body(response, MAX_BODY).await?;
    // The issuer's OAuth errors are forwarded (RFC 6749 section 5.2); any other failure is not the client's concern.
    if !matches!(status.as_u16(), 200 | 400 | 401) {
        return Err(format!("it answers with status {}", status.as_u16()));
    }
    let answer = serde_json::from_slice(&body).map_err(|_| "its answer is not a JSON object".to_owned())?;
    Ok((status, answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_names_the_clients_scope_or_that_of_the_login_where_the_issuer_needs_one() {
        let login = |scopes_on_refresh| Login {
            scopes: vec!["a/.default".into(), "offline_access".into()],
            scopes_on_refresh,
            ..Login::default()
        };
        assert_eq!(renewed_scope(&login(false), None), None);
        assert_eq!(renewed_scope(&login(true), None).as_deref(), Some("a/.default offline_access"));
        assert_eq!(renewed_scope(&login(true), Some("notes")).as_deref(), Some("notes"));
        assert_eq!(renewed_scope(&Login { scopes_on_refresh: true, ..Login::default() }, None), None);
    }
}
