//! Names of states and roles.

use super::Dialect;
use super::reader::Object;
use crate::model::{Role, TaskState};

/// Names of a state: of 1.0, of JSON-RPC 0.3, of REST 0.3. The index is the number in the protocol buffers of both versions.
static STATES: [(TaskState, [&str; 3]); 9] = [
    (TaskState::Unspecified, ["TASK_STATE_UNSPECIFIED", "unknown", "TASK_STATE_UNSPECIFIED"]),
    (TaskState::Submitted, ["TASK_STATE_SUBMITTED", "submitted", "TASK_STATE_SUBMITTED"]),
    (TaskState::Working, ["TASK_STATE_WORKING", "working", "TASK_STATE_WORKING"]),
    (TaskState::Completed, ["TASK_STATE_COMPLETED", "completed", "TASK_STATE_COMPLETED"]),
    (TaskState::Failed, ["TASK_STATE_FAILED", "failed", "TASK_STATE_FAILED"]),
    (TaskState::Canceled, ["TASK_STATE_CANCELED", "canceled", "TASK_STATE_CANCELLED"]),
    (TaskState::InputRequired, ["TASK_STATE_INPUT_REQUIRED", "input-required", "TASK_STATE_INPUT_REQUIRED"]),
    (TaskState::Rejected, ["TASK_STATE_REJECTED", "rejected", "TASK_STATE_REJECTED"]),
    (TaskState::AuthRequired, ["TASK_STATE_AUTH_REQUIRED", "auth-required", "TASK_STATE_AUTH_REQUIRED"]),
];

/// Names of a role: of ProtoJSON, of JSON-RPC 0.3.
static ROLES: [(Role, [&str; 2]); 3] = [
    (Role::Unspecified, ["ROLE_UNSPECIFIED", "agent"]),
    (Role::User, ["ROLE_USER", "user"]),
    (Role::Agent, ["ROLE_AGENT", "agent"]),
];

pub(super) fn state_name(state: TaskState, dialect: Dialect) -> &'static str {
    let of = |(_, [v10, v03, proto03]): &(TaskState, [&'static str; 3])| match dialect {
        Dialect::V10 => *v10,
        Dialect::V03 => *v03,
        Dialect::Proto03 => *proto03,
    };
    STATES.iter().find(|(own, _)| *own == state).map(of).unwrap_or_default()
}

pub(super) fn role_name(role: Role, dialect: Dialect) -> &'static str {
    let of =
        |(_, [proto, v03]): &(Role, [&'static str; 2])| if dialect == Dialect::V03 { *v03 } else { *proto };
    ROLES.iter().find(|(own, _)| *own == role).map(of).unwrap_or_default()
}

/// Returns the state that a name of any dialect, or a number, means; `None` for an unknown one.
pub(super) fn parse_state(text: &str) -> Option<TaskState> {
    let word = asp_json::string(text);
    if let Some((state, _)) = text.parse::<usize>().ok().and_then(|number| STATES.get(number)) {
        return Some(*state);
    }
    let word = word?;
    STATES.iter().find(|(_, names)| names.contains(&word.as_ref())).map(|(state, _)| *state)
}

/// Reads a state; an unknown one is unspecified.
pub(super) fn read_state(object: &Object<'_, '_>, name: &'static str) -> TaskState {
    object.raw(name).and_then(parse_state).unwrap_or_default()
}

/// Reads a role of any dialect; an unknown one is unspecified.
pub(super) fn read_role(object: &Object<'_, '_>) -> Role {
    let Some(text) = object.raw("role") else { return Role::Unspecified };
    if let Some((role, _)) = text.parse::<usize>().ok().and_then(|number| ROLES.get(number)) {
        return *role;
    }
    let word = asp_json::string(text).unwrap_or_default();
    // The later row is the one with the name, where two have it.
    ROLES
        .iter()
        .rev()
        .find(|(_, names)| names.contains(&word.as_ref()))
        .map(|(role, _)| *role)
        .unwrap_or_default()
}
