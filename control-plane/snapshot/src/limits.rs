//! Matching of calls to exact limits, both to enforce a limit and to explain a call.

use std::cmp::Ordering;

use asp_edge::{covers_issuer, names};
use asp_proto::snapshot::Limit;

/// Maximum number of an org's limits that one call draws from. Each costs work in the counters that all orgs share.
pub const MAX_DRAWN: usize = 8;

/// The properties of a call that limits select by.
#[derive(Clone, Copy, Debug)]
pub struct LimitedCall<'a> {
    pub server: &'a str,
    pub primitive: &'a str,
    pub user: &'a str,
    pub wcit: &'a str,
    pub issuer: &'a str,
    pub groups: &'a [String],
}

/// Name of the org under which a snapshot has the limits of all orgs together. No org has this name.
pub const EVERY_ORG: &str = "*";

/// The levels of the hierarchy, most specific first; also the closed set of metric labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Calls that run, by the limit of a spec.
    Concurrency,
    Primitive,
    User,
    Group,
    Tenant,
    Server,
    Global,
}

impl Level {
    const ALL: [Level; 7] = [
        Level::Concurrency,
        Level::Primitive,
        Level::User,
        Level::Group,
        Level::Tenant,
        Level::Server,
        Level::Global,
    ];

    /// Whether a level has this name.
    pub fn is_name(name: &str) -> bool {
        Level::ALL.iter().any(|level| level.as_str() == name)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Level::Concurrency => "concurrency",
            Level::Primitive => "primitive",
            Level::User => "user",
            Level::Group => "group",
            Level::Tenant => "tenant",
            Level::Server => "server",
            Level::Global => "global",
        }
    }
}

/// Returns the level of a limit: the most specific part of its selector. A limit of all orgs is of a server or global.
pub fn level(limit: &Limit) -> Level {
    match (limit.org.as_str(), limit.server.as_str()) {
        (EVERY_ORG, "*") => Level::Global,
        (EVERY_ORG, _) => Level::Server,
        _ if limit.primitive != "*" => Level::Primitive,
        _ if limit.user != "*" || limit.wcit != "*" => Level::User,
        _ if !limit.group.is_empty() => Level::Group,
        (_, "*") => Level::Tenant,
        _ => Level::Server,
    }
}

/// Whether the call draws from the limit. The selector `each` matches every user or token and gives each its own
/// bucket.
pub fn applies(limit: &Limit, call: LimitedCall<'_>) -> bool {
    let one_of = |selector: &str, name: &str| selector == names::EACH || names::matches(selector, name);
    names::matches(&limit.server, call.server)
        && names::matches(&limit.primitive, call.primitive)
        && covers_issuer(&limit.issuer, limit.user != "*", call.issuer)
        && one_of(&limit.user, call.user)
        && one_of(&limit.wcit, call.wcit)
        && (limit.group.is_empty() || call.groups.contains(&limit.group))
}

/// Returns the limits that the call draws from, in the order of `of`. Lists stored before there was a check may match
/// a call with more than [`MAX_DRAWN`] limits; then the tightest are returned, tightest first and enforced ones before observed
/// ones.
pub fn matching<'l>(of: impl IntoIterator<Item = &'l Limit>, call: LimitedCall<'_>) -> Vec<&'l Limit> {
    let mut drawn: Vec<&Limit> = of.into_iter().filter(|limit| applies(limit, call)).collect();
    if drawn.len() > MAX_DRAWN {
        let tightness = |limit: &Limit| (limit.refill_per_second, limit.capacity);
        drawn.sort_by(|one, other| {
            one.observe.cmp(&other.observe).then(tightest_first(tightness(one), tightness(other)))
        });
        drawn.truncate(MAX_DRAWN);
    }
    drawn
}

/// Orders limits, given as refill and capacity: a slower refill is tighter; at equal refill a smaller capacity is.
pub fn tightest_first(one: (f64, u64), other: (f64, u64)) -> Ordering {
    one.0.total_cmp(&other.0).then(one.1.cmp(&other.1))
}

/// Returns the name of the bucket that the call draws from. All callers share the bucket of a selector, except that
/// selectors of users and tokens have a bucket for each issuer: the same name from two issuers means two callers.
pub fn bucket_key(limit: &Limit, call: LimitedCall<'_>) -> String {
    let Limit { org, server, primitive, user, wcit, issuer, .. } = limit;
    let window = limit.fixed_window_seconds.max(limit.sliding_window_seconds).to_string();
    let mut key = vec![org.as_str(), server, primitive, user, wcit, issuer];
    if user != "*" || wcit != "*" || !limit.group.is_empty() {
        key.extend(["of", call.issuer]);
    }
    if user == names::EACH {
        key.extend(["user", call.user]);
    }
    if wcit == names::EACH {
        key.extend(["wcit", call.wcit]);
    }
    if limit.observe {
        key.push("observed");
    }
    if !limit.group.is_empty() {
        key.extend(["in", &limit.group]);
    }
    // A limit of another kind or window begins anew.
    match (limit.concurrent, limit.fixed_window_seconds, limit.sliding_window_seconds) {
        (true, ..) => key.push("running"),
        (_, 1.., _) => key.extend(["window", &window]),
        (_, _, 1..) => key.extend(["sliding", &window]),
        _ => {}
    }
    // Names contain no control characters.
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
        let call = LimitedCall {
            server: "demo",
            primitive: "pay",
            user: "alice",
            wcit: "t",
            issuer: "i",
            groups: &[],
        };
        let capacities = |limits: &[Limit]| -> Vec<u64> {
            matching(limits, call).into_iter().map(|limit| limit.capacity).collect()
        };
        let mut limits: Vec<Limit> = (1..=8).rev().map(|n| limit(n, 1.0, "*")).collect();
        limits.push(limit(1, 0.1, "other"));
        assert_eq!(capacities(&limits), [8, 7, 6, 5, 4, 3, 2, 1], "as they are listed");
        limits.push(limit(100, 0.5, "demo"));
        assert_eq!(capacities(&limits), [100, 1, 2, 3, 4, 5, 6, 7], "the slowest refill, then the smallest");
        limits.extend((0..1_000).map(|_| limit(1, 2.0, "*")));
        assert_eq!(capacities(&limits), [100, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_limit_of_a_group_counts_its_members_and_kinds_do_not_share_buckets() {
        let limit = Limit {
            org: "acme".into(),
            server: "*".into(),
            primitive: "*".into(),
            user: "*".into(),
            wcit: "*".into(),
            group: "finance".into(),
            ..Limit::default()
        };
        let groups = ["sales".to_owned(), "finance".to_owned()];
        let call = LimitedCall {
            server: "demo",
            primitive: "pay",
            user: "alice",
            wcit: "t",
            issuer: "i",
            groups: &groups,
        };
        let other = LimitedCall { groups: &groups[..1], ..call };
        assert!(applies(&limit, call) && !applies(&limit, other));
        assert_eq!(level(&limit), Level::Group);
        let elsewhere = LimitedCall { issuer: "j", ..call };
        assert_ne!(bucket_key(&limit, call), bucket_key(&limit, elsewhere), "the same name at two issuers");
        let kinds = [
            limit.clone(),
            Limit { fixed_window_seconds: 60, ..limit.clone() },
            Limit { fixed_window_seconds: 61, ..limit.clone() },
            Limit { sliding_window_seconds: 60, ..limit.clone() },
            Limit { concurrent: true, ..limit.clone() },
            Limit { group: String::new(), ..limit.clone() },
        ];
        let keys: HashSet<String> = kinds.iter().map(|limit| bucket_key(limit, call)).collect();
        assert_eq!(keys.len(), kinds.len());
        let of_all = Limit { org: EVERY_ORG.into(), group: String::new(), ..limit };
        assert_eq!(level(&of_all), Level::Global);
        assert_eq!(level(&Limit { server: "shop".into(), ..of_all }), Level::Server);
    }

    /// The edge's coarse limits are tested with the same rows.
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
                    groups: &[],
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
