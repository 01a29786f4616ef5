//! Pages for people: no script, nothing loaded from elsewhere, in no frame.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};

const STYLE: &str = "body{font:16px/1.5 sans-serif;margin:4em auto;max-width:34em;padding:0 1em}\
    code,pre{background:#eee;padding:.1em .3em;overflow-wrap:anywhere}pre{white-space:pre-wrap;padding:.5em}\
    button{font:inherit;padding:.5em 1.5em;margin-right:1em}";
/// Content security policy of the pages. It has no `form-action`, because browsers apply that to every redirect after a
/// form, and forms of a login lead to the issuer and anywhere it redirects its users.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'";

/// Returns a page. `title` and `body` are HTML; `referrer` is its referrer policy.
pub fn page(status: StatusCode, title: &str, body: &str, referrer: &'static str) -> Response {
    let text = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style>{body}</html>"
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, referrer),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ];
    (status, headers, text).into_response()
}

/// Escapes text for an element or a quoted attribute.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Characters that change the reading direction could make the name look like another (Unicode TR36).
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => {}
            other => safe.push(other),
        }
    }
    safe
}
