//! One line about a server and an org: offered, switched on, allowed. For the first of these that does not hold, it names who
//! can change it and the command.

use asp_platform::shell;
use serde_json::Value;

use super::answer::is;

/// Protocol that `asp policy --expose` switches on without `--protocol`.
const DEFAULT_PROTOCOL: &str = "mcp";

/// The state of a server for an org.
#[derive(Clone, Copy)]
pub struct ServerAccess<'a> {
    pub server: &'a str,
    pub org: &'a str,
    pub offered: bool,
    /// Protocols of the server, each with whether it is switched on.
    pub on: &'a [(&'a str, bool)],
    /// Protocol of the call; empty if any will do.
    pub protocol: &'a str,
    pub allowed: CallPermission<'a>,
}

/// Whether a call is allowed.
#[derive(Clone, Copy)]
pub enum CallPermission<'a> {
    Yes,
    /// Command with which the org's admin allows it.
    No(&'a str),
    /// Conditions on arguments, in words, because of which these arguments are refused.
    NotIf(&'a str),
    /// Depends on the caller and the primitive.
    Depends,
}

/// Returns the protocols in a list of the API, each with whether it is switched on.
pub fn switches(list: Option<&Value>) -> Vec<(&str, bool)> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|switch| {
        let protocol = switch.get("protocol").and_then(Value::as_str)?;
        Some((protocol, is(switch, "on")))
    })
    .collect()
}

/// Formats the line.
pub fn line(access: &ServerAccess<'_>) -> String {
    let ServerAccess { server, org, offered, on, protocol, allowed } = *access;
    if !offered {
        return format!(
            "{server} for {org}: offered no. An admin of {server} or of the platform offers it: `asp servers offer {server} \
             --to {org}`"
        );
    }
    let said = format!("{server} for {org}: offered yes, switched on {}", describe_switches(on));
    if !on.iter().any(|(name, is_on)| *is_on && (protocol.is_empty() || *name == protocol)) {
        return format!("{said}. An admin of {org} switches it on: `{}`", expose(server, org, protocol));
    }
    match allowed {
        CallPermission::Yes => format!("{said}, allowed yes"),
        CallPermission::No(command) => {
            format!("{said}, allowed no. An admin of {org} allows it: `{command}`")
        }
        CallPermission::NotIf(conditions) => {
            format!("{said}, allowed no with these arguments, which meet the condition {conditions}")
        }
        CallPermission::Depends => {
            format!(
                "{said}, allowed: depends on the caller and the primitive. Admins of {org} and of {server} see it \
                 with `asp explain --org {org} --server {server} --user NAME --primitive ID`"
            )
        }
    }
}

/// Formats the protocols by whether they are switched on.
fn describe_switches(on: &[(&str, bool)]) -> String {
    let over = |wanted: bool| {
        let names: Vec<&str> =
            on.iter().filter(|(_, is_on)| *is_on == wanted).map(|(name, _)| *name).collect();
        let word = if wanted { "yes" } else { "no" };
        (!names.is_empty()).then(|| format!("{word} (over {})", names.join(", ")))
    };
    let parts: Vec<String> = [true, false].into_iter().filter_map(over).collect();
    parts.join(", ")
}

/// Returns the command that switches a server on for an org; without a protocol, over MCP.
pub fn expose(server: &str, org: &str, protocol: &str) -> String {
    let mut options = shell::option("expose", server);
    if !matches!(protocol, "" | DEFAULT_PROTOCOL) {
        options.push_str(&shell::option("protocol", protocol));
    }
    shell::command("asp policy", org, &options)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_that_is_not_so_names_who_changes_it_and_how() {
        let of = |offered, on, allowed| {
            let on = [("mcp", on)];
            line(&ServerAccess { server: "shop", org: "acme", offered, on: &on, protocol: "mcp", allowed })
        };
        let not_offered = of(false, false, CallPermission::Depends);
        assert!(not_offered.starts_with("shop for acme: offered no. An admin of shop or of the platform"));
        assert!(not_offered.ends_with("`asp servers offer shop --to acme`"));
        let off = of(true, false, CallPermission::Depends);
        assert!(
            off.contains("offered yes, switched on no (over mcp)")
                && off.contains("`asp policy acme --expose shop`")
        );
        let denied = of(true, true, CallPermission::No("asp policy acme --allow shop.buy --user bob"));
        assert!(denied.ends_with(
            "allowed no. An admin of acme allows it: `asp policy acme --allow shop.buy --user bob`"
        ));
        let depends = of(true, true, CallPermission::Depends);
        assert!(
            depends.contains("`asp explain --org acme --server shop --user NAME --primitive ID`"),
            "{depends}"
        );
        assert_eq!(
            of(true, true, CallPermission::Yes),
            "shop for acme: offered yes, switched on yes (over mcp), allowed yes"
        );
    }

    #[test]
    fn each_protocol_has_its_own_switch_and_the_command_is_for_the_one_that_is_off() {
        let list = json!([{ "protocol": "mcp", "on": false }, { "protocol": "rest", "on": true }]);
        let on = switches(Some(&list));
        let of = |protocol| {
            let allowed = CallPermission::Depends;
            line(&ServerAccess { server: "shop", org: "acme", offered: true, on: &on, protocol, allowed })
        };
        let state = "shop for acme: offered yes, switched on yes (over rest), no (over mcp)";
        let over_mcp = of("mcp");
        assert_eq!(
            over_mcp,
            format!("{state}. An admin of acme switches it on: `asp policy acme --expose shop`")
        );
        for protocol in ["", "rest"] {
            let said = of(protocol);
            assert!(said.starts_with(&format!("{state}, allowed: depends")), "{said}");
        }
        let on = [("rest", false)];
        let allowed = CallPermission::Depends;
        let off =
            ServerAccess { server: "shop", org: "acme", offered: true, on: &on, protocol: "rest", allowed };
        assert!(line(&off).ends_with("`asp policy acme --expose shop --protocol rest`"), "{}", line(&off));
    }
}
