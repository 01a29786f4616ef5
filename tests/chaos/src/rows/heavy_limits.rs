//! F38: an org with all the limits that it may hold calls steadily, each call drawing from as many as a call may. Calls of
//! other orgs, which draw from one limit each, are decided nearly as fast as without it. The counters are in Redis.
//!
//! The gateways are asked themselves: the edge decides none of these limits.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::Cluster;
use asp_e2e::http1::{Connection, Request};
use asp_e2e::message::modern;
use asp_e2e::spread::percentile;
use asp_e2e::stores::Redis;
use asp_e2e::writers::MAX_LIMITS;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::interval;

use crate::sheet::Sheet;

const GATEWAYS: usize = 2;
const HEAVY: &str = "heavy";
const OTHERS: [&str; 2] = ["first", "second"];
/// Calls a second of each org at each gateway.
const HEAVY_RATE: u32 = 100;
const OTHERS_RATE: u32 = 25;
const LENGTH: Duration = Duration::from_secs(20);
/// Calls that are no measurement: connections and sessions are made in them.
const WARM_UP: Duration = Duration::from_secs(2);
/// Limits of the heavy org that one of its calls draws from; the admin API takes no more.
const DRAWN: usize = 8;
/// Times the quiet 99th percentile of the others' calls.
const GROWTH: f64 = 1.5;
/// Log line of a gateway that Redis did not answer in time.
const ALONE: &str = "limits count for this gateway alone";

pub(crate) async fn run(sheet: &mut Sheet) -> Result<()> {
    let redis = Redis::start().await?;
    let cluster = Cluster::start_in(vec![("ASP_REDIS_URL", redis.url())], GATEWAYS).await?;
    for org in OTHERS {
        let one = json!([limit(&json!({"user": "carol"}))]);
        cluster.put(&format!("/api/ratelimits/orgs/{org}?force=true"), &one).await?;
    }
    cluster.put(&format!("/api/ratelimits/orgs/{HEAVY}?force=true"), &most_limits()).await?;
    let mut others = Vec::new();
    for org in OTHERS {
        others.push(call(&cluster, org).await?);
    }
    let heavy = vec![call(&cluster, HEAVY).await?];
    let gateways = cluster.addresses();
    load(&gateways, &others, OTHERS_RATE, WARM_UP).await?;
    load(&gateways, &heavy, HEAVY_RATE, WARM_UP).await?;

    let mut quiet = load(&gateways, &others, OTHERS_RATE, LENGTH).await?;
    let (during, calls) = tokio::try_join!(
        load(&gateways, &others, OTHERS_RATE, LENGTH),
        load(&gateways, &heavy, HEAVY_RATE, LENGTH),
    )?;
    let keys: usize = redis.ask("DBSIZE").await?.trim_start_matches(':').parse()?;
    quiet.extend(load(&gateways, &others, OTHERS_RATE, LENGTH).await?);
    let alone = cluster.gateways.iter().flat_map(|gateway| gateway.process.log().lines());
    let alone = alone.filter(|line| line.contains(ALONE)).count();
    judge(sheet, &quiet, &during, &calls)?;
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    {
        // All of them are counted there.
        sheet.at_least("counters in Redis", keys as f64, (DRAWN + OTHERS.len()) as f64);
        sheet.at_most("times that a gateway counted alone", alone as f64, 0.0);
    }
    Ok(())
}

fn judge(sheet: &mut Sheet, quiet: &[f64], during: &[f64], heavy: &[f64]) -> Result<()> {
    let at = |values: &[f64], share| percentile(values, share).context("there were no calls");
    for (name, values) in [("quiet", quiet), ("during", during)] {
        sheet.note(&format!("others' calls {name}, p50, ms"), at(values, 0.5)?);
        sheet.note(&format!("others' calls {name}, p99, ms"), at(values, 0.99)?);
    }
    sheet.note("calls of the heavy org, p99, ms", at(heavy, 0.99)?);
    #[expect(clippy::cast_precision_loss, reason = "numbers of calls")]
    {
        sheet.note("others' calls during", during.len() as f64);
        sheet.at_least("calls of the heavy org", heavy.len() as f64, 1.0);
    }
    sheet.at_most("others' p99, times quiet", at(during, 0.99)? / at(quiet, 0.99)?, GROWTH);
    Ok(())
}

/// Calls a tool as user `carol` of an org.
async fn call(cluster: &Cluster, org: &str) -> Result<Request> {
    let token = cluster.token(&["--org", org, "--user", "carol", "--ttl", "12h"]).await?;
    let params = json!({"name": "echo", "arguments": {"message": "m"}});
    Ok(modern(&token, "tools/call", params, &[("mcp-name", "echo")]))
}

/// Sends each request so often a second to each gateway; the milliseconds of every call since it was due.
async fn load(
    gateways: &[SocketAddr],
    requests: &[Request],
    rate: u32,
    length: Duration,
) -> Result<Vec<f64>> {
    let mut clients = JoinSet::new();
    for gateway in gateways {
        for request in requests {
            clients.spawn(client(*gateway, request.clone(), rate, length));
        }
    }
    let mut all = Vec::new();
    while let Some(latencies) = clients.join_next().await {
        all.extend(latencies??);
    }
    Ok(all)
}

async fn client(gateway: SocketAddr, request: Request, rate: u32, length: Duration) -> Result<Vec<f64>> {
    let mut connection = Connection::to(gateway);
    let mut ticks = interval(Duration::from_secs(1) / rate);
    let mut latencies = Vec::new();
    for _ in 0..u64::from(rate) * length.as_secs() {
        // Where the last call was late, the next one was due before it is sent.
        let due = ticks.tick().await;
        let answer = connection.send(&request).await?;
        let is_granted = answer.text().contains("\"isError\":false");
        ensure!(is_granted, "{} {}", answer.status, answer.text());
        latencies.push(due.elapsed().as_secs_f64() * 1_000.0);
    }
    Ok(latencies)
}

/// Limits of which a call of `carol` draws from [`DRAWN`], and the others of which name other users.
fn most_limits() -> Value {
    let drawn = [
        json!({}),
        json!({"server": "demo"}),
        json!({"user": "each"}),
        json!({"wcit": "each"}),
        json!({"user": "carol"}),
        json!({"server": "demo", "user": "each"}),
        json!({"server": "demo", "wcit": "each"}),
        json!({"server": "demo", "user": "carol"}),
    ];
    let others = (DRAWN..MAX_LIMITS).map(|number| json!({"user": format!("user-{number:04}")}));
    drawn.iter().cloned().chain(others).map(|selector| limit(&selector)).collect()
}

/// A limit that is never reached, and whose bucket is never full again while it is measured: Redis forgets those that are.
fn limit(selector: &Value) -> Value {
    json!({"selector": selector, "policy": {"capacity": 1_000_000, "refill": "1/s"}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heavy_org_has_all_the_limits_that_it_may_hold() {
        assert_eq!(most_limits().as_array().unwrap().len(), MAX_LIMITS);
    }
}
