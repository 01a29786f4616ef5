//! The frames of a tunnel: contents of `PppClientFrame` and `PppServerFrame`, and the inbox of a tunnel; `outbox` queues
//! the other direction.
//!
//! Keeps true: at most `MAX_WAITING` messages and `MAX_QUEUED_BYTES` bytes wait in a tunnel's inbox, and a tunnel that does
//! not take them blocks no other.

pub mod outbox;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use asp_proto::plugin::{
    ClientMessage, Failed, GetPromptRequest, ListResourcesRequest, ReadResourceRequest, SubscribeRequest,
    server_message,
};
use asp_proto::supervisor::tunnel_event::Type;
use asp_proto::supervisor::{Credential, PppServerFrame, TunnelEvent, ppp_server_frame};
use parking_lot::Mutex;
use prost::Message;
use prost_types::{Any, Struct, Timestamp, Value};
use tokio::sync::Notify;
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

/// Maximum number of waiting messages: answers and acknowledgements, of which a call has few at a time.
const MAX_WAITING: usize = 64;

#[derive(Debug)]
pub struct Inbound {
    inbox: Arc<TunnelInbox>,
    bytes: u64,
}

/// The messages of one tunnel that it has not taken yet.
#[derive(Debug, Default)]
pub struct TunnelInbox {
    state: Mutex<InboxState>,
    news: Notify,
}

#[derive(Debug, Default)]
struct InboxState {
    messages: VecDeque<Any>,
    bytes: usize,
    /// Whether the gateway has closed its side.
    closed: bool,
    /// Whether the gateway exceeded the inbox's capacity.
    overflowed: bool,
}

impl Inbound {
    pub fn new(inbox: Arc<TunnelInbox>) -> Inbound {
        Inbound { inbox, bytes: 0 }
    }

    /// Returns the next message; `None` when the gateway sends no more. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<FromGateway>, Status> {
        let Some(any) = self.inbox.take().await? else { return Ok(None) };
        self.bytes += any.value.len() as u64;
        decode(&any).map(Some).map_err(|error| Status::invalid_argument(error.to_string()))
    }

    /// Whether the next message has arrived already.
    pub fn has_news(&self) -> bool {
        self.inbox.has_news()
    }

    /// Returns the number of payload bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl TunnelInbox {
    /// Adds a message. If there is no capacity, the tunnel is notified and ends.
    pub fn put(&self, message: Any) {
        let mut state = self.state.lock();
        let bytes = state.bytes + message.value.len();
        if state.messages.len() >= MAX_WAITING || bytes > MAX_QUEUED_BYTES {
            state.overflowed = true;
        } else if !state.overflowed {
            state.bytes = bytes;
            state.messages.push_back(message);
        }
        drop(state);
        self.news.notify_one();
    }

    pub fn has_news(&self) -> bool {
        !self.state.lock().messages.is_empty()
    }

    /// Records that the gateway sends no more.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.news.notify_one();
    }

    /// Returns the next message; `None` after the last one of a closed inbox. For a single reader.
    async fn take(&self) -> Result<Option<Any>, Status> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(message) = state.messages.pop_front() {
                    state.bytes -= message.value.len();
                    return Ok(Some(message));
                }
                if state.overflowed {
                    return Err(Status::resource_exhausted("the gateway sends faster than the worker reads"));
                }
                if state.closed {
                    return Ok(None);
                }
            }
            self.news.notified().await;
        }
    }
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

    fn message() -> Any {
        let type_url = "type.googleapis.com/asp.plugin.v1.ClientMessage".to_owned();
        Any { type_url, value: ClientMessage::default().encode_to_vec() }
    }

    #[tokio::test]
    async fn a_closed_inbox_ends_after_its_last_message() {
        let inbox = Arc::new(TunnelInbox::default());
        let mut inbound = Inbound::new(Arc::clone(&inbox));
        inbox.put(message());
        inbox.close();
        assert!(matches!(inbound.next().await, Ok(Some(FromGateway::Message(_)))));
        assert!(matches!(inbound.next().await, Ok(None)));
    }

    #[tokio::test]
    async fn an_inbox_is_bounded_and_its_tunnel_hears_of_it() {
        let inbox = Arc::new(TunnelInbox::default());
        let mut inbound = Inbound::new(Arc::clone(&inbox));
        for _ in 0..=MAX_WAITING {
            inbox.put(message());
        }
        for _ in 0..MAX_WAITING {
            assert!(inbound.next().await.is_ok());
        }
        assert_eq!(inbound.next().await.unwrap_err().code(), tonic::Code::ResourceExhausted);
        let large = TunnelInbox::default();
        large.put(Any { value: vec![0; MAX_QUEUED_BYTES + 1], ..Any::default() });
        assert!(large.take().await.is_err(), "bytes are bounded too");
    }
}
