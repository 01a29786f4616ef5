//! `asp revoke --list`: the revocations in force.

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_platform::time::rfc3339;
use serde_json::Value;

use crate::args::RevokeArgs;
use crate::commands::answer::{self, number, text};
use crate::commands::client::{AdminClient, block_on, with_query};

/// Maximum number of revocations in a response of the API.
const PAGE: u32 = 1_000;

/// Lists the newest revocations, of one org or of all.
pub(super) fn list(args: &RevokeArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let mut query = vec![("limit", PAGE.to_string())];
    query.extend(args.org.clone().map(|org| ("org", org)));
    let path = with_query("/api/revocations", &query)?;
    let live = block_on(async { api.get(&path).await?.accepted() })?;
    answer::rows(&live, args.json, line);
    Ok(())
}

/// Formats a revocation: its id, the revoked tokens, its time, its end and its reason.
fn line(revocation: &Value) -> String {
    let kind = text(revocation, "type");
    let id = text(revocation, "id");
    let org = text(revocation, "org");
    let whose = match (kind, org) {
        ("org", _) | (_, "") => format!("{kind} {id}"),
        _ => format!("{kind} {id} of {org}"),
    };
    if let Some(kind) = kind.strip_prefix("block_") {
        return format!(
            "{} {kind} {id} of {org} is blocked: `asp block list`",
            text(revocation, "revocation")
        );
    }
    let [made, until] = ["createdAt", "until"].map(|member| rfc3339(number(revocation, member)));
    let reason = match text(revocation, "reason") {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    format!("{} {whose}, made {made}, kept until {until}{reason}", text(revocation, "revocation"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_revocation_is_a_line_with_its_id_first() {
        let mut made = json!({ "revocation": "r1", "type": "user", "org": "acme", "id": "bob", "reason": "left",
            "createdAt": 0, "until": 1_000 });
        let times = "made 1970-01-01T00:00:00.000Z, kept until 1970-01-01T00:00:01.000Z";
        assert_eq!(line(&made), format!("r1 user bob of acme, {times}: left"));
        made["type"] = json!("org");
        made["id"] = json!("acme");
        made["reason"] = json!("");
        assert_eq!(line(&made), format!("r1 org acme, {times}"));
        made["type"] = json!("block_user");
        made["id"] = json!("bob");
        assert_eq!(line(&made), "r1 user bob of acme is blocked: `asp block list`");
    }
}
