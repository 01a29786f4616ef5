//! The token endpoint (RFC 6749 sections 4.1.3 and 6): what a client asks is asked of the issuer, as its own client.

use std::collections::HashMap;
use std::time::Duration;

use asp_outbound::body;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value};

use super::{Asked, answer, client, error, form, redirect};

/// Longest time for an answer.
const WITHIN: Duration = Duration::from_secs(10);
/// Largest answer, in bytes.
const MAX_BODY: usize = 256 * 1024;
/// Longest code, verifier or refresh token, in bytes.
const MAX_VALUE: usize = 8 * 1024;

pub(super) async fn exchange(asked: &Asked<'_>) -> Response {
    let Some(given) = form(asked) else {
        return refuse("invalid_request", "a form is needed, with each parameter once");
    };
    let callback = asked.front.callback();
    let sent = match request(asked, &given, &callback) {
        Ok(sent) => sent,
        Err(refusal) => return *refusal,
    };
    // Anybody may come here: an issuer is asked by a few at a time, and the others wait their turn.
    let turn = tokio::time::timeout(WITHIN, asked.gateway.issuers.logins.acquire()).await;
    let Ok(Ok(_turn)) = turn else {
        return error(
            StatusCode::SERVICE_UNAVAILABLE,
            "temporarily_unavailable",
            "too many logins: try again",
        );
    };
    let late = || Err("it did not answer in time".to_owned());
    match tokio::time::timeout(WITHIN, ask(asked, &sent)).await.unwrap_or_else(|_| late()) {
        Ok((status, said)) => answer(status, &Value::Object(said)),
        Err(fault) => {
            tracing::warn!(
                server = asked.front.name(), issuer = %asked.front.upstream.name, %fault,
                "a client gets no token: its issuer's token endpoint could not be asked"
            );
            error(
                StatusCode::BAD_GATEWAY,
                "temporarily_unavailable",
                "the issuer could not be asked: try again",
            )
        }
    }
}

fn refuse(code: &str, description: &str) -> Response {
    error(StatusCode::BAD_REQUEST, code, description)
}

/// What the issuer is asked for what the client asks.
fn request<'a>(
    asked: &'a Asked<'_>,
    given: &'a HashMap<String, String>,
    callback: &'a str,
) -> Result<Vec<(&'static str, &'a str)>, Box<Response>> {
    let no = |code, description| Box::new(refuse(code, description));
    if given.values().any(|value| value.len() > MAX_VALUE) {
        return Err(no("invalid_request", "a parameter is too long"));
    }
    let text = |name: &str| given.get(name).map(String::as_str).filter(|text| !text.is_empty());
    let client = text("client_id").and_then(|id| client::open(asked.gateway, asked.front.name(), id));
    let unknown =
        || error(StatusCode::UNAUTHORIZED, "invalid_client", "this server does not know the client");
    let client = client.ok_or_else(|| Box::new(unknown()))?;
    let mut sent = vec![("client_id", asked.front.login.client_id.as_str())];
    match text("grant_type") {
        Some("authorization_code") => {
            let (Some(code), Some(verifier)) = (text("code"), text("code_verifier")) else {
                return Err(no("invalid_request", "code and code_verifier are needed"));
            };
            let is_its = |given: &str| client.redirects.iter().any(|own| redirect::is_registered(own, given));
            if !text("redirect_uri").is_none_or(is_its) {
                return Err(no("invalid_grant", "redirect_uri is none of the client's"));
            }
            sent.extend([
                ("grant_type", "authorization_code"),
                ("code", code),
                ("code_verifier", verifier),
                ("redirect_uri", callback),
            ]);
        }
        Some("refresh_token") => {
            let token =
                text("refresh_token").ok_or_else(|| no("invalid_request", "refresh_token is needed"))?;
            sent.extend([("grant_type", "refresh_token"), ("refresh_token", token)]);
            sent.extend(text("scope").map(|scope| ("scope", scope)));
        }
        _ => {
            let description = "grant_type must be authorization_code or refresh_token";
            return Err(no("unsupported_grant_type", description));
        }
    }
    Ok(sent)
}

async fn ask(asked: &Asked<'_>, sent: &[(&str, &str)]) -> Result<(StatusCode, Map<String, Value>), String> {
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
    // An error of the issuer in its own words (RFC 6749 section 5.2); anything else is none of the client's business.
    if !matches!(status.as_u16(), 200 | 400 | 401) {
        return Err(format!("it answers with status {}", status.as_u16()));
    }
    let answer = serde_json::from_slice(&body).map_err(|_| "its answer is no JSON object".to_owned())?;
    Ok((status, answer))
}
