//! Types of A2A, independent of version and binding.

mod message;
mod request;
mod task;
mod timestamp;

pub use message::{Artifact, Base64, Message, Part, PartContent, Role};
pub use request::{
    A2aAnswer, Operation, OperationKind, PushAuthentication, PushConfig, PushPage, Request,
    SendConfiguration, SendRequest, SendResult, TaskPage, TaskQuery,
};
pub use task::{StreamEvent, Task, TaskArtifactUpdate, TaskState, TaskStatus, TaskStatusUpdate};
pub use timestamp::Timestamp;
