//! The content of an event id, as bytes.
//!
//! Keeps true: bytes decode to one position or not at all, and encode to the same bytes again.

/// Maximum length of a progress token, as JSON text in bytes. A stream with a longer one cannot be resumed: its id
/// travels in a header of each reconnection.
pub const MAX_TOKEN: usize = 512;
const CALL: u8 = 0;
const CHANGES: u8 = 1;
/// Replaces an event's number when the stream has ended.
const END: u64 = u64::MAX;

/// Position of a client on a stream of its session.
#[derive(Clone, Debug, PartialEq)]
pub enum Position {
    Call(CallPosition),
    Changes(ChangesPosition),
}

/// Position on the stream that answers a request.
#[derive(Clone, Debug, PartialEq)]
pub struct CallPosition {
    pub call: [u8; 16],
    /// Name of the call's log that the number belongs to: a call that continues at another gateway may be numbered from
    /// the start.
    pub log: u32,
    /// First event that the client did not get; `None` after the answer.
    pub next_event: Option<u64>,
    /// Progress that it got last.
    pub progress: Option<f64>,
    /// Progress token of the request, as JSON text.
    pub progress_token: Option<String>,
}

/// Position on a stream of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangesPosition {
    /// Subscriber that the numbers belong to: a subscriber of another gateway, or a new one after an eviction, counts
    /// from the start.
    pub subscriber: u32,
    /// Number of its stream.
    pub stream: u64,
    /// Number of the last notice that was sent.
    pub told: u64,
}

impl Position {
    /// Encodes the position; `None` if its progress token is too long.
    pub fn encode(&self) -> Option<Vec<u8>> {
        Some(match self {
            Position::Call(position) => {
                let token = position.progress_token.as_deref().unwrap_or_default();
                if token.len() > MAX_TOKEN {
                    return None;
                }
                let mut bytes = vec![CALL];
                bytes.extend(position.call);
                bytes.extend(position.log.to_be_bytes());
                bytes.extend(position.next_event.unwrap_or(END).to_be_bytes());
                bytes.push(position.progress.is_some().into());
                bytes.extend(position.progress.into_iter().flat_map(f64::to_be_bytes));
                bytes.extend(token.as_bytes());
                bytes
            }
            Position::Changes(position) => {
                let mut bytes = vec![CHANGES];
                bytes.extend(position.subscriber.to_be_bytes());
                bytes.extend(position.stream.to_be_bytes());
                bytes.extend(position.told.to_be_bytes());
                bytes
            }
        })
    }

    pub fn decode(bytes: &[u8]) -> Option<Position> {
        match bytes.split_first()? {
            (&CALL, rest) => call(rest).map(Position::Call),
            (&CHANGES, rest) => changes(rest).map(Position::Changes),
            _ => None,
        }
    }
}

fn call(bytes: &[u8]) -> Option<CallPosition> {
    let (call, bytes) = bytes.split_first_chunk()?;
    let (log, bytes) = bytes.split_first_chunk()?;
    let (next_event, bytes) = bytes.split_first_chunk()?;
    let (progress, token) = match bytes.split_first()? {
        (0, token) => (None, token),
        (1, bytes) => {
            let (progress, token) = bytes.split_first_chunk()?;
            (Some(f64::from_be_bytes(*progress)), token)
        }
        _ => return None,
    };
    if token.len() > MAX_TOKEN {
        return None;
    }
    let token = std::str::from_utf8(token).ok()?;
    Some(CallPosition {
        call: *call,
        log: u32::from_be_bytes(*log),
        next_event: Some(u64::from_be_bytes(*next_event)).filter(|next| *next != END),
        progress,
        progress_token: (!token.is_empty()).then(|| token.to_owned()),
    })
}

fn changes(bytes: &[u8]) -> Option<ChangesPosition> {
    let (subscriber, bytes) = bytes.split_first_chunk()?;
    let (stream, told) = bytes.split_first_chunk()?;
    Some(ChangesPosition {
        subscriber: u32::from_be_bytes(*subscriber),
        stream: u64::from_be_bytes(*stream),
        told: u64::from_be_bytes(told.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_call(next_event: Option<u64>, progress: Option<f64>, token: Option<&str>) -> Position {
        let progress_token = token.map(str::to_owned);
        Position::Call(CallPosition { call: [7; 16], log: 9, next_event, progress, progress_token })
    }

    #[test]
    fn a_position_is_read_as_it_was_written() {
        let all = [
            of_call(Some(0), None, None),
            of_call(Some(300), Some(0.5), Some("\"token\"")),
            of_call(None, Some(-1.0), Some("7")),
            Position::Changes(ChangesPosition { subscriber: 1, stream: 2, told: u64::MAX }),
        ];
        for position in all {
            assert_eq!(Position::decode(&position.encode().unwrap()), Some(position));
        }
    }

    #[test]
    fn what_is_cut_too_long_or_of_another_kind_is_no_position() {
        let call = of_call(Some(1), Some(2.0), None).encode().unwrap();
        let changes = Position::Changes(ChangesPosition { subscriber: 1, stream: 2, told: 3 });
        let changes = changes.encode().unwrap();
        let mut rows: Vec<Vec<u8>> = (0..call.len()).map(|end| call[..end].to_vec()).collect();
        rows.extend((0..changes.len()).map(|end| changes[..end].to_vec()));
        rows.push([&changes[..], &[0]].concat());
        rows.push([&[2], &call[1..]].concat());
        let flag = 1 + 16 + 4 + 8;
        rows.push([&call[..flag], &[2], &call[flag + 1..]].concat());
        rows.push([&call[..], &[0xff]].concat());
        rows.push([&call[..], &[b'x'; MAX_TOKEN + 1]].concat());
        for row in rows {
            assert_eq!(Position::decode(&row), None, "{row:?}");
        }
    }

    #[test]
    fn a_progress_token_that_is_too_long_has_no_position() {
        assert_eq!(of_call(None, None, Some(&"7".repeat(MAX_TOKEN + 1))).encode(), None);
        assert!(of_call(None, None, Some(&"7".repeat(MAX_TOKEN))).encode().is_some());
    }
}
