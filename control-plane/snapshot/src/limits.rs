//! Calls that an exact limit is about: for the gateway that takes from it, and for the explanation of a call.

use std::cmp::Ordering;

use asp_edge::{covers_issuer, names};
use asp_proto::snapshot::Limit;

/// Maximum number of an org's limits that one call draws from: each is work for the counters that all orgs share.
pub const MAX_DRAWN: usize = 8;

/// A call, by what selectors of limits name.
#[derive(Clone, Copy, Debug)]
pub struct LimitedCall<'a> {
    pub server: &'a str,
    pub primitive: &'a str,
    pub user: &'a str,
    pub wcit: &'a str,
    pub issuer: &'a str,
}

/// Whether the call draws from the limit. `each` selects every user or token, with a bucket of its own.
pub fn applies(limit: &Limit, call: LimitedCall<'_>) -> bool {
    let one_of = |selector: &str, name: &str| selector == names::EACH || names::matches(selector, name);
    names::matches(&limit.server, call.server)
        && names::matches(&limit.primitive, call.primitive)
        && covers_issuer(&limit.issuer, limit.user != "*", call.issuer)
        && one_of(&limit.user, call.user)
        && one_of(&limit.wcit, call.wcit)
}

/// The limits of `of` that the call draws from, in their order. If more than [`MAX_DRAWN`] are about it, which lists that were
/// stored before there was a check may have, the tightest count.
pub fn drawn<'l>(of: impl IntoIterator<Item = &'l Limit>, call: LimitedCall<'_>) -> Vec<&'l Limit> {
    let mut drawn: Vec<&Limit> = of.into_iter().filter(|limit| applies(limit, call)).collect();
    if drawn.len() > MAX_DRAWN {
        let tightness = |limit: &Limit| (limit.refill_per_second, limit.capacity);
        drawn.sort_by(|one, other| tightest_first(tightness(one), tightness(other)));
        drawn.truncate(MAX_DRAWN);
    }
    drawn
}

/// Compares limits by refill and capacity: the one with the slower refill is tighter, of the same refill the one with the smaller
/// capacity.
pub fn tightest_first(one: (f64, u64), other: (f64, u64)) -> Ordering {
    one.0.total_cmp(&other.0).then(one.1.cmp(&other.1))
}

/// Name of the bucket that the call draws from. One selector is one bucket whoever it names, but for users and tokens: the
/// same name of two issuers is two callers.
pub fn bucket_key(limit: &Limit, call: LimitedCall<'_>) -> String {
    let Limit { org, server, primitive, user, wcit, issuer, .. } = limit;
    let mut key = vec![org.as_str(), server, primitive, user, wcit, issuer];
    if user != "*" || wcit != "*" {
        key.extend(["of", call.issuer]);
    }
    if user == names::EACH {
        key.extend(["user", call.user]);
    }
    if wcit == names::EACH {
        key.extend(["wcit", call.wcit]);
    }
    // Names have no control characters.
    key.join("\u{0}")
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use serde_json::Value;

    use super::*;

    #[test]
    fn of_more_limits_than_a_call_draws_from_the_tightest_count() {
        let limit = |capacity: u64, refill_per_second: f64, server: &str| Limit {
            org: "acme".into(),
            server: server.into(),
            primitive: "*".into(),
            user: "*".into(),
            wcit: "*".into(),
            capacity,
            refill_per_second,
            ..Limit::default()
        };
        let call = LimitedCall { server: "demo", primitive: "pay", user: "alice", wcit: "t", issuer: "i" };
        let capacities = |limits: &[Limit]| -> Vec<u64> {
            drawn(limits, call).into_iter().map(|limit| limit.capacity).collect()
        };
        let mut limits: Vec<Limit> = (1..=8).rev().map(|n| limit(n, 1.0, "*")).collect();
        limits.push(limit(1, 0.1, "other"));
        assert_eq!(capacities(&limits), [8, 7, 6, 5, 4, 3, 2, 1], "as they are listed");
        limits.push(limit(100, 0.5, "demo"));
        assert_eq!(capacities(&limits), [100, 1, 2, 3, 4, 5, 6, 7], "the slowest refill, then the smallest");
        limits.extend((0..1_000).map(|_| limit(1, 2.0, "*")));
        assert_eq!(capacities(&limits), [100, 1, 2, 3, 4, 5, 6, 7]);
    }

    /// The rows that the edge's coarse limits are held to as well.
    #[test]
    fn who_is_counted_and_in_which_bucket_is_as_the_shared_vectors_have_it() {
        let rows: Vec<Value> =
            serde_json::from_str(include_str!("../../../tests/vectors/limits.json")).unwrap();
        assert!(rows.len() > 10);
        let text = |of: &Value, name: &str, missing: &str| of[name].as_str().unwrap_or(missing).to_owned();
        for row in rows {
            let selector = &row["limit"];
            let limit = Limit {
                org: "acme".into(),
                server: "*".into(),
                primitive: "*".into(),
                user: text(selector, "user", "*"),
                wcit: text(selector, "wcit", "*"),
                issuer: text(selector, "issuer", ""),
                ..Limit::default()
            };
            let mut known = HashMap::new();
            for caller in row["callers"].as_array().unwrap() {
                let [issuer, user, wcit] = ["issuer", "user", "wcit"].map(|name| text(caller, name, "t"));
                let call = LimitedCall {
                    server: "demo",
                    primitive: "pay",
                    user: &user,
                    wcit: &wcit,
                    issuer: &issuer,
                };
                assert_eq!(applies(&limit, call), caller["bucket"].is_string(), "{row}: {caller}");
                if applies(&limit, call) {
                    let key = bucket_key(&limit, call);
                    let first = known.entry(text(caller, "bucket", "")).or_insert_with(|| key.clone());
                    assert_eq!(*first, key, "{row}: {caller}");
                }
            }
            let apart: HashSet<&String> = known.values().collect();
            assert_eq!(apart.len(), known.len(), "{row}: one bucket for two");
        }
    }
}
