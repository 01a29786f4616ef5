//! `asp explain`: which rule decides about a call, and what would change that.

use asp_control::admin::explain::Question;
use serde_json::Value;

use super::client::{AdminClient, api_path, block_on};
use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::print;
use crate::settings::source::ProcessEnvironment;

/// Asks and prints; fails when the call would not be allowed.
pub fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let question = Question {
        org: args.org.clone(),
        user: args.user.clone().unwrap_or_default(),
        groups: args.groups.clone(),
        wcit: args.wcit.clone().unwrap_or_default(),
        scopes: args.scopes.clone(),
        server: args.server.clone(),
        primitive: args.primitive.clone(),
        protocol: args.protocol.clone(),
    };
    let body = serde_json::to_value(&question).map_err(anyhow::Error::new)?;
    let answer = block_on(async { api.post("/api/policy/explain", &body).await?.accepted() })?;
    if args.json {
        print::json(&answer);
    } else {
        print::line(&in_words(&question, &answer));
    }
    match answer.get("allowed").and_then(Value::as_bool) {
        Some(true) => Ok(()),
        _ => Err(Failure::Refused),
    }
}

/// What decided, then what would change it.
fn in_words(question: &Question, answer: &Value) -> String {
    let Question { org, server, primitive, protocol, .. } = question;
    let outcome = answer.get("outcome").and_then(Value::as_str).unwrap_or_default();
    let rule = answer.pointer("/decidedBy/rule").and_then(Value::as_str).unwrap_or_default();
    let bindings = api_path(&["api", "policy", "orgs", org, "bindings"]);
    let exposure = api_path(&["api", "policy", "orgs", org, "exposure"]);
    let binding = answer.pointer("/decidedBy/binding").map(|binding| binding_in_words(org, binding));
    match (outcome, binding) {
        ("allowed", Some(binding)) => {
            format!(
                "allowed: {binding}. A more specific binding that denies it would change that ({bindings})."
            )
        }
        ("allowed", None) => format!(
            "allowed: {server} is exposed to {org} over {protocol} and no binding speaks of {primitive}. A binding \
             that denies it would change that ({bindings})."
        ),
        ("needs_approval", _) => format!(
            "allowed once a person approves: {primitive} is {rule}. A binding that allows it would drop the \
             approval ({bindings})."
        ),
        ("denied", binding) => format!(
            "denied: {}. Deleting that binding, or a more specific one that allows it, would change that \
             ({bindings}).",
            binding.unwrap_or_else(|| "a binding forbids it".to_owned())
        ),
        ("not_exposed", _) => format!(
            "denied: {server} is not exposed to {org} over {protocol}, by {rule}. An exception that enables it \
             would change that ({exposure})."
        ),
        ("insufficient_scope", _) => {
            let required = answer.pointer("/decidedBy/required").map(list).unwrap_or_default();
            format!("denied: the token lacks a scope. One with {required} would be allowed.")
        }
        ("unknown_server", _) => {
            format!("denied: no server is called {server}. `asp apply` registers one; `asp diff` lists them.")
        }
        ("unknown_primitive", _) => format!(
            "denied: {server} lists nothing with the id {primitive}. Its server.yaml decides; ids are not the \
             exposed names."
        ),
        _ => format!("denied: {rule}."),
    }
}

fn binding_in_words(org: &str, binding: &Value) -> String {
    let text = |pointer: &str| binding.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let verb = match binding.get("allowed").and_then(Value::as_bool) {
        Some(true) => "allows",
        _ => "denies",
    };
    let protocol = match text("/primitive/protocol") {
        "*" => "every protocol",
        protocol => protocol,
    };
    format!(
        "a binding of {org} {verb} the {} {} to call {} over {protocol}",
        text("/target/type"),
        text("/target/idOrPattern"),
        text("/primitive/name")
    )
}

fn list(values: &Value) -> String {
    let texts: Vec<&str> = values.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(outcome: &str, decided_by: Value) -> String {
        let question = json!({
            "org": "acme", "user": "alice", "server": "demo", "primitive": "echo", "protocol": "mcp"
        });
        let question: Question = serde_json::from_value(question).unwrap();
        in_words(&question, &json!({ "outcome": outcome, "decidedBy": decided_by }))
    }

    #[test]
    fn every_outcome_is_a_sentence_that_says_what_decided_and_what_would_change_it() {
        let binding = |allowed: bool| {
            json!({ "binding": {
                "target": { "type": "group", "idOrPattern": "ops" },
                "primitive": { "name": "ec*", "protocol": "*" },
                "allowed": allowed,
            }})
        };
        assert_eq!(
            told("denied", binding(false)),
            "denied: a binding of acme denies the group ops to call ec* over every protocol. Deleting that \
             binding, or a more specific one that allows it, would change that (/api/policy/orgs/acme/bindings)."
        );
        assert!(
            told("allowed", binding(true)).starts_with("allowed: a binding of acme allows the group ops")
        );
        assert!(told("allowed", json!({})).contains("no binding speaks of echo"));
        assert!(told("needs_approval", json!({ "rule": "destructive" })).contains("once a person approves"));
        let hidden = told("not_exposed", json!({ "rule": "the server's default" }));
        assert!(hidden.contains("by the server's default") && hidden.contains("/exposure"), "{hidden}");
        let scopes = told("insufficient_scope", json!({ "required": ["read", "write"] }));
        assert!(scopes.contains("read, write"), "{scopes}");
        let unserved = told("not_served", json!({ "rule": "a2a is not served yet" }));
        assert_eq!(unserved, "denied: a2a is not served yet.");
        for unknown in ["unknown_server", "unknown_primitive"] {
            assert!(told(unknown, json!({})).starts_with("denied: "), "{unknown}");
        }
    }
}
