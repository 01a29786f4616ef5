//! Rate limits of an org that a call would draw from.

use asp_edge::{MACHINE_ISSUER, names};
use asp_proto::snapshot::{Limit, OrgPart};
use asp_snapshot::limits::{self, LimitedCall};
use serde_json::{Value, json};

/// Lists the limits that the call would draw from, each with its level and kind of buckets, most specific first.
pub(super) fn of(parts: &[&OrgPart], call: LimitedCall<'_>) -> Vec<Value> {
    let mut drawn: Vec<&Limit> = parts.iter().flat_map(|part| limits::matching(&part.limits, call)).collect();
    drawn.sort_by_key(|limit| limits::level(limit));
    drawn.into_iter().map(limit_json).collect()
}

fn limit_json(limit: &Limit) -> Value {
    let is_of_machines = limit.issuer == MACHINE_ISSUER;
    let buckets = match (limit.user == names::EACH, limit.wcit == names::EACH) {
        (false, false) => "one",
        (true, false) if is_of_machines => "one for each machine",
        (true, false) => "one for each user",
        (false, true) => "one for each token",
        (true, true) if is_of_machines => "one for each machine and key",
        (true, true) => "one for each user and token",
    };
    let Limit { server, primitive, user, wcit, issuer, capacity, refill_per_second, .. } = limit;
    let selector = match (is_of_machines, issuer.as_str()) {
        (true, _) => {
            json!({ "server": server, "primitive": primitive, "user": "*", "machine": user, "wcit": wcit })
        }
        (false, "") => json!({ "server": server, "primitive": primitive, "user": user, "wcit": wcit }),
        (false, issuer) => {
            json!({ "server": server, "primitive": primitive, "user": user, "wcit": wcit, "issuer": issuer })
        }
    };
    let mut shown = json!({
        "selector": selector,
        "level": limits::level(limit).as_str(),
        "capacity": capacity,
        "buckets": buckets,
    });
    let fixed = limit.fixed_window_seconds;
    let sliding = limit.sliding_window_seconds;
    let kind = match (limit.concurrent, fixed, sliding) {
        (true, ..) => json!({ "type": "concurrency" }),
        (_, 1.., _) => json!({ "type": "fixed-window", "windowSeconds": fixed }),
        (_, _, 1..) => json!({ "type": "sliding-window", "windowSeconds": sliding }),
        _ => json!({ "refillPerSecond": refill_per_second }),
    };
    if let (Some(members), Value::Object(kind)) = (shown.as_object_mut(), kind) {
        members.extend(kind);
        if limit.observe {
            members.insert("observe".to_owned(), true.into());
        }
    }
    if !limit.group.is_empty()
        && let Some(selector) = shown.get_mut("selector").and_then(Value::as_object_mut)
    {
        selector.insert("group".to_owned(), limit.group.clone().into());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_shown_with_its_buckets_if_it_is_about_the_call() {
        let limit = |user: &str, primitive: &str| Limit {
            org: "acme".into(),
            server: "*".into(),
            primitive: primitive.into(),
            user: user.into(),
            wcit: "*".into(),
            capacity: 2,
            refill_per_second: 1.0,
            ..Limit::default()
        };
        let limits = vec![limit("each", "cc.*"), limit("*", "*"), limit("bob", "*"), limit("each", "other")];
        let org = OrgPart { limits, ..OrgPart::default() };
        let call = LimitedCall {
            server: "demo",
            primitive: "cc.pay",
            user: "alice",
            wcit: "",
            issuer: "login",
            groups: &[],
        };
        let shown = of(&[&org], call);
        let said: Vec<_> =
            shown.iter().map(|limit| (&limit["selector"]["user"], &limit["buckets"])).collect();
        assert_eq!(said, [(&json!("each"), &json!("one for each user")), (&json!("*"), &json!("one"))]);
    }
}
