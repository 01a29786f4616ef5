//! The frames of a tunnel: contents of `PppClientFrame` and `PppServerFrame`; the submodules queue them.

pub mod inbound;
pub mod outbox;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use asp_proto::plugin::{
    ClientMessage, Failed, GetPromptRequest, ListResourcesRequest, ReadResourceRequest, SubscribeRequest,
    server_message,
};
use asp_proto::supervisor::tunnel_event::Type;
use asp_proto::supervisor::{Credential, PppServerFrame, TunnelEvent, ppp_server_frame};
use prost::Message;
use prost_types::{Any, Struct, Timestamp, Value};
use tonic::Status;

/// Maximum size of a PPP message in either direction (`proto/plugin.proto`).
pub const MAX_MESSAGE: usize = 4 << 20;
/// Maximum size of a frame: a message and the frame that carries it through a tunnel.
pub const MAX_FRAME: usize = MAX_MESSAGE + 4096;
/// Maximum size of what one tunnel queues in one direction: four of the largest messages.
pub const MAX_QUEUED_BYTES: usize = 4 * MAX_FRAME;

/// A gateway's message through a tunnel.
#[derive(Clone, Debug)]
pub enum FromGateway {
    Message(ClientMessage),
    Read(ReadResourceRequest),
    Prompt(GetPromptRequest),
    List(ListResourcesRequest),
    /// Replaces the previous credential; not forwarded to a worker.
    Credential(Credential),
    Subscribe(SubscribeRequest),
}

#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("messages of the type {0:?} are not sent in this direction")]
    Type(String),
    #[error("the message cannot be read: {0}")]
    Decode(#[from] prost::DecodeError),
    #[error("the message has more than {MAX_MESSAGE} bytes")]
    Size,
}

/// Decodes a gateway's message.
pub fn decode(any: &Any) -> Result<FromGateway, FrameError> {
    if any.value.len() > MAX_MESSAGE {
        return Err(FrameError::Size);
    }
    // The part before the last slash is arbitrary (google/protobuf/any.proto).
    let name = any.type_url.rsplit('/').next().unwrap_or_default();
    let bytes = any.value.as_slice();
    if name == "asp.runtime.supervisor.v1.Credential" {
        return Ok(FromGateway::Credential(Credential::decode(bytes)?));
    }
    Ok(match name.strip_prefix("asp.plugin.v1.") {
        Some("ClientMessage") => FromGateway::Message(ClientMessage::decode(bytes)?),
        Some("ReadResourceRequest") => FromGateway::Read(ReadResourceRequest::decode(bytes)?),
        Some("GetPromptRequest") => FromGateway::Prompt(GetPromptRequest::decode(bytes)?),
        Some("ListResourcesRequest") => FromGateway::List(ListResourcesRequest::decode(bytes)?),
        Some("SubscribeRequest") => FromGateway::Subscribe(SubscribeRequest::decode(bytes)?),
        _ => return Err(FrameError::Type(any.type_url.chars().take(200).collect())),
    })
}

/// Builds the message that a call failed, with a code and a sentence.
pub fn failed(request_id: &str, code: &str, message: &str) -> server_message::Payload {
    server_message::Payload::Failed(Failed {
        request_id: request_id.to_owned(),
        code: code.to_owned(),
        message: message.to_owned(),
        ..Failed::default()
    })
}

/// Builds a frame with an event of the tunnel itself.
pub fn event_frame(tunnel_id: &str, kind: Type, message: &str, details: Option<Struct>) -> PppServerFrame {
    let event = TunnelEvent {
        tunnel_id: tunnel_id.to_owned(),
        r#type: kind.into(),
        message: message.to_owned(),
        details,
    };
    let payload = Some(ppp_server_frame::Payload::Event(event));
    PppServerFrame { tunnel_id: tunnel_id.to_owned(), payload, closed: None }
}

/// Builds the frame that ends a tunnel; after a fault of the gateway, with the gRPC `code` and the message.
pub fn closed_frame(tunnel_id: &str, end: &Result<(), Status>) -> PppServerFrame {
    match end {
        Ok(()) => event_frame(tunnel_id, Type::TunnelClosed, "", None),
        Err(status) => {
            let details = fields([("code", number(i32::from(status.code())))]);
            event_frame(tunnel_id, Type::TunnelClosed, status.message(), Some(details))
        }
    }
}

/// Returns the size of a frame's payload, for bounds and statistics.
pub fn frame_size(frame: &PppServerFrame) -> usize {
    match &frame.payload {
        Some(ppp_server_frame::Payload::Ppp(any)) => any.value.len(),
        Some(ppp_server_frame::Payload::Event(event)) => event.encoded_len(),
        None => 0,
    }
}

/// Builds a `google.protobuf.Struct` of these fields.
pub fn fields<const N: usize>(fields: [(&str, Value); N]) -> Struct {
    let fields: BTreeMap<String, Value> =
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Struct { fields }
}

pub fn number(value: impl TryInto<u64>) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "a Struct has only doubles; 2^53 bytes or ms are enough")]
    let number = value.try_into().map_or(f64::MAX, |value: u64| value as f64);
    Value::from(number)
}

pub fn milliseconds(duration: Duration) -> Value {
    number(duration.as_millis())
}

/// Returns the time until `timestamp`; zero when it has passed.
pub fn time_until(timestamp: &Timestamp) -> Duration {
    SystemTime::try_from(*timestamp)
        .ok()
        .and_then(|end| end.duration_since(SystemTime::now()).ok())
        .unwrap_or_default()
}

/// Converts a duration from the wire; `None` when it is absent, negative or zero.
pub fn duration(duration: Option<&prost_types::Duration>) -> Option<Duration> {
    duration.and_then(|value| Duration::try_from(*value).ok()).filter(|value| !value.is_zero())
}

/// Converts a duration for the wire.
pub fn wire_duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration::try_from(duration).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_gateway_may_send_is_read() {
        let any = |name: &str, value: Vec<u8>| Any { type_url: name.into(), value };
        assert!(matches!(
            decode(&any("type.googleapis.com/asp.plugin.v1.ClientMessage", vec![])),
            Ok(FromGateway::Message(_))
        ));
        assert!(matches!(
            decode(&any("type.googleapis.com/asp.plugin.v1.ServerMessage", vec![])),
            Err(FrameError::Type(_))
        ));
        assert!(matches!(
            decode(&any("asp.plugin.v1.ClientMessage", vec![0xff; 3])),
            Err(FrameError::Decode(_))
        ));
        assert!(matches!(
            decode(&any("asp.plugin.v1.ClientMessage", vec![0; MAX_MESSAGE + 1])),
            Err(FrameError::Size)
        ));
    }
}
