//! Questions of a read or a prompt, which end its call: all are asked and answered before it is called again.
//!
//! Keeps true: no worker is held during the questions; an answered question is never asked again, even if the answer
//! is that nobody could be asked; a call asks in at most 16 rounds of 16 questions each, and its answers are bounded.

use asp_call::call::outcome::Refusal;
use asp_proto::plugin::{Asked, Resume};
use futures::StreamExt;
use prost::Message;

use super::super::attempt_state::{AttemptState, Delivery, MAX_ANSWERS};
use super::super::job::Job;
use super::delegation::MAX_OPEN;
use super::{DuplicateQuestion, delegate, elicit};

/// Maximum number of rounds of questions in one call.
const MAX_ROUNDS: u32 = 16;

/// Asks all questions and waits for every answer; the answers are then in `attempt_state.given`.
pub(in super::super) async fn all(
    job: &Job<'_>,
    attempt_state: &mut AttemptState,
    asked: Asked,
) -> Result<(), Refusal> {
    let questions = asked.elicitations.len() + asked.delegations.len();
    attempt_state.rounds += 1;
    if questions == 0 || questions > MAX_OPEN || attempt_state.rounds > MAX_ROUNDS {
        return Err(protocol_refusal("it asks no questions, or too many"));
    }
    let twice = |DuplicateQuestion| protocol_refusal("it asks the same question twice at once");
    for question in asked.elicitations {
        elicit(job, attempt_state, question).map_err(twice)?;
    }
    for question in asked.delegations {
        delegate(job, attempt_state, question).map_err(twice)?;
    }
    let mut given = attempt_state.given.take().unwrap_or_default();
    while let Some(delivery) = attempt_state.waiting.next().await {
        attempt_state.open.remove(&delivery.key());
        keep(&mut given, delivery);
    }
    if given.encoded_len() > MAX_ANSWERS {
        return Err(protocol_refusal("the answers to its questions are too large"));
    }
    attempt_state.given = Some(given);
    if job.call().is_cancelled() { Err(Refusal::Cancelled) } else { Ok(()) }
}

fn keep(given: &mut Resume, delivery: Delivery) {
    match delivery {
        Delivery::Input(input) => given.user_inputs.push(input),
        Delivery::Delegation(result) => given.delegation_results.push(result),
    }
}

fn protocol_refusal(what: &str) -> Refusal {
    Refusal::Upstream(format!("the plugin's questions cannot be answered: {what}"))
}
