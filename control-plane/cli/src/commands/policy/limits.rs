//! `asp limits`: shows an org's rate limits, replaces them with those of a file, adds one that is written in one line, or
//! removes one.
//!
//! Keeps true: an addition or removal applies to the list that was just read. If the org's list was changed in between,
//! nothing is stored (412).

use anyhow::anyhow;
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_control::admin::ratelimits;
use asp_control::policy::limit_line;
use serde_json::{Value, json};

use super::{how_to_undo, read_list, with_force};
use crate::args::limits::{AddLimitArgs, LimitsArgs, LimitsCommand};
use crate::commands::answer::show;
use crate::commands::client::{AdminClient, api_path, block_on};

pub fn run(args: &LimitsArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    if let Some(LimitsCommand::Add(args)) = &args.command {
        return block_on(add(&api, args));
    }
    let org = args.org.as_deref().unwrap_or_default();
    if let Some(number) = args.remove {
        return block_on(remove(&api, org, number, args.json));
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

fn path(org: &str) -> String {
    api_path(&["api", "ratelimits", "orgs", org])
}

/// Adds a limit at the end of the org's list.
async fn add(api: &AdminClient, args: &AddLimitArgs) -> Result<(), Failure> {
    let org = &args.org;
    let limit = limit_line::parse(&args.limit).map_err(|fault| Failure::bad("LIMIT", fault.to_string()))?;
    let words = limit_line::describe(&limit);
    let added = serde_json::to_value(ratelimits::entry(limit)).map_err(anyhow::Error::from)?;
    let (mut limits, etag) = read(api, org).await?;
    limits.push(added);
    let number = limits.len();
    let path = with_force(&path(org), args.force);
    let answer = api.put_if_match(&path, &Value::from(limits), etag.as_deref()).await?.accepted()?;
    show(&answer, args.json, &format!("{org}: limit {number}: {words}; {}", how_to_undo(org)));
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
