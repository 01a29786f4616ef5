//! Parts that all requests to a service share: deadline, idempotency key, and the meaning of a missing
//! answer.

use asp_call::call::Call;
use asp_call::call::outcome::Refusal;
use asp_call::clock::since_epoch;
use asp_call::digest;
use asp_outbound::Requester;
use tokio::time::Instant;

/// Returns the primitive that a call's requests are sent for.
pub(crate) fn requested_by(call: &Call) -> Requester<'_> {
    Requester { server: &call.server.message.name, primitive: &call.entry.primitive.id }
}

/// Formats the call's absolute deadline as Unix milliseconds (ADR 6).
pub(crate) fn deadline_ms(call: &Call) -> String {
    let left = call.deadline().saturating_duration_since(Instant::now());
    (since_epoch() + left).as_millis().to_string()
}

/// Returns the caller's idempotency key within its scope: a caller's retry has the same one, and two callers who
/// chose the same key do not collide at a service that knows neither. Without a key, returns the call's id.
pub(crate) fn idempotency_key(call: &Call) -> String {
    let Some(key) = &call.idempotency_key else { return call.id.to_string() };
    let caller = &call.caller;
    let server = &call.server.message.name;
    let primitive = &call.entry.primitive.id;
    let hashed = digest::of_parts(&[&caller.issuer, &caller.org, &caller.user, server, primitive, key]);
    hashed.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the refusal of a call whose request may have been delivered and got no answer.
pub(crate) fn unanswered(call: &Call, why: &str) -> Refusal {
    let refusal = call.unanswered(Refusal::Upstream(why.into()));
    if matches!(refusal, Refusal::OutcomeUnknown) {
        // The refusal itself does not name it.
        call.note_failure_cause(why);
    }
    refusal
}

/// Returns the refusal of a call whose request got no answer. Contains no addresses (I-11).
pub(crate) fn refusal_of(call: &Call, error: &reqwest::Error) -> Refusal {
    if error.is_connect() || error.is_builder() {
        Refusal::Upstream("the service could not be reached".into())
    } else {
        unanswered(call, "the service did not answer")
    }
}
