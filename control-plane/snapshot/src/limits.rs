//! Calls that an exact limit is about: for the gateway that takes from it, and for the explanation of a call.

use asp_edge::names;
use asp_proto::snapshot::Limit;

/// A call, by what selectors of limits name.
#[derive(Clone, Copy, Debug)]
pub struct LimitedCall<'a> {
    pub server: &'a str,
    pub primitive: &'a str,
    pub user: &'a str,
    pub wcit: &'a str,
}

/// Whether the call draws from the limit. `each` selects every user or token, with a bucket of its own.
pub fn applies(limit: &Limit, call: LimitedCall<'_>) -> bool {
    let one_of = |selector: &str, name: &str| selector == names::EACH || names::matches(selector, name);
    names::matches(&limit.server, call.server)
        && names::matches(&limit.primitive, call.primitive)
        && one_of(&limit.user, call.user)
        && one_of(&limit.wcit, call.wcit)
}
