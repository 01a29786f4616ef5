//! Server-sent events, read incrementally and within bounds (WHATWG HTML, event streams).

use std::time::Duration;

/// Default maximum size of an event in bytes.
const MAX_EVENT: usize = 4 << 20;
/// Maximum length of an event's id in bytes, since it is sent in a header; a longer one is ignored.
const MAX_ID: usize = 8 << 10;
/// Maximum retry delay that a server can ask for.
const MAX_RETRY: Duration = Duration::from_secs(3600);

/// Error: an event exceeded the size limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {0} bytes")]
pub struct EventSizeError(usize);

/// Parser that collects bytes into the data of events.
pub struct Frames {
    /// Maximum size of an event in bytes.
    largest: usize,
    /// Bytes of the unfinished line.
    line: Vec<u8>,
    data: String,
    has_data: bool,
    after_cr: bool,
    /// Whether a line was read before; only the first one may begin with a byte order mark.
    begun: bool,
    /// Id that takes effect at the next empty line.
    id: Option<String>,
    last_id: Option<String>,
    retry: Option<Duration>,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames::bounded(MAX_EVENT)
    }
}

impl Frames {
    /// Creates a parser for events of at most `largest` bytes.
    pub fn bounded(largest: usize) -> Frames {
        Frames {
            largest,
            line: Vec::new(),
            data: String::new(),
            has_data: false,
            after_cr: false,
            begun: false,
            id: None,
            last_id: None,
            retry: None,
        }
    }

    /// Takes a chunk and returns the data of every event that it completed.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Vec<String>, EventSizeError> {
        let mut done = Vec::new();
        for &byte in chunk {
            // CR, LF and CRLF all end a line.
            if byte == b'\n' && self.after_cr {
                self.after_cr = false;
                continue;
            }
            self.after_cr = byte == b'\r';
            if byte == b'\n' || byte == b'\r' {
                if let Some(event) = self.end_line() {
                    done.push(event);
                }
            } else {
                self.line.push(byte);
            }
            if self.line.len() + self.data.len() > self.largest {
                return Err(EventSizeError(self.largest));
            }
        }
        Ok(done)
    }

    /// Returns the id of the last complete event that had one: the stream can be resumed after it.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Returns the reconnection delay that the server asked for.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Takes over the id and the delay of an earlier part of the same stream.
    pub fn go_on_from(&mut self, earlier: &Frames) {
        self.last_id.clone_from(&earlier.last_id);
        self.retry = earlier.retry;
    }

    fn end_line(&mut self) -> Option<String> {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            if let Some(id) = self.id.take() {
                // After an empty id the stream cannot be resumed.
                self.last_id = Some(id).filter(|id| !id.is_empty());
            }
            let had_data = std::mem::take(&mut self.has_data);
            let data = std::mem::take(&mut self.data);
            return had_data.then_some(data);
        }
        let line = String::from_utf8_lossy(&line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.has_data = true;
                self.data.push_str(value);
            }
            // The id is sent back in a header.
            "id" if value.len() <= MAX_ID && value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => {
                self.id = Some(value.to_owned());
            }
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                let asked = value.parse().map_or(MAX_RETRY, Duration::from_millis);
                self.retry = Some(asked.min(MAX_RETRY));
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_whatever_the_chunks_and_line_ends_are() {
        let stream =
            "event: message\ndata: {\"a\":\ndata: 1}\n\n: comment\r\n\r\nid: 1\r\ndata:x\r\n\r\ndata\n\n\n";
        for size in 1..stream.len() {
            let mut frames = Frames::default();
            let mut events = Vec::new();
            for chunk in stream.as_bytes().chunks(size) {
                events.extend(frames.push(chunk).unwrap());
            }
            assert_eq!(events, ["{\"a\":\n1}", "x", ""], "{size}");
        }
    }

    fn read(stream: &[u8]) -> (Vec<String>, Frames) {
        let mut frames = Frames::default();
        let events = frames.push(stream).unwrap();
        (events, frames)
    }

    #[test]
    fn what_is_no_field_is_skipped_and_an_unfinished_event_is_none() {
        let rows: [(&[u8], &[&str]); 12] = [
            (b"", &[]),
            (b"\n\n\n", &[]),
            (b":\n\n", &[]),
            (b"data: x", &[]),
            (b"data: x\n", &[]),
            (b"Data: x\n\n", &[]),
            (b" data: x\n\n", &[]),
            (b"event: data\n\n", &[]),
            (b"\xef\xbb\xbfdata: x\n\n", &["x"]),
            (b"\n\xef\xbb\xbfdata: x\n\n", &[]),
            (b"data:  x\n\ndata: \xff\n\n", &[" x", "\u{fffd}"]),
            (b"data: a\0b\n\n", &["a\0b"]),
        ];
        for (stream, expected) in rows {
            assert_eq!(read(stream).0, expected, "{:?}", String::from_utf8_lossy(stream));
        }
    }

    #[test]
    fn the_place_to_go_on_from_is_the_last_whole_event_with_an_id() {
        let long = format!("id: {}\ndata\n\n", "a".repeat(MAX_ID + 1));
        let rows: [(&str, Option<&str>); 9] = [
            ("id: 1\ndata\n\n", Some("1")),
            ("id: 1\ndata\n\nid: 2\ndata: x", Some("1")),
            ("id: 1\ndata\n\ndata: x\n\n", Some("1")),
            ("id: 1\n\n", Some("1")),
            ("id: 1\n\nid\n\n", None),
            ("id: a\0b\n\n", None),
            ("id: \u{e9}\n\n", None),
            ("id: 1\n\nid: a\tb\n\n", Some("1")),
            (&long, None),
        ];
        for (stream, expected) in rows {
            assert_eq!(read(stream.as_bytes()).1.last_id(), expected, "{stream:?}");
        }
    }

    #[test]
    fn a_pause_is_whole_milliseconds_and_at_most_an_hour() {
        let rows = [
            ("retry: 250\n", Some(Duration::from_millis(250))),
            ("retry: 99999999999999999999999\n", Some(MAX_RETRY)),
            ("retry: 3600001\n", Some(MAX_RETRY)),
            ("retry: -1\nretry: 1.5\nretry:\nretry: +3\nretry: 1e3\n", None),
        ];
        for (stream, expected) in rows {
            assert_eq!(read(stream.as_bytes()).1.retry(), expected, "{stream:?}");
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut frames = Frames::default();
        let chunk = vec![b'a'; 1 << 20];
        let mut result = Ok(Vec::new());
        for _ in 0..5 {
            result = frames.push(&chunk);
        }
        assert_eq!(result, Err(EventSizeError(MAX_EVENT)));
    }
}
