//! Stage 10: a start and a finish event of every call, on every exit (design §6, seed 1 §1.6.6).
//!
//! Refuses: argument and result values; only their sizes are recorded.

use tokio::time::Instant;

use super::Call;
use super::outcome::Outcome;

/// The call was accepted for processing.
pub fn start(call: &Call) {
    tracing::info!(
        target: "asp::audit",
        event = "call.start",
        call = %call.id,
        org = %call.caller.org,
        user = %call.caller.user,
        wcit = %call.caller.wcit,
        server = %call.server.message.name,
        primitive = %call.entry.primitive.id,
        version = %call.entry.primitive.version,
        protocol = protocol_name(call),
        request = %call.protocol_request_id,
        bytes_in = call.bytes_in,
        "call started"
    );
}

/// The call has its outcome.
pub fn finish(call: &Call, outcome: &Outcome) {
    let (reason, replay, bytes_out, is_error) = match outcome {
        Outcome::Done { output, replayed } => ("ok", *replayed, output.size(), output.is_error()),
        Outcome::Refused(refusal) => (refusal.reason().as_str(), false, 0, true),
    };
    tracing::info!(
        target: "asp::audit",
        event = "call.finish",
        call = %call.id,
        org = %call.caller.org,
        user = %call.caller.user,
        wcit = %call.caller.wcit,
        server = %call.server.message.name,
        primitive = %call.entry.primitive.id,
        version = %call.entry.primitive.version,
        protocol = protocol_name(call),
        request = %call.protocol_request_id,
        outcome = outcome.state().as_str(),
        reason,
        error = is_error,
        limited = matches!(outcome, Outcome::Refused(super::outcome::Refusal::Limited { .. })),
        replay,
        bytes_in = call.bytes_in,
        bytes_out,
        latency_us = Instant::now().saturating_duration_since(call.started).as_micros() as u64,
        "call finished"
    );
}

fn protocol_name(call: &Call) -> &'static str {
    crate::protocol_name(call.protocol)
}
