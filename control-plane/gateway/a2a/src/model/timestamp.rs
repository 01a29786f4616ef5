//! Points in time, in milliseconds.

use std::fmt;

use asp_platform::time::{from_rfc3339, rfc3339};

/// Milliseconds since the Unix epoch; a time before it counts as the epoch. Written in UTC with milliseconds (A2A 1.0, section
/// 5.6.1), which drops a smaller fraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Parses an RFC 3339 text; one without an offset, as some SDKs of 0.3 write it, is UTC.
    pub fn parse(text: &str) -> Option<Timestamp> {
        let millis = from_rfc3339(text).or_else(|| from_rfc3339(&format!("{text}Z")))?;
        Some(Timestamp(u64::try_from(millis).unwrap_or(0)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rfc3339(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_utc_with_milliseconds() {
        for (text, written) in [
            ("2025-10-28T10:30:00Z", "2025-10-28T10:30:00.000Z"),
            ("2025-10-28T10:30:00.142Z", "2025-10-28T10:30:00.142Z"),
            ("2025-10-28T12:30:00.142+02:00", "2025-10-28T10:30:00.142Z"),
            ("2025-10-28T10:30:00.1429999Z", "2025-10-28T10:30:00.142Z"),
            ("2025-10-28T10:30:00.5", "2025-10-28T10:30:00.500Z"),
            ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(
                Timestamp::parse(text).map(|time| time.to_string()).as_deref(),
                Some(written),
                "{text}"
            );
        }
        for text in ["", "now", "2025-10-28", "2025-13-28T10:30:00Z", "1761647400"] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }
}
