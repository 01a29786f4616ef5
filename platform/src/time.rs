//! Points in time as text: RFC 3339.

use ::time::OffsetDateTime;
use ::time::format_description::well_known::Rfc3339;
use ::time::macros::format_description;

/// The last time that RFC 3339 can express: the end of the year 9999.
const LAST_MS: u64 = 253_402_300_799_999;

/// Formats a time in UTC with milliseconds; one after the year 9999 as the end of that year.
pub fn rfc3339(epoch_ms: u64) -> String {
    let form = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    let nanoseconds = i128::from(epoch_ms.min(LAST_MS)) * 1_000_000;
    // Neither fails: the time is in range, and has every component of the form.
    let moment = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    moment.format(form).unwrap_or_default()
}

/// Reads a time; returns Unix milliseconds, rounded down, negative before 1970.
pub fn from_rfc3339(text: &str) -> Option<i128> {
    let moment = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    Some(moment.unix_timestamp_nanos().div_euclid(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_in_time_is_written_in_utc_with_its_leap_days() {
        for (epoch_ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_785_196_799_999, "2026-07-27T23:59:59.999Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00.000Z"),
            (LAST_MS, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(epoch_ms), text);
            assert_eq!(from_rfc3339(text), Some(epoch_ms.into()));
        }
        assert_eq!(rfc3339(u64::MAX), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn a_text_is_read_with_its_offset_and_only_as_rfc_3339() {
        assert_eq!(from_rfc3339("1970-01-01T01:00:01.0019+01:00"), Some(1_001));
        assert_eq!(from_rfc3339("1969-12-31T23:59:59.9999Z"), Some(-1));
        for bad in ["yesterday", "2026-02-30T00:00:00Z", "2026-02-03", "2026-02-03T00:00:00"] {
            assert_eq!(from_rfc3339(bad), None, "{bad}");
        }
    }
}
