//! Progress in MCP: the request's token, and phases as steps that only grow.

use asp_json::Json;

use super::codec::Message;

/// Number of phase steps per unit of progress: a change of phase adds a thousandth, which no percentage shows.
const PHASE_STEPS: f64 = 1000.0;

/// Returns the next thousandth above `last`.
pub(super) fn next_phase(last: f64) -> f64 {
    ((last * PHASE_STEPS).floor() + 1.0) / PHASE_STEPS
}

/// Returns the progress token of a request, a string or a number as the client wrote it.
pub(super) fn progress_token(message: &Message) -> Option<Json> {
    message.meta("progressToken").filter(|token| token.is_string() || token.is_number())?;
    message.sent_param("_meta")?.member("progressToken")
}
