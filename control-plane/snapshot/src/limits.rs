//! Calls that an exact limit is about: for the gateway that takes from it, and for the explanation of a call.

use asp_edge::{covers_issuer, names};
use asp_proto::snapshot::Limit;

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
