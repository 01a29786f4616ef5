//! What workers write on standard output and error: bounded, escaped, tagged log lines.
//!
//! Keeps true: a line has at most `MAX_LINE` bytes, no control character reaches the log, a worker writes at
//! most its rate, and what is dropped is counted. A worker waits for its logs only when it writes faster than
//! about 30 MiB a second: reading and throwing away more than that would cost its neighbours the processor.

use std::fmt::Write;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, sleep};

pub const MAX_LINE: usize = 16 << 10;
/// What a pipe holds, unless somebody enlarged it.
const READ_SIZE: usize = 64 << 10;
/// After a full pipe was read, or more than the rate. The writer is asleep meanwhile, not this process.
const PAUSE: Duration = Duration::from_millis(2);
/// How often a worker that writes too much is mentioned.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// Who writes.
#[derive(Clone, Debug)]
pub struct Source {
    pub plugin: String,
    pub worker: String,
    pub stream: &'static str,
}

/// Logs what `pipe` brings until it is closed, at most `rate` bytes a second. Returns the bytes dropped.
pub async fn follow(mut pipe: impl AsyncRead + Unpin, source: Source, rate: u64) -> u64 {
    let mut buffer = vec![0; READ_SIZE];
    let mut lines = Lines::new(rate, Instant::now());
    let (mut reported, mut said) = (0, Instant::now());
    loop {
        let length = match pipe.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(length) => length,
        };
        let (now, before) = (Instant::now(), lines.dropped);
        lines.take(buffer.get(..length).unwrap_or_default(), now, |line| write_line(&source, line));
        if lines.dropped > reported && now.duration_since(said) >= REPORT_EVERY {
            report(&source, lines.dropped - reported);
            (reported, said) = (lines.dropped, now);
        }
        if length == READ_SIZE || lines.dropped > before {
            sleep(PAUSE).await;
        }
    }
    lines.finish(|line| write_line(&source, line));
    if lines.dropped > reported {
        report(&source, lines.dropped - reported);
    }
    lines.dropped
}

/// A line that a worker logged by PPP outside any call; cut where its rate ends.
pub fn outside_calls(worker: &str, message: &str, rate: &mut Rate) {
    let allowed = rate.take(message.len().clamp(1, MAX_LINE), Instant::now());
    if allowed == 0 {
        return;
    }
    let end = message.floor_char_boundary(allowed);
    let line = escape(message.get(..end).unwrap_or_default().as_bytes());
    tracing::info!(runtime = true, worker, line, "worker log");
}

fn write_line(source: &Source, line: &str) {
    let Source { plugin, worker, stream } = source;
    tracing::info!(runtime = true, plugin, worker, stream, line, "worker log");
}

fn report(source: &Source, dropped: u64) {
    let Source { plugin, worker, stream } = source;
    tracing::warn!(runtime = true, plugin, worker, stream, dropped, "a worker writes more than its rate");
}

/// A token bucket of one second, in bytes.
#[derive(Debug)]
pub struct Rate {
    rate: u64,
    tokens: u64,
    refilled: Instant,
}

/// Splits bytes into lines and holds them to a rate.
#[derive(Debug)]
struct Lines {
    rate: Rate,
    line: Vec<u8>,
    dropped: u64,
}

impl Lines {
    fn new(rate: u64, now: Instant) -> Lines {
        Lines { rate: Rate::new(rate, now), line: Vec::new(), dropped: 0 }
    }

    fn take(&mut self, bytes: &[u8], now: Instant, mut log: impl FnMut(&str)) {
        let (kept, lost) = bytes.split_at(self.rate.take(bytes.len(), now));
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
                self.finish(&mut log);
            }
        }
    }

    fn finish(&mut self, mut log: impl FnMut(&str)) {
        if !self.line.is_empty() {
            log(&escape(&self.line));
            self.line.clear();
        }
    }
}

impl Rate {
    pub fn new(bytes_per_second: u64, now: Instant) -> Rate {
        Rate { rate: bytes_per_second, tokens: bytes_per_second, refilled: now }
    }

    /// How many of `wanted` bytes may be written now; they count as written.
    pub fn take(&mut self, wanted: usize, now: Instant) -> usize {
        self.refill(now);
        let allowed = usize::try_from(self.tokens).unwrap_or(usize::MAX).min(wanted);
        self.tokens -= allowed as u64;
        allowed
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.duration_since(self.refilled);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rate in bytes per second, bounded by the rate itself"
        )]
        let earned = (passed.as_secs_f64().min(1.0) * self.rate as f64) as u64;
        // Small amounts are left to accumulate, or rounding would lose them.
        if earned > 0 {
            self.tokens = (self.tokens + earned).min(self.rate);
            self.refilled = now;
        }
    }
}

/// Text for a log: control characters (ANSI sequences start with one) and bytes that are no UTF-8 are escaped.
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

/// Characters that change the order in which a terminal shows what follows.
fn is_bidi_control(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut lines = Lines::new(1 << 20, now);
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
        let source = Source { plugin: "p".into(), worker: "w".into(), stream: "stdout" };
        let (began, rate) = (Instant::now(), 1000);
        let reading = tokio::spawn(follow(reader, source, rate));
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
        let mut lines = Lines::new(1000, start);
        let flood = b"0123456789\n".repeat(1000);
        assert_eq!(collect(&mut lines, &flood, start).len(), 90);
        assert_eq!(lines.dropped, 10_000);
        assert!(collect(&mut lines, b"more\n", start).is_empty());
        let later = collect(&mut lines, b"\nmore\n", start + Duration::from_millis(500));
        assert!(later.iter().any(|line| line == "more"), "{later:?}");
    }
}
