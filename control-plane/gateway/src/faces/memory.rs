//! The memory that requests take from when their body is read until their call has ended.
//!
//! Owns: the estimate of what a body takes once it is JSON values. Keeps true: memory is taken before anything is built
//! of a body, and one org's requests leave some to others. A body of short values takes a hundred times its own size.

use std::sync::Arc;

use asp_edge::Reason;

use super::FaceRequest;
use crate::call::outcome::Refusal;
use crate::pipeline::admission::{Admission, Bounds};

/// A body that takes less is not counted: the bound of running calls is enough for these.
const LITTLE: usize = 16 << 10;
/// What the value that a byte begins takes, in the message and again in the arguments of its call. A list begins with room
/// for four values of 72 bytes; an object has a table of its keys beside its members.
const OF_ARRAY: usize = 384;
const OF_OBJECT: usize = 768;
/// The next value; a list that grows has up to twice the room that it needs.
const OF_NEXT: usize = 256;
/// What a member has beside its value.
const OF_KEY: usize = 320;

/// What all requests of a gateway take at most, and those of one org, in bytes.
pub const MEMORY: Bounds = Bounds { whole: 512 << 20, per_org: 256 << 20 };

/// The memory of one gateway.
pub(crate) fn of_gateway(bounds: Bounds) -> Arc<Admission> {
    Admission::of(bounds, ["memory of requests", "memory of the org's requests"])
}

/// An upper bound of what a body takes, in bytes.
fn estimate(body: &[u8]) -> usize {
    let values = body.iter().map(|byte| match byte {
        b'[' => OF_ARRAY,
        b'{' => OF_OBJECT,
        b',' => OF_NEXT,
        b':' => OF_KEY,
        _ => 0,
    });
    // The body itself, and its texts in the message and in the arguments.
    values.sum::<usize>().saturating_add(body.len().saturating_mul(3))
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
    /// Takes the memory of the request.
    pub(super) fn hold(&mut self) -> Result<(), Unheld> {
        let bytes = estimate(&self.body);
        if bytes <= LITTLE {
            return Ok(());
        }
        let memory = &self.gateway.memory;
        let most = memory.most_of_org();
        if bytes > most {
            return Err(Unheld::TooMuch { bytes, most });
        }
        self.memory = Some(Arc::new(memory.take(&self.caller.org, bytes).map_err(Unheld::Taken)?));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// What a value takes beside its own place, as its parts are made today.
    fn heap(value: &Value) -> usize {
        let size = size_of::<Value>();
        match value {
            Value::Array(array) => array.capacity() * size + array.iter().map(heap).sum::<usize>(),
            // Entries with their hash and key, and a table of indices at most half empty.
            Value::Object(members) => {
                let entries = members.len().next_power_of_two().max(4);
                let table = 32 + 2 * entries * (1 + size_of::<usize>());
                let keys: usize = members.keys().map(String::capacity).sum();
                entries * (size + size_of::<String>() + size_of::<u64>())
                    + table
                    + keys
                    + members.values().map(heap).sum::<usize>()
            }
            Value::String(text) => text.capacity(),
            _ => 0,
        }
    }

    #[test]
    fn no_body_takes_more_than_its_estimate() {
        let many = |part: &str| format!("[{}]", vec![part; 2_000].join(","));
        let deep = format!("{}{}", "[".repeat(120), "]".repeat(120));
        let members: Vec<String> = (0..1_000).map(|place| format!(r#""k{place}":{place}"#)).collect();
        let bodies = [
            many("[0]"),
            many("[]"),
            many("{}"),
            many("0"),
            many(r#""""#),
            many(r#"{"":0}"#),
            many(r#"{"a":0,"b":1,"c":2,"d":3,"e":4}"#),
            many("[[[[0]]]]"),
            many(&deep),
            format!("{{{}}}", members.join(",")),
            format!(r#"{{"text":"{}"}}"#, "word ".repeat(2_000)),
            "{}".into(),
        ];
        for body in bodies {
            let value: Value = serde_json::from_str(&body).unwrap();
            // The message, and the arguments beside it.
            let arguments = value.clone();
            let taken = body.len() + heap(&value) + heap(&arguments);
            let bound = estimate(body.as_bytes());
            assert!(taken <= bound, "{taken} > {bound}: {}", body.get(..60).unwrap_or(&body));
        }
    }

    #[test]
    fn usual_requests_are_not_counted_and_texts_take_little_more_than_they_are() {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"order","arguments":{"item":"tea","count":2},"_meta":{"progressToken":1}}}"#;
        assert!(estimate(call.as_bytes()) <= LITTLE);
        let text = format!(r#"{{"data":"{}"}}"#, "a".repeat(1 << 20));
        assert!(estimate(text.as_bytes()) < 4 << 20);
    }
}
