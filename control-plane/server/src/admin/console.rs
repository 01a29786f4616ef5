//! The page for admins: static HTML, one script and one style sheet.
//!
//! Public, and holds nothing: the script asks the admin API with a token that the admin pastes. Keeps true: the page runs only its
//! own script, sends requests only to its own origin, and is shown in no frame.

use axum::response::{Html, IntoResponse, Response};
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};

/// Sources that the page may use.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// Serves the page. Public.
pub(super) async fn page() -> Response {
    let headers = [(CONTENT_SECURITY_POLICY, POLICY), (REFERRER_POLICY, "no-referrer")];
    (headers, Html(include_str!("console/page.html"))).into_response()
}

/// Serves its script. Public.
pub(super) async fn script() -> Response {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("console/page.js")).into_response()
}

/// Serves its style sheet. Public.
pub(super) async fn style() -> Response {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("console/page.css")).into_response()
}
