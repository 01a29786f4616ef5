//! The memory that a request reserves from the receipt of its body to the end of its call.
//!
//! Keeps true: memory is reserved before anything is built from a body, and no org's requests can take all of it. A
//! body of short values takes a hundred times its own size.

use std::sync::Arc;

use asp_call::call::outcome::Refusal;
use asp_edge::Reason;
use asp_json::held;

use super::ProtocolRequest;

/// Largest estimate that is not counted, in bytes: the limit of running calls suffices for these.
const LITTLE: usize = 16 << 10;
/// Returns an upper bound of the memory a body needs, in bytes: the body, its message, and the arguments again for its
/// call.
fn estimate(body: &[u8]) -> usize {
    held::once_read(body).saturating_mul(2).saturating_add(body.len())
}

/// The reason why memory for a request could not be reserved.
pub(crate) enum MemoryFault {
    /// The request needs more than its org's limit.
    TooMuch { bytes: usize, most: usize },
    /// Other requests hold the memory.
    Taken(Refusal),
}

impl MemoryFault {
    pub(crate) fn reason(&self) -> Reason {
        match self {
            MemoryFault::TooMuch { .. } => Reason::BodyTooLarge,
            MemoryFault::Taken(_) => Reason::RateLimited,
        }
    }

    pub(crate) fn message(&self) -> String {
        match self {
            MemoryFault::TooMuch { bytes, most } => format!(
                "the body holds too many JSON values: they would take {bytes} bytes of memory, and the limit is {most}; send fewer values, or one text"
            ),
            MemoryFault::Taken(refusal) => refusal.public_message(),
        }
    }
}

impl ProtocolRequest {
    /// Reserves the memory of the whole request.
    pub(super) fn hold(&mut self) -> Result<(), MemoryFault> {
        let bytes = estimate(&self.body);
        if bytes <= LITTLE {
            return Ok(());
        }
        let memory = &self.gateway.memory.of_callers;
        let most = memory.most_of_org();
        if bytes > most {
            return Err(MemoryFault::TooMuch { bytes, most });
        }
        // The reservation made while the body arrived is included in the new one.
        self.memory = None;
        self.memory = Some(Arc::new(memory.take(&self.caller.org, bytes).map_err(MemoryFault::Taken)?));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_requests_are_not_counted_and_texts_take_little_more_than_they_are() {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"order","arguments":{"item":"tea","count":2},"_meta":{"progressToken":1}}}"#;
        assert!(estimate(call.as_bytes()) <= LITTLE);
        let text = format!(r#"{{"data":"{}"}}"#, "a".repeat(1 << 20));
        assert!(estimate(text.as_bytes()) < 4 << 20);
    }
}
