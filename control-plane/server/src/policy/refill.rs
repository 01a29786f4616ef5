//! The refill rate of a token bucket in the notation of admins: `100/s`, `0.5/s`, `30/m`, `1000/h`.

/// A text that is not a refill rate.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not a refill: write <number>/s, <number>/m or <number>/h, the number above 0 and at most 1000000"
)]
pub struct BadRefill(pub String);

/// Maximum capacity of a bucket; a larger one would not limit anything.
pub const MAX_CAPACITY: u64 = 1_000_000_000;
/// Maximum number per unit; more than any limit needs, and small enough for exact arithmetic.
pub const MAX_PER_UNIT: u64 = 1_000_000;

/// Refill of a limit on calls that run, which readers enforce that know token buckets alone: practically none.
pub const CONCURRENCY_REFILL: &str = "1000000/s";

/// Parses a rate; returns tokens per second.
pub fn parse(text: &str) -> Result<f64, BadRefill> {
    let bad = || BadRefill(text.chars().take(64).collect());
    let (number, unit) = text.split_once('/').ok_or_else(bad)?;
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    if number.is_empty() || !number.chars().all(digits) {
        return Err(bad());
    }
    let number: f64 = number.parse().map_err(|_| bad())?;
    let seconds = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err(bad()),
    };
    if number > 0.0 && number <= MAX_PER_UNIT as f64 { Ok(number / seconds) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refill_is_a_number_per_second_minute_or_hour() {
        for (text, expected) in [("100/s", 100.0), ("0.5/s", 0.5), ("30/m", 0.5), ("3600/h", 1.0)] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "100",
            "/s",
            "100/",
            "100/d",
            "-1/s",
            "0/s",
            "1e3/s",
            "NaN/s",
            "inf/s",
            "1.2.3/s",
            " 1/s",
            "1000001/s",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
