//! Event ids of a call, by which a client resumes its stream.
//!
//! Refuses: ids in any other format. Uses nothing else of this crate, so that it can be fuzzed alone.

/// Id of the position after the end.
pub const END: &str = "end";

/// The client's position in the events of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventPosition {
    /// A stream and the number of an event in it.
    Event(u32, u64),
    /// The end was received.
    End,
}

/// Reads a `Last-Event-ID`, as [`EventPosition`]'s `Display` writes it.
pub fn reached(id: &str) -> Option<EventPosition> {
    if id == END {
        return Some(EventPosition::End);
    }
    let (stream, number) = id.split_once('.')?;
    let is_hex = stream.len() == 8 && stream.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_hex && is_number).then_some(())?;
    Some(EventPosition::Event(u32::from_str_radix(stream, 16).ok()?, number.parse().ok()?))
}

impl std::fmt::Display for EventPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EventPosition::Event(stream, number) => write!(f, "{stream:08x}.{number}"),
            EventPosition::End => f.write_str(END),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written_and_nothing_else_is_one() {
        for place in
            [EventPosition::Event(u32::MAX, u64::MAX), EventPosition::Event(0, 0), EventPosition::End]
        {
            assert_eq!(reached(&place.to_string()), Some(place));
        }
        assert_eq!(reached("0000002a.7"), Some(EventPosition::Event(42, 7)));
        assert_eq!(reached("end"), Some(EventPosition::End));
        for bad in [
            "",
            "end ",
            "2a.7",
            "0000002A.7",
            "0000002a.",
            "0000002a.-1",
            "0000002a.+1",
            "0000002a",
            ".7",
            "0000002a.7.8",
            "0000002a.99999999999999999999",
        ] {
            assert_eq!(reached(bad), None, "{bad}");
        }
    }
}
