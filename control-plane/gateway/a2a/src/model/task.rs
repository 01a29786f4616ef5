//! Tasks and the events of their streams.

use asp_json::Json;

use super::message::{Artifact, Message};
use super::timestamp::Timestamp;

/// State of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskState {
    /// None, or one that this version does not know.
    #[default]
    Unspecified,
    Submitted,
    Working,
    Completed,
    Failed,
    Canceled,
    InputRequired,
    Rejected,
    AuthRequired,
}

impl TaskState {
    pub const ALL: [TaskState; 9] = [
        TaskState::Unspecified,
        TaskState::Submitted,
        TaskState::Working,
        TaskState::Completed,
        TaskState::Failed,
        TaskState::Canceled,
        TaskState::InputRequired,
        TaskState::Rejected,
        TaskState::AuthRequired,
    ];

    /// Whether the task never changes again.
    pub const fn is_terminal(self) -> bool {
        matches!(self, TaskState::Completed | TaskState::Failed | TaskState::Canceled | TaskState::Rejected)
    }

    /// Whether the task waits for its client.
    pub const fn is_interrupted(self) -> bool {
        matches!(self, TaskState::InputRequired | TaskState::AuthRequired)
    }
}

/// State of a task, with what the agent says about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskStatus {
    pub state: TaskState,
    pub message: Option<Message>,
    pub timestamp: Option<Timestamp>,
}

/// A unit of work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Task {
    pub id: String,
    pub context_id: String,
    pub status: TaskStatus,
    pub artifacts: Vec<Artifact>,
    pub history: Vec<Message>,
    /// An object.
    pub metadata: Option<Json>,
}

/// A change of a task's state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskStatusUpdate {
    pub task_id: String,
    pub context_id: String,
    pub status: TaskStatus,
    /// Whether the stream ends with this event. Only 0.3 says so; read from 1.0, whether the state is terminal.
    pub is_final: bool,
    /// An object.
    pub metadata: Option<Json>,
}

/// A new artifact, or more of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskArtifactUpdate {
    pub task_id: String,
    pub context_id: String,
    pub artifact: Artifact,
    /// Whether the parts follow those that were sent before under the same id; otherwise they replace them.
    pub append: bool,
    pub last_chunk: bool,
    /// An object.
    pub metadata: Option<Json>,
}

/// One element of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    Task(Task),
    Message(Message),
    Status(TaskStatusUpdate),
    Artifact(TaskArtifactUpdate),
}
