//! What every request to a service shares: its origin, its deadline, its idempotency key, and what it means that no
//! answer came.

use asp_outbound::RequestedBy;
use tokio::time::Instant;

use crate::call::Call;
use crate::call::outcome::Refusal;
use crate::clock::since_epoch;
use crate::digest;

/// Scheme and authority of a URL or URL template, as breakers know it.
pub(crate) fn origin(url: &str) -> String {
    let end = url.find("://").and_then(|at| Some(at + 3 + url.get(at + 3..)?.find('/')?));
    url.get(..end.unwrap_or(url.len())).unwrap_or(url).to_owned()
}

/// The primitive that a call's requests are sent for.
pub(crate) fn requested_by(call: &Call) -> RequestedBy<'_> {
    RequestedBy { server: &call.server.message.name, primitive: &call.entry.primitive.id }
}

/// The call's absolute deadline as Unix milliseconds (ADR 6).
pub(crate) fn deadline_ms(call: &Call) -> String {
    let left = call.deadline().saturating_duration_since(Instant::now());
    (since_epoch() + left).as_millis().to_string()
}

/// The caller's idempotency key within its scope: a caller's retry carries the same one, and two callers who chose the
/// same do not meet at a service that knows neither. Without one, the call's id.
pub(crate) fn idempotency_key(call: &Call) -> String {
    let Some(key) = &call.idempotency_key else { return call.id.to_string() };
    let caller = &call.caller;
    let server = &call.server.message.name;
    let primitive = &call.entry.primitive.id;
    let hashed = digest::of_parts(&[&caller.issuer, &caller.org, &caller.user, server, primitive, key]);
    hashed.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// A request that may have been delivered and got no answer.
pub(crate) fn lost(call: &Call, why: &str) -> Refusal {
    call.unanswered(Refusal::Upstream(why.into()))
}

/// Why a request got no answer. Says nothing of addresses (I-11).
pub(crate) fn refusal_of(call: &Call, error: &reqwest::Error) -> Refusal {
    if error.is_connect() || error.is_builder() {
        Refusal::Upstream("the service could not be reached".into())
    } else {
        lost(call, "the service did not answer")
    }
}

#[cfg(test)]
mod tests {
    use super::origin;

    #[test]
    fn the_breaker_is_kept_per_origin() {
        assert_eq!(origin("https://a.example.com/x/{id}?q=1"), "https://a.example.com");
        assert_eq!(origin("http://a.example.com:8080"), "http://a.example.com:8080");
    }
}
