//! `asp orgs`: the orgs that something is stored for.

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use serde_json::Value;

use super::answer::{self, number, text};
use super::client::{AdminClient, block_on, with_query};
use crate::args::orgs::OrgsArgs;

/// Gets `/api/orgs` and prints a line for each org.
pub fn run(args: &OrgsArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let mut query = vec![("limit", args.limit.to_string())];
    query.extend(args.after.clone().map(|after| ("after", after)));
    let path = with_query("/api/orgs", &query)?;
    let orgs = block_on(async { api.get(&path).await?.accepted() })?;
    answer::rows(&orgs, args.json, line);
    Ok(())
}

/// Formats an org: its name, and how much is stored for it.
fn line(org: &Value) -> String {
    let kinds = ["offers", "exposure", "bindings", "limits", "machines", "revocations"];
    let counts: Vec<String> = kinds.iter().map(|kind| format!("{kind} {}", number(org, kind))).collect();
    format!("{:<28} {}", text(org, "org"), counts.join("  "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_has_the_name_and_what_is_stored() {
        let org = json!({ "org": "acme", "offers": 2, "exposure": 1, "bindings": 7, "limits": 0, "machines": 3, "revocations": 1 });
        assert_eq!(
            line(&org),
            "acme                         offers 2  exposure 1  bindings 7  limits 0  machines 3  revocations 1"
        );
    }
}
