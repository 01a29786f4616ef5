//! Meaning of a service's answer for a call by status alone: one mapping for every backend.
//!
//! Keeps true: a refusal is definite, since the service says that nothing was done, and is distinguished from an
//! answer that leaves this open; a service's text reaches the caller only if it is about the arguments (I-11).

use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::outcome::Refusal;
use asp_outbound::LONGEST_WAIT;
use reqwest::StatusCode;

use super::upstream::unanswered;

/// Name of the limit that a service applies to the platform, in refusals.
const LIMIT: &str = "service";
/// Wait that a caller is told if the service states none.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// Meaning of a status other than 2xx for a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Meaning {
    /// The service understood the request and did not perform it.
    Refused(Refusal),
    /// The request may have been performed.
    Open(String),
}

impl Meaning {
    /// Returns the refusal of a call that sent the request.
    pub(crate) fn of(self, call: &Call) -> Refusal {
        match self {
            Meaning::Refused(refusal) => refusal,
            Meaning::Open(why) => unanswered(call, &why),
        }
    }
}

/// Interprets a status. `said` is the service's own text, safe to display, possibly empty.
pub(crate) fn by_status(status: StatusCode, wait: Option<Duration>, said: String) -> Meaning {
    if is_open(status) {
        return Meaning::Open(match status {
            StatusCode::REQUEST_TIMEOUT => "the service timed out waiting for the request".into(),
            other => format!("the service answered {}", other.as_u16()),
        });
    }
    Meaning::Refused(match status {
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
    })
}

/// Whether it is unknown what the service has done: it failed, or it gave up waiting for the request, which some do
/// during the work (RFC 9110 sections 15.6 and 15.5.9).
pub(crate) fn is_open(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT
}

/// Whether a repeated request may soon get another answer (RFC 6585 section 4 for 429).
pub(crate) fn may_pass(status: StatusCode) -> bool {
    is_open(status) || status == StatusCode::TOO_MANY_REQUESTS
}

/// Whether the status concerns only the service or this platform's access to it, and not the caller's request. It is
/// then not a result, because a retry under the same key would get the same result.
pub(crate) fn is_no_result(status: StatusCode) -> bool {
    may_pass(status) || status == StatusCode::UNAUTHORIZED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, wait: Option<u64>) -> Refusal {
        let status = StatusCode::from_u16(status).unwrap();
        match by_status(status, wait.map(Duration::from_secs), "no such case".into()) {
            Meaning::Refused(refusal) => refusal,
            Meaning::Open(why) => panic!("{status}: {why}"),
        }
    }

    #[test]
    fn a_refusal_repeats_only_what_tells_of_the_arguments() {
        for status in [400, 422] {
            assert_eq!(refusal(status, None).public_message(), "arguments: no such case");
        }
        for status in [302, 401, 403, 404, 405, 409, 413, 418] {
            let refusal = refusal(status, None);
            assert!(!refusal.public_message().contains("case"), "{status}");
            assert!(matches!(refusal, Refusal::Declined(_)), "{status}");
        }
    }

    #[test]
    fn after_a_failure_or_a_timeout_it_is_open_what_was_done() {
        for status in [408, 500, 501, 502, 503, 504, 599] {
            let status = StatusCode::from_u16(status).unwrap();
            assert!(matches!(by_status(status, None, String::new()), Meaning::Open(_)), "{status}");
            assert!(may_pass(status) && is_no_result(status), "{status}");
        }
        for (status, passes, is_none) in [(429, true, true), (401, false, true), (403, false, false)] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!((may_pass(status), is_no_result(status)), (passes, is_none), "{status}");
        }
    }

    #[test]
    fn a_services_limit_says_when_to_come_again() {
        for (wait, expected) in [(Some(7), 7_000), (None, 1_000), (Some(u64::MAX), 86_400_000)] {
            let expected = Refusal::Limited { limit: "service", retry_after_ms: expected };
            assert_eq!(refusal(429, wait), expected);
        }
    }
}
