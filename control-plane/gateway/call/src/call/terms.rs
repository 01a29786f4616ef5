//! The terms of a call: the idempotency key and the deadline of a request, as a client of any protocol over HTTP sends them;
//! the bounds of its runtime, and of the time for which it is kept for a client that may return.
//!
//! Refuses: malformed keys and deadlines. Keeps true: protocols read both by one rule, and a value is obeyed or
//! refused, never ignored: a call that may have effects does not run twice, or too late, because of a typing error.

use std::time::Duration;

use asp_proto::snapshot::{Primitive, service_auth};
use asp_store::records::MAX_KEEP;
use http::{HeaderMap, HeaderName};
use serde_json::Value;
use tokio::time::Instant;

use crate::call::question::input_timeout;
use crate::clock;

/// Maximum length of an idempotency key in characters (as Stripe's).
pub const MAX_KEY: usize = 255;
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const DEADLINE: HeaderName = HeaderName::from_static("x-deadline-ms");

/// Reason why a request's key or deadline is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermFault {
    #[error("an idempotency key must have 1 to {} characters and be given once", MAX_KEY)]
    Key,
    #[error("X-Deadline-Ms must be one time in Unix milliseconds")]
    Deadline,
}

/// Returns the key given by the caller: `own` if the protocol has a member of its own for it, else `Idempotency-Key`,
/// else the argument that the primitive's spec names.
pub fn idempotency_key(
    own: Option<&Value>,
    headers: &HeaderMap,
    primitive: &Primitive,
    arguments: &Value,
) -> Result<Option<String>, TermFault> {
    let key = match own {
        Some(own) => Some(own.as_str().ok_or(TermFault::Key)?),
        None => only(headers, &KEY, TermFault::Key)?.or_else(|| argument(primitive, arguments)),
    };
    match key {
        Some(key) if key.is_empty() || key.chars().count() > MAX_KEY => Err(TermFault::Key),
        key => Ok(key.map(str::to_owned)),
    }
}

/// Returns the deadline that the caller asks for: `X-Deadline-Ms`, an absolute time in Unix milliseconds.
pub fn deadline(headers: &HeaderMap) -> Result<Option<Instant>, TermFault> {
    let Some(at) = only(headers, &DEADLINE, TermFault::Deadline)? else { return Ok(None) };
    if at.is_empty() || !at.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(TermFault::Deadline);
    }
    // A time beyond the range of the clock means no deadline.
    Ok(at.parse().ok().and_then(clock::instant))
}

/// Returns a header's value without white space around it; `fault` if it is repeated or not visible ASCII.
fn only<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    fault: TermFault,
) -> Result<Option<&'h str>, TermFault> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    // Which of several is meant is anybody's guess, and a proxy may have dropped one of them.
    let text = value.to_str().ok().filter(|_| values.next().is_none());
    text.map(|text| Some(text.trim())).ok_or(fault)
}

fn argument<'a>(primitive: &Primitive, arguments: &'a Value) -> Option<&'a str> {
    let name = primitive.idempotency_argument.as_str();
    if name.is_empty() { None } else { arguments.get(name)?.as_str() }
}

/// Minimum time for which the record of a call that has ended is kept.
pub const KEEP: Duration = Duration::from_secs(3600);

/// Runtime bound of a call whose spec names none.
const DEFAULT_RUNTIME: Duration = Duration::from_secs(60);

/// Returns the maximum runtime of a call. If the spec names none, a primitive that asks questions also gets the time
/// for an answer.
pub fn runtime_bound(primitive: &Primitive) -> Duration {
    let asks = !primitive.elicitations.is_empty() || !primitive.delegations.is_empty();
    match primitive.max_runtime_seconds {
        0 if asks => DEFAULT_RUNTIME + input_timeout(primitive),
        0 => DEFAULT_RUNTIME,
        seconds => Duration::from_secs(u64::from(seconds)),
    }
}

/// Maximum number of times that a call waits for its caller before it runs: for missing arguments, and for an approval.
pub const MAX_WAITS: u32 = 2;

/// Returns the maximum time from a call's start to its end: the runtime bound, and the time to wait for its caller this often,
/// and once more for the link of an account that the primitive needs.
pub fn lifetime_bound(primitive: &Primitive, waits: u32) -> Duration {
    let auth = primitive.service_auth.as_ref().and_then(|auth| auth.kind.as_ref());
    let links = u32::from(matches!(auth, Some(service_auth::Kind::Linked(_))));
    runtime_bound(primitive) + input_timeout(primitive).saturating_mul(waits + links)
}

/// Returns the minimum time after its start for which a call of the primitive can be found, if a client knows of it.
pub fn retention(primitive: &Primitive) -> Duration {
    lifetime_bound(primitive, MAX_WAITS).clamp(KEEP, MAX_KEEP)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::*;
    use crate::clock::unix_ms;

    fn headers(name: HeaderName, value: &[u8]) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_bytes(value).unwrap())])
    }

    #[test]
    fn a_key_comes_from_the_protocol_then_the_header_then_the_argument() {
        let primitive = Primitive { idempotency_argument: "order".into(), ..Primitive::default() };
        let key = |own: Option<&Value>, headers: &HeaderMap, arguments: Value| {
            idempotency_key(own, headers, &primitive, &arguments)
        };
        let (none, sent) = (HeaderMap::new(), headers(KEY, b" header "));
        let own = json!("own");
        let order = || json!({"order": "argument"});
        assert_eq!(key(Some(&own), &sent, order()), Ok(Some("own".into())));
        assert_eq!(key(None, &sent, order()), Ok(Some("header".into())));
        assert_eq!(key(None, &none, order()), Ok(Some("argument".into())));
        assert_eq!(key(None, &none, json!({})), Ok(None));
    }

    #[test]
    fn a_malformed_key_is_refused_and_never_replaced_by_another_one() {
        let primitive = Primitive { idempotency_argument: "order".into(), ..Primitive::default() };
        let key = |own: Option<&Value>, headers: &HeaderMap, order: &str| {
            idempotency_key(own, headers, &primitive, &json!({"order": order}))
        };
        let none = HeaderMap::new();
        let longest = "é".repeat(MAX_KEY);
        assert_eq!(key(None, &none, &longest), Ok(Some(longest.clone())));
        for bad in [String::new(), format!("{longest}é")] {
            assert_eq!(key(Some(&bad.as_str().into()), &none, "k"), Err(TermFault::Key), "{bad}");
            assert_eq!(key(None, &none, &bad), Err(TermFault::Key), "{bad}");
        }
        assert_eq!(key(Some(&json!(7)), &none, "k"), Err(TermFault::Key));
        for bad in [b"".as_slice(), "ké".as_bytes()] {
            assert_eq!(key(None, &headers(KEY, bad), "k"), Err(TermFault::Key));
        }
    }

    #[test]
    fn a_repeated_header_is_refused() {
        let mut twice = headers(KEY, b"a");
        twice.append(KEY, HeaderValue::from_static("b"));
        let key = |own: Option<&Value>| idempotency_key(own, &twice, &Primitive::default(), &json!({}));
        assert_eq!(key(None), Err(TermFault::Key));
        assert_eq!(key(Some(&json!("own"))), Ok(Some("own".into())));
        let mut twice = headers(DEADLINE, b"1");
        twice.append(DEADLINE, HeaderValue::from_static("2"));
        assert_eq!(deadline(&twice), Err(TermFault::Deadline));
    }

    #[tokio::test]
    async fn a_deadline_is_a_time_in_milliseconds_and_anything_else_is_refused() {
        let of = |value: &[u8]| deadline(&headers(DEADLINE, value));
        assert_eq!(deadline(&HeaderMap::new()), Ok(None));
        let soon = (unix_ms() + 60_000).to_string();
        assert!(of(soon.as_bytes()).is_ok_and(|deadline| deadline.is_some_and(|at| at > Instant::now())));
        assert!(of(b" 1 ").is_ok_and(|deadline| deadline.is_some_and(|at| at <= Instant::now())));
        assert_eq!(of("9".repeat(30).as_bytes()), Ok(None), "later than a clock can say");
        for bad in ["", "soon", "-1", "+1", "1.5", "1 2", "１"] {
            assert_eq!(of(bad.as_bytes()), Err(TermFault::Deadline), "{bad}");
        }
    }
}
