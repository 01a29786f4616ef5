//! Calls of deprecated primitives: a line a day for each org that still makes them, and their refusal once support has ended, if
//! the spec wants that.
//!
//! Keeps true: at most [`MAX_CALLERS`] orgs and primitives are remembered, those of the current day.

use std::collections::HashMap;

use asp_call::call::Call;
use asp_call::call::outcome::Refusal;
use asp_call::clock;
use asp_proto::snapshot::{Deprecation, Primitive};
use asp_snapshot::protocol::protocol_name;
use parking_lot::Mutex;

/// Maximum number of orgs and primitives with a line of their own in a day; the audit log has every call.
const MAX_CALLERS: usize = 4096;
const DAY_S: u64 = 24 * 3600;

/// Org, id and version of a primitive, with the day of the last line.
type LoggedCallers = HashMap<(String, String, String), u64>;

/// The lines of the current day.
#[derive(Default)]
pub(super) struct DeprecationLog(Mutex<LoggedCallers>);

impl DeprecationLog {
    /// Logs a call of a deprecated primitive, once a day for each org; refuses it if its support has ended.
    pub(super) fn admit(&self, call: &Call) -> Result<(), Refusal> {
        let primitive = &call.entry.primitive;
        let Some(deprecation) = &primitive.deprecation else { return Ok(()) };
        let now = clock::unix_seconds();
        if self.is_due(&call.caller.org, primitive, now / DAY_S) {
            tracing::info!(
                org = call.caller.org,
                server = call.server.message.name,
                primitive = primitive.id,
                version = primitive.version,
                protocol = protocol_name(call.protocol),
                until = deprecation.until,
                replacement = deprecation.replacement,
                "deprecated primitive called"
            );
        }
        match refusal(primitive, deprecation, now) {
            None => Ok(()),
            Some(why) => Err(Refusal::Barred(why)),
        }
    }

    /// Whether an org has no line for this primitive on this day yet; it has one then.
    fn is_due(&self, org: &str, primitive: &Primitive, day: u64) -> bool {
        let mut logged = self.0.lock();
        let key = (org.to_owned(), primitive.id.clone(), primitive.version.clone());
        if logged.get(&key) == Some(&day) {
            return false;
        }
        if logged.len() >= MAX_CALLERS {
            logged.retain(|_, last| *last == day);
        }
        if logged.len() >= MAX_CALLERS {
            return false;
        }
        logged.insert(key, day);
        true
    }
}

/// Reason for the refusal of a call at `now`, in Unix seconds.
fn refusal(primitive: &Primitive, deprecation: &Deprecation, now: u64) -> Option<String> {
    if !deprecation.refuse || now < deprecation.until_unix_s {
        return None;
    }
    let instead = match deprecation.replacement.as_str() {
        "" => String::new(),
        replacement => format!("; use {replacement} instead"),
    };
    Some(format!("{} is not supported since {}{instead}", primitive.id, deprecation.until))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primitive(id: &str) -> Primitive {
        Primitive { id: id.into(), version: "1.0.0".into(), ..Primitive::default() }
    }

    #[test]
    fn an_org_has_one_line_a_day_for_each_primitive() {
        let log = DeprecationLog::default();
        assert!(log.is_due("acme", &primitive("a"), 1) && !log.is_due("acme", &primitive("a"), 1));
        assert!(log.is_due("beta", &primitive("a"), 1) && log.is_due("acme", &primitive("b"), 1));
        assert!(log.is_due("acme", &primitive("a"), 2));
        for number in 0..2 * MAX_CALLERS {
            log.is_due("acme", &primitive(&number.to_string()), 2);
        }
        assert_eq!(log.0.lock().len(), MAX_CALLERS);
        assert!(!log.is_due("gamma", &primitive("a"), 2), "there are too many");
        assert!(log.is_due("gamma", &primitive("a"), 3), "a new day");
    }

    #[test]
    fn a_call_is_refused_from_the_day_on_only_if_the_spec_says_so() {
        let deprecation = |refuse: bool, replacement: &str| Deprecation {
            until: "2027-03-01".into(),
            until_unix_s: 1000,
            refuse,
            replacement: replacement.into(),
            ..Deprecation::default()
        };
        let of = |deprecation: &Deprecation, now: u64| refusal(&primitive("a"), deprecation, now);
        assert_eq!((of(&deprecation(true, "b"), 999), of(&deprecation(false, "b"), 2000)), (None, None));
        assert_eq!(
            of(&deprecation(true, "b"), 1000).as_deref(),
            Some("a is not supported since 2027-03-01; use b instead")
        );
        assert_eq!(of(&deprecation(true, ""), 1000).as_deref(), Some("a is not supported since 2027-03-01"));
    }
}
