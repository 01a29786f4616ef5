//! A binding of an org's policy as the API returns it: in words, and as the command that removes it.

use asp_control::policy::EVERY_ISSUER;
use asp_platform::shell;
use serde_json::Value;

/// Returns a clause that says what the binding does.
pub(super) fn describe_binding(org: &str, binding: &Value) -> String {
    let text = |pointer: &str| text(binding, pointer);
    let flag = |name: &str| binding.get(name).and_then(Value::as_bool).unwrap_or_default();
    let verb = match (flag("approval"), flag("allowed")) {
        (true, _) => "requires a person's approval for",
        (false, true) => "allows",
        (false, false) => "denies",
    };
    let observed = if flag("observe") { "an observed binding" } else { "a binding" };
    let named = binding.get("name").and_then(Value::as_str).map(|name| format!(" `{name}`"));
    let when = binding.get("when").map(|when| format!(" when {when}")).unwrap_or_default();
    let protocol = match text("/primitive/protocol") {
        "*" => "every protocol",
        protocol => protocol,
    };
    let issuer = match text("/target/issuer") {
        "" => String::new(),
        EVERY_ISSUER => " of every issuer".to_owned(),
        issuer => format!(" of {issuer}"),
    };
    format!(
        "{observed}{} of {org} {verb} the {} {}{issuer} to call {} over {protocol}{when}",
        named.unwrap_or_default(),
        text("/target/type"),
        text("/target/idOrPattern"),
        text("/primitive/name")
    )
}

/// Returns the command that removes the binding.
pub(super) fn removal(org: &str, binding: &Value) -> String {
    let text = |pointer: &str| text(binding, pointer);
    let mut words = vec![
        ("remove", text("/primitive/name")),
        (text("/target/type"), text("/target/idOrPattern")),
        ("issuer", text("/target/issuer")),
    ];
    if text("/primitive/protocol") != "*" {
        words.push(("protocol", text("/primitive/protocol")));
    }
    words.push(("name", text("/name")));
    let given = words.iter().filter(|(_, value)| !value.is_empty());
    let options: String = given.map(|(name, value)| shell::option(name, value)).collect();
    shell::command("asp policy", org, &options)
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
}
