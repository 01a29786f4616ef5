//! F37: the admin of one org switches a server off and on without pause. Requests of another org cost the edge no more
//! processor time, and the changes of a third org are in force in time.
//!
//! The requests come at a fixed rate, as many before, during and after: what Envoy uses for anything but them shows in the
//! time of each.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::Cluster;
use asp_e2e::http1::{Connection, Request};
use asp_e2e::message::modern;
use asp_e2e::writers::{Writers, exposure_write};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use super::org_writers::UNBOUNDED;
use crate::enforcement::{Change, Delays, Endpoints};
use crate::processes;
use crate::sheet::Sheet;

/// Connections, and how many requests each sends within [`LENGTH`].
const CLIENTS: u32 = 8;
const REQUESTS: u32 = 1_250;
const LENGTH: Duration = Duration::from_secs(20);
/// Requests of each client before anything is measured: what Envoy makes once is there then.
const WARM_UP: u32 = 100;
/// The most processor time of a request, in percent of the quiet one.
const GROWTH: f64 = 110.0;
/// Changes of the third org: fewer than its bound on writes.
const CHANGES: usize = 24;
const BETWEEN: std::ops::Range<u64> = 0..300;

pub(crate) async fn run(is_bounded: bool, sheet: &mut Sheet) -> Result<()> {
    let mut environment: Vec<(&'static str, String)> = Vec::new();
    if !is_bounded {
        environment.push((UNBOUNDED.0, UNBOUNDED.1.to_owned()));
    }
    let cluster = Cluster::start_in(environment, 1).await?;
    let at = Endpoints::of(&cluster)?;
    let token = cluster.token(&["--org", "steady", "--user", "carol", "--ttl", "12h"]).await?;
    let list = modern(&token, "tools/list", json!({}), &[]);
    at.settle(&list, 200).await?;
    all_requests(at.edge, &list, WARM_UP).await?;

    let before = micros_of_request(&cluster, &list).await?;
    let toggler = cluster.org_admin("toggler").await?;
    let cycle = [false, true].map(|enabled| exposure_write("toggler", &toggler, enabled)).to_vec();
    let writers = Writers::start(at.api, vec![cycle]);
    writers.progress(1).await?;
    let during = micros_of_request(&cluster, &list).await?;
    let delays = change(&cluster, at).await?;
    let tallies = writers.stop().await?;
    let after = micros_of_request(&cluster, &list).await?;

    let tally = tallies.into_iter().next().context("one admin")?;
    #[expect(clippy::cast_precision_loss, reason = "numbers of writes")]
    {
        sheet.at_least("accepted writes", tally.accepted as f64, 1.0);
        sheet.note("writes refused as too many", tally.refused as f64);
        sheet.note("writes that failed otherwise", tally.failed as f64);
    }
    if let Some(failure) = tally.first_failure {
        eprintln!("a write of the org's admin: {failure}");
    }
    sheet.note("processor time of a request at the edge before, µs", before);
    sheet.note("processor time of a request at the edge during, µs", during);
    sheet.note("processor time of a request at the edge after, µs", after);
    let quiet = (before + after) / 2.0;
    sheet.at_most("processor time of a request at the edge, % of quiet", during / quiet * 100.0, GROWTH);
    delays.judge(sheet, "changes of another org")
}

/// Microseconds of Envoy's processor time for each of a fixed number of requests.
async fn micros_of_request(cluster: &Cluster, request: &Request) -> Result<f64> {
    let envoy = cluster.envoy.process.id().context("Envoy runs")?;
    let before = processes::cpu_of_threads(envoy)?;
    all_requests(cluster.envoy.address, request, REQUESTS).await?;
    let used = processes::cpu_of_threads(envoy)?.saturating_sub(before);
    Ok(used.as_secs_f64() * 1_000_000.0 / f64::from(CLIENTS * REQUESTS))
}

/// Sends so many requests over each connection, at the rate of [`REQUESTS`] within [`LENGTH`].
async fn all_requests(edge: SocketAddr, request: &Request, requests: u32) -> Result<()> {
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(send(edge, request.clone(), requests));
    }
    while let Some(sent) = clients.join_next().await {
        sent??;
    }
    Ok(())
}

async fn send(edge: SocketAddr, request: Request, requests: u32) -> Result<()> {
    let mut connection = Connection::to(edge);
    let mut ticks = interval(LENGTH / REQUESTS);
    for _ in 0..requests {
        ticks.tick().await;
        let answer = connection.send(&request).await?;
        ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
    }
    Ok(())
}

/// Switches a server off and on for a third org.
async fn change(cluster: &Cluster, at: Endpoints) -> Result<Delays> {
    let admin = cluster.org_admin("other").await?;
    let token = cluster.token(&["--org", "other", "--user", "carol", "--ttl", "12h"]).await?;
    let probe = modern(&token, "tools/list", json!({}), &[]);
    at.settle(&probe, 200).await?;
    let mut delays = Delays::default();
    for number in 0..CHANGES {
        sleep(Duration::from_millis(rand::random_range(BETWEEN))).await;
        let enabled = number % 2 == 1;
        let write = exposure_write("other", &admin, enabled);
        let status = if enabled { 200 } else { 404 };
        delays.measure(at, &Change { write: &write, probe: &probe, status }).await?;
    }
    Ok(delays)
}
