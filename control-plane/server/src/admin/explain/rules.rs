//! Rules and outcomes of a decision in the words of an explanation.

use asp_proto::snapshot::{Listing, OrgPart, Protocol, ServerPart};
use asp_snapshot::policy::Effect;
use asp_snapshot::protocol::protocol_name;
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
pub(super) fn name_in_protocol(listing: &Listing, protocol: Protocol) -> &str {
    match protocol {
        Protocol::Mcp => &listing.mcp_name,
        Protocol::A2a => &listing.a2a_skill,
        Protocol::Rest => &listing.rest_name,
        Protocol::Unspecified => "",
    }
}

/// Returns the protocols of a server, each with whether it is switched on for the org.
pub(super) fn switches(part: &ServerPart, of_org: &OrgPart) -> Vec<Value> {
    let Some(edge) = &part.edge else { return Vec::new() };
    let is_on = |protocol: Protocol| {
        let mut exceptions = of_org.exposure.iter();
        let found = exceptions.find(|one| one.server == edge.name && one.protocol() == protocol);
        found.map_or(edge.default_allow, |exception| exception.enabled)
    };
    let switch = |protocol| json!({ "protocol": protocol_name(protocol), "on": is_on(protocol) });
    edge.protocols().map(switch).collect()
}

pub(super) fn exposure_rule(speaks: bool, of_org: &OrgPart, server: &str, protocol: Protocol) -> Value {
    let exception = of_org
        .exposure
        .iter()
        .any(|exception| exception.server == server && exception.protocol() == protocol);
    let rule = match (speaks, exception) {
        (false, _) => "the server does not speak this protocol",
        (true, true) => "the org's exception",
        (true, false) => "the server's default",
    };
    json!({ "stage": "exposure", "rule": rule })
}
