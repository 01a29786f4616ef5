//! The ids of a task, and messages of the agent in it.

use asp_a2a::{Message, Part, Role};
use asp_call::call::Call;
use asp_call::call::question::Question;

use super::parts;

/// The ids that every event of a task repeats.
#[derive(Clone, Debug)]
pub(super) struct TaskIds {
    pub(super) task: String,
    pub(super) context: String,
}

impl TaskIds {
    pub(super) fn of(call: &Call) -> TaskIds {
        TaskIds { task: call.id.to_string(), context: call.context.clone() }
    }

    /// Returns the context, if there is one.
    pub(super) fn context_id(&self) -> Option<String> {
        Some(self.context.clone()).filter(|context| !context.is_empty())
    }

    /// Returns a message of the agent; `name` is unique in the task.
    pub(super) fn message(&self, name: &str, parts: Vec<Part>) -> Message {
        Message {
            message_id: format!("{}/{name}", self.task),
            context_id: self.context_id(),
            task_id: Some(self.task.clone()),
            role: Role::Agent,
            parts,
            ..Message::default()
        }
    }

    pub(super) fn question(&self, question: &Question) -> Message {
        self.message(&question.id, parts::of_question(question))
    }
}
