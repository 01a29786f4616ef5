//! Replay of recorded calls over a limit: the calls that it would have counted and refused.
//!
//! Pure. A limit is replayed by itself, as if it had begun full; a refused call draws nothing, and is not repeated.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use asp_proto::snapshot::Limit;
use asp_snapshot::limits::{self, LimitedCall};
use serde::Deserialize;

/// Reasons of calls that were refused before limits counted them.
const REFUSED_BEFORE: [&str; 3] = ["unknown_primitive", "denied", "insufficient_scope"];

/// A call of the audit log that limits counted, or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// Start of the call in Unix milliseconds.
    pub at_ms: i64,
    /// End of the call in Unix milliseconds.
    pub end_ms: i64,
    pub user: String,
    /// Name of the caller's issuer; "" in records of earlier versions.
    pub issuer: String,
    /// Whether a limit refused the call.
    pub was_limited: bool,
    wcit: String,
    server: String,
    primitive: String,
    /// Whether another call asked for this one; such calls draw only from limits that name primitives.
    is_nested: bool,
}

/// The calls of one caller that a limit counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallerCount {
    pub calls: u64,
    /// Calls that the limit would have refused.
    pub refused: u64,
}

/// The members of an audit event that a replay needs.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FinishRecord {
    event: String,
    user: String,
    issuer: String,
    wcit: String,
    server: String,
    primitive: String,
    reason: String,
    rate_limit_hit: bool,
    latency_us: u64,
    parent: Option<String>,
}

impl RecordedCall {
    /// Reads an event of the audit log; returns `None` unless it is the end of a call that limits counted or refused.
    pub fn read(at_ms: i64, event: &str) -> Option<RecordedCall> {
        let record: FinishRecord = serde_json::from_str(event).ok()?;
        if record.event != "call.finish" || REFUSED_BEFORE.contains(&record.reason.as_str()) {
            return None;
        }
        let id = record.primitive.rsplit_once('@').map_or(record.primitive.as_str(), |(id, _)| id);
        Some(RecordedCall {
            at_ms: at_ms.saturating_sub(i64::try_from(record.latency_us / 1_000).unwrap_or_default()),
            end_ms: at_ms,
            primitive: id.to_owned(),
            user: record.user,
            issuer: record.issuer,
            was_limited: record.rate_limit_hit,
            wcit: record.wcit,
            server: record.server,
            is_nested: record.parent.is_some(),
        })
    }

    fn selected(&self) -> LimitedCall<'_> {
        LimitedCall {
            server: &self.server,
            primitive: &self.primitive,
            user: &self.user,
            wcit: &self.wcit,
            issuer: &self.issuer,
            // The log of calls has no groups.
            groups: &[],
        }
    }
}

/// Counts the calls, given in the order of their time, by user and issuer.
pub fn replay<'c>(limit: &Limit, calls: &'c [RecordedCall]) -> BTreeMap<(&'c str, &'c str), CallerCount> {
    let mut levels: HashMap<String, Level> = HashMap::new();
    let mut callers: BTreeMap<(&str, &str), CallerCount> = BTreeMap::new();
    for call in calls {
        let selected = call.selected();
        if (call.is_nested && limit.primitive == "*") || !limits::applies(limit, selected) {
            continue;
        }
        let level =
            levels.entry(limits::bucket_key(limit, selected)).or_insert_with(|| Level::full(limit, call));
        let is_refused = !level.admits(limit, call);
        let caller = callers.entry((&call.user, &call.issuer)).or_default();
        caller.calls += 1;
        caller.refused += u64::from(is_refused);
    }
    callers
}

/// Level of a bucket.
enum Level {
    Tokens {
        tokens: f64,
        since: i64,
    },
    /// Admitted calls of the window of this number.
    Window {
        number: i64,
        used: u64,
    },
    /// Times until which admitted calls count, in their order: the end of a sliding window.
    Recent(VecDeque<i64>),
    /// Ends of admitted calls, the first one on top.
    Running(BinaryHeap<Reverse<i64>>),
}

impl Level {
    fn full(limit: &Limit, call: &RecordedCall) -> Level {
        if limit.concurrent {
            Level::Running(BinaryHeap::new())
        } else if limit.fixed_window_seconds > 0 {
            Level::Window { number: i64::MIN, used: 0 }
        } else if limit.sliding_window_seconds > 0 {
            Level::Recent(VecDeque::new())
        } else {
            Level::Tokens { tokens: limit.capacity.max(1) as f64, since: call.at_ms }
        }
    }

    /// Draws from the bucket; returns whether the call is admitted.
    fn admits(&mut self, limit: &Limit, call: &RecordedCall) -> bool {
        let capacity = limit.capacity.max(1);
        let at = call.at_ms;
        match self {
            Level::Tokens { tokens, since } => {
                let seconds = at.saturating_sub(*since).max(0) as f64 / 1_000.0;
                *tokens = (*tokens + seconds * limit.refill_per_second).min(capacity as f64);
                *since = at.max(*since);
                let is_admitted = *tokens >= 1.0;
                *tokens -= if is_admitted { 1.0 } else { 0.0 };
                is_admitted
            }
            Level::Window { number, used } => {
                let current = at.div_euclid(i64::from(limit.fixed_window_seconds.max(1)) * 1_000);
                if current > *number {
                    (*number, *used) = (current, 0);
                }
                let is_admitted = *used < capacity;
                *used += u64::from(is_admitted);
                is_admitted
            }
            Level::Recent(ends) => {
                while ends.front().is_some_and(|end| *end <= at) {
                    ends.pop_front();
                }
                let is_admitted = (ends.len() as u64) < capacity;
                if is_admitted {
                    ends.push_back(at.saturating_add(i64::from(limit.sliding_window_seconds) * 1_000));
                }
                is_admitted
            }
            Level::Running(ends) => {
                while ends.peek().is_some_and(|Reverse(end)| *end <= at) {
                    ends.pop();
                }
                let is_admitted = (ends.len() as u64) < capacity;
                if is_admitted {
                    ends.push(Reverse(call.end_ms));
                }
                is_admitted
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::{self, limit_line};

    fn call(at_ms: i64, user: &str) -> RecordedCall {
        let event = json!({ "event": "call.finish", "user": user, "issuer": "login", "wcit": "t", "server": "shop",
            "primitive": "shop.pay@1.0.0", "reason": "ok", "latencyUs": 2_500, "rateLimitHit": false });
        RecordedCall::read(at_ms + 2, &event.to_string()).unwrap()
    }

    fn limit(line: &str) -> Limit {
        policy::limit("acme", &limit_line::parse(line).unwrap()).unwrap()
    }

    #[test]
    fn each_user_is_refused_beyond_the_burst_until_the_bucket_refills() {
        let mut calls: Vec<RecordedCall> = (0..5).map(|n| call(n, "alice")).collect();
        calls.extend([call(5, "bob"), call(30_010, "alice"), call(30_011, "alice")]);
        let counts = replay(&limit("2/min"), &calls);
        assert_eq!(counts[&("alice", "login")], CallerCount { calls: 7, refused: 4 });
        assert_eq!(counts[&("bob", "login")], CallerCount { calls: 1, refused: 0 });
        let together = replay(&limit("2/min for everyone"), &calls);
        assert_eq!(together[&("bob", "login")], CallerCount { calls: 1, refused: 1 });
        for line in
            ["1/h on other.*", "1/h at other", "1/h for user carol", "1/h from other", "1/h for each machine"]
        {
            assert!(replay(&limit(line), &calls).is_empty(), "{line}");
        }
        assert_eq!(replay(&limit("1/h on shop.* at shop from login"), &calls).len(), 2);
    }

    #[test]
    fn windows_and_running_calls_are_replayed_too() {
        let refused =
            |line: &str, calls: &[RecordedCall]| replay(&limit(line), calls)[&("alice", "login")].refused;
        // A minute begins at 60,000.
        let calls: Vec<RecordedCall> =
            [59_000, 59_500, 59_900, 60_000, 60_100].into_iter().map(|at| call(at, "alice")).collect();
        assert_eq!(refused("2/min window fixed", &calls), 1, "two in each minute");
        assert_eq!(refused("2/min window sliding", &calls), 3);
        assert_eq!(refused("4/day", &calls), 1);
        let long = RecordedCall { end_ms: 60_050, ..call(59_000, "alice") };
        let calls = [long, call(59_500, "alice"), call(60_100, "alice")];
        assert_eq!(refused("at most 1 at once", &calls), 1, "one ran while another did");
        assert!(replay(&limit("1/min in finance"), &calls).is_empty(), "the log has no groups");
    }

    #[test]
    fn nested_calls_draw_only_from_limits_that_name_primitives() {
        let nested = RecordedCall { is_nested: true, ..call(0, "alice") };
        let calls = [nested];
        assert!(replay(&limit("1/h"), &calls).is_empty());
        assert_eq!(replay(&limit("1/h on shop.pay"), &calls).len(), 1);
    }

    #[test]
    fn only_ends_of_calls_that_limits_saw_are_read() {
        let read = |event: &str, reason: &str, limited: bool| {
            let event = json!({ "event": event, "user": "a", "reason": reason, "rateLimitHit": limited });
            RecordedCall::read(1, &event.to_string())
        };
        assert!(read("call.start", "", false).is_none());
        assert!(read("call.finish", "unknown_primitive", false).is_none());
        assert!(read("call.finish", "rate_limited", true).unwrap().was_limited);
        assert!(read("call.finish", "invalid_params", false).is_some());
        assert!(RecordedCall::read(1, "no JSON").is_none());
    }
}
