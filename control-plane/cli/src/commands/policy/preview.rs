//! The preview of a change of policy on recorded calls, in words.

use asp_command::failure::Failure;
use asp_platform::time::rfc3339;
use serde_json::{Value, json};

use super::PolicyPart;
use crate::commands::answer::{list, number, text};
use crate::commands::client::AdminClient;

/// Path of the preview.
const PATH: &str = "/api/policy/preview";
/// Maximum number of changed calls that are shown.
const MAX_SHOWN: usize = 20;

/// Returns the preview of a change in the form of the API.
pub(super) async fn read(api: &AdminClient, change: &Value) -> Result<Value, Failure> {
    api.post(PATH, change).await?.accepted()
}

/// Returns the change that puts these bodies.
pub(super) fn of_bodies(org: &str, part: PolicyPart, bodies: &[Value]) -> Value {
    let list = match part {
        PolicyPart::Exposure => "exposure",
        PolicyPart::Bindings => "bindings",
    };
    json!({ "org": org, list: bodies })
}

/// Describes which recorded calls would change.
pub(super) fn describe(preview: &Value) -> String {
    let [calls, refused, admitted, asked] =
        ["calls", "newlyRefused", "newlyAdmitted", "newlyAsked"].map(|member| number(preview, member));
    let since = rfc3339(number(preview, "since"));
    if calls == 0 {
        return "the audit log has no calls to replay".to_owned();
    }
    let mut lines = vec![format!(
        "by policy alone, of the {calls} calls since {since}, {refused} would be refused, {admitted} would be allowed, and \
         {asked} would need a person's approval"
    )];
    let unknown = |member: &str| preview.pointer(&format!("/undetermined/{member}")).and_then(Value::as_u64);
    for (member, reason) in [
        ("groups", "the groups of their callers decide, which the log does not have"),
        ("arguments", "their arguments decide, which the log does not have"),
        ("notServed", "no server has their primitive any more"),
    ] {
        match unknown(member).unwrap_or_default() {
            0 => {}
            count => lines.push(format!("{count} are not determined: {reason}")),
        }
    }
    let changed = list(preview, "changed");
    let more = (refused + admitted + asked).saturating_sub(changed.len().min(MAX_SHOWN) as u64);
    lines.extend(changed.take(MAX_SHOWN).map(|call| format!("  {}", describe_call(call))));
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    for limit in list(preview, "limits") {
        let [counted, would_refuse] = ["calls", "wouldRefuse"].map(|member| number(limit, member));
        let words = text(limit, "words");
        lines.push(format!("{words}: would have refused {would_refuse} of {counted} calls"));
        lines.extend(list(limit, "refused").map(|caller| {
            let [calls, refused] = ["calls", "wouldRefuse"].map(|member| number(caller, member));
            format!("  {}: {refused} of {calls} calls", text(caller, "user"))
        }));
    }
    lines.join("\n")
}

fn describe_call(call: &Value) -> String {
    let of = |member: &str| text(call, member);
    // A call that the policy allowed may have had another end, such as a refusal of its arguments.
    let recorded = match of("reason") {
        "" | "ok" => String::new(),
        reason => format!(", recorded as {reason}"),
    };
    format!(
        "{} -> {}: {} {} at {} over {}, {}, call {}{recorded}",
        decision(of("from")),
        decision(of("to")),
        of("user"),
        of("primitive"),
        of("server"),
        of("protocol"),
        rfc3339(number(call, "at")),
        of("call")
    )
}

/// Returns a decision of policy in words: an admitted call is only allowed, because something else may refuse it.
fn decision(access: &str) -> &str {
    if access == "admitted" { "allowed" } else { access }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_names_the_calls_that_change_and_counts_the_others() {
        let call = json!({ "call": "c1", "at": 0, "user": "bob", "issuer": "dev", "server": "shop", "primitive": "pay",
            "protocol": "mcp", "from": "admitted", "to": "refused", "reason": "ok" });
        let mut invalid = call.clone();
        invalid["reason"] = json!("invalid_params");
        let limit = json!({ "words": "1 call an hour", "calls": 3, "wouldRefuse": 2,
            "refused": [{ "user": "bob", "calls": 3, "wouldRefuse": 2 }] });
        let preview = json!({ "since": 0, "calls": 9, "newlyRefused": 3, "newlyAdmitted": 0, "newlyAsked": 0,
            "undetermined": { "groups": 2, "arguments": 0, "notServed": 0 }, "changed": [call, invalid], "limits": [limit] });
        let words = describe(&preview);
        let lines: Vec<&str> = words.lines().collect();
        assert_eq!(
            lines,
            [
                "by policy alone, of the 9 calls since 1970-01-01T00:00:00.000Z, 3 would be refused, 0 would be allowed, and 0 \
                 would need a person's approval",
                "2 are not determined: the groups of their callers decide, which the log does not have",
                "  allowed -> refused: bob pay at shop over mcp, 1970-01-01T00:00:00.000Z, call c1",
                "  allowed -> refused: bob pay at shop over mcp, 1970-01-01T00:00:00.000Z, call c1, recorded as invalid_params",
                "  and 1 more",
                "1 call an hour: would have refused 2 of 3 calls",
                "  bob: 2 of 3 calls",
            ]
        );
    }
}
