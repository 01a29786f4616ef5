//! How messages travel in the frames of a tunnel (supervisor.proto): in a `google.protobuf.Any`, each by the name that
//! its contract gives it.

use prost::Name;
use prost_types::Any;

use crate::supervisor::{PppClientFrame, PppServerFrame, ppp_server_frame};

/// The member of a call's `attrs` (plugin.proto) by which its gateway wants to hear when a stdio server's lists change.
pub const MCP_LISTS: &str = "mcp-lists";

/// A message in its envelope.
pub fn packed<M: Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

impl PppClientFrame {
    /// A frame of the tunnel with a message.
    pub fn carrying<M: Name>(tunnel_id: &str, message: &M) -> PppClientFrame {
        PppClientFrame { tunnel_id: tunnel_id.to_owned(), ppp: Some(packed(message)), keepalive: false }
    }
}

impl PppServerFrame {
    /// A frame of the tunnel with a message.
    pub fn carrying<M: Name>(tunnel_id: &str, message: &M) -> PppServerFrame {
        let payload = Some(ppp_server_frame::Payload::Ppp(packed(message)));
        PppServerFrame { tunnel_id: tunnel_id.to_owned(), payload, closed: None }
    }
}
