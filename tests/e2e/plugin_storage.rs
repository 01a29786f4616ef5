//! Values that a plugin stores are there at every gateway: calls that two gateways run at the same time are each counted once, for
//! their org and for their user, and nobody else sees them.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use asp_e2e::cluster::{Cluster, Layout};
use asp_e2e::http1;
use asp_e2e::runtime::{Runtime, World};
use asp_e2e::stores::{Postgres, Redis};
use asp_e2e::tool;
use asp_e2e::wait::ErrorDetails;
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::message::modern;
use crate::trial::{Shared, trials};

/// Calls at the same time, of both gateways in turn.
const CALLS: usize = 12;
const PRIMITIVES: &str = "tests/fixtures/storage";

trials! { plugin_storage:
    calls_at_two_gateways_are_each_counted_once,
}

/// Invariant I-3.
async fn calls_at_two_gateways_are_each_counted_once(_: &Shared) -> Result<()> {
    let primitives = tool::root()?.join(PRIMITIVES);
    let mut runtime = Runtime::start(&primitives, World::default()).await?;
    let postgres = Postgres::start().await?;
    let redis = Redis::start().await?;
    let environment = vec![
        ("ASP_DATABASE_URL", postgres.url()),
        ("ASP_REDIS_URL", redis.url()),
        ("ASP_RUNTIMES", format!("python=unix:{}", runtime.socket.display())),
    ];
    let cluster = Cluster::start_as(Layout { environment, primitives, ..Layout::of(2)? }).await?;
    let counted = count(&cluster).await;
    counted
        .with_details(|| cluster.gateways.iter().map(|gateway| gateway.process.tail()).collect::<String>())?;
    runtime.process.stop().await?;
    Ok(())
}

async fn count(cluster: &Cluster) -> Result<()> {
    let addresses = cluster.addresses();
    let token = cluster.token(&["--org", "acme", "--user", "alice"]).await?;
    let calls = addresses.iter().cycle().take(CALLS).map(|at| call(*at, &token));
    let mut counted = try_join_all(calls).await?;
    counted.sort_by_key(|count| count["org"].as_u64());
    for (place, count) in counted.iter().enumerate() {
        ensure!(count["org"] == json!(place + 1), "each call is counted once: {counted:?}");
    }
    let last = call(addresses[1], &token).await?;
    ensure!(last == json!({"org": CALLS + 1, "user": CALLS + 1, "keys": ["calls"]}), "{last}");
    let bob = cluster.token(&["--org", "acme", "--user", "bob"]).await?;
    let bobs = call(addresses[0], &bob).await?;
    ensure!(bobs == json!({"org": CALLS + 2, "user": 1, "keys": ["calls"]}), "{bobs}");
    let other = cluster.token(&["--org", "globex", "--user", "alice"]).await?;
    let others = call(addresses[0], &other).await?;
    ensure!(others == json!({"org": 1, "user": 1, "keys": ["calls"]}), "{others}");
    Ok(())
}

async fn call(at: SocketAddr, token: &str) -> Result<Value> {
    let params = json!({"name": "count", "arguments": {}});
    let mut request = modern(token, "tools/call", params, &[("mcp-name", "count")]);
    request.target = "/storage/mcp".into();
    let answer = http1::send(at, &request).await?.json()?;
    let counted = answer["result"]["structuredContent"].clone();
    ensure!(counted.is_object(), "{answer}");
    Ok(counted)
}
