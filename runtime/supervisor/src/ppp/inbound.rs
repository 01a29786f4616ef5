//! A gateway's messages through a tunnel: frames in, messages out.
//!
//! Keeps true: at most `MAX_WAITING` messages and `MAX_QUEUED_BYTES` bytes wait in a tunnel's inbox, and a tunnel that does
//! not take them blocks no other.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use prost_types::Any;
use tokio::sync::Notify;
use tonic::Status;

use crate::ppp::{FromGateway, MAX_QUEUED_BYTES, decode};

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
