//! Rate limits of an org that a call would draw from.

use asp_edge::{MACHINE_ISSUER, names};
use asp_proto::snapshot::{Limit, OrgPart};
use asp_snapshot::limits::{self, LimitedCall};
use serde_json::{Value, json};

/// Lists the limits that the call would draw from, each with its kind of buckets.
pub(super) fn of(org: &OrgPart, call: LimitedCall<'_>) -> Vec<Value> {
    limits::matching(&org.limits, call).into_iter().map(limit_json).collect()
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
        "capacity": capacity,
        "refillPerSecond": refill_per_second,
        "buckets": buckets,
    });
    if limit.observe
        && let Some(members) = shown.as_object_mut()
    {
        members.insert("observe".to_owned(), true.into());
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
        let call =
            LimitedCall { server: "demo", primitive: "cc.pay", user: "alice", wcit: "", issuer: "login" };
        let shown = of(&org, call);
        let said: Vec<_> =
            shown.iter().map(|limit| (&limit["selector"]["user"], &limit["buckets"])).collect();
        assert_eq!(said, [(&json!("each"), &json!("one for each user")), (&json!("*"), &json!("one"))]);
    }
}
