//! Server-sent events, read incrementally and within bounds (WHATWG HTML, event streams).

/// Largest event in bytes.
const MAX_EVENT: usize = 4 << 20;

/// The stream broke a bound.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {MAX_EVENT} bytes")]
pub struct TooLarge;

/// Collects bytes into the data of events.
#[derive(Default)]
pub struct Frames {
    /// Bytes of the unfinished line.
    line: Vec<u8>,
    data: String,
    has_data: bool,
    after_cr: bool,
}

impl Frames {
    /// Takes a chunk and returns the data of every event it completed.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Vec<String>, TooLarge> {
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
            if self.line.len() + self.data.len() > MAX_EVENT {
                return Err(TooLarge);
            }
        }
        Ok(done)
    }

    fn end_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let had_data = std::mem::take(&mut self.has_data);
            let data = std::mem::take(&mut self.data);
            return had_data.then_some(data);
        }
        let line = String::from_utf8_lossy(&line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        if field == "data" {
            if self.has_data {
                self.data.push('\n');
            }
            self.has_data = true;
            self.data.push_str(value.strip_prefix(' ').unwrap_or(value));
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

    #[test]
    fn an_event_without_end_is_refused() {
        let mut frames = Frames::default();
        let chunk = vec![b'a'; 1 << 20];
        let mut result = Ok(Vec::new());
        for _ in 0..5 {
            result = frames.push(&chunk);
        }
        assert_eq!(result, Err(TooLarge));
    }
}
