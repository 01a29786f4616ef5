//! Envelopes of messages in the frames of a tunnel (supervisor.proto): a `google.protobuf.Any` with the message's name
//! in its contract.

use prost::Name;
use prost_types::Any;

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
