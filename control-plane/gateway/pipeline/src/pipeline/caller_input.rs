//! Input of a call's caller: answers and cancels, at any gateway that runs the call, and their delivery to that gateway.
//!
//! Owns: the decision whether the call takes the input here, or it is sent to another gateway. Keeps true: an answer
//! and a cancel for another gateway are stored before they are acknowledged (I-13), and go to the gateway that runs the
//! call by then; every protocol cancels and answers in this way.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::question::{Answer, CallerAnswer, wait_until_stored};
use asp_call::call::remote::InputFault;
use asp_call::call::terms::{MAX_WAITS, lifetime_bound};
use asp_call::durable::active::ActiveFault;
use asp_call::durable::active::call_status::BriefStatus;
use asp_call::durable::inbox::CallerInput;
use asp_edge::Caller;
use asp_snapshot::VirtualServer;
use asp_store::records::OwnerId;
use tokio::time::Instant;
use uuid::Uuid;

use super::Pipeline;
use super::lookup::FoundCall;
use crate::sessions::ReplicaMessage;

/// Time within which an answer is stored before its client is informed. Longer than the store may take for one statement.
const STORED_WITHIN: Duration = Duration::from_millis(2500);

impl Pipeline {
    /// Answers a question of a call that runs here, or at another gateway by now: then the answer is stored for that
    /// gateway. False if no such question is open, the answer does not fit, or another one was stored before it. After
    /// an error the question is still open.
    pub async fn answer(
        self: &Arc<Self>,
        call: &Call,
        question: &str,
        answer: impl Into<CallerAnswer>,
    ) -> Result<bool, InputFault> {
        let answer = answer.into();
        if call.ownership.passed_on.is_set() {
            if !call.questions.takes(question, &answer.answer) {
                return Ok(false);
            }
            let CallerAnswer { answer: content, message } = answer.clone();
            let input = CallerInput::Answer { question: question.to_owned(), answer: content, message };
            if !self.store(&input, (call.caller.org.as_str(), call.id), input_expiry(call)).await? {
                // The question has an answer already, which the gateway that runs the call applies.
                call.questions.withdraw(question);
                return Ok(false);
            }
            if !self.running.is_mirror(call) {
                // There is no mirror here that would pass it on.
                tokio::spawn(InputDelivery::of(self, call).deliver(input, true));
            }
            // A stored answer counts, whatever has happened to the question here.
            call.questions.answer(question, answer);
            return Ok(true);
        }
        Ok(call.questions.answer(question, answer))
    }

    /// Returns once an accepted answer is stored where the gateway that takes the call over finds it, and other gateways can
    /// read the events before it. If that takes too long, returns with a warning.
    pub async fn answer_stored(&self, call: &Call, question: &str) {
        if call.ownership.passed_on.is_set() {
            // It is in the call's inbox.
            return;
        }
        let longest = if self.active.is_away() { Duration::ZERO } else { STORED_WITHIN };
        if !wait_until_stored(call, question, longest).await {
            tracing::warn!(call = %call.id, trace = %call.trace, "answer was reported before it was stored, because the store did not answer; if this gateway is lost now, the next one asks the question again: check the store");
        }
        if let Some(publication) = call.ownership.publication() {
            publication.wait_for(call.events.next_number()).await;
        }
    }

    /// Answers several questions in order; those before one that cannot be stored have their answers.
    pub async fn answer_each(
        self: &Arc<Self>,
        call: &Call,
        answers: Vec<(String, Answer)>,
    ) -> Result<(), InputFault> {
        for (question, answer) in answers {
            self.answer(call, &question, answer).await?;
        }
        Ok(())
    }

    /// Cancels a call that runs here, or at another gateway by now: then the cancel is stored for that gateway.
    pub async fn cancel(self: &Arc<Self>, call: &Call) -> Result<(), InputFault> {
        let is_elsewhere = call.ownership.continued.is_set() || call.outcome().is_none();
        if call.ownership.passed_on.is_set() && is_elsewhere {
            self.store(&CallerInput::Cancel, (call.caller.org.as_str(), call.id), input_expiry(call)).await?;
            if !self.running.is_mirror(call) {
                tokio::spawn(InputDelivery::of(self, call).deliver(CallerInput::Cancel, true));
            }
        }
        call.cancel();
        Ok(())
    }

    /// Cancels a call that `caller` has found at `server`, at any gateway that runs it.
    pub async fn cancel_found(
        self: &Arc<Self>,
        found: &FoundCall,
        (caller, server): (&Arc<Caller>, &Arc<VirtualServer>),
    ) -> Result<(), InputFault> {
        let call = match found {
            FoundCall::Here(call) => return self.cancel(call).await,
            FoundCall::Elsewhere(call) => call,
        };
        let deadline = Instant::now() + call.time_left();
        self.store(&CallerInput::Cancel, (caller.org.as_str(), call.id), deadline).await?;
        let (pipeline, caller, server) = (self.clone(), caller.clone(), server.clone());
        let delivery = InputDelivery { pipeline, id: call.id, caller, server, deadline };
        tokio::spawn(delivery.deliver(CallerInput::Cancel, true));
        Ok(())
    }

    /// Stores an input. False if another answer to the same question was stored before.
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
    pub fn handle_message(&self, told: ReplicaMessage) {
        let (call, is_cancel) = match told {
            ReplicaMessage::Answered { call, .. } | ReplicaMessage::Left { call } => (call, false),
            ReplicaMessage::Cancelled { call } => (call, true),
            ReplicaMessage::Ended { .. } | ReplicaMessage::Sent { .. } => return,
        };
        // If the call no longer runs here, the gateway that takes it over reads the inbox.
        let Some(call) = self.registry.find_running(Uuid::from_bytes(call)) else { return };
        if is_cancel {
            // It may not be stored, and only has to be applied.
            call.cancel();
        }
        // Other inputs are in the inbox before the message is sent, and are applied from there, if the call still
        // belongs to this gateway.
        call.ownership.nudge();
    }

    /// Makes the calls that run here read their inboxes, because messages of other gateways may have been lost.
    pub fn look_into_inboxes(&self) {
        for call in self.registry.running().iter().filter(|call| call.ownership.known.is_set()) {
            call.ownership.nudge();
        }
    }
}

/// Returns the time until which a caller's input is kept for a call: as long as any call of its primitive may take from
/// now. The call's deadline is by another gateway's clock, and an applied answer is needed until it is stored with the
/// call.
fn input_expiry(call: &Call) -> Instant {
    call.deadline().max(Instant::now() + lifetime_bound(&call.entry.primitive, MAX_WAITS))
}

/// Time within which a gateway must accept an input: another one has taken the call over by then.
const TOLD_WITHIN: Duration = Duration::from_secs(20);
/// Interval of the attempts.
const TELL_EVERY: Duration = Duration::from_millis(300);

/// Delivery of inputs to the gateway that runs a call. Holds no mirror, whose lifetime depends on its followers.
pub(super) struct InputDelivery {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) id: Uuid,
    pub(super) caller: Arc<Caller>,
    pub(super) server: Arc<VirtualServer>,
    /// The call's deadline.
    pub(super) deadline: Instant,
}

impl InputDelivery {
    pub(super) fn of(pipeline: &Arc<Pipeline>, call: &Call) -> InputDelivery {
        InputDelivery {
            pipeline: pipeline.clone(),
            id: call.id,
            caller: call.caller.clone(),
            server: call.server.clone(),
            deadline: call.deadline(),
        }
    }

    /// Returns the status of the call from its record.
    pub(super) async fn status(&self) -> Result<Option<BriefStatus>, ActiveFault> {
        let of = (&*self.caller, self.server.message.name.as_str());
        self.pipeline.active.brief_status(self.id, of, self.deadline).await
    }

    /// Stores the input if it is not stored yet, and notifies the call's gateway.
    pub(super) async fn deliver(self, input: CallerInput, mut is_stored: bool) {
        let until = Instant::now() + TOLD_WITHIN;
        let call = self.id.into_bytes();
        let told = match &input {
            CallerInput::Answer { question, answer, .. } => {
                ReplicaMessage::Answered { call, question: question.clone(), answer: answer.clone() }
            }
            CallerInput::Cancel => ReplicaMessage::Cancelled { call },
            CallerInput::Left { .. } => ReplicaMessage::Left { call },
        };
        loop {
            if !is_stored {
                let of = (self.caller.org.as_str(), self.id);
                // A departure waits until the previous one of the same gateway was applied.
                is_stored = self.pipeline.store(&input, of, self.deadline).await == Ok(true);
            }
            match self.status().await {
                Ok(Some(BriefStatus::Runs(owner))) => {
                    if let Some(owner) = owner
                        && (is_stored || !told.is_in_inbox())
                        && self.reaches(owner, &told).await
                    {
                        return;
                    }
                }
                // It has ended.
                Ok(Some(BriefStatus::Ended(_)) | None) => return,
                Err(_) => {}
            }
            if Instant::now() >= until {
                // A stored input is read by the gateway that takes the call over, or when the connection to the others
                // is back.
                if !is_stored {
                    tracing::warn!(call = %self.id, "caller's input could not be delivered to the gateway that runs the call, because the store or the bus does not answer; the call waits for it until its deadline");
                }
                return;
            }
            tokio::time::sleep(TELL_EVERY).await;
        }
    }

    async fn reaches(&self, owner: OwnerId, told: &ReplicaMessage) -> bool {
        let Some(replicas) = &self.pipeline.replicas else { return false };
        if owner == replicas.this {
            self.pipeline.handle_message(told.clone());
            return true;
        }
        replicas.tell(vec![owner], told).await.is_ok()
    }
}
