//! The wait of one call for the decision of another person.

use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::event::Event;
use asp_call::call::outcome::{Disapproval, Refusal};
use asp_call::call::question::{self, Answer, Ask, Question};
use asp_store::approvals::{Approval, ApprovalId, ApprovalState, ApprovalStore, ApprovalStoreError};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::approve;

/// Id of the question that shows the wait.
const QUESTION: &str = "asp.approval";
/// Maximum time of one operation on the store.
const STORE_WITHIN: Duration = Duration::from_secs(5);
/// Interval at which a waiting call reads its request again, in case a decision was missed.
const REREAD: Duration = Duration::from_secs(10);
/// Interval after a failed read.
const REREAD_SOON: Duration = Duration::from_secs(1);

/// End of the wait for one request.
pub(super) enum ApprovalEnd {
    Granted,
    /// Another call has used it, or it has expired or was taken back.
    Gone,
}

/// The wait of one call.
pub(super) struct ApprovalWait<'a> {
    pub(super) call: &'a Call,
    pub(super) store: &'a dyn ApprovalStore,
    pub(super) decisions: broadcast::Receiver<ApprovalId>,
    pub(super) until: Instant,
    /// Answer to the question that shows the wait, while it is open.
    pub(super) question: Option<BoxFuture<'a, Result<Answer, Refusal>>>,
    /// Whether the caller knows of the wait.
    pub(super) is_shown: bool,
}

impl ApprovalWait<'_> {
    /// Waits for the decision on a request. A wait that ends without one leaves the request open.
    pub(super) async fn decision(&mut self, id: ApprovalId, group: &str) -> Result<ApprovalEnd, Refusal> {
        let decided = self.poll(id, group).await;
        self.question = None;
        question::take_back(self.call, QUESTION);
        decided
    }

    async fn poll(&mut self, id: ApprovalId, group: &str) -> Result<ApprovalEnd, Refusal> {
        loop {
            let pause = match within(self.store.approval(id)).await {
                Ok(Some(Approval { state: ApprovalState::Approved, .. })) => return Ok(ApprovalEnd::Granted),
                Ok(Some(Approval { state: ApprovalState::Denied, .. })) => {
                    return Err(Refusal::NotApproved(Disapproval::Denied));
                }
                Ok(Some(Approval { state: ApprovalState::Pending, .. })) => REREAD,
                Ok(Some(_) | None) => return Ok(ApprovalEnd::Gone),
                Err(_) => REREAD_SOON,
            };
            self.show(group)?;
            self.wait_for_change(id, pause).await?;
        }
    }

    /// Shows the caller, once, who must approve. A client that cannot be asked gets an event.
    fn show(&mut self, group: &str) -> Result<(), Refusal> {
        if self.is_shown {
            return Ok(());
        }
        self.is_shown = true;
        let call = self.call;
        let message = format!("This call of “{}” waits for approval by {group}.", approve::title(call));
        if !call.abilities().elicitation {
            call.emit(Event::Status { phase: "approval".into(), message: Some(message) });
            return Ok(());
        }
        let requested_schema = json!({"type": "object", "properties": {}}).into();
        let ask = Ask::Form { message, requested_schema, relayed: false };
        let pending = question::put(call, Question { id: QUESTION.into(), ask })?;
        self.question = Some(Box::pin(pending.answered(call)));
        Ok(())
    }

    /// Returns when the request may have been decided, or with the reason why the call waits no longer.
    async fn wait_for_change(&mut self, id: ApprovalId, pause: Duration) -> Result<(), Refusal> {
        let reread = sleep(pause);
        tokio::pin!(reread);
        loop {
            tokio::select! {
                biased;
                () = self.call.cancelled() => return Err(Refusal::Cancelled),
                () = sleep_until(self.call.deadline()) => return Err(Refusal::Deadline),
                () = sleep_until(self.until) => return Err(Refusal::InputExpired),
                answer = next_answer(&mut self.question) => {
                    self.question = None;
                    match answer? {
                        // The caller has seen it, and waits.
                        Answer::Accepted(_) => {}
                        _ => return Err(Refusal::NotApproved(Disapproval::Declined)),
                    }
                }
                decided = self.decisions.recv() => match decided {
                    Ok(other) if other != id => {}
                    // Lagged: decisions were missed.
                    Ok(_) | Err(_) => return Ok(()),
                },
                () = &mut reread => return Ok(()),
            }
        }
    }
}

/// Waits for the answer to an open question; for ever without one.
async fn next_answer(
    question: &mut Option<BoxFuture<'_, Result<Answer, Refusal>>>,
) -> Result<Answer, Refusal> {
    match question {
        Some(answer) => answer.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Runs an operation on the store within [`STORE_WITHIN`].
pub(super) async fn within<T>(
    operation: impl Future<Output = Result<T, ApprovalStoreError>>,
) -> Result<T, ApprovalStoreError> {
    let late = |_| Err(ApprovalStoreError::Unavailable("no answer in time".into()));
    timeout(STORE_WITHIN, operation).await.unwrap_or_else(late)
}
