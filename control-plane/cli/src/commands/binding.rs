//! A binding of an org's policy as the API returns it: in words, and as the commands that remove it and store it again.

use asp_control::policy::EVERY_ISSUER;
use asp_platform::shell;
use serde_json::Value;

use super::answer::is;

/// Returns a clause that says what the binding does.
pub(super) fn describe_binding(org: &str, binding: &Value) -> String {
    let text = |pointer: &str| text(binding, pointer);
    let verb = match (is(binding, "approval"), is(binding, "allowed")) {
        (true, _) => "requires a person's approval for",
        (false, true) => "allows",
        (false, false) => "denies",
    };
    let observed = if is(binding, "observe") { "an observed binding" } else { "a binding" };
    let named = binding.get("name").and_then(Value::as_str).map(|name| format!(" `{name}`"));
    let when = describe_conditions(binding).map(|when| format!(" when {when}")).unwrap_or_default();
    let protocol = match text("/primitive/protocol") {
        "*" => "every protocol",
        protocol => protocol,
    };
    let issuer = match text("/target/issuer") {
        "" => String::new(),
        EVERY_ISSUER => " of every issuer".to_owned(),
        issuer => format!(" of {issuer}"),
    };
    let by = match (text("/approvers/group"), text("/approvers/issuer")) {
        ("", _) => String::new(),
        (group, "" | EVERY_ISSUER) => format!(", by another person of the group {group}"),
        (group, issuer) => format!(", by another person of the group {group} of {issuer}"),
    };
    format!(
        "{observed}{} of {org} {verb} the {} {}{issuer} to call {} over {protocol}{when}{by}",
        named.unwrap_or_default(),
        text("/target/type"),
        text("/target/idOrPattern"),
        text("/primitive/name")
    )
}

/// Returns the command that removes the binding.
pub(super) fn removal(org: &str, binding: &Value) -> String {
    shell::command("asp policy", org, &options("remove", binding))
}

/// Returns the command that stores a binding with conditions as it is; `None` if `--when` cannot express a condition.
pub(super) fn storing(org: &str, binding: &Value) -> Option<String> {
    let mut options = options(if is(binding, "approval") { "approval" } else { "deny" }, binding);
    for (name, pointer) in [("by", "/approvers/group"), ("by-issuer", "/approvers/issuer")] {
        let value = text(binding, pointer);
        if !value.is_empty() {
            options.push_str(&shell::option(name, value));
        }
    }
    for Condition { pointer, test, values } in conditions(binding) {
        options.push_str(&format!(" --when {} {test}", shell::word(pointer)));
        for value in values {
            let value = match (value.starts_with('-'), test) {
                (true, "glob" | "not-glob") => return None,
                (true, "range") => format!(" {value}"),
                _ => value,
            };
            options.push_str(&format!(" {}", shell::word(&value)));
        }
    }
    Some(shell::command("asp policy", org, &options))
}

/// Returns the conditions of a binding in words; `None` if it has none.
pub(super) fn describe_conditions(binding: &Value) -> Option<String> {
    let words = |Condition { pointer, test, values }| format!("{pointer} {test} {}", values.join(" "));
    let all: Vec<String> = conditions(binding).into_iter().map(words).collect();
    (!all.is_empty()).then(|| all.join(" and "))
}

/// A condition in the words of `--when`.
struct Condition<'a> {
    pointer: &'a str,
    test: &'static str,
    values: Vec<String>,
}

fn conditions(binding: &Value) -> Vec<Condition<'_>> {
    let all = binding.get("when").and_then(Value::as_array);
    let mut found = Vec::new();
    for condition in all.into_iter().flatten() {
        let json = |pointer: &str| condition.pointer(pointer).map(Value::to_string).unwrap_or_default();
        let has = |member: &str| condition.get(member).is_some();
        let several = |member: &str| -> Vec<String> {
            let list = condition.get(member).and_then(Value::as_array);
            list.into_iter().flatten().map(Value::to_string).collect()
        };
        let (test, values) = if has("in") {
            ("in", several("in"))
        } else if has("notIn") {
            ("not-in", several("notIn"))
        } else if has("glob") {
            ("glob", vec![text(condition, "/glob").to_owned()])
        } else if has("notGlob") {
            ("not-glob", vec![text(condition, "/notGlob").to_owned()])
        } else if has("range") {
            ("range", vec![format!("{}..{}", json("/range/min"), json("/range/max"))])
        } else {
            ("equals", vec![json("/equals")])
        };
        found.push(Condition { pointer: text(condition, "/pointer"), test, values });
    }
    found
}

/// Returns the options that identify the binding, the first one named by what the command does to it.
fn options(change: &str, binding: &Value) -> String {
    let text = |pointer: &str| text(binding, pointer);
    let mut words = vec![
        (change, text("/primitive/name")),
        (text("/target/type"), text("/target/idOrPattern")),
        ("issuer", text("/target/issuer")),
    ];
    if text("/primitive/protocol") != "*" {
        words.push(("protocol", text("/primitive/protocol")));
    }
    words.push(("name", text("/name")));
    let given = words.iter().filter(|(_, value)| !value.is_empty());
    given.map(|(name, value)| shell::option(name, value)).collect()
}

/// Returns the text at a pointer; empty if there is none.
fn text<'a>(binding: &'a Value, pointer: &str) -> &'a str {
    binding.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_command_that_removes_a_binding_names_all_that_it_is_known_by() {
        let plain = json!({ "target": { "type": "user", "idOrPattern": "*" },
            "primitive": { "name": "shop.*", "protocol": "*" }, "allowed": false });
        assert_eq!(removal("acme", &plain), "asp policy acme --remove 'shop.*' --user '*'");
        let exact = json!({ "target": { "type": "group", "idOrPattern": "ops", "issuer": "login" },
            "primitive": { "name": "shop.buy", "protocol": "mcp" }, "allowed": true, "name": "large" });
        let command =
            "asp policy acme --remove shop.buy --group ops --issuer login --protocol mcp --name large";
        assert_eq!(removal("acme", &exact), command);
    }

    #[test]
    fn a_condition_is_described_and_stored_by_the_words_of_the_command_line() {
        let mut large = json!({ "target": { "type": "user", "idOrPattern": "*" },
            "primitive": { "name": "cc.pay", "protocol": "*" }, "allowed": true, "approval": true, "name": "large",
            "when": [
                { "pointer": "/amount", "range": { "min": -5 } },
                { "pointer": "/currency", "in": ["USD", 5, null] },
                { "pointer": "/to", "equals": true },
                { "pointer": "/note", "glob": "*now  *" },
            ] });
        let words =
            "/amount range -5.. and /currency in \"USD\" 5 null and /to equals true and /note glob *now  *";
        assert_eq!(describe_conditions(&large).as_deref(), Some(words));
        assert!(describe_binding("acme", &large).ends_with(&format!("over every protocol when {words}")));
        let command = "asp policy acme --approval cc.pay --user '*' --name large --when /amount range ' -5..' --when \
                       /currency in '\"USD\"' 5 null --when /to equals true --when /note glob '*now  *'";
        assert_eq!(storing("acme", &large).as_deref(), Some(command));
        large["approval"] = json!(false);
        assert!(storing("acme", &large).is_some_and(|command| command.contains(" --deny cc.pay ")));
        large["when"][3]["glob"] = json!("-x*");
        assert_eq!(storing("acme", &large), None, "the command line reads it as a flag");
        large["when"] = json!([]);
        assert_eq!(describe_conditions(&large), None);
    }
}
