//! Requests of clients and answers of servers.

use asp_json::Json;
use asp_platform::secret::Secret;

use super::message::Message;
use super::task::{Task, TaskState};
use super::timestamp::Timestamp;
use crate::version::Generation;

/// A request, with the version that it was made by.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub generation: Generation,
    /// Routing identifier of 1.0. It selects nothing here: whoever serves the request refuses one that its card does not name.
    pub tenant: Option<String>,
    pub operation: Operation,
}

/// Operation of a request, with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    Send(SendRequest),
    Stream(SendRequest),
    GetTask {
        id: String,
        /// Maximum number of messages of the history: none is the server's default, 0 is no history.
        history_length: Option<u32>,
    },
    /// List of tasks, which 0.3 does not have.
    ListTasks(TaskQuery),
    CancelTask {
        id: String,
        metadata: Option<Json>,
    },
    Subscribe {
        id: String,
    },
    CreatePush(PushConfig),
    GetPush {
        task_id: String,
        /// 0.3 may leave it out: the task's only configuration.
        id: Option<String>,
    },
    ListPush {
        task_id: String,
        page_size: Option<u32>,
        page_token: Option<String>,
    },
    DeletePush {
        task_id: String,
        id: String,
    },
    ExtendedCard,
}

/// Operation without its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    Send,
    Stream,
    GetTask,
    ListTasks,
    CancelTask,
    Subscribe,
    CreatePush,
    GetPush,
    ListPush,
    DeletePush,
    ExtendedCard,
}

impl Operation {
    /// Returns the operation without its parameters.
    pub const fn kind(&self) -> OperationKind {
        match self {
            Operation::Send(_) => OperationKind::Send,
            Operation::Stream(_) => OperationKind::Stream,
            Operation::GetTask { .. } => OperationKind::GetTask,
            Operation::ListTasks(_) => OperationKind::ListTasks,
            Operation::CancelTask { .. } => OperationKind::CancelTask,
            Operation::Subscribe { .. } => OperationKind::Subscribe,
            Operation::CreatePush(_) => OperationKind::CreatePush,
            Operation::GetPush { .. } => OperationKind::GetPush,
            Operation::ListPush { .. } => OperationKind::ListPush,
            Operation::DeletePush { .. } => OperationKind::DeletePush,
            Operation::ExtendedCard => OperationKind::ExtendedCard,
        }
    }
}

impl OperationKind {
    pub const ALL: [OperationKind; 11] = [
        OperationKind::Send,
        OperationKind::Stream,
        OperationKind::GetTask,
        OperationKind::ListTasks,
        OperationKind::CancelTask,
        OperationKind::Subscribe,
        OperationKind::CreatePush,
        OperationKind::GetPush,
        OperationKind::ListPush,
        OperationKind::DeletePush,
        OperationKind::ExtendedCard,
    ];

    /// Whether the answer is a stream of events.
    pub const fn is_streaming(self) -> bool {
        matches!(self, OperationKind::Stream | OperationKind::Subscribe)
    }
}

/// A message to an agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SendRequest {
    /// A client's message. Readers give it the role of the user, whichever it has: the helpers of an official SDK write that of
    /// the agent where their caller names none.
    pub message: Message,
    pub configuration: SendConfiguration,
    /// An object.
    pub metadata: Option<Json>,
}

/// Wishes for the answer to a message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SendConfiguration {
    pub accepted_output_modes: Vec<String>,
    pub push: Option<PushConfig>,
    /// Maximum number of messages, as in [`Operation::GetTask`].
    pub history_length: Option<u32>,
    /// Whether the answer is not to wait until the task ends or waits for its client: 1.0's `returnImmediately`, the opposite
    /// of 0.3's `blocking`. A request that says neither waits; but a configuration over REST or gRPC of 0.3 without `blocking`
    /// does not, since `false` is not written there.
    pub return_immediately: bool,
}

/// Filter and page of a list of tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskQuery {
    pub context_id: Option<String>,
    /// `None`, which `TASK_STATE_UNSPECIFIED` is too, filters nothing.
    pub status: Option<TaskState>,
    /// 1 to 100.
    pub page_size: Option<u32>,
    pub page_token: Option<String>,
    pub history_length: Option<u32>,
    /// The earliest time of the status.
    pub status_timestamp_after: Option<Timestamp>,
    pub include_artifacts: bool,
}

/// Receiver of the changes of a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PushConfig {
    pub id: Option<String>,
    /// Empty in the configuration of a message, whose task may not exist yet.
    pub task_id: String,
    pub url: String,
    pub token: Option<Secret>,
    pub authentication: Option<PushAuthentication>,
}

/// Authentication of pushes at their receiver. None of its texts has a line break or another control character.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PushAuthentication {
    /// HTTP authentication schemes; 1.0 has one.
    pub schemes: Vec<String>,
    pub credentials: Option<Secret>,
}

/// Answer of a server to a request that is not streamed.
#[derive(Clone, Debug, PartialEq)]
pub enum A2aAnswer {
    Sent(SendResult),
    Task(Task),
    Tasks(TaskPage),
    Push(PushConfig),
    Pushes(PushPage),
    Deleted,
    /// An agent card, as it is served.
    Card(Json),
}

/// Answer to a message.
#[derive(Clone, Debug, PartialEq)]
pub enum SendResult {
    Task(Task),
    Message(Message),
}

/// A page of tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskPage {
    pub tasks: Vec<Task>,
    /// Empty at the end.
    pub next_page_token: String,
    pub page_size: u32,
    pub total_size: u32,
}

/// A page of push configurations. 0.3 has one page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PushPage {
    pub configs: Vec<PushConfig>,
    /// Empty at the end.
    pub next_page_token: String,
}
