//! Log lines of workers, from standard output and error or by PPP: bounded, escaped and tagged.
//!
//! Keeps true: a line has at most `MAX_LINE` bytes; no control character reaches the log; a worker logs at most its
//! rate of bytes and `LINES_PER_SECOND`, over all sources together; dropped output is counted and reported; the worker's named
//! secrets show as `***`. A worker is
//! blocked by its logs only when it writes faster than about 30 MiB a second: reading and discarding more than that
//! would cost other workers CPU time.

mod meter;
mod redaction;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, sleep};

pub use meter::{Meter, Rate};

pub const MAX_LINE: usize = 16 << 10;
/// Capacity of a pipe, unless it was enlarged.
const READ_SIZE: usize = 64 << 10;
/// Pause after a full pipe was read, or more than the rate. The writer is blocked during it, this process is not.
pub const PAUSE: Duration = Duration::from_millis(2);

/// Logs the contents of `pipe` until it is closed, as far as `meter` permits. Returns the number of bytes dropped.
pub async fn follow(mut pipe: impl AsyncRead + Unpin, stream: &'static str, meter: Arc<Meter>) -> u64 {
    let mut buffer = vec![0; READ_SIZE];
    let mut lines = Lines::new(Arc::clone(&meter));
    loop {
        let length = match pipe.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(length) => length,
        };
        let before = lines.dropped;
        let bytes = buffer.get(..length).unwrap_or_default();
        lines.take(bytes, Instant::now(), |line| meter.write(stream, line));
        if length == READ_SIZE || lines.dropped > before {
            sleep(PAUSE).await;
        }
    }
    lines.finish(Instant::now(), |line| meter.write(stream, line));
    lines.dropped
}

/// Logs a line that a server printed among its messages, as far as `meter` permits. Returns whether all of it was
/// logged.
pub fn log_printed(meter: &Arc<Meter>, line: &[u8]) -> bool {
    let mut lines = Lines::new(Arc::clone(meter));
    let now = Instant::now();
    let log = |line: &str| meter.write("stdout", line);
    lines.take(line, now, log);
    lines.finish(now, log);
    lines.dropped == 0
}

/// Splits bytes into lines, within the rate.
#[derive(Debug)]
struct Lines {
    meter: Arc<Meter>,
    line: Vec<u8>,
    dropped: u64,
}

impl Lines {
    fn new(meter: Arc<Meter>) -> Lines {
        Lines { meter, line: Vec::new(), dropped: 0 }
    }

    fn take(&mut self, bytes: &[u8], now: Instant, mut log: impl FnMut(&str)) {
        let (kept, lost) = bytes.split_at(self.meter.take_bytes(bytes.len(), now));
        self.dropped += lost.len() as u64;
        for part in kept.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            let room = MAX_LINE - self.line.len();
            let (fits, over) = text.split_at(room.min(text.len()));
            self.line.extend_from_slice(fits);
            self.dropped += over.len() as u64;
            if ends {
                self.finish(now, &mut log);
            }
        }
    }

    fn finish(&mut self, now: Instant, mut log: impl FnMut(&str)) {
        if self.line.is_empty() {
            return;
        }
        if self.meter.take_one(now) {
            log(&escape(&self.line));
        } else {
            self.dropped += self.line.len() as u64;
        }
        self.line.clear();
    }
}

/// Escapes control characters (ANSI sequences start with one) and bytes that are not UTF-8.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() && character != '\t' || is_bidi_control(character) {
                // Err: writing to a String cannot fail.
                let _ = write!(text, "{}", character.escape_unicode());
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Whether a character changes the direction in which a terminal shows the following text.
fn is_bidi_control(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(rate: u64) -> Arc<Meter> {
        Arc::new(Meter::new("p", "w", rate))
    }

    fn collect(lines: &mut Lines, bytes: &[u8], now: Instant) -> Vec<String> {
        let mut out = Vec::new();
        lines.take(bytes, now, |line| out.push(line.to_owned()));
        out
    }

    #[test]
    fn control_characters_and_broken_text_are_escaped() {
        assert_eq!(escape(b"a\x1b[31mred\r\x07"), "a\\u{1b}[31mred\\u{d}\\u{7}");
        assert_eq!(escape(b"ok\xff\xfe\ttab \xe2\x82\xac"), "ok\\xff\\xfe\ttab \u{20ac}");
        assert_eq!(escape("\u{202e}evil".as_bytes()), "\\u{202e}evil");
    }

    #[test]
    fn lines_are_put_together_and_cut_at_their_bound() {
        let now = Instant::now();
        let mut lines = Lines::new(meter(1 << 20));
        assert_eq!(collect(&mut lines, b"one\ntwo", now), ["one"]);
        assert_eq!(collect(&mut lines, b" and more\n\n", now), ["two and more"]);
        let long = vec![b'x'; MAX_LINE + 10];
        assert!(collect(&mut lines, &long, now).is_empty());
        let cut = collect(&mut lines, b"\n", now);
        assert_eq!((cut[0].len(), lines.dropped), (MAX_LINE, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_slowed_down_and_every_byte_of_it_is_counted() {
        const FLOOD: usize = 32 << 20;
        let (mut writer, reader) = tokio::io::duplex(READ_SIZE);
        let began = Instant::now();
        let rate = 1000;
        let reading = tokio::spawn(follow(reader, "stdout", meter(rate)));
        tokio::io::AsyncWriteExt::write_all(&mut writer, &vec![b'x'; FLOOD]).await.unwrap();
        drop(writer);
        let dropped = reading.await.unwrap();
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(1), "{took:?}");
        let kept = FLOOD as u64 - dropped;
        assert!((rate..=rate * (2 + took.as_secs())).contains(&kept), "{kept} bytes kept in {took:?}");
    }

    #[test]
    fn a_flood_is_held_to_the_rate_and_counted() {
        let start = Instant::now();
        let mut lines = Lines::new(meter(1000));
        let flood = b"0123456789\n".repeat(1000);
        assert_eq!(collect(&mut lines, &flood, start).len(), 90);
        assert_eq!(lines.dropped, 10_000);
        assert!(collect(&mut lines, b"more\n", start).is_empty());
        let later = collect(&mut lines, b"\nmore\n", start + Duration::from_millis(500));
        assert!(later.iter().any(|line| line == "more"), "{later:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn empty_and_tiny_lines_are_held_to_a_rate_of_their_own() {
        let start = Instant::now();
        let meter = meter(1 << 20);
        let mut lines = Lines::new(Arc::clone(&meter));
        let flood = b"x\n\n".repeat(100_000);
        let logged = collect(&mut lines, &flood, start).len();
        assert_eq!(logged as u64, meter::LINES_PER_SECOND);
        assert_eq!(lines.dropped, 100_000 - logged as u64, "and the rest is counted");
        assert!(!meter.take_line(1), "a line by PPP is one of them");
        let later = collect(&mut lines, &flood, start + Duration::from_secs(1)).len();
        assert_eq!(later as u64, meter::LINES_PER_SECOND);
    }
}
