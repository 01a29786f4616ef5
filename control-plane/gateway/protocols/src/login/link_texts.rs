//! The pages of linked accounts, and their texts.

use asp_identity::linked::{LinkTicket, LinkedAccount};
use asp_platform::time::rfc3339;
use axum::response::Response;
use http::StatusCode;

use crate::html::{self, escaped};

pub(super) const EXPIRED: &str =
    "This took too long or was started in another browser: call the tool again, or open /account.";
pub(super) const FOREIGN: &str = "The request comes from another page.";
pub(super) const OTHER_ISSUER: &str = "The answer is from a different issuer than the one that was asked.";
pub(super) const NOT_SIGNED_IN: &str = "You were not signed in.";
pub(super) const INVALID_LOGIN: &str = "The login is not valid, or has expired: start it again.";
pub(super) const REVOKED: &str = "The login has been revoked.";
pub(super) const TOO_MANY: &str = "There are too many logins: try again later.";
pub(super) const NO_ACCESS: &str = "You have no access to this server.";
pub(super) const OTHER_USER: &str = "You signed in as another user than the one who called the tool. Sign out at your \
     organization, and open the address again as that user.";
pub(super) const NOT_ALLOWED: &str = "Accounts of this service are not offered here.";
pub(super) const NO_CONSENT: &str = "The account was not linked, because the service sent no consent.";
pub(super) const REJECTED: &str = "The service did not accept the link: call the tool again to retry.";
pub(super) const NOT_STORED: &str = "The account was not linked, because the link could not be stored here. Call the tool again \
     later, and inform the operator if this stays so.";
pub(super) const FAILED: &str =
    "This does not work at the moment: try again later, and inform the operator if it stays so.";

/// An issuer at which a user can sign in.
pub(super) struct IssuerChoice {
    pub(super) issuer: String,
    /// A server whose issuer it is.
    pub(super) server: String,
}

/// A link on the page, with the tag of its form.
pub(super) struct ShownLink {
    pub(super) title: String,
    pub(super) tag: String,
    pub(super) link: LinkedAccount,
}

/// Returns a page that says why something did not happen.
pub(super) fn refusal(why: &str) -> Response {
    page(StatusCode::BAD_REQUEST, why)
}

pub(super) fn page(status: StatusCode, why: &str) -> Response {
    let body = format!("<h1>Linked accounts</h1><p>{}</p>", escaped(why));
    html::page(status, "Linked accounts", &body, "no-referrer")
}

/// Returns the page on which a user begins to link an account.
pub(super) fn ask(server: &str, ticket: &LinkTicket, sealed: &str) -> Response {
    let scopes = match ticket.scopes.as_slice() {
        [] => String::new(),
        scopes => format!("<p>It asks for: <code>{}</code></p>", escaped(&scopes.join(" "))),
    };
    let body = format!(
        "<h1>Link your {provider} account?</h1>\
         <p>You called <strong>{primitive}</strong> of <strong>{server}</strong>, which works with your account at \
         <strong>{provider}</strong>. You sign in at your organization first, and then allow the access there.</p>{scopes}\
         <p>Continue only if you have just called it yourself.</p>\
         <form method=post action=link><input type=hidden name=ticket value=\"{sealed}\">\
         <button>Continue</button></form>",
        provider = escaped(&ticket.provider),
        primitive = escaped(&ticket.primitive),
        server = escaped(server),
        sealed = escaped(sealed),
    );
    // Browsers send a form's Origin only to where its referrer may go (Fetch, "append a request Origin header").
    html::page(StatusCode::OK, "Link an account", &body, "same-origin")
}

/// Returns the page after an account was linked.
pub(super) fn linked(title: &str) -> Response {
    let body = format!(
        "<h1>Your {} account is linked</h1><p>You can close this page and return to your program. \
         <a href=\"/account\">Your linked accounts</a></p>",
        escaped(title)
    );
    html::page(StatusCode::OK, "Account linked", &body, "no-referrer")
}

/// Returns the page on which a user signs in.
pub(super) fn choose(choices: &[IssuerChoice]) -> Response {
    let form = |choice: &IssuerChoice| {
        format!(
            "<form method=post action=\"/account/sign-in\"><input type=hidden name=server value=\"{}\">\
             <button>Sign in at {}</button></form>",
            escaped(&choice.server),
            escaped(&choice.issuer)
        )
    };
    let forms: String = choices.iter().map(form).collect();
    let forms =
        if forms.is_empty() { "<p>Nobody can sign in here with a browser.</p>".to_owned() } else { forms };
    let body =
        format!("<h1>Linked accounts</h1><p>Sign in to see the accounts that you have linked.</p>{forms}");
    html::page(StatusCode::OK, "Linked accounts", &body, "same-origin")
}

/// Returns the page of a user's links.
pub(super) fn account(user: &str, links: &[ShownLink]) -> Response {
    let lines: String = links.iter().map(line).collect();
    let lines = if lines.is_empty() { "<p>You have linked no accounts.</p>".to_owned() } else { lines };
    let body = format!("<h1>Linked accounts</h1><p>Signed in as {}.</p>{lines}", escaped(user));
    html::page(StatusCode::OK, "Linked accounts", &body, "same-origin")
}

fn line(shown: &ShownLink) -> String {
    let ShownLink { title, tag, link } = shown;
    let time = |ms: i64| rfc3339(u64::try_from(ms).unwrap_or_default());
    let used = if link.used_ms == 0 { "never".to_owned() } else { time(link.used_ms) };
    let state = if link.is_live {
        ""
    } else {
        " <strong>No longer accepted: link it again with your next call.</strong>"
    };
    format!(
        "<h2>{}</h2><p>Linked {}, last used {used}, ends {}.{state}</p><p>Access: <code>{}</code></p>\
         <form method=post action=\"/account/remove\"><input type=hidden name=provider value=\"{}\">\
         <input type=hidden name=tag value=\"{}\"><button>Remove</button></form>",
        escaped(title),
        time(link.created_ms),
        time(link.expires_ms),
        escaped(&link.scopes),
        escaped(&link.key.provider),
        escaped(tag),
    )
}
