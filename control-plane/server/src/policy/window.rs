//! The window of a limit in the notation of admins: `60s`, `15m`, `1h`, `1d`.

use super::refill::MAX_PER_UNIT;

/// Longest window, in seconds: 31 days.
pub const MAX_SECONDS: u64 = 31 * 86_400;
/// Units, longest first: the letter, the words in a line, and the length in seconds.
const UNITS: [(&str, &str, u64); 4] =
    [("d", "day", 86_400), ("h", "hour", 3_600), ("m", "minute", 60), ("s", "second", 1)];

/// A text that is not a window.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a window: write <number>s, <number>m, <number>h or <number>d, at most 31d")]
pub struct BadWindow(String);

/// Parses a window; returns its length in seconds.
pub fn parse(text: &str) -> Result<u64, BadWindow> {
    let bad = || BadWindow(text.chars().take(64).collect());
    let letter = text.chars().last().ok_or_else(bad)?.to_string();
    let number = text.strip_suffix(letter.as_str()).ok_or_else(bad)?;
    let (_, _, unit) = UNITS.iter().find(|(known, ..)| *known == letter).ok_or_else(bad)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let seconds =
        number.parse::<u64>().ok().filter(|_| is_number).and_then(|number| number.checked_mul(*unit));
    seconds.filter(|seconds| (1..=MAX_SECONDS).contains(seconds)).ok_or_else(bad)
}

/// Returns a window in the notation of admins, by its longest unit.
pub fn text(seconds: u64) -> String {
    let (letter, _, unit) = unit_of(seconds);
    format!("{}{letter}", seconds / unit)
}

/// Describes a window: `day`, `15 minutes`.
pub fn describe(seconds: u64) -> String {
    let (_, word, unit) = unit_of(seconds);
    match seconds / unit {
        1 => word.to_owned(),
        number => format!("{number} {word}s"),
    }
}

/// Returns the refill that readers enforce which know token buckets alone: the window's calls, spread over it.
pub fn refill(capacity: u64, seconds: u64) -> String {
    let rate = capacity as f64 / seconds.max(1) as f64;
    if rate >= 1.0 {
        format!("{:.6}/s", rate.min(MAX_PER_UNIT as f64))
    } else {
        format!("{:.6}/h", (rate * 3_600.0).max(0.000_001))
    }
}

fn unit_of(seconds: u64) -> (&'static str, &'static str, u64) {
    let fits = UNITS.into_iter().find(|(_, _, unit)| seconds >= *unit && seconds.is_multiple_of(*unit));
    fits.unwrap_or(("s", "second", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_number_of_seconds_minutes_hours_or_days() {
        for (written, seconds, words) in [
            ("1s", 1, "second"),
            ("90s", 90, "90 seconds"),
            ("15m", 900, "15 minutes"),
            ("1h", 3_600, "hour"),
            ("1d", 86_400, "day"),
            ("31d", MAX_SECONDS, "31 days"),
        ] {
            assert_eq!(parse(written), Ok(seconds), "{written}");
            assert_eq!((text(seconds).as_str(), describe(seconds).as_str()), (written, words));
        }
        assert_eq!((parse("120s"), text(120)), (Ok(120), "2m".to_owned()));
        for bad in
            ["", "d", "1", "0s", "1w", "1 d", "-1d", "+1d", "1.5h", "32d", "99999999999999999999s", "1é", "é"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn earlier_versions_read_the_refill_of_any_window() {
        for (capacity, seconds) in [(1, MAX_SECONDS), (1_000, 86_400), (60, 60), (1_000_000_000, 1)] {
            let read = super::super::refill::parse(&refill(capacity, seconds));
            assert!(read.is_ok_and(|rate| rate > 0.0), "{capacity} in {seconds} s");
        }
    }
}
