//! Servers that list a2a while A2A is off: the orgs and callers that it lets in, and the bindings that do not hold over it.

use asp_control::patterns;
use asp_registry::CompiledServer;
use serde_json::json;

use super::installation::{Binding, Installation, Org, Selector, StoredServer};
use crate::commands::binding;

/// Returns the notes on each such server.
pub(super) fn notes(installation: &Installation) -> Vec<String> {
    let mut notes = Vec::new();
    for server in installation.servers.iter().filter(|server| !server.a2a_confirmed) {
        let Some(form) = server.form.as_ref().ok().filter(|form| form.lists_a2a()) else { continue };
        notes.push(exposure(installation, server, form));
        for org in installation.orgs.iter().filter(|org| is_on(server, form, org)) {
            let rules = org.bindings.iter().filter(|rule| !rule.observe && concerns(rule, form));
            notes.extend(rules.filter_map(|rule| effect(server, org, rule)));
        }
    }
    notes
}

/// Whether the server is offered to an org, and switched on for it over A2A.
fn is_on(server: &StoredServer, form: &CompiledServer, org: &Org) -> bool {
    let by_default = form.edge.default_allow;
    let is_offered = by_default || server.offered.contains(&org.name) || form.offered_to.contains(&org.name);
    is_offered && org.a2a.get(&server.name).copied().unwrap_or(by_default)
}

/// Describes how A2A is switched on, and for which orgs.
fn exposure(installation: &Installation, server: &StoredServer, form: &CompiledServer) -> String {
    let name = &server.name;
    let by_default = form.edge.default_allow;
    let exceptions = installation.orgs.iter().filter(|org| is_on(server, form, org) != by_default);
    let exceptions = exceptions.map(|org| org.name.as_str()).collect::<Vec<_>>().join(", ");
    let orgs = match (by_default, exceptions.as_str()) {
        (true, "") => "every organisation".to_owned(),
        (true, off) => format!("every organisation but {off}"),
        (false, "") => {
            format!("the organisations that switch it on (`asp policy ORG --expose {name} --protocol a2a`)")
        }
        (false, on) => on.to_owned(),
    };
    format!(
        "{name}: A2A is off until this version applies the server, or `asp servers confirm {name} --protocol a2a`; then it \
         is on for {orgs}"
    )
}

/// Whether the binding is about a primitive that the server has as a skill.
fn concerns(rule: &Binding, form: &CompiledServer) -> bool {
    let mut skills = form.server.listings.iter().filter(|listing| !listing.a2a_skill.is_empty());
    skills.any(|listing| patterns::matches(&rule.primitive.name, &listing.id))
}

/// Describes what an allow for every protocol and a denial for MCP alone mean over A2A.
fn effect(server: &StoredServer, org: &Org, rule: &Binding) -> Option<String> {
    let described = || binding::describe_binding(&org.name, &json!(rule));
    match rule.primitive.protocol.as_str() {
        "*" if gives(rule) => Some(format!("{}: {}, which includes a2a", server.name, described())),
        "mcp" if !gives(rule) && !is_repeated(org, rule) => {
            let primitive = Selector { protocol: "a2a".to_owned(), ..rule.primitive.clone() };
            let repeated = Binding { primitive, ..rule.clone() };
            let command = binding::storing(&org.name, &json!(repeated));
            let command = command.map(|command| format!(": `{command}`")).unwrap_or_default();
            Some(format!(
                "{}: {}, and does not hold over a2a; store it for a2a too{command}",
                server.name,
                described()
            ))
        }
        _ => None,
    }
}

/// Whether the binding allows without an approval.
fn gives(rule: &Binding) -> bool {
    rule.allowed && !rule.approval
}

/// Whether the org has the same restriction for a2a or for every protocol.
fn is_repeated(org: &Org, rule: &Binding) -> bool {
    org.bindings.iter().any(|other| {
        let holds = matches!(other.primitive.protocol.as_str(), "a2a" | "*") && !other.observe;
        let is_same = other.target == rule.target
            && other.primitive.name == rule.primitive.name
            && (other.allowed, other.approval, &other.when) == (rule.allowed, rule.approval, &rule.when);
        holds && is_same
    })
}
