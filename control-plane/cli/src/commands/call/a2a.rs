//! A skill over A2A 1.0, by JSON-RPC: a stream, and a message for each answer.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use asp_a2a::jsonrpc::{AnswerFault, decode_answer, decode_event, encode_request};
use asp_a2a::rest::encode_answer;
use asp_a2a::version::VERSION_HEADER;
use asp_a2a::{
    A2aAnswer, Generation, Message, Operation, OperationKind, Part, PartContent, Request, Role, SendRequest,
    SendResult, StreamEvent, Task, TaskArtifactUpdate, TaskState, TaskStatus,
};
use asp_command::print;
use asp_json::Json;
use asp_mcp_client::client::is_event_stream;
use asp_platform::event_stream::Frames;
use reqwest::Response;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::question::{self, QuestionReply};
use super::result::{CallResult, Piece};
use super::{CallInput, CallTarget};

/// Maximum size in bytes of an answer, and of an event.
const MAX_ANSWER: usize = 16 << 20;
/// Longest silence of the agent: a stream without events has comments.
const SILENCE: Duration = Duration::from_secs(60);
/// Member of a message's metadata that names the skill.
const SKILL: &str = "skill";
/// Member of a question's data, and of the answer's metadata, that names the question.
const QUESTION: &str = "questionId";

/// Calls the skill; ends once the server has accepted a cancel.
pub(super) async fn call(
    target: &CallTarget,
    input: CallInput,
    stopped: &CancellationToken,
) -> anyhow::Result<CallResult> {
    let mut agent = AgentCall::new(target);
    let first = agent.first_message(input);
    let ended = tokio::select! {
        ended = agent.run(first) => Some(ended),
        () = stopped.cancelled() => None,
    };
    match ended {
        Some(ended) => ended.map(|()| agent.result()),
        None => {
            agent.cancel().await?;
            bail!("cancelled")
        }
    }
}

/// A task, as far as its events have been read.
struct AgentCall<'t> {
    target: &'t CallTarget,
    /// Task as its events made it; its id is empty until the agent has sent one.
    task: Task,
    /// Answer of an agent that makes no task of the message.
    reply: Option<Message>,
    /// Id of the question that was answered last.
    answered: Option<String>,
    /// Text of the status that was shown last.
    shown: String,
}

impl<'t> AgentCall<'t> {
    fn new(target: &'t CallTarget) -> AgentCall<'t> {
        AgentCall { target, task: Task::default(), reply: None, answered: None, shown: String::new() }
    }

    fn first_message(&self, input: CallInput) -> Message {
        let content = match input {
            CallInput::Arguments(arguments) => PartContent::Data(arguments),
            CallInput::Text(text) => PartContent::Text(text),
        };
        let metadata = Json::from(json!({SKILL: self.target.name}));
        Message { metadata: Some(metadata), ..message(content) }
    }

    /// Sends the message, and the answer to each question, until the task has ended.
    async fn run(&mut self, first: Message) -> anyhow::Result<()> {
        let mut message = first;
        loop {
            self.follow(message).await?;
            if !self.asks() {
                return Ok(());
            }
            message = self.answer().await;
        }
    }

    /// Sends a message and reads the events that it causes, until the agent asks something or ends the stream.
    async fn follow(&mut self, message: Message) -> anyhow::Result<()> {
        let operation = Operation::Stream(SendRequest { message, ..SendRequest::default() });
        let mut response = self.post(operation).await?;
        if !is_event_stream(&response) {
            let status = response.status();
            let body = body(response).await?;
            // An agent that streams nothing answers as to a message; a refusal is never a stream.
            return match decode_answer(OperationKind::Send, Generation::V10, &body) {
                Ok(A2aAnswer::Sent(SendResult::Task(task))) => self.take_task(task),
                Ok(A2aAnswer::Sent(SendResult::Message(reply))) => {
                    self.reply = Some(reply);
                    Ok(())
                }
                Err(AnswerFault::Invalid(_)) if !status.is_success() => {
                    bail!("{} answered {} without a message", self.target.url, status.as_u16())
                }
                Err(fault) => Err(refusal(fault)),
                Ok(_) => bail!("the agent's answer is of another operation"),
            };
        }
        let mut frames = Frames::bounded(MAX_ANSWER);
        loop {
            let chunk = tokio::time::timeout(SILENCE, response.chunk()).await;
            let Ok(Ok(Some(chunk))) = chunk else { break };
            for event in frames.push(&chunk)? {
                self.take(decode_event(Generation::V10, event.as_bytes()).map_err(refusal)?);
                if self.asks() {
                    return Ok(());
                }
            }
        }
        if self.reply.is_some() || self.task.status.state.is_terminal() {
            return Ok(());
        }
        if self.task.id.is_empty() {
            bail!("{}: the connection was lost; the call may have taken effect", self.target.url);
        }
        bail!("{}: the connection was lost; task {} continues", self.target.url, self.task.id)
    }

    fn take_task(&mut self, task: Task) -> anyhow::Result<()> {
        self.take(StreamEvent::Task(task));
        let state = self.task.status.state;
        if self.asks() || state.is_terminal() {
            return Ok(());
        }
        bail!("the agent does not stream, and task {} has not ended", self.task.id)
    }

    /// Takes an event over.
    fn take(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::Message(reply) => self.reply = Some(reply),
            StreamEvent::Task(task) => self.task = task,
            StreamEvent::Status(update) => {
                self.task.id = update.task_id;
                self.task.context_id = update.context_id;
                self.task.status = update.status;
            }
            StreamEvent::Artifact(update) => add(&mut self.task, update),
        }
        let TaskStatus { state, message, .. } = &self.task.status;
        let text = message.as_ref().map(text_of).unwrap_or_default();
        if *state == TaskState::Working && !text.is_empty() && text != self.shown {
            print::note(&text);
            self.shown = text;
        }
    }

    /// Whether the task waits for an answer that was not given yet. A question without an id is at another gateway.
    fn asks(&self) -> bool {
        let id = self.question().id;
        self.task.status.state.is_interrupted() && id.is_some() && id != self.answered
    }

    fn question(&self) -> TaskQuestion {
        TaskQuestion::read(self.task.status.message.as_ref())
    }

    /// Asks the person and returns the answer.
    async fn answer(&mut self) -> Message {
        let TaskQuestion { id, text, schema, page } = self.question();
        let reply = match page {
            Some(page) => question::ask_page(text, page).await,
            None => question::ask_form(text, schema).await,
        };
        let (content, action) = match reply {
            QuestionReply::Accepted(fields) => (PartContent::Data(Value::Object(fields).into()), "accept"),
            QuestionReply::Visited => (PartContent::Text("accept".to_owned()), "accept"),
            QuestionReply::Declined => (PartContent::Text("decline".to_owned()), "decline"),
        };
        let metadata = json!({QUESTION: id, "action": action});
        self.answered = id;
        Message {
            task_id: Some(self.task.id.clone()),
            context_id: Some(self.task.context_id.clone()).filter(|context| !context.is_empty()),
            metadata: Some(metadata.into()),
            ..message(content)
        }
    }

    /// Cancels the task. Without an id there is none to cancel: the agent has answered nothing yet.
    async fn cancel(&self) -> anyhow::Result<()> {
        if self.task.id.is_empty() || self.task.status.state.is_terminal() {
            return Ok(());
        }
        self.post(Operation::CancelTask { id: self.task.id.clone(), metadata: None }).await?;
        Ok(())
    }

    async fn post(&self, operation: Operation) -> anyhow::Result<Response> {
        let request = Request { generation: Generation::V10, tenant: None, operation };
        let request = encode_request(1, &request).context("A2A 1.0 has no such operation")?;
        let target = self.target;
        let sent = target.http.post(target.url.clone()).headers(target.headers.clone());
        let sent = sent
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream");
        let sent = sent.header(VERSION_HEADER, Generation::V10.as_str()).body(request).send();
        let answered = tokio::time::timeout(SILENCE, sent).await;
        let silent = || anyhow!("{} did not answer; the call may have taken effect", target.url);
        answered.map_err(|_| silent())?.map_err(|error| match error.is_connect() {
            true => anyhow!("{} is not reachable; the call was not delivered", target.url),
            false => silent(),
        })
    }

    fn result(self) -> CallResult {
        let (pieces, is_error, whole) = match self.reply {
            Some(reply) => (pieces(&reply.parts), false, SendResult::Message(reply)),
            None if self.task.status.state == TaskState::Completed => {
                let parts = self.task.artifacts.iter().flat_map(|artifact| pieces(&artifact.parts));
                (parts.collect(), false, SendResult::Task(self.task))
            }
            None => {
                let message = self.task.status.message.as_ref();
                let parts = message.map(|message| pieces(&message.parts)).unwrap_or_default();
                (parts, true, SendResult::Task(self.task))
            }
        };
        let whole = Json::part(encode_answer(Generation::V10, &A2aAnswer::Sent(whole)));
        CallResult { whole, pieces, is_error }
    }
}

/// Question of a task's status.
#[derive(Debug, Default, PartialEq)]
struct TaskQuestion {
    id: Option<String>,
    text: String,
    schema: Value,
    /// Address of a page to visit.
    page: Option<String>,
}

impl TaskQuestion {
    fn read(message: Option<&Message>) -> TaskQuestion {
        let Some(message) = message else { return TaskQuestion::default() };
        let mut question = TaskQuestion { text: text_of(message), ..TaskQuestion::default() };
        for part in &message.parts {
            let PartContent::Data(data) = &part.content else { continue };
            let text = |name: &str| data.get(name).and_then(Value::as_str).map(str::to_owned);
            question.id = text(QUESTION);
            question.page = text("url");
            question.schema = data.get("schema").cloned().unwrap_or_default();
        }
        question
    }
}

/// Returns a message of the user with one part.
fn message(content: PartContent) -> Message {
    Message {
        message_id: uuid::Uuid::now_v7().to_string(),
        role: Role::User,
        parts: vec![Part::from(content)],
        ..Message::default()
    }
}

/// Adds an artifact to a task, or more parts to the one with its id.
fn add(task: &mut Task, update: TaskArtifactUpdate) {
    let TaskArtifactUpdate { artifact, append, .. } = update;
    let known = task.artifacts.iter_mut().find(|known| known.artifact_id == artifact.artifact_id);
    match known {
        Some(known) if append => known.parts.extend(artifact.parts),
        Some(known) => *known = artifact,
        None => task.artifacts.push(artifact),
    }
}

/// Returns the texts of a message.
fn text_of(message: &Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match &part.content {
        PartContent::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<&str>>().join("\n")
}

fn pieces(parts: &[Part]) -> Vec<Piece> {
    let file = |part: &Part| {
        let name = part.filename.as_deref().or(part.media_type.as_deref());
        Piece::File(name.unwrap_or("file").to_owned())
    };
    let piece = |part: &Part| match &part.content {
        PartContent::Text(text) => Piece::Text(text.clone()),
        PartContent::Data(data) => Piece::Data(data.view().clone()),
        PartContent::Url(url) => Piece::Link(url.clone()),
        PartContent::Raw(_) => file(part),
    };
    parts.iter().map(piece).collect()
}

/// Returns a fault with the fields that it is about.
fn refusal(fault: AnswerFault) -> anyhow::Error {
    let mut text = fault.to_string();
    if let AnswerFault::Refused(failure) = &fault {
        for violation in &failure.violations {
            text = format!("{text}\n  {violation}");
        }
    }
    anyhow!("{text}")
}

/// Reads the whole of an answer that is not a stream.
async fn body(mut response: Response) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.context("read the answer")? {
        if body.len() + chunk.len() > MAX_ANSWER {
            bail!("the answer is larger than {MAX_ANSWER} bytes");
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use asp_a2a::{Artifact, TaskStatusUpdate};
    use reqwest::header::HeaderMap;

    use super::*;

    fn target() -> CallTarget {
        CallTarget {
            http: reqwest::Client::new(),
            url: "http://127.0.0.1:1/demo/a2a".parse().unwrap(),
            headers: HeaderMap::new(),
            name: "echo".into(),
        }
    }

    fn status(state: TaskState, parts: Vec<PartContent>) -> StreamEvent {
        let message = Message { parts: parts.into_iter().map(Part::from).collect(), ..Message::default() };
        let status = TaskStatus { state, message: Some(message), timestamp: None };
        StreamEvent::Status(TaskStatusUpdate { task_id: "t".into(), status, ..TaskStatusUpdate::default() })
    }

    fn artifact(text: &str, append: bool) -> StreamEvent {
        let parts = vec![Part::from(PartContent::Text(text.into()))];
        let artifact = Artifact { artifact_id: "result".into(), parts, ..Artifact::default() };
        StreamEvent::Artifact(TaskArtifactUpdate { artifact, append, ..TaskArtifactUpdate::default() })
    }

    #[test]
    fn the_first_message_names_the_skill() {
        let target = target();
        let agent = AgentCall::new(&target);
        let first = agent.first_message(CallInput::Text("hello".into()));
        assert_eq!(first.metadata.as_ref().map(Json::text), Some(r#"{"skill":"echo"}"#));
        assert_eq!(first.parts, [Part::from(PartContent::Text("hello".into()))]);
    }

    #[test]
    fn the_result_is_what_the_events_come_to() {
        let target = target();
        let mut agent = AgentCall::new(&target);
        for event in [
            status(TaskState::Working, vec![PartContent::Text("half".into())]),
            artifact("one", false),
            artifact("two", true),
            status(TaskState::Completed, Vec::new()),
        ] {
            agent.take(event);
        }
        assert_eq!(agent.shown, "half");
        let result = agent.result();
        assert!(!result.is_error);
        assert_eq!(result.pieces, [Piece::Text("one".into()), Piece::Text("two".into())]);
        assert_eq!(result.whole.pointer("/task/id"), Some(&json!("t")));
    }

    #[test]
    fn a_failed_task_says_why() {
        let target = target();
        let mut agent = AgentCall::new(&target);
        agent.take(artifact("one", false));
        agent.take(status(TaskState::Failed, vec![PartContent::Text("no".into())]));
        let result = agent.result();
        assert_eq!((result.is_error, result.pieces), (true, vec![Piece::Text("no".into())]));
    }

    #[test]
    fn a_question_is_asked_once() {
        let target = target();
        let mut agent = AgentCall::new(&target);
        let schema = json!({"properties": {"text": {"type": "string"}}});
        let data = |id: &str| PartContent::Data(json!({"questionId": id, "schema": schema}).into());
        let asked =
            |id: &str| status(TaskState::InputRequired, vec![PartContent::Text("Go on".into()), data(id)]);
        agent.take(asked("q.1"));
        let expected =
            TaskQuestion { id: Some("q.1".into()), text: "Go on".into(), schema: schema.clone(), page: None };
        assert_eq!((agent.asks(), agent.question()), (true, expected));
        agent.answered = Some("q.1".into());
        assert!(!agent.asks(), "it is there again in a snapshot before its answer has arrived");
        agent.take(asked("q.2"));
        assert!(agent.asks());
    }
}
