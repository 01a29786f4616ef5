//! What a service's answer by status alone means for a call: it understood the request, and did not do it.
//!
//! Keeps true: such an end is definite, since the service says that nothing was done; its words reach the caller
//! only where they tell of the arguments (I-11).

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use crate::call::outcome::Refusal;

/// The limit that a service applies to the platform, as refusals name it.
const LIMIT: &str = "service";
/// What a caller is told to wait where the service does not say.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);
/// Longer than a day is longer than any call.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// The refusal of a 3xx or 4xx answer. `said`: the service's own words, fit to be shown; perhaps empty.
pub(crate) fn by_status(status: StatusCode, wait: Option<Duration>, said: String) -> Refusal {
    match status {
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => {
            let message = if said.is_empty() { "the service refuses the arguments".into() } else { said };
            Refusal::InvalidArguments { pointer: String::new(), message }
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Refusal::Declined("the service does not accept calls of this platform".into())
        }
        StatusCode::NOT_FOUND => Refusal::Declined("the service does not offer this".into()),
        StatusCode::TOO_MANY_REQUESTS => {
            let wait = wait.unwrap_or(DEFAULT_WAIT).min(LONGEST_WAIT);
            let retry_after_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            Refusal::Limited { limit: LIMIT, retry_after_ms }
        }
        other => Refusal::Declined(format!("the service answered {}", other.as_u16())),
    }
}

/// The seconds of RFC 9110 section 10.2.3; a date is as good as nothing, since clocks differ.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_repeats_only_what_tells_of_the_arguments() {
        let refused = |status| by_status(status, None, "no such case".into());
        assert_eq!(refused(StatusCode::UNPROCESSABLE_ENTITY).public_message(), "argument : no such case");
        for status in
            [StatusCode::NOT_FOUND, StatusCode::FORBIDDEN, StatusCode::FOUND, StatusCode::IM_A_TEAPOT]
        {
            let refusal = refused(status);
            assert!(!refusal.public_message().contains("case"), "{status}");
            assert!(matches!(refusal, Refusal::Declined(_)), "{status}");
        }
    }

    #[test]
    fn a_services_limit_says_when_to_come_again() {
        for (wait, expected) in [(Some(7), 7_000), (None, 1_000), (Some(u64::MAX), 86_400_000)] {
            let refusal =
                by_status(StatusCode::TOO_MANY_REQUESTS, wait.map(Duration::from_secs), String::new());
            assert_eq!(refusal, Refusal::Limited { limit: "service", retry_after_ms: expected });
        }
    }
}
