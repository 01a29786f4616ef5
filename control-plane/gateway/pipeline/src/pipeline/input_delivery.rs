//! Delivery of a caller's inputs for a call to the gateway that runs it.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::Call;
use asp_call::durable::active::ActiveFault;
use asp_call::durable::active::call_status::BriefStatus;
use asp_call::durable::inbox::CallerInput;
use asp_edge::Caller;
use asp_snapshot::VirtualServer;
use asp_store::records::OwnerId;
use tokio::time::Instant;
use uuid::Uuid;

use crate::pipeline::Pipeline;
use crate::sessions::ReplicaMessage;

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
            CallerInput::Answer { question, answer } => {
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
