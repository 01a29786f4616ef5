//! Rules and outcomes of a decision in the words of an explanation.

use asp_proto::snapshot::{Listing, OrgPart, Protocol};
use asp_snapshot::policy::Effect;
use serde_json::{Value, json};

pub(super) const fn outcome(effect: Effect) -> &'static str {
    match effect {
        Effect::Allow => "allowed",
        Effect::Approve => "needs_approval",
        Effect::Deny => "denied",
    }
}

pub(super) fn danger() -> Value {
    json!({ "stage": "bindings", "rule": "destructive or high-risk, and no binding allows it" })
}

/// Returns the name of a primitive over a protocol; empty if it has none.
pub(in crate::admin) fn name_in_protocol(listing: &Listing, protocol: Protocol) -> &str {
    match protocol {
        Protocol::Mcp => &listing.mcp_name,
        Protocol::A2a => &listing.a2a_skill,
        Protocol::Rest => &listing.rest_name,
        Protocol::Unspecified => "",
    }
}

/// Returns whether the org's exception switches the server on over the protocol; `None` without an exception.
pub(super) fn exception(of_org: &OrgPart, server: &str, protocol: Protocol) -> Option<bool> {
    let mut exceptions = of_org.exposure.iter();
    let found = exceptions.find(|one| one.server == server && one.protocol() == protocol)?;
    Some(found.enabled)
}

pub(super) fn exposure_rule(speaks: bool, of_org: &OrgPart, server: &str, protocol: Protocol) -> Value {
    let exception = exception(of_org, server, protocol).is_some();
    let rule = match (speaks, exception) {
        (false, _) => "the server does not speak this protocol",
        (true, true) => "the org's exception",
        (true, false) => "the server's default",
    };
    json!({ "stage": "exposure", "rule": rule })
}
