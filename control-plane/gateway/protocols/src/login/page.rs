//! Pages for the user: the consent form, or why the login cannot continue. No script, nothing loaded from elsewhere, in
//! no frame.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};

/// Content of the consent form.
pub(super) struct Consent<'a> {
    /// Name claimed by the client; not verified.
    pub(super) client: &'a str,
    pub(super) server: &'a str,
    pub(super) title: &'a str,
    pub(super) redirect: &'a str,
    pub(super) scope: &'a str,
    pub(super) ticket: &'a str,
}

const STYLE: &str = "body{font:16px/1.5 sans-serif;margin:4em auto;max-width:34em;padding:0 1em}\
    code{background:#eee;padding:.1em .3em;overflow-wrap:anywhere}\
    button{font:inherit;padding:.5em 1.5em;margin-right:1em}";

/// Content security policy of the pages. It has no `form-action`, because browsers apply that to every redirect after a
/// form, and this form's redirects lead to the issuer and anywhere it redirects its users.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'";

/// Returns the consent form.
pub(super) fn consent(asked: &Consent<'_>) -> Response {
    let name = if asked.client.is_empty() { "A client without a name" } else { asked.client };
    let server = if asked.title.is_empty() { asked.server } else { asked.title };
    let scopes = match asked.scope {
        "" => String::new(),
        scope => format!("<p>It asks for: <code>{}</code></p>", escaped(scope)),
    };
    let body = format!(
        "<h1>Let {name} use {server}?</h1>\
         <p>A program that calls itself <strong>{name}</strong> wants to use <strong>{server}</strong> in your name. \
         When you have logged in it gets access at <code>{redirect}</code>.</p>{scopes}\
         <p>Allow it only if you have just started this login yourself.</p>\
         <form method=post action=consent><input type=hidden name=ticket value=\"{ticket}\">\
         <button name=decision value=allow>Allow</button><button name=decision value=deny>Deny</button></form>",
        name = escaped(name),
        server = escaped(server),
        redirect = escaped(asked.redirect),
        ticket = escaped(asked.ticket),
    );
    // Browsers send a form's Origin only to where its referrer may go (Fetch, "append a request Origin header").
    document(StatusCode::OK, "Allow access", &body, "same-origin")
}

/// Returns a page that says why the login cannot continue.
pub(super) fn refusal(why: &str) -> Response {
    let body = format!("<h1>The login cannot continue</h1><p>{}</p>", escaped(why));
    document(StatusCode::BAD_REQUEST, "Login", &body, "no-referrer")
}

fn document(status: StatusCode, title: &str, body: &str, referrer: &'static str) -> Response {
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
fn escaped(text: &str) -> String {
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
