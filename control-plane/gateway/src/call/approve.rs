//! Stage 7: a human approves a destructive or high-risk call, or it does not run (design §6).

use std::time::Duration;

use serde_json::{Value, json};

use super::outcome::{Disapproval, Refusal};
use super::question::{Answer, Question};
use super::{Call, State};

/// How long a question stays open when the spec does not say (design §5).
const DEFAULT_INPUT_TIMEOUT: Duration = Duration::from_secs(300);
/// The one field of the approval form.
const FIELD: &str = "approve";

/// Asks for approval and waits for the answer.
pub async fn approve(call: &Call) -> Result<(), Refusal> {
    if !call.abilities.elicitation {
        return Err(Refusal::NotApproved(Disapproval::CannotAsk));
    }
    let title = match call.entry.primitive.title.as_str() {
        "" => call.entry.primitive.id.as_str(),
        title => title,
    };
    let question = Question {
        id: "asp.approve".into(),
        message: format!("Approve this call of “{title}”? It may change or delete data."),
        requested_schema: json!({
            "type": "object",
            "properties": {FIELD: {"type": "boolean", "title": "Approve", "default": false}},
            "required": [FIELD],
        }),
    };
    match ask(call, question).await? {
        Answer::Accepted(content) if content.get(FIELD) == Some(&Value::Bool(true)) => Ok(()),
        Answer::Accepted(_) | Answer::Declined | Answer::Cancelled => {
            Err(Refusal::NotApproved(Disapproval::Declined))
        }
    }
}

/// Asks the caller something and waits: until the answer, the input timeout, the deadline or a cancel.
pub async fn ask(call: &Call, question: Question) -> Result<Answer, Refusal> {
    let id = question.id.clone();
    let Some(answer) = call.questions.open(question.clone()) else {
        return Err(Refusal::Internal("too many questions are open".into()));
    };
    call.enter(State::InputRequired);
    call.emit(super::event::Event::Asked(question));
    let timeout = match call.entry.primitive.input_timeout_seconds {
        0 => DEFAULT_INPUT_TIMEOUT,
        seconds => Duration::from_secs(u64::from(seconds)),
    };
    let answered = tokio::select! {
        answered = answer => answered.map_err(|_| Refusal::Cancelled),
        () = tokio::time::sleep(timeout) => Err(Refusal::InputExpired),
        () = tokio::time::sleep_until(call.deadline) => Err(Refusal::Deadline),
        () = call.cancelled() => Err(Refusal::Cancelled),
    };
    call.questions.withdraw(&id);
    call.enter(State::Working);
    answered
}
