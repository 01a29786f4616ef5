//! `a2a_conformance`: the agent that the official suites of A2A run against, the TCK and ACTS.
//!
//! A suite names the behaviour that it expects by a prefix: the TCK by the prefix of the message's id, ACTS by that of
//! its text. The TCK of 0.3 names none: it expects that tasks of some tests take more messages or can be cancelled, and these
//! tests are known by their message ids. A message without such a prefix is completed. Knows nothing of A2A's wire: each behaviour is made of what
//! any backend has (output, refusal, event, question).

use std::time::Duration;

use asp_call::call::event::Event;
use asp_call::call::outcome::{Output, Refusal, text_block};
use asp_call::call::question::{Answer, Question};
use asp_call::execution::Execution;
use asp_json::Members;
use asp_proto::snapshot::Kind;
use serde_json::{Value, json};

use super::count_to;
use crate::conversation::asking::{Elicitation, put};
use crate::conversation::dependencies::dependency;

/// Member of an output's `_meta` that says in which form A2A answers: `message`, and no task.
const REPLY: &str = "asp/reply";
/// Declared elicitations: a form with one text, and a page to sign in at.
const MORE: &str = "a2a_more";
const SIGN_IN: &str = "a2a_sign_in";
/// Steps of the long-running behaviour: longer than a client needs to subscribe, shorter than the suites wait.
const STEPS: u64 = 6;
const STEP: Duration = Duration::from_millis(500);
/// The three bytes "tck" in Base64.
const FILE: &str = "dGNr";
const FILE_URL: &str = "https://example.com/output.txt";

/// A behaviour that a suite asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Complete,
    /// Completes with this text.
    Text(&'static str),
    /// Answers with a message.
    Message(&'static str),
    Data,
    File,
    FileUrl,
    /// Returns its text in two pieces.
    Chunks,
    Fail,
    Reject,
    LongRunning,
    /// Works until it is cancelled.
    Endless,
    /// Asks again until the text of an answer is this one.
    Until(&'static str),
    /// Asks again as long as the text of an answer begins like this.
    While(&'static str),
    SignIn,
}

/// Behaviours by prefix; of two that match, the first counts.
const BEHAVIOURS: &[(&str, Behaviour)] = &[
    ("tck-artifact-data", Behaviour::Data),
    ("tck-artifact-file-url", Behaviour::FileUrl),
    ("tck-artifact-file", Behaviour::File),
    ("tck-artifact-text", Behaviour::Text("Generated text content")),
    ("tck-auth-required", Behaviour::SignIn),
    ("tck-cancel", Behaviour::Endless),
    ("tck-complete-task", Behaviour::Complete),
    // The TCK's history of three answers; its id of the last one is not seen here.
    ("tck-input-required", Behaviour::While("TCK history message")),
    ("tck-long-running", Behaviour::LongRunning),
    ("tck-message-response", Behaviour::Message("Direct message response")),
    ("tck-multi-turn", Behaviour::Until("done")),
    ("tck-reject-task", Behaviour::Reject),
    ("tck-stream-001", Behaviour::Text("Stream hello from TCK")),
    ("tck-stream-002", Behaviour::Message("Stream message-only response")),
    ("tck-stream-003", Behaviour::Text("Stream task lifecycle")),
    ("tck-stream-artifact-chunked", Behaviour::Chunks),
    ("tck-stream-artifact-file", Behaviour::File),
    ("tck-stream-artifact-text", Behaviour::Text("Streamed text content")),
    ("tck-stream-basic", Behaviour::Text("Streamed content")),
    ("tck-stream-chunked", Behaviour::Chunks),
    ("tck-stream-ordering-001", Behaviour::Text("Ordered output")),
    ("tck-task-failure", Behaviour::Fail),
    // The TCK of 0.3 subscribes to it again.
    ("test-resubscribe-message-id", Behaviour::LongRunning),
    // It sends more messages to these tasks, or cancels them.
    ("cancel-test-message-id", Behaviour::Until("done")),
    ("mapping-test-message-id", Behaviour::Until("done")),
    ("test-cancel-message-id", Behaviour::Until("done")),
    ("test-history-create-message-id", Behaviour::Until("done")),
    ("test-message-id", Behaviour::Until("done")),
    ("test-resilience-message-id", Behaviour::Until("done")),
    ("text-message-id", Behaviour::Until("done")),
];

/// Returns the behaviour that a message asks for.
fn behaviour(message_id: &str, text: &str) -> Behaviour {
    let named = |by: &str| BEHAVIOURS.iter().find(|(prefix, _)| by.starts_with(*prefix));
    named(message_id).or_else(|| named(text)).map_or(Behaviour::Complete, |(_, behaviour)| *behaviour)
}

/// Runs the call of one message; its argument `text` is the message's text.
pub(super) async fn run(execution: &Execution) -> Result<Output, Refusal> {
    let call = &execution.call;
    let text = execution.arguments.get("text").and_then(Value::as_str).unwrap_or_default();
    // Over A2A the id of the request is that of the message.
    match behaviour(&call.protocol_request_id, text) {
        Behaviour::Complete => Ok(Output::text("Hello from TCK")),
        Behaviour::Text(text) => Ok(Output::text(text)),
        Behaviour::Message(text) => Ok(message(text)),
        Behaviour::Data => Ok(Output::structured(json!({"key": "value", "count": 42}))),
        Behaviour::File => Ok(file()),
        Behaviour::FileUrl => Ok(file_url()),
        Behaviour::Chunks => {
            let chunks = ["chunk-1 ", "chunk-2"];
            for text in chunks {
                call.emit(Event::Chunk { text: text.into() });
            }
            Ok(Output::text(&chunks.concat()))
        }
        Behaviour::Fail => Ok(Output::tool_error("the task failed, as it was asked to")),
        Behaviour::Reject => Err(Refusal::Barred("rejected".into())),
        Behaviour::LongRunning => {
            count_to(call, STEPS, STEP).await?;
            Ok(Output::text("the long work is done"))
        }
        Behaviour::Endless => {
            call.cancelled().await;
            Err(Refusal::Cancelled)
        }
        Behaviour::Until(last) => converse(execution, |text| text.trim() == last).await,
        Behaviour::While(prefix) => converse(execution, |text| !text.starts_with(prefix)).await,
        Behaviour::SignIn => {
            ask(execution, SIGN_IN, 1).await?;
            Ok(Output::text("signed in"))
        }
    }
}

/// Asks for texts until one is the last.
async fn converse(execution: &Execution, is_last: impl Fn(&str) -> bool) -> Result<Output, Refusal> {
    let mut turn = 1;
    while !is_last(&ask(execution, MORE, turn).await?) {
        turn += 1;
    }
    Ok(Output::text(&format!("done after {turn} answers")))
}

/// Asks a declared elicitation, and returns the text of the answer; a page has none.
async fn ask(execution: &Execution, id: &str, turn: u32) -> Result<String, Refusal> {
    let undeclared = || Refusal::Internal(format!("the elicitation {id} of a2a_conformance is not declared"));
    let found = dependency(execution, Kind::Elicitation, id).ok_or_else(undeclared)?;
    let elicitation = Elicitation { id, spec: &found.question };
    let text = elicitation.message(&[]);
    let ask = if elicitation.is_page() { elicitation.page(text, "") } else { elicitation.form(text, None) };
    let question = Question { id: format!("{id}.{turn}"), ask: ask.ok_or_else(undeclared)? };
    let asked = put(&execution.call, question)
        .map_err(|_| Refusal::MissingCapabilities { required: vec!["elicitation".into()] })?;
    match asked.answered(&execution.call).await? {
        Answer::Accepted(fields) => {
            Ok(fields.get("text").and_then(Value::as_str).unwrap_or_default().to_owned())
        }
        _ => Err(Refusal::Declined("the question was declined".into())),
    }
}

fn message(text: &str) -> Output {
    Output::Tool {
        content: vec![text_block(text).into()],
        structured: None,
        is_error: false,
        meta: Members::from_iter([(REPLY, json!("message"))]),
        more: Members::default(),
    }
}

fn file() -> Output {
    let resource = json!({"uri": FILE_URL, "mimeType": "text/plain", "blob": FILE});
    Output::of_tool(json!({"type": "resource", "resource": resource}), None, false)
}

fn file_url() -> Output {
    let link =
        json!({"type": "resource_link", "uri": FILE_URL, "name": "output.txt", "mimeType": "text/plain"});
    Output::of_tool(link, None, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tck_asks_by_the_id_of_a_message_and_acts_by_its_text() {
        for (message_id, text, expected) in [
            ("tck-complete-task-1f", "Blocking request", Behaviour::Complete),
            ("tck-artifact-file-1f", "TCK artifact test", Behaviour::File),
            ("tck-artifact-file-url-1f", "TCK artifact test", Behaviour::FileUrl),
            ("0191", "tck-cancel start", Behaviour::Endless),
            ("tck-message-response-1f", "tck-cancel start", Behaviour::Message("Direct message response")),
            ("text-message-id-1f", "Hello from TCK!", Behaviour::Until("done")),
            ("0191", "hello", Behaviour::Complete),
            ("", "", Behaviour::Complete),
        ] {
            assert_eq!(behaviour(message_id, text), expected, "{message_id} {text}");
        }
    }

    #[test]
    fn every_prefix_is_reached() {
        for (prefix, expected) in BEHAVIOURS {
            assert_eq!(behaviour(prefix, ""), *expected, "{prefix} is hidden by an earlier one");
        }
    }
}
