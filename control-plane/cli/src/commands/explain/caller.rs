//! The part of an answer about the caller: scopes, groups and tokens that were not given, and revocations.

use asp_control::admin::explain::Question;
use asp_platform::shell;
use asp_platform::time::rfc3339;
use serde_json::Value;

use crate::commands::answer::{list, text, texts};

/// Describes the refusal for lack of a scope, and who can grant it.
pub(super) fn scope(question: &Question, answer: &Value) -> String {
    let Question { org, server, primitive, .. } = question;
    let required = answer.get("decidedBy").map(|by| texts(by, "required")).unwrap_or_default();
    let missing: Vec<&str> =
        required.into_iter().filter(|scope| !question.scopes.iter().any(|given| given == scope)).collect();
    let named = missing.join(", ");
    let said = match question.scopes.is_empty() {
        true => {
            format!("denied unless the token has the scopes {named}: the question names no scope (--scope)")
        }
        false => format!("denied: the token lacks the scopes {named}"),
    };
    let options = |name: &str| missing.iter().map(|scope| shell::option(name, scope)).collect::<String>();
    let given = if question.machine.is_empty() {
        let issuer = match question.issuer.as_str() {
            "" => "the user's issuer",
            issuer => issuer,
        };
        let user = shell::option("org", org) + &shell::option("user", &question.user) + &options("scope");
        format!(
            "An administrator of {issuer} grants them, and the client logs in again for them; in development `asp \
             token{user}`"
        )
    } else {
        let machine = shell::word(&question.machine);
        let keys =
            shell::command("asp machines keys create", org, &format!(" {machine}{}", options("scope")));
        let bound = shell::command("asp machines bound", org, &options("allow-scope"));
        format!(
            "First an admin of the platform permits them for machines of {org}: `{bound}`. Then an admin of {org} \
             creates a key with them: `{keys}`"
        )
    };
    format!(
        "{said}. {given}. The team of {server} sets the required scopes: `auth.scopes` of its server.yaml and \
         `security.auth.scopes` of {primitive}."
    )
}

/// Describes groups and tokens that were not given and would change the answer.
pub(super) fn depends(answer: &Value) -> Vec<String> {
    let line = |entry: &Value| {
        let text = |name: &str| entry.get(name).and_then(Value::as_str);
        let (kind, target) = match (text("group"), text("wcit")) {
            (Some(group), _) => ("group", group),
            (None, token) => ("token", token.unwrap_or_default()),
        };
        let outcome = match text("outcome").unwrap_or_default() {
            "needs_approval" => "allowed once a person approves",
            outcome => outcome,
        };
        let some = if entry.get("when").is_some() { " for some --arguments" } else { "" };
        format!("- with the {kind} {target}: {outcome}{some}")
    };
    let mut lines: Vec<String> = list(answer, "depends").map(line).collect();
    if !lines.is_empty() {
        let head = "the answer depends on groups and tokens that were not named (--group, --wcit):";
        lines.insert(0, head.to_owned());
    }
    lines
}

/// Describes revocations of the caller's tokens, each with the command that lifts it.
pub(super) fn revocations(question: &Question, answer: &Value) -> Vec<String> {
    list(answer, "revocations").map(|revocation| revoked(question, revocation)).collect()
}

fn revoked(question: &Question, revocation: &Value) -> String {
    let org = &question.org;
    let text = |name: &str| text(revocation, name);
    let time = |name: &str, scale: u64| {
        revocation.get(name).and_then(Value::as_u64).map(|at| rfc3339(at.saturating_mul(scale)))
    };
    let whose = match (text("type"), question.machine.is_empty()) {
        ("user", true) => format!("tokens of the user {}", question.user),
        ("user", false) => format!("keys of the machine {}", question.machine),
        ("token" | "token_hash", _) => "this token".to_owned(),
        ("block_user" | "block_org", _) => return blocked(question, revocation),
        _ => format!("tokens of everybody of {org}"),
    };
    let (before, later) = match time("issuedUntil", 1_000) {
        Some(until) => (format!(" issued until {until}"), " One that is issued later works."),
        None => (String::new(), ""),
    };
    if text("revocation").is_empty() {
        return format!(
            "revoked: {whose}{before}.{later} Admins of {org} see who revoked it, and can lift it"
        );
    }
    let maker = match text("by") {
        "platform" => "the platform",
        _ => org.as_str(),
    };
    let reason = match text("reason") {
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    let kept = time("until", 1).map(|until| format!(", kept until {until}")).unwrap_or_default();
    let lift = shell::option("lift", text("revocation"));
    format!(
        "revoked: {whose}{before}, by an admin of {maker}{reason}{kept}.{later} An admin of {maker} takes it back: `asp \
         revoke{lift}`"
    )
}

/// Describes a block of the caller or its org.
fn blocked(question: &Question, block: &Value) -> String {
    let org = &question.org;
    let whom = match text(block, "type") {
        "block_org" => format!("everybody of {org}"),
        _ if question.machine.is_empty() => format!("the user {}", question.user),
        _ => format!("the machine {}", question.machine),
    };
    let maker = match text(block, "by") {
        "platform" => "the platform",
        _ => org.as_str(),
    };
    let reason = match text(block, "reason") {
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    format!("blocked: {whom}{reason}. An admin of {maker} lifts it: `asp unblock --help`")
}

/// Describes the decision of an org's bindings to the team of a server.
pub(super) fn describe_for_team(question: &Question, outcome: &str) -> String {
    let Question { org, server, primitive, groups, .. } = question;
    let said = match outcome {
        "denied" => format!("denied: the policy of {org} denies this caller {primitive}"),
        "needs_approval" => format!(
            "allowed once a person approves: {primitive} is destructive or high-risk, or the policy of {org} asks for it"
        ),
        _ => format!("allowed: neither {server} nor the policy of {org} denies it"),
    };
    let left_out = match groups.is_empty() {
        true => " Bindings of groups were left out: name the caller's with --group.",
        false => "",
    };
    format!("{said}. Which binding decides is for the admins of {org} to see.{left_out}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn question(changes: Value) -> Question {
        let mut question = json!({ "org": "acme", "user": "bob b", "server": "shop", "primitive": "shop.buy", "protocol": "mcp" });
        question.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(question).unwrap()
    }

    #[test]
    fn a_missing_scope_names_who_gives_it_and_the_command() {
        let answer = json!({ "decidedBy": { "required": ["read", "buy"] } });
        let user = scope(&question(json!({ "scopes": ["read"] })), &answer);
        assert!(
            user.starts_with(
                "denied: the token lacks the scopes buy. An administrator of the user's issuer grants"
            ),
            "{user}"
        );
        assert!(user.contains("`asp token --org acme --user 'bob b' --scope buy`"), "{user}");
        assert!(user.contains("The team of shop"), "{user}");
        let unnamed = scope(&question(json!({})), &answer);
        assert!(
            unnamed
                .starts_with("denied unless the token has the scopes read, buy: the question names no scope"),
            "{unnamed}"
        );
        let machine = scope(&question(json!({ "user": "", "machine": "press" })), &answer);
        assert!(
            machine.contains("`asp machines keys create acme press --scope read --scope buy`"),
            "{machine}"
        );
        assert!(
            machine.contains("`asp machines bound acme --allow-scope read --allow-scope buy`"),
            "{machine}"
        );
    }

    #[test]
    fn a_revocation_is_said_with_its_end_its_maker_and_the_command_that_lifts_it() {
        let of = |revocation: Value| {
            revocations(&question(json!({})), &json!({ "revocations": [revocation] })).remove(0)
        };
        let user = json!({ "revocation": "r1", "type": "user", "by": "org", "reason": "left", "issuedUntil": 60,
            "until": 86_460_000 });
        assert_eq!(
            of(user),
            "revoked: tokens of the user bob b issued until 1970-01-01T00:01:00.000Z, by an admin of acme (left), kept until \
             1970-01-02T00:01:00.000Z. One that is issued later works. An admin of acme takes it back: `asp revoke --lift r1`"
        );
        let token = of(json!({ "revocation": "r2", "type": "token", "by": "platform", "until": 0 }));
        assert!(token.starts_with("revoked: this token, by an admin of the platform, kept until"), "{token}");
        assert!(!token.contains("issued later"), "{token}");
        let team = of(json!({ "type": "org", "issuedUntil": 60 }));
        assert!(team.ends_with("works. Admins of acme see who revoked it, and can lift it"), "{team}");
    }

    #[test]
    fn what_the_answer_depends_on_is_listed_and_nothing_where_it_does_not() {
        let answer = json!({ "depends": [{ "group": "ops*", "outcome": "needs_approval" },
            { "wcit": "t-1", "outcome": "denied", "when": true }] });
        let lines = depends(&answer);
        assert!(lines[0].ends_with("(--group, --wcit):"), "{lines:?}");
        assert_eq!(
            lines[1..],
            [
                "- with the group ops*: allowed once a person approves",
                "- with the token t-1: denied for some --arguments"
            ]
        );
        assert!(depends(&json!({})).is_empty());
    }

    #[test]
    fn a_team_is_told_that_the_policy_denies_and_who_sees_why() {
        let said = describe_for_team(&question(json!({})), "denied");
        assert_eq!(
            said,
            "denied: the policy of acme denies this caller shop.buy. Which binding decides is for the admins of acme to see. \
             Bindings of groups were left out: name the caller's with --group."
        );
        let named = describe_for_team(&question(json!({ "groups": ["ops"] })), "denied");
        assert!(named.ends_with("to see."), "{named}");
    }
}
