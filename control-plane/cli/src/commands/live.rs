//! `asp calls` and `asp sessions`: what runs on all gateways, and the end of one call or session.

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_platform::time::rfc3339;
use serde_json::{Value, json};

use super::answer::{self, number, show, text};
use super::client::{AdminClient, api_path, block_on, with_query};
use crate::args::live::{CallsArgs, SessionsArgs};
use crate::args::usage::CallFilterArgs;

/// Filters by their names in the API.
type Filters<'a> = [(&'static str, &'a Option<String>); 4];

/// Lists running calls, or cancels one.
pub fn calls(args: &CallsArgs) -> Result<(), Failure> {
    let as_json = args.output.json;
    if let Some(id) = &args.cancel {
        return stop("calls", id, &args.org, as_json, "its gateway cancels it within about a second");
    }
    let CallsArgs { org, filter: CallFilterArgs { user, server }, primitive, .. } = args;
    let filters = [("org", org), ("user", user), ("server", server), ("primitive", primitive)];
    list("calls", filters, args.limit, as_json)
}

/// Lists open sessions, or ends one.
pub fn sessions(args: &SessionsArgs) -> Result<(), Failure> {
    let as_json = args.output.json;
    if let Some(id) = &args.end {
        return stop("sessions", id, &args.org, as_json, "every gateway ends it within about a second");
    }
    let SessionsArgs { org, user, server, .. } = args;
    list(
        "sessions",
        [("org", org), ("user", user), ("server", server), ("primitive", &None)],
        args.limit,
        as_json,
    )
}

fn list(what: &str, filters: Filters<'_>, limit: u32, as_json: bool) -> Result<(), Failure> {
    let mut query = vec![("limit", limit.to_string())];
    query.extend(filters.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
    let api = AdminClient::new(&ProcessEnvironment)?;
    let path = with_query(&api_path(&["api", what]), &query)?;
    let found = block_on(async { api.get(&path).await?.accepted() })?;
    answer::rows(&found, as_json, line);
    Ok(())
}

fn stop(what: &str, id: &str, org: &Option<String>, as_json: bool, effect: &str) -> Result<(), Failure> {
    let mut path = api_path(&["api", what, id]);
    if let Some(org) = org {
        path = with_query(&path, &[("org", org.clone())])?;
    }
    let api = AdminClient::new(&ProcessEnvironment)?;
    block_on(async { api.delete(&path).await?.accepted() })?;
    show(&json!({ "requested": id }), as_json, &format!("{id}: {effect}"));
    Ok(())
}

/// Formats a call or a session: its id, start, caller, server, primitive and state.
fn line(work: &Value) -> String {
    let of = |member: &str| text(work, member);
    let mut line = format!(
        "{} {} {}/{} {}",
        of("id"),
        rfc3339(number(work, "since")),
        of("org"),
        of("user"),
        of("server")
    );
    for member in ["primitive", "protocol", "state"] {
        if !of(member).is_empty() {
            line.push_str(&format!(" {}", of(member)));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_a_line_with_who_calls_what_since_when() {
        let call = json!({ "id": "c-1", "since": 0, "org": "acme", "user": "ann", "issuer": "dev", "server": "demo",
            "primitive": "count@1.0.0", "protocol": "mcp", "state": "working" });
        assert_eq!(line(&call), "c-1 1970-01-01T00:00:00.000Z acme/ann demo count@1.0.0 mcp working");
    }
}
