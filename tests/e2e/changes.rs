//! A thousand clients that only wait to be told of changes: what they cost the gateway, and that each is told.

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{self, Opened};
use asp_e2e::stack::{Options, Stack};
use serde_json::json;

use crate::message::{initialize, legacy, modern};
use crate::policy::{admin, caller};
use crate::trial::{Shared, trials};

/// How many wait.
const CLIENTS: usize = 1000;
/// How many came before and left, so that what is made once is there. Few: their memory is used again.
const BEFORE: usize = 50;
/// What one of them may cost the gateway in bytes: its stream, its session, its place in every table.
const MOST: u64 = 16 * 1024;
const COMMENT: &str = "\r\n:\r\n";
const CHANGED: &str = "notifications/tools/list_changed";

trials! { changes:
    a_thousand_idle_streams_cost_at_most_16_kib_each_and_all_are_told_of_a_change,
}

async fn a_thousand_idle_streams_cost_at_most_16_kib_each_and_all_are_told_of_a_change(
    _: &Shared,
) -> Result<()> {
    // A stack of its own: it is measured.
    let stack = Stack::start(Options::repository()?).await?;
    let token = caller(&stack, "waiting").await?;
    drop(open(&stack, &token, BEFORE).await?);
    let before = stack.asp.resident()?;
    let streams = open(&stack, &token, CLIENTS).await?;
    let after = stack.asp.resident()?;
    let each = after.saturating_sub(before) / CLIENTS as u64;
    eprintln!("{CLIENTS} idle streams: {each} bytes each in the gateway");
    let mut quiet = Vec::new();
    for (number, stream) in streams.into_iter().enumerate() {
        // What a stream begins with, then its keep-alive after 15 s and after 30 s: what waits stays open.
        let mut begun = stream.until(if number % 2 == 0 { COMMENT } else { "acknowledged" }).await?;
        for _ in 0..2 {
            begun = begun.until(COMMENT).await.context("a comment on a quiet stream")?;
        }
        quiet.push(begun);
    }
    let later = stack.asp.resident()?.saturating_sub(before) / CLIENTS as u64;
    ensure!(each.max(later) <= MOST, "a stream costs {each} bytes, and {later} when it has waited");
    let deny = json!({
        "target": {"type": "user", "idOrPattern": "*"},
        "primitive": {"name": "clock", "protocol": "mcp"},
        "allowed": false,
    });
    admin(&stack, "PUT", "/api/policy/orgs/waiting/bindings?force=true", &deny.to_string()).await?;
    for stream in quiet {
        stream.until(CHANGED).await.context("told of the change")?;
    }
    stack.stop(&[]).await
}

/// Streams of both eras in turn.
async fn open(stack: &Stack, token: &str, clients: usize) -> Result<Vec<Opened>> {
    let mut streams = Vec::new();
    for number in 0..clients {
        let request = if number % 2 == 0 {
            let session = initialize(stack.edge(), token).await?;
            let mut get = legacy(token, "ping", json!({}), &[("mcp-session-id", &session)]);
            get.method = "GET".into();
            get.body.clear();
            get
        } else {
            let filter = json!({"notifications": {"toolsListChanged": true}});
            modern(token, "subscriptions/listen", filter, &[])
        };
        streams.push(http1::open(stack.edge(), &request, "text/event-stream").await?);
    }
    Ok(streams)
}
