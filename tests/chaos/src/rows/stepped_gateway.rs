//! F20: the clock of one of two gateways is stepped amid a call, by five minutes ahead and back and by an hour back. Timers go on as
//! they were; a token is evaluated by the stepped clock, a revocation by no clock.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::Cluster;
use asp_e2e::http1::{self, Request};
use asp_e2e::message::{modern, revocation};
use asp_e2e::stepped_clock::SteppedClock;
use asp_e2e::stores::{Postgres, Redis};
use serde_json::json;
use tokio::time::Instant;

use crate::enforcement::in_force;
use crate::sheet::Sheet;

/// Seconds by which the clock is stepped; back, tokens of this minute come from the future.
const STEPS: [i64; 3] = [300, -300, -3_600];
/// Steps of the call's progress and the time between two, together five seconds.
const COUNT: u64 = 20;
const DELAY_MS: u64 = 250;
const CALL_SECONDS: f64 = 5.0;
const LATE: f64 = 3.0;
/// Bound on the time until a revocation is in force, in seconds from its answer.
const IN_FORCE_WITHIN: f64 = 2.0;
const TOKEN: &str = "2h";

pub(crate) async fn run(sheet: &mut Sheet) -> Result<()> {
    let postgres = Postgres::start().await?;
    let redis = Redis::start().await?;
    let environment = vec![("ASP_DATABASE_URL", postgres.url()), ("ASP_REDIS_URL", redis.url())];
    let mut cluster = Cluster::start_in(environment, 1).await?;
    let clock = SteppedClock::make(cluster.directory.path()).await?;
    cluster.add_environment(clock.environment().map(|(name, path)| (name, path.display().to_string())));
    cluster.add_gateway().await?;
    let gateway = cluster.addresses().pop().context("a gateway with a clock of its own")?;
    for step in STEPS {
        stepped(&cluster, gateway, (&clock, step), sheet).await.with_context(|| format!("{step} s"))?;
    }
    Ok(())
}

async fn stepped(
    cluster: &Cluster,
    gateway: SocketAddr,
    (clock, step): (&SteppedClock, i64),
    sheet: &mut Sheet,
) -> Result<()> {
    let user = format!("stepped{step}");
    let token = cluster.token(&["--org", "acme", "--user", &user, "--ttl", TOKEN]).await?;
    let lost = cluster.token(&["--org", "acme", "--user", &user, "--ttl", TOKEN]).await?;
    let root = cluster.token(&["--admin", "--user", "root", "--ttl", TOKEN]).await?;
    in_force(gateway, &list(&token), 200).await?;
    let running = http1::open(gateway, &count(&token), "notifications/progress").await?;
    let began = Instant::now();
    clock.set(step)?;
    // A token is from the future if the clock is behind by more than the leeway.
    let status = if step < 0 { 401 } else { 200 };
    in_force(gateway, &list(&token), status).await.context("a token by the stepped clock")?;
    let ended = running.finish().await?.json()?;
    let is_whole = ended.pointer("/result/structuredContent") == Some(&json!({"counted": COUNT}));
    ensure!(is_whole, "the running call: {ended}");
    let seconds = began.elapsed().as_secs_f64();
    sheet.at_most(&format!("seconds of a call of 5 s, {step} s"), seconds, CALL_SECONDS + LATE);
    let api = SocketAddr::from(([127, 0, 0, 1], cluster.control_ports.admin));
    let written = http1::send(api, &revocation(&root, &lost)).await?;
    ensure!(written.status < 300, "{}", written.text());
    let answered = Instant::now();
    let refused = in_force(gateway, &list(&lost), 401).await?;
    let seconds = refused.saturating_duration_since(answered).as_secs_f64();
    sheet.at_most(&format!("seconds until a revocation is in force, {step} s"), seconds, IN_FORCE_WITHIN);
    clock.set(0)?;
    in_force(gateway, &list(&token), 200).await.context("a token once the clock is right again")?;
    in_force(gateway, &list(&lost), 401).await.context("a revoked token once the clock is right again")?;
    Ok(())
}

fn list(token: &str) -> Request {
    modern(token, "tools/list", json!({}), &[])
}

fn count(token: &str) -> Request {
    let arguments = json!({"to": COUNT, "delayMs": DELAY_MS});
    let params = json!({"name": "count", "arguments": arguments, "_meta": {"progressToken": 1}});
    modern(token, "tools/call", params, &[("mcp-name", "count")])
}
