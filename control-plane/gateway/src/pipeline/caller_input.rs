//! Input of a call's caller: answers and cancels, at whichever gateway the call runs.
//!
//! Owns: the decision whether the call takes the input here, or its gateway is told of it. Keeps true: an answer and a cancel for
//! another gateway are stored before their caller is told that they were taken (I-13), and go to the gateway that runs the call by
//! then; every protocol cancels and answers by this way.

use std::sync::Arc;

use asp_edge::Caller;
use asp_snapshot::VirtualServer;
use tokio::time::Instant;
use uuid::Uuid;

use super::Pipeline;
use super::lookup::Found;
use super::telling::Telling;
use crate::call::Call;
use crate::call::bounds::lifetime_bound;
use crate::call::question::Answer;
use crate::call::remote::InputFault;
use crate::durable::inbox::CallerInput;
use crate::sessions::Told;

impl Pipeline {
    /// Answers a question of a call that runs here, or is another gateway's by now: then the answer is stored for that gateway.
    /// False if no such question is open, the answer is none to it, or another one was stored before it. After an error the question
    /// is open as before.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        call: &Call,
        question: &str,
        answer: Answer,
    ) -> Result<bool, InputFault> {
        if call.ownership.is_passed_on() {
            if !call.questions.takes(question, &answer) {
                return Ok(false);
            }
            let input = CallerInput::Answer { question: question.to_owned(), answer: answer.clone() };
            if !self.store(&input, (call.caller.org.as_str(), call.id), kept_until(call)).await? {
                // It has its answer, which the gateway that runs the call applies.
                call.questions.withdraw(question);
                return Ok(false);
            }
            if !self.running.is_mirror(call) {
                // Nobody who waits for it here passes it on.
                tokio::spawn(Telling::of(self, call).tell(input, true));
            }
            // What is stored is taken, whatever became of the question here.
            call.questions.answer(question, answer);
            return Ok(true);
        }
        Ok(call.questions.answer(question, answer))
    }

    /// The same for several questions; those before one that is not stored have their answers.
    pub(crate) async fn answer_each(
        self: &Arc<Self>,
        call: &Call,
        answers: Vec<(String, Answer)>,
    ) -> Result<(), InputFault> {
        for (question, answer) in answers {
            self.answer(call, &question, answer).await?;
        }
        Ok(())
    }

    /// Asks a call to end that runs here, or is another gateway's by now: then that is stored for that gateway.
    pub(crate) async fn cancel(self: &Arc<Self>, call: &Call) -> Result<(), InputFault> {
        let is_elsewhere = call.ownership.is_continued_elsewhere() || call.outcome().is_none();
        if call.ownership.is_passed_on() && is_elsewhere {
            self.store(&CallerInput::Cancel, (call.caller.org.as_str(), call.id), kept_until(call)).await?;
            if !self.running.is_mirror(call) {
                tokio::spawn(Telling::of(self, call).tell(CallerInput::Cancel, true));
            }
        }
        call.cancel();
        Ok(())
    }

    /// Asks a call to end that `caller` has found at `server`, at whichever gateway it runs.
    pub(crate) async fn cancel_found(
        self: &Arc<Self>,
        found: &Found,
        (caller, server): (&Arc<Caller>, &Arc<VirtualServer>),
    ) -> Result<(), InputFault> {
        let call = match found {
            Found::Here(call) => return self.cancel(call).await,
            Found::Elsewhere(call) => call,
        };
        let deadline = Instant::now() + call.left();
        self.store(&CallerInput::Cancel, (caller.org.as_str(), call.id), deadline).await?;
        let (pipeline, caller, server) = (self.clone(), caller.clone(), server.clone());
        let telling = Telling { pipeline, id: call.id, caller, server, deadline };
        tokio::spawn(telling.tell(CallerInput::Cancel, true));
        Ok(())
    }

    /// False if another answer to the same question was stored before.
    pub(super) async fn store(
        &self,
        input: &CallerInput,
        of: (&str, Uuid),
        deadline: Instant,
    ) -> Result<bool, InputFault> {
        let left = deadline.saturating_duration_since(Instant::now());
        let inboxes = self.active.inboxes().ok_or(InputFault::Unavailable)?;
        inboxes.put(of, left, input).await
    }

    /// Applies a message of another gateway about a call that runs here.
    pub(crate) fn heard(&self, told: Told) {
        let (call, is_cancel) = match told {
            Told::Answered { call, .. } | Told::Left { call } => (call, false),
            Told::Cancelled { call } => (call, true),
            Told::Ended { .. } | Told::Sent { .. } => return,
        };
        // The gateway that takes over a call which runs here no more reads the inbox.
        let Some(call) = self.registry.find_running(Uuid::from_bytes(call)) else { return };
        if is_cancel {
            // It may not be stored, and needs no more than to be applied.
            call.cancel();
        }
        // The rest is in the inbox before it is passed on, and is applied from there, where the call is still this gateway's.
        call.ownership.nudge();
    }

    /// Messages of other gateways may have been lost: the calls that run here look into their inboxes.
    pub(crate) fn look_into_inboxes(&self) {
        for call in self.registry.running().iter().filter(|call| call.ownership.is_told()) {
            call.ownership.nudge();
        }
    }
}

/// Returns the time until which a caller's input is kept for a call: as long as any call of its primitive may take from now. The call's
/// deadline is by another gateway's clock, and an applied answer is needed until it is stored with the call.
fn kept_until(call: &Call) -> Instant {
    call.deadline().max(Instant::now() + lifetime_bound(&call.entry.primitive, true))
}
