//! The gRPC binding: conversions between the generated types of both versions and the neutral ones; for servers also the
//! services' methods, the frames of messages and the fields of a status.
//!
//! Keeps true: nulls in data and metadata survive. A limit of the binding: numbers there are doubles, the order of members and
//! repeated keys are lost, and nesting beyond [`crate::bounds::MAX_GRPC_DEPTH`] is refused.

pub mod card;
mod check;
mod frame;
mod held;
pub mod service;
mod status;
pub mod v03;
pub mod v10;
mod value;

pub use asp_proto::a2a as generated;
pub use frame::{read_frame, write_frame};
pub use held::once_read;
pub use status::{decode_status, encode_status, status_fields};

use prost_types::Timestamp as ProtoTimestamp;

use crate::error::{A2aError, A2aFailure};
use crate::model::{Role, TaskState, Timestamp};

const MILLIS_PER_SECOND: u64 = 1000;
const NANOS_PER_MILLI: u64 = 1_000_000;

fn timestamp(time: Timestamp) -> ProtoTimestamp {
    let nanos = (time.0 % MILLIS_PER_SECOND) * NANOS_PER_MILLI;
    ProtoTimestamp {
        seconds: i64::try_from(time.0 / MILLIS_PER_SECOND).unwrap_or(i64::MAX),
        nanos: i32::try_from(nanos).unwrap_or_default(),
    }
}

fn read_timestamp(time: &ProtoTimestamp) -> Timestamp {
    let seconds = u64::try_from(time.seconds).unwrap_or_default();
    let nanos = u64::try_from(time.nanos).unwrap_or_default();
    Timestamp(seconds.saturating_mul(MILLIS_PER_SECOND).saturating_add(nanos / NANOS_PER_MILLI))
}

/// Returns the number of a state, which is the same in both versions.
fn state_number(state: TaskState) -> i32 {
    let at = TaskState::ALL.iter().position(|own| *own == state);
    at.and_then(|at| i32::try_from(at).ok()).unwrap_or_default()
}

/// Returns the state of a number; `None` for an unknown one.
fn find_state(number: i32) -> Option<TaskState> {
    usize::try_from(number).ok().and_then(|number| TaskState::ALL.get(number)).copied()
}

/// Returns the state of a number; an unknown one is unspecified.
fn read_state(number: i32) -> TaskState {
    find_state(number).unwrap_or_default()
}

const fn role_number(role: Role) -> i32 {
    match role {
        Role::Unspecified => 0,
        Role::User => 1,
        Role::Agent => 2,
    }
}

const fn read_role(number: i32) -> Role {
    match number {
        1 => Role::User,
        2 => Role::Agent,
        _ => Role::Unspecified,
    }
}

fn parse<M: prost::Message + Default>(message: &[u8]) -> Result<M, A2aFailure> {
    let fault = "the message is not the protocol buffer that the method takes";
    M::decode(message).map_err(|_| A2aFailure::new(A2aError::Parse, fault))
}

/// Returns a text, none for an empty one: they are the same in protocol buffers.
fn option(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// Returns a count as protocol buffers have it.
fn integer(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Returns the failure for a message of an agent that lacks what it must have.
fn invalid_answer(what: &str) -> A2aFailure {
    A2aFailure::new(A2aError::InvalidAgentResponse, format!("the agent's answer has no {what}"))
}

#[cfg(test)]
mod tests;
