//! Calls that run at another gateway, as far as their records show: their states, and the reasons why nothing can be
//! sent to them.
//!
//! Refuses: how records are sealed, stored and found (`durable/`). Keeps true: nothing here contains the open questions or
//! events of a call.

use std::time::Duration;

use asp_json::Json;
use asp_proto::snapshot::Primitive;
use asp_store::bus::MAX_MESSAGE;
pub use asp_store::records::ListOrder;
use uuid::Uuid;

use super::State;
use super::chosen::Put;
use super::question::History;
use crate::clock::unix_ms;

/// A call that another gateway runs, or that waits to be taken over.
#[derive(Clone, Debug)]
pub struct RemoteCall {
    pub id: Uuid,
    pub state: State,
    /// Time at which the state was stored, in Unix milliseconds.
    pub updated_ms: u64,
    /// Time at which the call started, in Unix milliseconds.
    pub created_ms: u64,
    /// Time after the start for which the call can be found.
    pub kept_for: Duration,
    /// Request that created the call. `None` if its client did not choose the id, or if the record cannot be opened
    /// here.
    pub put: Option<Box<Put>>,
    /// See [`super::CallRequest::opening`].
    pub opening: Option<Json>,
    /// Questions that were answered before the record was stored.
    pub history: History,
    /// Id and version of its primitive, as in the records.
    pub primitive: String,
}

impl RemoteCall {
    /// Whether the call is of this version of the primitive.
    pub fn is_of(&self, primitive: &Primitive) -> bool {
        self.primitive == versioned(primitive)
    }

    /// Returns the time for which the call can still be found.
    pub fn time_left(&self) -> Duration {
        let kept_for = u64::try_from(self.kept_for.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.created_ms.saturating_add(kept_for).saturating_sub(unix_ms()))
    }
}

/// Returns the id and version of a primitive as in the records, for operators.
pub(crate) fn versioned(primitive: &Primitive) -> String {
    format!("{}@{}", primitive.id, primitive.version)
}

/// A call whose client chose the id, at any gateway.
#[derive(Clone, Debug)]
pub struct ListedCall {
    pub put: Put,
    pub state: State,
    /// Time at which the call started, in Unix milliseconds.
    pub created_ms: u64,
    /// Time at which the state was stored, in Unix milliseconds.
    pub updated_ms: u64,
}

/// Start of a page of calls: after the call with this id and this time, by which the list is ordered.
pub type CallCursor = (i64, [u8; 16]);

/// Some calls of one principal at one server, those with the latest time first.
pub struct CallPage {
    pub calls: Vec<ListedCall>,
    /// Start of the next page; `None` after the last.
    pub next: Option<CallCursor>,
}

/// Reason why an answer or a cancel cannot reach the gateway that runs a call; it has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputFault {
    #[error("the call runs at another gateway, which cannot be reached now: send it again")]
    Unavailable,
    #[error("too many answers wait for the gateway that runs the call: send this again")]
    Full,
    #[error(
        "the call runs at another gateway, which accepts answers of up to {} KiB: send a shorter one",
        MAX_MESSAGE / 1024
    )]
    TooLarge,
}
