//! `asp limits`: shows an org's rate limits and their use, replaces them with those of a file, adds one that is written in
//! one line, or removes one.
//!
//! Keeps true: an addition or removal applies to the list that was just read. If the org's list was changed in between,
//! nothing is stored (412).

use anyhow::anyhow;
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_control::admin::ratelimits;
use asp_control::policy::limit_line;
use asp_platform::time::rfc3339;
use asp_snapshot::limits::EVERY_ORG;
use serde_json::{Value, json};

use super::{how_to_undo, read_list, with_force};
use crate::args::limits::{AddLimitArgs, LimitsArgs, LimitsCommand};
use crate::commands::answer::{list, number, show, text};
use crate::commands::client::{AdminClient, api_path, block_on, with_query};

pub fn run(args: &LimitsArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    if let Some(LimitsCommand::Add(args)) = &args.command {
        return block_on(add(&api, args));
    }
    let org = args.org.as_deref().unwrap_or_default();
    if let Some(number) = args.remove {
        return block_on(remove(&api, org, number, args.json));
    }
    if args.usage {
        return block_on(show_usage(&api, org, args.json));
    }
    let path = path(org);
    let list = args.put.as_deref().map(|path| read_list("--put", path)).transpose()?;
    block_on(async {
        let Some(list) = &list else {
            print::json(&api.get(&path).await?.accepted()?);
            return Ok(());
        };
        let answer = api.put(&with_force(&path, args.force), list).await?.accepted()?;
        let count = list.as_array().map_or(0, Vec::len);
        show(&answer, args.json, &format!("{org}: {count} limits stored; {}", how_to_undo(org)));
        Ok(())
    })
}

/// Returns the path of an org's limits, or of those of all orgs together.
fn path(org: &str) -> String {
    if org == EVERY_ORG {
        return api_path(&["api", "ratelimits", "platform"]);
    }
    api_path(&["api", "ratelimits", "orgs", org])
}

fn usage_path(org: &str) -> String {
    api_path(&["api", "ratelimits", "orgs", org, "usage"])
}

/// Shows the use of each limit in the last day.
async fn show_usage(api: &AdminClient, org: &str, as_json: bool) -> Result<(), Failure> {
    if org == EVERY_ORG {
        let fault = "calls are counted for one org at a time; name an org, whose usage lists the limits of all orgs too";
        return Err(Failure::bad("--usage", fault));
    }
    let usage = api.get(&usage_path(org)).await?.accepted()?;
    let limits = (1..).zip(list(&usage, "limits"));
    let lines = limits.map(|(place, limit): (usize, _)| {
        let is_of_all = limit.get("ofAllOrgs").and_then(Value::as_bool).unwrap_or_default();
        let place = if is_of_all { "all orgs".to_owned() } else { place.to_string() };
        format!(
            "\n{place}: {}\n  {}",
            text(limit, "words"),
            describe_limit_usage(&usage, limit).replace('\n', "\n  ")
        )
    });
    let lines: String = lines.collect();
    let calls = number(&usage, "calls");
    let refused = number(&usage, "rateLimited");
    show(
        &usage,
        as_json,
        &format!("{org}: limits refused {refused} of {calls} calls in the last day{lines}"),
    );
    Ok(())
}

/// Describes which callers the first limit of an answer would have refused.
fn describe_usage(usage: &Value) -> String {
    describe_limit_usage(usage, list(usage, "limits").next().unwrap_or(&Value::Null))
}

/// Describes which callers a limit would have refused.
fn describe_limit_usage(usage: &Value, limit: &Value) -> String {
    let since = rfc3339(number(usage, "since"));
    let [calls, callers, refused, refused_callers] =
        ["calls", "callers", "wouldRefuse", "wouldRefuseCallers"].map(|member| number(limit, member));
    if calls == 0 {
        return format!("it counts none of the calls since {since}");
    }
    if refused == 0 {
        return format!("it would have refused none of {calls} calls by {callers} callers since {since}");
    }
    let most = list(limit, "refused").map(|caller| {
        format!(
            "\n  {}: {} of {} calls",
            text(caller, "user"),
            number(caller, "wouldRefuse"),
            number(caller, "calls")
        )
    });
    let most: String = most.collect();
    format!(
        "it would have refused {refused} of {calls} calls and {refused_callers} of {callers} callers since {since}; most of all{most}"
    )
}

/// Adds a limit at the end of the org's list.
async fn add(api: &AdminClient, args: &AddLimitArgs) -> Result<(), Failure> {
    let org = &args.org;
    let limit = limit_line::parse(&args.limit).map_err(|fault| Failure::bad("LIMIT", fault.to_string()))?;
    let words = limit_line::describe(&limit);
    let usage = api.get(&with_query(&usage_path(org), &[("limit", args.limit.clone())])?).await?;
    if args.dry_run && org == EVERY_ORG {
        return Err(Failure::bad("--dry-run", "the calls of the last day are counted for one org at a time"));
    }
    if args.dry_run {
        let usage = usage.accepted()?;
        show(&usage, args.json, &format!("{org}: not stored: {words}\n{}", describe_usage(&usage)));
        return Ok(());
    }
    // An older control plane does not count; the limit is stored all the same.
    let refused = usage.accepted().map(|usage| format!("\n{}", describe_usage(&usage))).unwrap_or_default();
    let added = serde_json::to_value(ratelimits::entry(limit)).map_err(anyhow::Error::from)?;
    let (mut limits, etag) = read(api, org).await?;
    limits.push(added);
    let number = limits.len();
    let path = with_force(&path(org), args.force);
    let answer = api.put_if_match(&path, &Value::from(limits), etag.as_deref()).await?.accepted()?;
    show(&answer, args.json, &format!("{org}: limit {number}: {words}; {}{refused}", how_to_undo(org)));
    Ok(())
}

/// Removes the limit at this place in the org's list, from 1.
async fn remove(api: &AdminClient, org: &str, number: usize, as_json: bool) -> Result<(), Failure> {
    let (mut limits, etag) = read(api, org).await?;
    let count = limits.len();
    let Some(place) = number.checked_sub(1).filter(|place| *place < count) else {
        return Err(Failure::Other(anyhow!(
            "{org} has {count} limits and no number {number}; `asp limits {org}` lists them in their order"
        )));
    };
    let removed = limits.remove(place);
    // The names of the others are stored already.
    let path = with_force(&path(org), true);
    api.put_if_match(&path, &Value::from(limits), etag.as_deref()).await?.accepted()?;
    show(&json!({ "removed": removed }), as_json, &format!("{org}: removed: {removed}"));
    Ok(())
}

/// Reads the org's limits, and the ETag of the list.
async fn read(api: &AdminClient, org: &str) -> Result<(Vec<Value>, Option<String>), Failure> {
    let read = api.get(&path(org)).await?;
    let etag = read.etag.clone();
    Ok((read.accepted()?.as_array().cloned().unwrap_or_default(), etag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_a_limit_names_the_callers_that_it_would_have_refused() {
        let usage = |calls: u64, refused: u64| {
            let callers = json!([{ "user": "alice", "issuer": "login", "calls": 9, "wouldRefuse": refused }]);
            let limit = json!({ "calls": calls, "callers": 2, "wouldRefuse": refused, "wouldRefuseCallers": 1,
                "refused": callers });
            describe_usage(&json!({ "since": 60_000, "calls": 20, "limits": [limit] }))
        };
        let since = "since 1970-01-01T00:01:00.000Z";
        assert_eq!(usage(0, 0), format!("it counts none of the calls {since}"));
        assert_eq!(usage(12, 0), format!("it would have refused none of 12 calls by 2 callers {since}"));
        assert_eq!(
            usage(12, 3),
            format!(
                "it would have refused 3 of 12 calls and 1 of 2 callers {since}; most of all\n  alice: 3 of 9 calls"
            )
        );
    }
}
