//! Log rate limit of one worker, and the count of dropped output.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use asp_platform::secret::Secret;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::redaction::Redaction;
use super::{MAX_LINE, escape};

/// Maximum log lines of a worker per second: enough for some long stack traces. Each line is formatted and written
/// once, so a plugin that logs as fast as it can costs about a hundredth of a CPU.
pub(super) const LINES_PER_SECOND: u64 = 500;
/// Interval between reports about a worker that logs too much.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// Log allowance of one worker, over all sources together.
#[derive(Debug)]
pub struct Meter {
    plugin: String,
    worker: String,
    redaction: Redaction,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bytes: Rate,
    lines: Rate,
    /// Output dropped since the last report.
    dropped: DroppedOutput,
    reported: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct DroppedOutput {
    bytes: u64,
    lines: u64,
}

impl Meter {
    /// Creates the meter of a worker of `plugin`, which may log `bytes` a second.
    pub fn new(plugin: &str, worker: &str, bytes: u64) -> Meter {
        let now = Instant::now();
        let state = State {
            bytes: Rate::new(bytes, now),
            lines: Rate::new(LINES_PER_SECOND, now),
            dropped: DroppedOutput::default(),
            reported: None,
        };
        Meter {
            plugin: plugin.to_owned(),
            worker: worker.to_owned(),
            redaction: Redaction::default(),
            state: Mutex::new(state),
        }
    }

    /// Adds the secrets that the worker has: its lines show `***` instead.
    pub fn redacting(mut self, secrets: &BTreeMap<String, Secret>) -> Meter {
        self.redaction = Redaction::of(secrets.values());
        self
    }

    /// Replaces the worker's secrets in a text.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.redaction.apply(text)
    }

    /// Returns how many of the wanted bytes may be logged now.
    pub(super) fn take_bytes(&self, wanted: usize, now: Instant) -> usize {
        let mut state = self.state.lock();
        let allowed = state.bytes.take(wanted, now);
        state.dropped.bytes += (wanted - allowed) as u64;
        self.report(&mut state, now);
        allowed
    }

    /// Whether a line may be logged whose bytes were allowed.
    pub(super) fn take_one(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let allowed = state.lines.take(1, now) == 1;
        state.dropped.lines += u64::from(!allowed);
        self.report(&mut state, now);
        allowed
    }

    /// Whether a line of this many bytes may be logged or forwarded.
    pub fn take_line(&self, bytes: usize) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        let allowed = state.lines.take(1, now) == 1 && state.bytes.take(bytes, now) == bytes;
        if !allowed {
            state.dropped.lines += 1;
            state.dropped.bytes += bytes as u64;
        }
        self.report(&mut state, now);
        allowed
    }

    /// Logs a line that the worker sent by PPP outside any call; truncated where the rate ends.
    pub fn log_outside_calls(&self, message: &str) {
        let now = Instant::now();
        let allowed = self.take_bytes(message.len().clamp(1, MAX_LINE), now);
        if allowed == 0 || !self.take_one(now) {
            return;
        }
        let end = message.floor_char_boundary(allowed);
        self.write("ppp", &escape(message.get(..end).unwrap_or_default().as_bytes()));
    }

    pub(super) fn write(&self, stream: &'static str, line: &str) {
        let Meter { plugin, worker, .. } = self;
        let line = self.redact(line);
        tracing::info!(runtime = true, plugin, worker, stream, line = &*line, "worker log");
    }

    /// Reports at once that something was dropped, and then the amount from time to time.
    fn report(&self, state: &mut State, now: Instant) {
        let due = state.reported.is_none_or(|reported| now.duration_since(reported) >= REPORT_EVERY);
        if due && state.dropped.any() {
            state.reported = Some(now);
            self.log_dropped(std::mem::take(&mut state.dropped));
        }
    }

    fn log_dropped(&self, DroppedOutput { bytes, lines }: DroppedOutput) {
        let Meter { plugin, worker, .. } = self;
        tracing::warn!(
            runtime = true,
            plugin,
            worker,
            bytes,
            lines,
            "a worker exceeds its log rate, and output was dropped; see logBytesPerSecond"
        );
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let dropped = self.state.get_mut().dropped;
        if dropped.any() {
            self.log_dropped(dropped);
        }
    }
}

impl DroppedOutput {
    fn any(self) -> bool {
        self.bytes > 0 || self.lines > 0
    }
}

/// A token bucket of one second.
#[derive(Debug)]
pub struct Rate {
    rate: u64,
    tokens: u64,
    refilled: Instant,
}

impl Rate {
    pub fn new(bytes_per_second: u64, now: Instant) -> Rate {
        Rate { rate: bytes_per_second, tokens: bytes_per_second, refilled: now }
    }

    /// Returns how many of `wanted` bytes may be written now, and counts them as written.
    pub fn take(&mut self, wanted: usize, now: Instant) -> usize {
        self.refill(now);
        let allowed = usize::try_from(self.tokens).unwrap_or(usize::MAX).min(wanted);
        self.tokens -= allowed as u64;
        allowed
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a rate in bytes per second, bounded by the rate itself"
    )]
    fn refill(&mut self, now: Instant) {
        let passed = now.duration_since(self.refilled);
        let exact = passed.as_secs_f64().min(1.0) * self.rate as f64;
        let earned = exact as u64;
        // A fraction below one token stays to accumulate, and so does the remainder: rounding would lose up to half of
        // the rate.
        if earned == 0 {
            return;
        }
        self.tokens = (self.tokens + earned).min(self.rate);
        let is_full = passed >= Duration::from_secs(1);
        self.refilled = if is_full { now } else { self.refilled + passed.mul_f64(earned as f64 / exact) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_a_little_more_than_its_rate_gets_its_rate() {
        let begin = Instant::now();
        let mut rate = Rate::new(20_000, begin);
        assert_eq!(rate.take(20_000, begin), 20_000, "what it begins with");
        let times = (1..=50_000).map(|nth| begin + nth * Duration::from_micros(49));
        let taken: usize = times.map(|now| rate.take(1, now)).sum();
        // After 2.45 seconds.
        assert!((48_990..=49_000).contains(&taken), "{taken}");
    }
}
