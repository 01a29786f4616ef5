//! Checks of Host and Origin on the admin port. In development only loopback names are allowed, so that a web page
//! cannot reach the port through a name that it controls (DNS rebinding).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};

use super::AdminState;
use super::problem::{Code, Problem, Result};

/// Middleware that checks Host and Origin and sets response headers.
pub async fn check(State(state): State<Arc<AdminState>>, request: Request, next: Next) -> Response {
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    if let Err(problem) = check_headers(request.headers(), authority.as_deref(), state.dev) {
        return problem.into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Checks the headers; `authority` is that of the request's URI (HTTP/2 has no Host header).
fn check_headers(headers: &HeaderMap, authority: Option<&str>, dev: bool) -> Result<()> {
    let host = match headers.get(header::HOST) {
        Some(value) => value.to_str().ok(),
        None => authority,
    };
    let Some(host) = host else {
        return Err(Problem::new(Code::HostDenied, ""));
    };
    if dev && !is_loopback(host) {
        return Err(Problem::new(Code::HostDenied, ""));
    }
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Ok(());
    };
    let name = origin.to_str().ok().and_then(|text| text.split_once("://")).map(|(_, name)| name);
    match name {
        Some(name) if name.eq_ignore_ascii_case(host) || (dev && is_loopback(name)) => Ok(()),
        _ => Err(Problem::new(Code::OriginDenied, "")),
    }
}

/// Whether `host[:port]` names this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    name.eq_ignore_ascii_case("localhost") || matches!(name, "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(host: &str, origin: Option<&str>, dev: bool) -> Option<Code> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        check_headers(&headers, None, dev).err().map(|problem| problem.code())
    }

    #[test]
    fn in_development_only_loopback_names_are_served() {
        for host in ["localhost:8081", "127.0.0.1:8081", "[::1]:8081", "LOCALHOST", "[::1]"] {
            assert_eq!(verdict(host, None, true), None, "{host}");
        }
        for host in ["evil.example:8081", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
            assert_eq!(verdict(host, None, true), Some(Code::HostDenied), "{host}");
        }
    }

    #[test]
    fn an_origin_is_this_one_or_loopback_in_development() {
        assert_eq!(verdict("admin.example", Some("https://admin.example"), false), None);
        assert_eq!(verdict("admin.example", Some("https://evil.example"), false), Some(Code::OriginDenied));
        assert_eq!(verdict("admin.example", Some("null"), false), Some(Code::OriginDenied));
        assert_eq!(verdict("localhost:8081", Some("http://127.0.0.1:5173"), true), None);
        assert_eq!(verdict("localhost:8081", Some("http://evil.example"), true), Some(Code::OriginDenied));
    }
}
