//! The memory that requests take from when their body was received until their call has ended.
//!
//! Keeps true: memory is taken before anything is built of a body, and one org's requests leave some to others. A body of
//! short values takes a hundred times its own size.

use std::sync::Arc;

use asp_edge::Reason;

use super::FaceRequest;
use crate::call::held;
use crate::call::outcome::Refusal;

/// A body that takes less is not counted: the bound of running calls is enough for these.
const LITTLE: usize = 16 << 10;
/// An upper bound of what a body takes, in bytes: itself, its message, and the arguments again for its call.
fn estimate(body: &[u8]) -> usize {
    held::once_read(body).saturating_mul(2).saturating_add(body.len())
}

/// Why a request is not held in memory.
pub(crate) enum Unheld {
    /// It takes more than its org may have at all.
    TooMuch { bytes: usize, most: usize },
    /// Others take it.
    Taken(Refusal),
}

impl Unheld {
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Unheld::TooMuch { .. } => Reason::BodyTooLarge,
            Unheld::Taken(_) => Reason::RateLimited,
        }
    }

    pub(crate) fn message(&self) -> String {
        match self {
            Unheld::TooMuch { bytes, most } => format!(
                "the body holds too many JSON values: they would take {bytes} bytes of memory, and {most} are the bound; send fewer values, or as one text"
            ),
            Unheld::Taken(refusal) => refusal.public_message(),
        }
    }
}

impl FaceRequest {
    /// Takes the memory of the whole request.
    pub(super) fn hold(&mut self) -> Result<(), Unheld> {
        let bytes = estimate(&self.body);
        if bytes <= LITTLE {
            return Ok(());
        }
        let memory = &self.gateway.memory.of_callers;
        let most = memory.most_of_org();
        if bytes > most {
            return Err(Unheld::TooMuch { bytes, most });
        }
        // What was taken while the body came is part of it.
        self.memory = None;
        self.memory = Some(Arc::new(memory.take(&self.caller.org, bytes).map_err(Unheld::Taken)?));
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
