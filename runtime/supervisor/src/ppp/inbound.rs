//! A gateway's messages through a tunnel: frames in, messages out.
//!
//! Owns the inbox of a tunnel that shares its stream with others. Keeps true: at most `MAX_WAITING` messages and
//! `MAX_QUEUED_BYTES` bytes wait in an inbox, and a tunnel that does not take them blocks no other.

use std::collections::VecDeque;
use std::sync::Arc;

use asp_proto::supervisor::PppClientFrame;
use parking_lot::Mutex;
use prost_types::Any;
use tokio::sync::Notify;
use tonic::{Status, Streaming};

use crate::ppp::{FromGateway, MAX_QUEUED_BYTES, decode};

/// Maximum number of waiting messages: answers and acknowledgements, of which a call has few at a time.
const MAX_WAITING: usize = 64;

#[derive(Debug)]
pub struct Inbound {
    source: FrameSource,
    bytes: u64,
}

#[derive(Debug)]
enum FrameSource {
    /// A tunnel with a stream of its own.
    Stream {
        tunnel_id: String,
        frames: Box<Streaming<PppClientFrame>>,
        /// The frame that named the tunnel, not handled yet.
        first: Option<PppClientFrame>,
    },
    Inbox(Arc<TunnelInbox>),
}

/// The messages of one tunnel of a shared stream that it has not taken yet.
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
    /// Whether messages that it sends before it has the handle are discarded.
    early_refused: bool,
}

impl Inbound {
    /// Creates the inbound side of a tunnel with a stream of its own; `first` is the frame that named the tunnel.
    pub fn new(first: PppClientFrame, frames: Streaming<PppClientFrame>) -> Inbound {
        let tunnel_id = first.tunnel_id.clone();
        Inbound {
            source: FrameSource::Stream { tunnel_id, frames: Box::new(frames), first: Some(first) },
            bytes: 0,
        }
    }

    /// Creates the inbound side of a tunnel on a shared stream.
    pub fn shared(inbox: Arc<TunnelInbox>) -> Inbound {
        Inbound { source: FrameSource::Inbox(inbox), bytes: 0 }
    }

    /// Returns the next message; `None` when the gateway sends no more. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<FromGateway>, Status> {
        let any = match &mut self.source {
            FrameSource::Inbox(inbox) => inbox.take().await?,
            FrameSource::Stream { tunnel_id, frames, first } => {
                next_of_own_stream(tunnel_id, frames, first).await?
            }
        };
        let Some(any) = any else { return Ok(None) };
        self.bytes += any.value.len() as u64;
        decode(&any).map(Some).map_err(|error| Status::invalid_argument(error.to_string()))
    }

    /// Whether the next message has arrived already.
    pub fn has_news(&self) -> bool {
        match &self.source {
            FrameSource::Stream { first, .. } => first.is_some(),
            FrameSource::Inbox(inbox) => inbox.has_news(),
        }
    }

    /// Returns the number of payload bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Returns the next message of a stream that carries one tunnel.
async fn next_of_own_stream(
    tunnel_id: &str,
    frames: &mut Streaming<PppClientFrame>,
    first: &mut Option<PppClientFrame>,
) -> Result<Option<Any>, Status> {
    loop {
        let frame = match first.take() {
            Some(frame) => frame,
            None => match frames.message().await? {
                Some(frame) => frame,
                None => return Ok(None),
            },
        };
        if !frame.tunnel_id.is_empty() && frame.tunnel_id != tunnel_id {
            return Err(Status::invalid_argument("a frame names another tunnel"));
        }
        if frame.ppp.is_some() {
            return Ok(frame.ppp);
        }
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

    /// Adds a message that was sent before the gateway had the handle, unless such messages are refused.
    pub fn put_early(&self, message: Any) {
        if !self.state.lock().early_refused {
            self.put(message);
        }
    }

    /// Drops the messages that were sent before the gateway had the handle, and refuses more of them.
    pub fn refuse_early(&self) {
        let mut state = self.state.lock();
        *state = InboxState { early_refused: true, closed: state.closed, ..InboxState::default() };
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
    use asp_proto::plugin::ClientMessage;
    use prost::Message;

    use super::*;

    fn message() -> Any {
        let type_url = "type.googleapis.com/asp.plugin.v1.ClientMessage".to_owned();
        Any { type_url, value: ClientMessage::default().encode_to_vec() }
    }

    #[tokio::test]
    async fn a_closed_inbox_ends_after_its_last_message() {
        let inbox = Arc::new(TunnelInbox::default());
        let mut inbound = Inbound::shared(Arc::clone(&inbox));
        inbox.put(message());
        inbox.close();
        assert!(matches!(inbound.next().await, Ok(Some(FromGateway::Message(_)))));
        assert!(matches!(inbound.next().await, Ok(None)));
    }

    #[tokio::test]
    async fn early_messages_may_be_refused_and_later_ones_come_through() {
        let inbox = Arc::new(TunnelInbox::default());
        inbox.put_early(message());
        inbox.refuse_early();
        inbox.put_early(message());
        inbox.put(message());
        inbox.close();
        assert!(matches!(inbox.take().await, Ok(Some(_))));
        assert!(matches!(inbox.take().await, Ok(None)));
    }

    #[tokio::test]
    async fn an_inbox_is_bounded_and_its_tunnel_hears_of_it() {
        let inbox = Arc::new(TunnelInbox::default());
        let mut inbound = Inbound::shared(Arc::clone(&inbox));
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
