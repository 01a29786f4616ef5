//! Size in memory of a message once it is read.
//!
//! Keeps true: what a decoder builds before it finds a fault is counted too, because a body of empty messages takes two hundred
//! times its length; counting builds nothing and reads each byte once.

use prost::encoding::{WireType, decode_key, decode_varint};

/// Size of a text, a message or an element of a list with its share of the capacity around it: the generated type, and the JSON
/// value or the part that it becomes.
const FIELD: usize = 400;
/// Nesting at which decoders of protocol buffers stop.
const MAX_DEPTH: usize = 100;

/// Returns an upper bound of the size of a message once it is read, in bytes. What is not a message is counted as little more
/// than its length, unless its bytes look like one.
pub fn once_read(message: &[u8]) -> usize {
    fields(message, MAX_DEPTH).saturating_mul(FIELD).saturating_add(message.len().saturating_mul(2))
}

/// Returns the number of fields with a length, at every depth, up to the first fault of each message. Numbers are in the size of
/// their message. Which fields are messages only their definition says, so the content of each is counted as if it were one.
fn fields(mut rest: &[u8], depth: usize) -> usize {
    let mut count = 0;
    while let Ok((_, kind)) = decode_key(&mut rest) {
        let length = match kind {
            WireType::Varint => decode_varint(&mut rest).map(|_| 0),
            WireType::SixtyFourBit => Ok(8),
            WireType::ThirtyTwoBit => Ok(4),
            WireType::StartGroup | WireType::EndGroup => Ok(0),
            WireType::LengthDelimited => decode_varint(&mut rest),
        };
        let Some(length) = length.ok().and_then(|length| usize::try_from(length).ok()) else { break };
        let Some((content, after)) = rest.split_at_checked(length) else { break };
        rest = after;
        if kind == WireType::LengthDelimited {
            count += 1 + depth.checked_sub(1).map_or(0, |depth| fields(content, depth));
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::value::Kind;
    use prost_types::{ListValue, Value};

    use super::*;
    use crate::grpc::generated::lf::a2a::v1::{Message, Part, SendMessageRequest, part};

    fn request(parts: Vec<Part>) -> Vec<u8> {
        let message = Message { message_id: "m".into(), parts, ..Message::default() };
        SendMessageRequest { message: Some(message), ..Default::default() }.encode_to_vec()
    }

    fn text(text: &str) -> Part {
        Part { content: Some(part::Content::Text(text.into())), ..Part::default() }
    }

    fn nested(depth: usize) -> Value {
        let list = |inner| Kind::ListValue(ListValue { values: vec![Value { kind: Some(inner) }] });
        Value { kind: Some((0..depth).fold(Kind::NullValue(0), |inner, _| list(inner))) }
    }

    #[test]
    fn every_field_that_a_decoder_builds_is_counted() {
        let count = |message: &[u8]| fields(message, MAX_DEPTH);
        // The message, its id, its parts.
        assert_eq!(count(&request(vec![Part::default(); 1000])), 2 + 1000);
        assert_eq!(count(&request(vec![text(""); 1000])), 2 + 2 * 1000);
        // For each level the list and its element.
        assert_eq!(count(&nested(20).encode_to_vec()), 40);
        // A fault ends one message and not those around it.
        let mut broken = request(vec![text(""); 10]);
        broken.push(7);
        assert_eq!(count(&broken), 2 + 20);
        assert_eq!(count(b"\x0a\x02\x00\x00\x0a\x00"), 2);
        assert_eq!(count(b"\x0a\x7f\x0a\x00"), 0);
        assert_eq!(count(b""), 0);
    }

    #[test]
    fn texts_and_files_take_little_more_than_they_are_and_depth_is_bounded() {
        // Letters that look like fields with a length.
        let words = "jazz ".repeat(1 << 12);
        assert!(once_read(&request(vec![text(&words)])) < 8 * words.len());
        assert!(once_read(&request(vec![text(&"a".repeat(1 << 20))])) < 3 << 20);
        let bytes = Part { content: Some(part::Content::Raw(vec![0; 1 << 20])), ..Part::default() };
        assert!(once_read(&request(vec![bytes])) < 3 << 20);
        let mut deep = Vec::new();
        for _ in 0..1000 {
            let mut outer = vec![0x0a];
            prost::encoding::encode_varint(deep.len() as u64, &mut outer);
            outer.extend_from_slice(&deep);
            deep = outer;
        }
        assert_eq!(fields(&deep, MAX_DEPTH), MAX_DEPTH + 1);
    }
}
