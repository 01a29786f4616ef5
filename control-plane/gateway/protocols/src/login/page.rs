//! Pages for the user: the consent form, or why the login cannot continue.

use axum::response::Response;
use http::StatusCode;

use crate::html::{self, escaped};

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
    html::page(StatusCode::OK, "Allow access", &body, "same-origin")
}

/// Returns a page that says why the login cannot continue.
pub(super) fn refusal(why: &str) -> Response {
    let body = format!("<h1>The login cannot continue</h1><p>{}</p>", escaped(why));
    html::page(StatusCode::BAD_REQUEST, "Login", &body, "no-referrer")
}
