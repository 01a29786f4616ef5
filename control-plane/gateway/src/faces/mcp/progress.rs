//! Progress as MCP shows it: a token of the request, and phases that only grow.

use asp_json::Json;

use super::codec::Message;

/// A change of phase moves the progress by a thousandth: far below what a percent shows.
const PHASE_STEPS: f64 = 1000.0;

/// The next thousandth, written as short as it is.
pub(super) fn next_phase(last: f64) -> f64 {
    ((last * PHASE_STEPS).floor() + 1.0) / PHASE_STEPS
}

/// The progress token of a request, a string or a number as the client wrote it.
pub(super) fn progress_token(message: &Message) -> Option<Json> {
    message.meta("progressToken").filter(|token| token.is_string() || token.is_number())?;
    message.sent_param("_meta")?.member("progressToken")
}
