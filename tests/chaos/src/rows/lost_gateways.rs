//! F32: a gateway is killed with calls under way whose clients read their events, among three that share PostgreSQL, Redis
//! and two control planes. Each client comes back at one of the others, has each event once, and is told how its call ended.

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::Cluster;
use asp_e2e::resumption;
use asp_e2e::stores::{Postgres, Redis};
use asp_e2e::{http1, wait};
use futures::future::{join_all, try_join_all};
use rustix::process::Signal;

use crate::sheet::Sheet;

/// Gateways that are killed one after the other, and calls that are under way at each.
const KILLS: u64 = 4;
const CALLS: u64 = 50;

pub(crate) async fn run(sheet: &mut Sheet) -> Result<()> {
    let postgres = Postgres::start().await?;
    let redis = Redis::start().await?;
    let environment = vec![("ASP_DATABASE_URL", postgres.url()), ("ASP_REDIS_URL", redis.url())];
    let mut cluster = Cluster::start_with_two_controls(environment, 3).await?;
    let token = cluster.token(&["--org", "acme", "--user", "alice", "--ttl", "1h"]).await?;
    let seed: u64 = rand::random();
    eprintln!("seed {seed}");
    let mut faults = Vec::new();
    for kill in 0..KILLS {
        let mut lost = cluster.gateways.pop().context("three gateways")?;
        let kept = cluster.addresses();
        let seeds = (0..CALLS).map(|call| seed.wrapping_add(kill * CALLS + call));
        let begun = seeds.map(|seed| resumption::begin(lost.address, &token, seed));
        let begun = try_join_all(begun).await?;
        lost.process.signal(Signal::KILL)?;
        lost.process.wait(wait::CONVERGE).await?;
        let survived = begun.into_iter().zip(kept.into_iter().cycle()).map(|(loss, at)| loss.survive(at));
        let survived = join_all(survived).await;
        ensure!(survived.len() as u64 == CALLS, "{} of {CALLS} calls came back", survived.len());
        faults.extend(survived.into_iter().filter_map(|one| one.and_then(|one| one.judge()).err()));
        cluster.add_gateway().await?;
    }
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    {
        sheet.note("calls", (KILLS * CALLS) as f64);
        sheet.at_most(
            "calls with an event lost, told twice or not told again, or another end",
            faults.len() as f64,
            0.0,
        );
    }
    for fault in faults.iter().take(3) {
        sheet.fault(format!("{fault:#}"));
    }
    // Whoever looks for the reason finds that the others were there.
    let first = *cluster.addresses().first().context("a gateway")?;
    let there = http1::get(first, "/demo/mcp", &[]).await?;
    sheet.expect("the status of a request without a token", &there.status.to_string(), "401");
    Ok(())
}
