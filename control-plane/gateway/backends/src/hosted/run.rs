//! One call at its service, from its creation to its end.
//!
//! Keeps true: progress only rises; an answer is sent for the question that it was given to, or not at all; a
//! service's statements about the call are accepted only in the form and the order of docs/http-calls.md.

use std::collections::BTreeMap;
use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::event::{Amount, Event};
use asp_call::call::outcome::{Output, Refusal, after_handover};
use asp_call::call::started::StartGuard;
use asp_call::execution::Execution;
use asp_json::held;
use http::HeaderValue;
use reqwest::StatusCode;
use tokio::time::{Instant, sleep};

use super::resource::{self, CallResource, Progress, Status};
use super::service::{self, Service, ServiceFault, ServiceResponse};
use super::{HostedBackend, asking, outcome};
use crate::delegate::Delegates;
use crate::hosted::cancel::CancelNotice;
use crate::hosted::polling::Backoff;
use crate::outbound::refused::{is_open, may_pass};
use crate::outbound::upstream::unanswered;

/// Maximum number of questions in one call.
const MAX_QUESTIONS: u32 = 64;
/// Maximum number of attempts to send one answer.
const MAX_ADVANCES: u32 = 8;
/// Number of heartbeats after which a silent call counts as wedged (ADR 5).
const HEARTBEATS: u32 = 3;

/// A call while it is at its service.
pub(super) struct HostedCall<'a> {
    execution: &'a Execution,
    service: &'a Service,
    delegates: &'a Delegates,
    started: StartGuard,
    cancel_notice: CancelNotice,
    backoff: Backoff,
    /// Etag of the known state; and the state itself, which detects a change if the service gives no etag.
    etag: Option<HeaderValue>,
    seen: Option<(Status, Option<Progress>)>,
    /// Progress that the caller was shown.
    progress: Option<Amount>,
    questions: u32,
    /// The service was informed that nobody answered in time.
    expired: bool,
    changed: Instant,
}

/// One state of the call, and the etag by which a request refers to it.
struct KnownState {
    resource: CallResource,
    etag: Option<HeaderValue>,
}

/// Result of sending an answer to the service.
enum AnswerDelivery {
    Taken(Box<KnownState>),
    /// The state had changed: the answer was certainly not accepted.
    Stale,
    /// The answer may have been accepted.
    Unsure,
}

impl<'a> HostedCall<'a> {
    pub(super) fn new(
        service: &'a Service,
        execution: &'a Execution,
        calls: &'a HostedBackend,
        started: StartGuard,
    ) -> HostedCall<'a> {
        HostedCall {
            execution,
            service,
            delegates: &calls.delegates,
            started,
            cancel_notice: CancelNotice::new(&execution.call, service, &calls.cancel_notices),
            backoff: Backoff::default(),
            etag: None,
            seen: None,
            progress: None,
            questions: 0,
            expired: false,
            changed: Instant::now(),
        }
    }

    pub(super) async fn run(mut self) -> Result<Output, Refusal> {
        let mut known = self.put().await?;
        loop {
            self.show_progress(&known.resource);
            known = match known.resource.status {
                Status::Submitted | Status::Running => self.next().await?,
                Status::AwaitingElicitationResult | Status::AwaitingSamplingResult => self.ask(known).await?,
                Status::Success | Status::Failed | Status::Canceled => {
                    self.cancel_notice.due = false;
                    return outcome::ended(self.call(), known.resource, self.expired);
                }
            };
        }
    }

    fn call(&self) -> &'a Call {
        &self.execution.call
    }

    /// Creates the call. A repeated request means the same call, so it is sent until it is answered.
    async fn put(&mut self) -> Result<KnownState, Refusal> {
        let call = self.call();
        // A call that was taken over is already at the service, or may be.
        let mut delivered = self.execution.resume_state.is_some();
        loop {
            self.started.mark_sent();
            self.cancel_notice.due = true;
            let retry_after = match self.service.put(&self.execution.arguments).await {
                Ok(answer) if answer.status.is_success() => {
                    if call.ownership.is_stored() {
                        // The service has everything that is needed to continue, and the row says where.
                        call.ownership.resumes.set();
                    }
                    return self.read(answer);
                }
                Ok(answer) if may_pass(answer.status) => {
                    delivered |= is_open(answer.status);
                    answer.retry_after
                }
                // The service already has a call with this id, which this one did not create.
                Ok(answer) if answer.status == StatusCode::CONFLICT => {
                    self.cancel_notice.due = false;
                    return Err(unanswered(call, "the service has another call of this id"));
                }
                // The answer is only about this request: an earlier one may have created the call.
                Ok(answer) if delivered => {
                    let said = format!("the service answered {}", answer.status.as_u16());
                    return Err(unanswered(call, &said));
                }
                Ok(answer) => {
                    self.cancel_notice.due = false;
                    return outcome::refused(call, &answer);
                }
                Err(ServiceFault::Paused(refusal)) if !delivered => {
                    self.cancel_notice.due = false;
                    return Err(refusal);
                }
                Err(ServiceFault::Unproved(unproved)) if !delivered => {
                    self.cancel_notice.due = false;
                    self.started.undelivered();
                    return Err(unproved.refusal);
                }
                Err(ServiceFault::Unproved(unproved)) if !unproved.passes => {
                    return Err(unanswered(call, &unproved.refusal.to_string()));
                }
                Err(ServiceFault::Lost(_)) => {
                    delivered = true;
                    None
                }
                Err(ServiceFault::Paused(_) | ServiceFault::Unproved(_) | ServiceFault::NotDelivered) => None,
            };
            if !delivered {
                self.cancel_notice.due = false;
                self.started.undelivered();
            }
            let Some(pause) = self.backoff.failed(retry_after) else {
                return Err(match delivered {
                    true => unanswered(call, "the service did not answer"),
                    false => Refusal::Upstream("the service could not be reached".into()),
                });
            };
            sleep(pause).await;
        }
    }

    /// Waits for the next state.
    async fn next(&mut self) -> Result<KnownState, Refusal> {
        loop {
            self.check_silence()?;
            sleep(self.backoff.pause()).await;
            if let Some(known) = self.read_state(self.etag.clone()).await? {
                return Ok(known);
            }
        }
    }

    /// Reads the state; `None` if it is still `unless`.
    async fn read_state(&mut self, unless: Option<HeaderValue>) -> Result<Option<KnownState>, Refusal> {
        loop {
            let retry_after = match self.service.get(unless.as_ref()).await {
                Ok(answer) if answer.status.is_success() => return self.read(answer).map(Some),
                Ok(answer) if answer.status == StatusCode::NOT_MODIFIED => {
                    self.backoff.answered(false, answer.retry_after);
                    return Ok(None);
                }
                Ok(answer) if may_pass(answer.status) => answer.retry_after,
                Ok(answer) => return Err(self.unknown_call(&answer)),
                Err(ServiceFault::Unproved(unproved)) if !unproved.passes => {
                    return Err(unanswered(self.call(), &unproved.refusal.to_string()));
                }
                Err(
                    ServiceFault::Paused(_)
                    | ServiceFault::Unproved(_)
                    | ServiceFault::NotDelivered
                    | ServiceFault::Lost(_),
                ) => None,
            };
            self.rest_after_failure(retry_after).await?;
        }
    }

    /// Puts the service's question, and sends it the answer.
    async fn ask(&mut self, known: KnownState) -> Result<KnownState, Refusal> {
        self.questions += 1;
        if self.questions > MAX_QUESTIONS {
            return Err(unanswered(self.call(), "the service asks too many questions"));
        }
        let given = asking::ask(self.execution, self.delegates, &known.resource).await?;
        self.expired = given.expired;
        let body = given.body(known.resource.server_data.as_deref())?;
        let mut etag = known.etag.clone();
        let mut unsure = false;
        for _ in 0..MAX_ADVANCES {
            match self.bring(etag.as_ref(), &body).await? {
                AnswerDelivery::Taken(next) => {
                    // The service has the answer, whichever gateway continues.
                    if let Some(question) = given.question {
                        self.call().questions.note_saved(question);
                    }
                    return Ok(*next);
                }
                AnswerDelivery::Stale => {}
                AnswerDelivery::Unsure => unsure = true,
            }
            let Some(next) = self.read_state(None).await? else {
                return Err(unanswered(self.call(), "the service reports no state of the call"));
            };
            // If the answer may have been accepted, an identical question is a new one.
            let same = is_same_question(&known.resource, &next.resource)
                && (!unsure || (etag.is_some() && next.etag == etag));
            if !same {
                return Ok(next);
            }
            etag = next.etag;
        }
        Err(unanswered(self.call(), "the service did not accept an answer"))
    }

    async fn bring(&mut self, etag: Option<&HeaderValue>, body: &[u8]) -> Result<AnswerDelivery, Refusal> {
        let (brought, retry_after) = match self.service.advance(etag, body.to_vec()).await {
            Ok(answer) if answer.status.is_success() => {
                return self.read(answer).map(Box::new).map(AnswerDelivery::Taken);
            }
            Ok(answer) if matches!(answer.status, StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT) => {
                return Ok(AnswerDelivery::Stale);
            }
            Ok(answer) if answer.status == StatusCode::TOO_MANY_REQUESTS => {
                (AnswerDelivery::Stale, answer.retry_after)
            }
            Ok(answer) if is_open(answer.status) => (AnswerDelivery::Unsure, answer.retry_after),
            Ok(answer) => return Err(self.unknown_call(&answer)),
            Err(ServiceFault::Unproved(unproved)) if !unproved.passes => {
                return Err(unanswered(self.call(), &unproved.refusal.to_string()));
            }
            Err(ServiceFault::Paused(_) | ServiceFault::Unproved(_) | ServiceFault::NotDelivered) => {
                (AnswerDelivery::Stale, None)
            }
            Err(ServiceFault::Lost(_)) => (AnswerDelivery::Unsure, None),
        };
        self.rest_after_failure(retry_after).await?;
        Ok(brought)
    }

    /// Reads an answer that should contain the call.
    fn read(&mut self, answer: ServiceResponse) -> Result<KnownState, Refusal> {
        let read = match held::is_too_much(&answer.body) {
            true => Err(resource::Misfit::TooLarge("result")),
            false => resource::parse(&answer.body),
        };
        let resource = read.map_err(|misfit| {
            self.call().note_failure_cause(format_args!(
                "the service's answer is not a call resource (docs/http-calls.md): {misfit}"
            ));
            unanswered(self.call(), "the service's answer is not a call")
        })?;
        if resource.id.as_ref().is_some_and(|id| *id != self.call().id.to_string()) {
            return Err(unanswered(self.call(), "the service answered for another call"));
        }
        let etag = service::etag(resource.etag.as_deref(), answer.etag);
        let seen = Some((resource.status, resource.progress.clone()));
        let new = if etag.is_some() { etag != self.etag } else { seen != self.seen };
        self.seen = seen;
        self.backoff.answered(new, answer.retry_after);
        if new {
            self.changed = Instant::now();
        }
        self.etag.clone_from(&etag);
        Ok(KnownState { resource, etag })
    }

    async fn rest_after_failure(&mut self, retry_after: Option<Duration>) -> Result<(), Refusal> {
        match self.backoff.failed(retry_after) {
            Some(pause) => sleep(pause).await,
            None => return Err(unanswered(self.call(), "the service did not answer")),
        }
        Ok(())
    }

    /// Returns the refusal of a call whose state the service no longer reports.
    fn unknown_call(&mut self, answer: &ServiceResponse) -> Refusal {
        if matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            self.cancel_notice.due = false;
            return unanswered(self.call(), "the service no longer knows the call");
        }
        unanswered(self.call(), &format!("the service answered {}", answer.status.as_u16()))
    }

    /// Ends a task whose spec declares a heartbeat, if its service was silent for three of them.
    fn check_silence(&self) -> Result<(), Refusal> {
        let heartbeat = Duration::from_secs(self.call().entry.primitive.heartbeat_seconds.into());
        if !heartbeat.is_zero() && self.changed.elapsed() > heartbeat * HEARTBEATS {
            self.call().note_failure_cause("the service was silent for three of its heartbeats");
            return Err(after_handover(self.call(), Refusal::Deadline));
        }
        Ok(())
    }

    fn show_progress(&mut self, resource: &CallResource) {
        let Some(said) = &resource.progress else { return };
        let Some(progress) = Amount::of(&said.progress) else { return };
        // MCP: the value must rise with each notification.
        if self.progress.as_ref().is_some_and(|shown| !progress.is_above(shown)) {
            return;
        }
        self.progress = Some(progress.clone());
        self.call().emit(Event::Progress {
            progress,
            total: said.total.as_ref().and_then(Amount::of),
            message: said.message.clone(),
            gauges: BTreeMap::new(),
        });
    }
}

fn is_same_question(before: &CallResource, now: &CallResource) -> bool {
    let data = |resource: &CallResource| resource.server_data.as_ref().map(|data| data.get().to_owned());
    before.status == now.status && before.asked == now.asked && data(before) == data(now)
}
