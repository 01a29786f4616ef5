//! Clients that ask for streams through Envoy and read nothing of them: what waits for them is little, they are given up
//! in the end, and nobody else waits for them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{self, Opened, Request};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait;
use serde_json::{Value, json};

use crate::message::modern;
use crate::trial::{Shared, trials};

const STALLED: usize = 40;
/// How many of them came before and left: what is made once is there before it is measured.
const BEFORE: usize = 10;
/// What each event says: a hundred of them are more than Envoy and the kernel hold of a response that nobody reads.
const TOKEN: usize = 128 << 10;
/// What one of them may hold in the gateway, in bytes: what waits to be sent, its request with the text of its events, and
/// what it costs that its call has run.
const MOST_HELD: u64 = (64 + 4 * 128 + 48) * 1024;
/// The gateway gives a client a minute.
const GIVEN_UP: Duration = Duration::from_secs(120);
/// A hang guard: others do not wait until those are given up.
const GUARD: Duration = Duration::from_secs(20);
const RESET: &str = "response reset because its client does not read it";

trials! { stalled:
    readers_through_envoy_hold_little_and_are_given_up,
}

async fn readers_through_envoy_hold_little_and_are_given_up(_: &Shared) -> Result<()> {
    // A stack of its own: it is measured.
    let stack = Stack::start(Options::repository()?).await?;
    let token = stack.alice().await?;
    drop(open(&stack, &token, BEFORE).await?);
    let before = stack.asp.resident()?;
    let silent = open(&stack, &token, STALLED).await?;
    let slowest = others(&stack, &token).await?;
    let held = stack.asp.resident()?.saturating_sub(before) / STALLED as u64;
    eprintln!("{STALLED} readers stalled behind Envoy: {held} bytes each; others wait {slowest:?} at most");
    ensure!(held <= MOST_HELD, "a stream that nobody reads costs {held} bytes");
    let given_up = || async {
        let reset = stack.asp.log().lines().iter().filter(|line| line.contains(RESET)).count();
        (reset >= STALLED).then_some(())
    };
    wait::until("every stalled reader is given up", GIVEN_UP, given_up).await?;
    // What was on its way is there, and no result: the gateway did not wait for its reader.
    for stream in silent {
        let (text, whole) = stream.within(Duration::from_secs(10)).await?;
        ensure!(whole.is_none() && !text.contains("structuredContent"), "it ended as if it were whole");
    }
    others(&stack, &token).await?;
    stack.stop(&[]).await
}

/// Calls of others; how long the slowest one took.
async fn others(stack: &Stack, token: &str) -> Result<Duration> {
    let mut slowest = Duration::ZERO;
    for _ in 0..100 {
        let echo = json!({"name": "echo", "arguments": {"message": "hi"}});
        let began = Instant::now();
        let answer =
            http1::send(stack.edge(), &modern(token, "tools/call", echo, &[("mcp-name", "echo")])).await?;
        ensure!(answer.text().contains("\"hi\""), "{}", answer.text());
        slowest = slowest.max(began.elapsed());
    }
    ensure!(slowest < GUARD, "others wait {slowest:?}");
    Ok(slowest)
}

/// Streams whose beginning has come, each over a connection of its own.
async fn open(stack: &Stack, token: &str, streams: usize) -> Result<Vec<Opened>> {
    let mut open = Vec::new();
    for number in 0..streams {
        let stream = http1::open(stack.edge(), &count(token)?, "text/event-stream").await;
        open.push(stream.with_context(|| format!("stream {number}"))?);
    }
    Ok(open)
}

/// A hundred events, each with the token.
fn count(token: &str) -> Result<Request> {
    let count = json!({"name": "count", "arguments": {"to": 100, "delayMs": 1}});
    let mut request = modern(token, "tools/call", count, &[("mcp-name", "count")]);
    let mut body: Value = serde_json::from_slice(&request.body)?;
    body["params"]["_meta"]["progressToken"] = "x".repeat(TOKEN).into();
    request.body = body.to_string().into_bytes();
    Ok(request)
}
