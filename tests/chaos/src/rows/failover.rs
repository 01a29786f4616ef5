//! F4: under load the master of Redis is killed, and five seconds later its replica takes its place, as after a failover by a
//! sentinel. No gateway ends, what only reads goes on, and a revocation is in force as soon as with Redis, because no replica
//! says who is revoked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::Cluster;
use asp_e2e::http1::{self, Request};
use asp_e2e::message::{modern, revocation};
use asp_e2e::stores::{Postgres, Redis};
use asp_e2e::wait;
use rustix::process::Signal;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::enforcement::in_force;
use crate::sheet::Sheet;

const GATEWAYS: usize = 2;
const CLIENTS: usize = 4;
/// Rest of a client between two calls.
const REST: Duration = Duration::from_millis(50);
/// Load before the failover and after it.
const WELL: Duration = Duration::from_secs(3);
/// Time that a sentinel takes to agree that the master is gone (`down-after-milliseconds`, tuned).
const DETECTED_AFTER: Duration = Duration::from_secs(5);
/// Bound on the time without Redis, in seconds from the kill.
const DEGRADED: f64 = 10.0;
/// Bound on the time until a revocation is in force, in seconds from its request.
const IN_FORCE: f64 = 1.0;

/// Calls of one user through the edge.
#[derive(Clone)]
struct Load {
    edge: SocketAddr,
    call: Request,
    is_over: Arc<AtomicBool>,
}

/// Calls of a client, and what was wrong about some.
#[derive(Default)]
struct Calls {
    count: usize,
    faults: Vec<String>,
}

pub(crate) async fn run(sheet: &mut Sheet) -> Result<()> {
    let postgres = Postgres::start().await?;
    let mut redis = Redis::start_master().await?;
    let mut replica = redis.replica().await?;
    let environment = vec![("ASP_DATABASE_URL", postgres.url()), ("ASP_REDIS_URL", redis.url())];
    let mut cluster = Cluster::start_in(environment, GATEWAYS).await?;
    // So that Redis is asked about each call.
    let limits =
        json!([{"selector": {"user": "alice"}, "policy": {"capacity": 1_000_000, "refill": "1000/s"}}]);
    cluster.put("/api/ratelimits/orgs/acme", &limits).await?;
    let alice = cluster.token(&["--org", "acme", "--user", "alice", "--ttl", "1h"]).await?;
    let load = Load { edge: cluster.envoy.address, call: echo(&alice), is_over: Arc::default() };
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(load.clone().calls());
    }
    sleep(WELL).await;
    revoke(&cluster, "before", sheet).await?;
    redis.process.signal(Signal::KILL)?;
    redis.process.wait(wait::CONVERGE).await?;
    let killed = Instant::now();
    revoke(&cluster, "without a master", sheet).await?;
    sleep(DETECTED_AFTER.saturating_sub(killed.elapsed())).await;
    replica.take_the_place_of(&redis).await?;
    for gateway in &cluster.gateways {
        gateway.process.logged("all gateways together again").await?;
    }
    sheet.at_most("seconds without Redis", killed.elapsed().as_secs_f64(), DEGRADED);
    revoke(&cluster, "after the failover", sheet).await?;
    sleep(WELL).await;
    load.is_over.store(true, Ordering::Release);
    judge(sheet, &mut clients).await?;
    for gateway in &mut cluster.gateways {
        gateway.process.check_alive()?;
    }
    Ok(())
}

async fn judge(sheet: &mut Sheet, clients: &mut JoinSet<Calls>) -> Result<()> {
    let mut all = Calls::default();
    while let Some(calls) = clients.join_next().await {
        let calls = calls?;
        all.count += calls.count;
        all.faults.extend(calls.faults);
    }
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    {
        sheet.at_least("calls", all.count as f64, 1.0);
        sheet.at_most("calls that failed", all.faults.len() as f64, 0.0);
    }
    all.faults.into_iter().take(3).for_each(|fault| sheet.fault(fault));
    Ok(())
}

/// Revokes a token; edge and gateways refuse it in time.
async fn revoke(cluster: &Cluster, when: &str, sheet: &mut Sheet) -> Result<()> {
    let token = cluster.token(&["--org", "acme", "--user", "bob", "--ttl", "1h"]).await?;
    let root = cluster.token(&["--admin", "--user", "root"]).await?;
    let list = modern(&token, "tools/list", json!({}), &[]);
    let mut places = cluster.addresses();
    places.push(cluster.envoy.address);
    for place in &places {
        in_force(*place, &list, 200).await.context("before its revocation")?;
    }
    let api = SocketAddr::from(([127, 0, 0, 1], cluster.control_ports.admin));
    let requested = Instant::now();
    let written = http1::send(api, &revocation(&root, &token)).await?;
    ensure!(written.status < 300, "{}", written.text());
    let refused = futures::future::try_join_all(places.iter().map(|place| in_force(*place, &list, 401)));
    let last = refused.await?.into_iter().max().context("a place")?;
    let seconds = last.saturating_duration_since(requested).as_secs_f64();
    sheet.at_most(&format!("seconds until a revocation is in force, {when}"), seconds, IN_FORCE);
    Ok(())
}

fn echo(token: &str) -> Request {
    let params = json!({"name": "echo", "arguments": {"message": "m"}});
    modern(token, "tools/call", params, &[("mcp-name", "echo")])
}

impl Load {
    async fn calls(self) -> Calls {
        let mut calls = Calls::default();
        while !self.is_over.load(Ordering::Acquire) {
            match http1::send(self.edge, &self.call).await {
                Ok(answer) if answer.text().contains("\"isError\":false") => {}
                Ok(answer) => calls.faults.push(format!("{} {}", answer.status, answer.text())),
                Err(error) => calls.faults.push(format!("{error:#}")),
            }
            calls.count += 1;
            sleep(REST).await;
        }
        calls
    }
}
