//! The line that a session prints about each call: primitive, caller, outcome, milliseconds, and what went wrong.
//!
//! Keeps true: one line for a call, whatever a plugin returns.

use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::outcome::{Outcome, Output, Refusal};
use asp_call::call::terms::runtime_bound;
use asp_json::first_line;
use asp_proto::snapshot::runtime::Mode;
use tokio::time::Instant;

/// Maximum bytes shown of an error's text.
const MAX_DETAIL: usize = 400;

/// Returns the line about a call that has ended.
pub(super) fn of_end(call: &Call, outcome: &Outcome) -> String {
    let primitive = format!("{}/{}", call.server.message.name, call.entry.primitive.id);
    let took = Instant::now().saturating_duration_since(call.started);
    let longest = (!call.is_shortened()).then(|| runtime_bound(&call.entry.primitive));
    let mut line = line(&primitive, &call.caller.user, (outcome, took), longest);
    if let Outcome::Refused(Refusal::InvalidOutput { message, .. }) = outcome
        && let Some(Mode::Plugin(plugin)) =
            call.entry.primitive.runtime.as_ref().and_then(|it| it.mode.as_ref())
    {
        line.push_str(&place_of_result(&plugin.entrypoint, message));
    }
    line
}

/// Returns the code that returned a refused result, and the remedy where its message has none.
fn place_of_result(entrypoint: &str, message: &str) -> String {
    if message.starts_with("the result has ") {
        return format!(" ({entrypoint})");
    }
    format!(" ({entrypoint}: return what its types say, or change them)")
}

/// `longest`: the maximum runtime by the spec, if that set the deadline.
fn line(
    primitive: &str,
    user: &str,
    (outcome, took): (&Outcome, Duration),
    longest: Option<Duration>,
) -> String {
    let user = if user.is_empty() { "anonymous" } else { user };
    let (ended, detail) = match outcome {
        Outcome::Done { output, .. } if output.is_error() => ("tool error", text_of(output)),
        Outcome::Done { replayed: true, .. } => ("ok, the answer of the first request", String::new()),
        Outcome::Done { replayed: false, .. } => ("ok", String::new()),
        Outcome::Refused(refusal) => (refusal.reason().as_str(), refusal.to_string()),
    };
    let mut line = format!("call {primitive} by {user}: {ended}, {} ms", took.as_millis());
    let detail = first_line(&detail);
    if !detail.is_empty() {
        line.push_str(": ");
        line.push_str(detail.get(..detail.floor_char_boundary(MAX_DETAIL)).unwrap_or_default());
    }
    if let (Outcome::Refused(Refusal::Deadline), Some(longest)) = (outcome, longest) {
        line.push_str(&format!(" (capabilities.maxRuntimeSeconds of its spec: {} s)", longest.as_secs()));
    }
    line
}

/// Returns the text of the first content block.
fn text_of(output: &Output) -> String {
    let Output::Tool { content, .. } = output else { return String::new() };
    let text = content.first().and_then(|block| block.get("text")?.as_str().map(str::to_owned));
    text.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_millis(12);

    fn shown(outcome: &Outcome) -> String {
        line("greet/greet", "alice", (outcome, TOOK), Some(Duration::from_secs(60)))
    }

    #[test]
    fn a_line_names_primitive_caller_outcome_and_milliseconds() {
        let done = |output, replayed| Outcome::Done { output, replayed };
        assert_eq!(shown(&done(Output::text("Hello"), false)), "call greet/greet by alice: ok, 12 ms");
        assert_eq!(
            shown(&done(Output::text("Hello"), true)),
            "call greet/greet by alice: ok, the answer of the first request, 12 ms"
        );
        assert_eq!(
            shown(&done(Output::tool_error("no city\ngreet | forged"), false)),
            "call greet/greet by alice: tool error, 12 ms: no city"
        );
        assert!(line("a/b", "", (&done(Output::text(""), false), TOOK), None).contains("by anonymous:"));
    }

    #[test]
    fn a_refusal_is_shown_with_what_its_caller_is_not_told() {
        let misfit = |pointer: &str, message: &str| {
            let pointer = pointer.to_owned();
            let message = message.to_owned();
            shown(&Outcome::Refused(Refusal::InvalidOutput { pointer, message }))
        };
        assert_eq!(
            misfit("/greting", "is not allowed"),
            "call greet/greet by alice: internal, 12 ms: the result does not fit the output schema at /greting: is not \
             allowed"
        );
        assert_eq!(misfit("/greting", "/greting: is not allowed"), misfit("/greting", "is not allowed"));
        assert!(misfit("", "the result has 5 bytes").ends_with("12 ms: the result has 5 bytes"));
        let long = shown(&Outcome::Refused(Refusal::Upstream("é".repeat(MAX_DETAIL))));
        assert!(long.len() < MAX_DETAIL + 100, "{long}");
    }

    #[test]
    fn a_result_that_does_not_fit_is_shown_with_its_code_and_a_remedy() {
        assert_eq!(
            place_of_result("main.py", "/greeting: is null"),
            " (main.py: return what its types say, or change them)"
        );
        assert_eq!(place_of_result("Main", "the result has 5 bytes, allowed are 4"), " (Main)");
    }

    #[test]
    fn a_deadline_is_shown_with_the_setting_that_made_it() {
        let late = Outcome::Refused(Refusal::Deadline);
        assert!(
            shown(&late).ends_with("(capabilities.maxRuntimeSeconds of its spec: 60 s)"),
            "{}",
            shown(&late)
        );
        assert!(
            !line("a/b", "x", (&late, TOOK), None).contains("maxRuntimeSeconds"),
            "the client's own deadline"
        );
    }
}
