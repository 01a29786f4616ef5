//! The redirect back from the issuer: the client gets the code or the error (RFC 6749 section 4.1.2).

use axum::response::Response;

use super::authorize::Ticket;
use super::{LoginRequest, code, page, parameters};

/// Longest code, in bytes.
const MAX_CODE: usize = 4_096;

pub(super) fn returned(asked: &LoginRequest<'_>) -> Response {
    let given = parameters(asked.parts.uri.query().unwrap_or_default().as_bytes()).unwrap_or_default();
    let ticket = given.get("state").and_then(|sealed| Ticket::open(asked, sealed));
    let Some(ticket) = ticket.filter(|ticket| ticket.agreed) else {
        return page::refusal("The login took too long or was started in another browser: start it again.");
    };
    // An answer from another issuer does not belong to this request (RFC 9207 section 2.4).
    if given.get("iss").is_some_and(|iss| *iss != asked.front.upstream.iss) {
        return page::refusal("The answer is from a different issuer than the one that was asked.");
    }
    if let Some(error) = given.get("error") {
        let plain =
            |text: &str| text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(200).collect();
        let code: String = plain(error);
        let description: String =
            plain(given.get("error_description").map(String::as_str).unwrap_or_default());
        return ticket.back(asked, &[("error", &code), ("error_description", &description)]);
    }
    let of_issuer = given.get("code").filter(|code| code.len() <= MAX_CODE);
    let begun = (ticket.client.as_str(), ticket.challenge.as_str(), ticket.redirect.as_str());
    match of_issuer.and_then(|of_issuer| code::seal(asked, of_issuer, begun)) {
        Some(code) => ticket.back(asked, &[("code", &code)]),
        None => {
            ticket.back(asked, &[("error", "server_error"), ("error_description", "the issuer sent no code")])
        }
    }
}
