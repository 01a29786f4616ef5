//! One call at its agent, from its first message to its end.
//!
//! Keeps true: a message is sent once, unless it was certainly not delivered; a lost stream is opened again and the task is read
//! in between, so that its end is not missed; an answer is sent for the question that it was given to.

use std::time::Duration;

use asp_a2a::{
    A2aAnswer, A2aError, A2aFailure, Message, Operation, SendConfiguration, SendRequest, SendResult,
    StreamEvent, TaskState,
};
use asp_call::call::Call;
use asp_call::call::lineage::{LINEAGE, Lineage};
use asp_call::call::outcome::{Output, Refusal};
use asp_call::call::question::{self, Answer, PendingQuestion, Question};
use asp_call::call::started::StartGuard;
use asp_call::execution::Execution;
use asp_json::{Json, Members};
use asp_outbound::service_text::sanitize;
use asp_proto::snapshot::ProxyA2a;
use reqwest::StatusCode;
use tokio::time::sleep;

use super::agent::{Agent, AgentFault, EventStream, StreamAnswer};
use super::asking::{AgentQuestion, UndeclaredPage};
use super::cancel::CancelNotice;
use super::task::RemoteTask;
use super::{content, message};
use crate::conversation::asking::put;
use crate::outbound::refused::{Meaning, by_status};
use crate::outbound::upstream::unanswered;

/// Maximum number of questions in one call.
const MAX_QUESTIONS: u32 = 64;
/// Pause before a task is read again after a change; it grows by half after each reading without one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Consecutive failures to read a task after which it is given up: about half a minute, the time of a restart.
const MAX_FAILURES: u32 = 20;

/// A call while it is at its agent.
pub(super) struct AgentCall<'a> {
    execution: &'a Execution,
    target: &'a ProxyA2a,
    agent: &'a Agent,
    started: StartGuard,
    cancel_notice: CancelNotice,
    /// Metadata of every message: the agents that the call came through.
    lineage: Json,
    task: RemoteTask,
    /// Stream of the task's changes; without one it is polled.
    stream: Option<EventStream>,
    has_streams: bool,
    /// Whether changes may have been missed.
    was_cut: bool,
    questions: u32,
    /// Id of the agent's message with the question that was answered last.
    answered: Option<String>,
    pause: Duration,
    failures: u32,
}

impl<'a> AgentCall<'a> {
    pub(super) fn new(
        execution: &'a Execution,
        target: &'a ProxyA2a,
        agent: &'a Agent,
        (started, cancel_notice, lineage): (StartGuard, CancelNotice, Lineage),
    ) -> AgentCall<'a> {
        AgentCall {
            execution,
            target,
            agent,
            started,
            cancel_notice,
            lineage: Members::from_iter([(LINEAGE, lineage.to_json())]).to_json(),
            task: RemoteTask::default(),
            stream: None,
            has_streams: !target.without_streams,
            was_cut: false,
            questions: 0,
            answered: None,
            pause: FIRST_PAUSE,
            failures: 0,
        }
    }

    pub(super) async fn run(mut self) -> Result<Output, Refusal> {
        let opening = message::opening(self.call(), self.target, &self.execution.arguments);
        if let Err(fault) = self.send(opening).await {
            return Err(self.not_begun(fault));
        }
        loop {
            self.cancel_notice.task.clone_from(&self.task.id);
            if self.task.has_ended() {
                break;
            }
            if self.asks() {
                if let Some(unanswerable) = self.ask().await? {
                    return Ok(unanswerable);
                }
            } else {
                self.next().await?;
            }
        }
        if self.was_cut && self.task.id.is_some() {
            self.refresh().await?;
        }
        self.cancel_notice.task = None;
        ended(self.call(), self.task)
    }

    fn call(&self) -> &'a Call {
        &self.execution.call
    }

    /// Sends a message. Its answer is a stream if the agent has streams.
    async fn send(&mut self, message: Message) -> Result<(), AgentFault> {
        let request = SendRequest {
            message,
            configuration: SendConfiguration {
                history_length: Some(0),
                return_immediately: true,
                ..SendConfiguration::default()
            },
            metadata: Some(self.lineage.clone()),
        };
        if self.has_streams {
            match self.agent.stream(Operation::Stream(request.clone())).await {
                Ok(answer) => return self.take_answer(answer),
                Err(AgentFault::Refused { failure, .. }) if self.is_without_streams(&failure) => {
                    self.has_streams = false;
                }
                Err(fault) => return Err(fault),
            }
        }
        match self.agent.ask(Operation::Send(request)).await? {
            A2aAnswer::Sent(result) => self.take_answer(StreamAnswer::Whole(result)),
            _ => Err(AgentFault::Lost("the agent's answer is neither a task nor a message".into())),
        }
    }

    /// Whether the agent refused a stream because it has none.
    fn is_without_streams(&self, failure: &A2aFailure) -> bool {
        match failure.error {
            A2aError::UnsupportedOperation | A2aError::MethodNotFound => true,
            // The status of a path that does not exist.
            A2aError::TaskNotFound => self.task.id.is_none(),
            _ => false,
        }
    }

    fn take_answer(&mut self, answer: StreamAnswer) -> Result<(), AgentFault> {
        match answer {
            StreamAnswer::Events(stream) => {
                self.stream = Some(stream);
                Ok(())
            }
            StreamAnswer::Whole(result) => {
                self.stream = None;
                let event = match result {
                    SendResult::Task(task) => StreamEvent::Task(task),
                    SendResult::Message(message) => StreamEvent::Message(message),
                };
                self.task.take(event, self.call()).map_err(|refusal| AgentFault::Lost(refusal.to_string()))
            }
        }
    }

    /// Returns the refusal of a call whose first message was not accepted.
    fn not_begun(&mut self, fault: AgentFault) -> Refusal {
        match fault {
            AgentFault::NotSent(refusal) => {
                self.started.undelivered();
                refusal
            }
            AgentFault::Refused { failure, wait } => meaning(&failure, wait).of(self.call()),
            AgentFault::Lost(why) => unanswered(self.call(), &why),
        }
    }

    /// Waits for one more event, or reads the task.
    async fn next(&mut self) -> Result<(), Refusal> {
        let Some(stream) = &mut self.stream else {
            self.rest().await;
            return self.refresh().await;
        };
        match stream.next().await {
            Ok(Some(event)) => {
                self.pause = FIRST_PAUSE;
                self.failures = 0;
                self.task.take(event, self.call())
            }
            Ok(None) | Err(_) => {
                self.stream = None;
                self.was_cut = true;
                self.resume().await
            }
        }
    }

    /// Opens the stream of the task again, and reads what it missed.
    async fn resume(&mut self) -> Result<(), Refusal> {
        let Some(id) = self.task.id.clone() else {
            return Err(unanswered(self.call(), "the agent ended its stream without a task"));
        };
        self.rest().await;
        if self.has_streams {
            match self.agent.stream(Operation::Subscribe { id }).await {
                Ok(answer) => {
                    // An answer that cannot be kept is read again below.
                    let _ = self.take_answer(answer);
                }
                // An ended task has no stream either, so the agent may have others.
                Err(AgentFault::Refused { failure, .. }) if failure.error == A2aError::MethodNotFound => {
                    self.has_streams = false;
                }
                Err(_) => {}
            }
        }
        self.refresh().await
    }

    /// Reads the task.
    async fn refresh(&mut self) -> Result<(), Refusal> {
        let Some(id) = self.task.id.clone() else {
            return Err(unanswered(self.call(), "the agent's answer names no task"));
        };
        let before = self.task.mark();
        match self.agent.ask(Operation::GetTask { id, history_length: Some(0) }).await {
            Ok(A2aAnswer::Task(task)) => {
                self.failures = 0;
                self.task.take_task(task, self.call())?;
                if self.task.mark() != before {
                    self.pause = FIRST_PAUSE;
                }
                Ok(())
            }
            // What the stream said of the end is all that there is.
            Ok(_) | Err(_) if self.task.has_ended() => Ok(()),
            Err(AgentFault::Refused { failure, .. }) if failure.error == A2aError::TaskNotFound => {
                self.cancel_notice.task = None;
                Err(unanswered(self.call(), "the agent no longer knows the task"))
            }
            Ok(_) | Err(_) => {
                self.failures += 1;
                match self.failures > MAX_FAILURES {
                    true => Err(unanswered(self.call(), "the agent did not answer")),
                    false => Ok(()),
                }
            }
        }
    }

    async fn rest(&mut self) {
        sleep(self.pause).await;
        self.pause = (self.pause * 3 / 2).min(LONGEST_PAUSE);
    }

    /// Whether the task waits for an answer that was not sent yet.
    fn asks(&self) -> bool {
        let status = &self.task.status;
        let message = status.message.as_ref().map(|message| &message.message_id);
        let is_answered = message.is_some_and(|id| !id.is_empty() && self.answered.as_ref() == Some(id));
        status.state.is_interrupted() && !is_answered
    }

    /// Puts the agent's question, and sends it the answer. Returns the output of a call whose question cannot be put.
    async fn ask(&mut self) -> Result<Option<Output>, Refusal> {
        self.questions += 1;
        if self.questions > MAX_QUESTIONS {
            return Err(unanswered(self.call(), "the agent asks too many questions"));
        }
        let call = self.call();
        let asked = match AgentQuestion::read(&self.task.status, &self.target.pages) {
            Ok(asked) => asked,
            Err(UndeclaredPage) => {
                let why = "the agent requires its user to sign in at a page that the spec of this tool does not \
                           declare (runtime.a2a.pages)";
                return Ok(Some(Output::tool_error(why)));
            }
        };
        let id = format!("agent.{}", self.questions);
        let Ok(pending) = put(call, Question { id: id.clone(), ask: asked.ask.clone() }) else {
            let text = asked.text();
            return Ok(Some(Output::tool_error(&format!(
                "the agent asks: {text}\nThis client cannot answer questions; call again with arguments that answer it"
            ))));
        };
        if let Some(answer) = self.answered(pending, &id).await? {
            self.reply(&asked, &answer).await?;
        }
        Ok(None)
    }

    /// Waits for the answer; `None` if the task goes on without it, as after a sign-in elsewhere, or asks something else.
    async fn answered(&mut self, pending: PendingQuestion, id: &str) -> Result<Option<Answer>, Refusal> {
        let call = self.call();
        let asked = self.task.status.message.as_ref().map(|message| message.parts.clone());
        let answering = pending.answered(call);
        tokio::pin!(answering);
        while self.task.status.state.is_interrupted() {
            let Some(stream) = &mut self.stream else {
                if self.task.status.state == TaskState::InputRequired {
                    return answering.await.map(Some);
                }
                tokio::select! {
                    answered = &mut answering => return answered.map(Some),
                    () = sleep(LONGEST_PAUSE) => {}
                }
                self.refresh().await?;
                continue;
            };
            tokio::select! {
                answered = &mut answering => return answered.map(Some),
                event = stream.next() => match event {
                    Ok(Some(event)) => {
                        self.task.take(event, call)?;
                        let now = self.task.status.message.as_ref().map(|message| &message.parts);
                        if now.is_some() && now != asked.as_ref() {
                            // What is answered now would be taken for the answer to another question.
                            break;
                        }
                    }
                    // Agents may end a stream while they wait; the answer opens another one.
                    Ok(None) | Err(_) => self.stream = None,
                },
            }
        }
        question::take_back(call, id);
        Ok(None)
    }

    /// Sends an answer. One that does not fit the question is asked for again.
    async fn reply(&mut self, asked: &AgentQuestion, answer: &Answer) -> Result<(), Refusal> {
        let (part, metadata) = asked.answer(answer);
        let message = Message {
            task_id: self.task.id.clone(),
            context_id: self.task.context.clone(),
            ..message::answer(self.call(), self.questions, part, &metadata)
        };
        let before = self.task.status.clone();
        self.answered = before.message.as_ref().map(|message| message.message_id.clone());
        self.task.status.state = TaskState::Working;
        match self.send(message).await {
            Ok(()) => Ok(()),
            Err(AgentFault::Refused { failure, .. }) if failure.error == A2aError::InvalidParams => {
                self.answered = None;
                self.task.status = before;
                Ok(())
            }
            Err(AgentFault::Refused { failure, .. }) => {
                let why = format!("the agent refused an answer: {}", sanitize(&failure.message));
                Err(unanswered(self.call(), &why))
            }
            Err(AgentFault::NotSent(refusal)) => Err(unanswered(self.call(), &refusal.to_string())),
            Err(AgentFault::Lost(why)) => Err(unanswered(self.call(), &why)),
        }
    }
}

/// Returns the meaning of an agent's refusal to begin a task.
fn meaning(failure: &A2aFailure, wait: Option<Duration>) -> Meaning {
    let said = sanitize(&failure.message);
    match failure.error {
        A2aError::InvalidParams => {
            let fields = failure
                .violations
                .first()
                .map(|violation| format!(" ({})", sanitize(&violation.to_string())));
            by_status(StatusCode::BAD_REQUEST, wait, format!("{said}{}", fields.unwrap_or_default()))
        }
        A2aError::Parse
        | A2aError::InvalidRequest
        | A2aError::MethodNotFound
        | A2aError::UnsupportedOperation
        | A2aError::ContentTypeNotSupported
        | A2aError::ExtensionSupportRequired
        | A2aError::VersionNotSupported => {
            Meaning::Refused(Refusal::Declined(format!("the agent does not accept the message: {said}")))
        }
        other => {
            let status = StatusCode::from_u16(other.http_status());
            by_status(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), wait, said)
        }
    }
}

/// Returns the outcome of a call whose task has ended.
fn ended(call: &Call, task: RemoteTask) -> Result<Output, Refusal> {
    let state = task.status.state;
    let (parts, metadata) = task.into_result();
    let id = call.id.to_string();
    match state {
        TaskState::Failed if parts.is_empty() => Ok(Output::tool_error("the agent's task failed")),
        TaskState::Failed => Ok(content::output(&id, &parts, metadata.as_ref(), true)),
        TaskState::Rejected => {
            let said = sanitize(&content::text(&parts));
            let why = if said.is_empty() { "it gives no reason".to_owned() } else { said };
            Err(Refusal::Declined(format!("the agent rejected the task: {why}")))
        }
        TaskState::Canceled if call.is_cancelled() => Err(Refusal::Cancelled),
        TaskState::Canceled => Err(unanswered(call, "the agent cancelled the task")),
        _ => Ok(content::output(&id, &parts, metadata.as_ref(), false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_whether_anything_was_done() {
        let of = |error: A2aError| meaning(&A2aFailure::new(error, "no such day"), None);
        for (error, expected) in [
            (A2aError::InvalidParams, "arguments: no such day"),
            (A2aError::VersionNotSupported, "the agent does not accept the message: no such day"),
            (A2aError::Unauthenticated, "the service does not accept calls of this platform"),
        ] {
            let Meaning::Refused(refusal) = of(error) else { panic!("{error:?}") };
            assert_eq!(refusal.public_message(), expected);
        }
        for error in [A2aError::Internal, A2aError::Unavailable, A2aError::DeadlineExceeded] {
            assert!(matches!(of(error), Meaning::Open(_)), "{error:?}");
        }
        let failure = A2aFailure::invalid_field("message.parts", "is required");
        let Meaning::Refused(refusal) = meaning(&failure, None) else { panic!("{failure:?}") };
        assert!(refusal.public_message().contains("(message.parts: is required)"), "{refusal}");
    }
}
