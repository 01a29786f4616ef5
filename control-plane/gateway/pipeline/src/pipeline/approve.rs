//! Stage 7: a destructive or high-risk call, or one that a rule asks about, runs only if a human approves it (ADR 1).

use asp_call::call::Call;
use asp_call::call::outcome::{Disapproval, Refusal};
use asp_call::call::question::{Answer, Ask, Question, ask};
use asp_edge::MACHINE_ISSUER;
use serde_json::{Value, json};

/// The one field of the approval form.
const FIELD: &str = "approve";

/// Asks for approval and waits for the answer. A machine is never asked, because it would answer for the person.
pub async fn approve(call: &Call) -> Result<(), Refusal> {
    if call.caller.issuer == MACHINE_ISSUER {
        return Err(Refusal::NotApproved(Disapproval::ByMachine));
    }
    if !call.abilities().elicitation {
        return Err(Refusal::NotApproved(Disapproval::CannotAsk));
    }
    let question = Question {
        id: "asp.approve".into(),
        ask: Ask::Form {
            message: format!("Approve this call of “{}”? {}", title(call), why(call)),
            requested_schema: json!({
                "type": "object",
                "properties": {FIELD: {"type": "boolean", "title": "Approve", "default": false}},
                "required": [FIELD],
            })
            .into(),
            relayed: false,
        },
    };
    match ask(call, question).await? {
        Answer::Accepted(content) if content.get(FIELD) == Some(&Value::Bool(true)) => {
            call.ruling.approve();
            Ok(())
        }
        _ => Err(Refusal::NotApproved(Disapproval::Declined)),
    }
}

/// Returns the title of the primitive, for its caller.
pub(super) fn title(call: &Call) -> &str {
    match call.entry.primitive.title.as_str() {
        "" => call.entry.primitive.id.as_str(),
        title => title,
    }
}

fn why(call: &Call) -> &'static str {
    match call.ruling.get().rule {
        Some(_) => "A rule of your organization requires approval of calls with these arguments.",
        None => "It may change or delete data.",
    }
}
