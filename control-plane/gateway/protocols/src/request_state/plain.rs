//! The content of a `requestState`, as bytes of a fixed length.

use uuid::Uuid;

/// Content of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestState {
    pub call: Uuid,
    /// Expiry in Unix seconds.
    pub(super) expires: u64,
    /// First event of the call that the client has not seen, and the name of the log that the number belongs to.
    pub(super) next_event: u64,
    pub(super) stream: u32,
}

impl RequestState {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.call.as_bytes().to_vec();
        bytes.extend(self.expires.to_be_bytes());
        bytes.extend(self.next_event.to_be_bytes());
        bytes.extend(self.stream.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<RequestState> {
        let (call, rest) = bytes.split_first_chunk::<16>()?;
        let (expires, rest) = rest.split_first_chunk()?;
        let (next_event, stream) = rest.split_first_chunk()?;
        Some(RequestState {
            call: Uuid::from_bytes(*call),
            expires: u64::from_be_bytes(*expires),
            next_event: u64::from_be_bytes(*next_event),
            stream: u32::from_be_bytes(stream.try_into().ok()?),
        })
    }
}
