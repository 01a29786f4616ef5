//! Envelopes of messages in the frames of a tunnel (supervisor.proto): a `google.protobuf.Any` with the message's name
//! in its contract; and the call that a worker's message is about.

use prost::Name;
use prost_types::Any;

use crate::plugin::server_message;
use crate::supervisor::{PppClientFrame, PppServerFrame, ppp_server_frame};

/// Word in `EnsurePluginResponse.features` of a runtime that takes a `LineRequest` for a stdio server.
pub const LINES: &str = "lines";

/// Packs a message into its envelope.
pub fn packed<M: Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

impl PppClientFrame {
    /// Creates a frame of the tunnel with a message.
    pub fn carrying<M: Name>(tunnel_id: &str, message: &M) -> PppClientFrame {
        PppClientFrame { tunnel_id: tunnel_id.to_owned(), ppp: Some(packed(message)), keepalive: false }
    }
}

impl PppServerFrame {
    /// Creates a frame of the tunnel with a message.
    pub fn carrying<M: Name>(tunnel_id: &str, message: &M) -> PppServerFrame {
        let payload = Some(ppp_server_frame::Payload::Ppp(packed(message)));
        PppServerFrame { tunnel_id: tunnel_id.to_owned(), payload, closed: None }
    }
}

impl server_message::Payload {
    /// Returns the id of the call that the message is about; empty for messages about the whole worker.
    pub fn request_id(&self) -> &str {
        match self {
            Self::Status(message) => &message.request_id,
            Self::Progress(message) => &message.request_id,
            Self::Chunk(message) => &message.request_id,
            Self::Artifact(message) => &message.request_id,
            Self::Elicitation(message) => &message.request_id,
            Self::Delegation(message) => &message.request_id,
            Self::Log(message) => &message.request_id,
            Self::Completed(message) => &message.request_id,
            Self::Failed(message) => &message.request_id,
            Self::Cancel(message) => &message.request_id,
            Self::Checkpoint(message) => &message.request_id,
            Self::ArtifactData(message) => &message.request_id,
            Self::ResourceChanged(message) => &message.request_id,
            Self::ElicitationCompleted(message) => &message.request_id,
            Self::McpRequested(message) => &message.request_id,
            Self::McpListsChanged(message) => &message.request_id,
            Self::LineAnswer(message) => &message.request_id,
            Self::LineNotification(message) => &message.request_id,
            Self::StorageRequested(message) => &message.request_id,
            Self::Init(_) | Self::Pong(_) => "",
        }
    }
}
