//! Details of a revocation for the caller that it refuses: since when, and the reason that the admin gave.
//!
//! Keeps true: only a caller whose token was verified learns them, and only those of its own token, user or org.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::reason::Reason;

/// Maximum size, in bytes, of a reason that is shown to a caller. A longer one is cut.
const MAX_REASON_BYTES: usize = 200;

/// Details of a revocation or block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationNotice {
    /// Unix milliseconds; 0 if not known.
    pub since_ms: u64,
    /// Reason that the admin gave; empty if none was given.
    pub text: String,
    /// Whether the user or org is blocked, so that a new token does not help.
    pub is_block: bool,
}

impl RevocationNotice {
    /// Creates a notice; cuts a reason that is too long, and leaves out control characters.
    pub fn new(since_ms: u64, text: &str, is_block: bool) -> RevocationNotice {
        let text = text.get(..text.floor_char_boundary(MAX_REASON_BYTES)).unwrap_or_default();
        let text = text.chars().filter(|character| !character.is_control()).collect();
        RevocationNotice { since_ms, text, is_block }
    }

    /// Returns the reason of the refusal.
    pub const fn reason(&self) -> Reason {
        if self.is_block { Reason::Blocked } else { Reason::TokenRevoked }
    }

    /// Whether there is nothing to tell beyond [`RevocationNotice::reason`].
    pub fn is_plain(&self) -> bool {
        *self == RevocationNotice::default()
    }

    /// Returns the time of the revocation as RFC 3339 in UTC; `None` if it is not known.
    pub fn since(&self) -> Option<String> {
        (self.since_ms > 0).then(|| rfc3339(self.since_ms))
    }

    /// Returns the members that a refusal has in every protocol, by name.
    pub fn members(&self) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let text = Some(self.text.clone()).filter(|text| !text.is_empty());
        let since = self.since().map(|since| ("revokedSince", since));
        since.into_iter().chain(text.map(|text| ("revokedReason", text)))
    }
}

impl fmt::Display for RevocationNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.is_block {
            true => "the caller has been blocked",
            false => "the token it was called with has been revoked",
        })?;
        if let Some(since) = self.since() {
            write!(f, " since {since}")?;
        }
        if !self.text.is_empty() {
            write!(f, ": {}", self.text)?;
        }
        Ok(())
    }
}

/// Formats Unix milliseconds as RFC 3339 in UTC with seconds. The date follows from the days by the proleptic Gregorian
/// calendar, in eras of 400 years (146,097 days) that begin in March.
fn rfc3339(ms: u64) -> String {
    let seconds = ms / 1_000;
    let days = seconds / 86_400 + 719_468;
    let time = seconds % 86_400;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let hour = time / 3_600;
    let minute = time / 60 % 60;
    let second = time % 60;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_formatted_on_both_sides_of_leap_days_and_years() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_709_251_200_000, "2024-03-01T00:00:00Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(ms), text, "{ms}");
        }
    }

    #[test]
    fn a_notice_shows_a_bounded_reason_without_control_characters() {
        let long = format!("a\n{}", "é".repeat(MAX_REASON_BYTES));
        let notice = RevocationNotice::new(1_000, &long, true);
        assert!(notice.text.len() <= MAX_REASON_BYTES && notice.text.starts_with("aé"), "{}", notice.text);
        let notice = RevocationNotice::new(1_000, "left", true);
        assert_eq!(notice.to_string(), "the caller has been blocked since 1970-01-01T00:00:01Z: left");
        let members: Vec<(&str, String)> = notice.members().collect();
        let since = ("revokedSince", "1970-01-01T00:00:01Z".to_owned());
        assert_eq!(members, [since, ("revokedReason", "left".to_owned())]);
        assert!(RevocationNotice::default().is_plain() && !notice.is_plain());
        assert_eq!(RevocationNotice::default().members().count(), 0);
    }
}
