//! F39: one of two control planes is cut off from PostgreSQL, and from nothing else. All subscribers leave it for the other one,
//! and what is revoked there is in force at every gateway.
//!
//! Before, all of them follow the one that is cut off: the other one was started again.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::{Cluster, Layout};
use asp_e2e::figures::gauge;
use asp_e2e::http1::{self, Request};
use asp_e2e::message::{modern, revocation};
use asp_e2e::stack::Ports;
use asp_e2e::stores::Postgres;
use asp_e2e::wait;
use futures::future::try_join_all;
use rustix::process::Signal;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::enforcement::in_force;
use crate::sheet::Sheet;

const GATEWAYS: u8 = 3;
/// Bound on the time until nobody subscribes to the control plane that is cut off, in seconds.
const LEFT_WITHIN: f64 = 5.0;
/// Bound on the time until a revocation at the other one is in force at every gateway, in seconds from its answer.
const IN_FORCE_WITHIN: f64 = 2.0;
/// The same for one that is written at the moment of the cut: the gateways have to leave first.
const IN_FORCE_SINCE_CUT_WITHIN: f64 = LEFT_WITHIN + IN_FORCE_WITHIN;
/// Time before the cut in which the control plane must keep its subscribers: longer than it may keep them afterwards.
const QUIET: Duration = Duration::from_secs(6);
/// Between two looks at the number of subscribers.
const POLL: Duration = Duration::from_millis(50);
/// Longer than the row.
const TOKEN: &str = "2h";

pub(crate) async fn run(sheet: &mut Sheet) -> Result<()> {
    let postgres = Postgres::start().await?;
    let layout = Layout {
        has_second_control: true,
        environment: vec![("ASP_DATABASE_URL", postgres.url())],
        control_database: Some(postgres.socket()),
        ..Layout::of(GATEWAYS.into())?
    };
    let mut cluster = Cluster::start_as(layout).await?;
    gather(&mut cluster).await?;
    let root = cluster.token(&["--admin", "--user", "root", "--ttl", TOKEN]).await?;
    let early = caller(&cluster, "early").await?;
    let late = caller(&cluster, "late").await?;
    let kept = caller(&cluster, "kept").await?;
    for token in [&early, &late, &kept] {
        everywhere(&cluster, &list(token), 200).await?;
    }
    let (first, second) = admins(&cluster)?;
    let fewest = fewest(first).await?;
    sheet.at_least("gateways that follow it before the cut, the fewest", fewest, GATEWAYS.into());

    cluster.database_cable.as_ref().context("a cable to the database")?.cut();
    let cut = Instant::now();
    let (left, at_cut) =
        tokio::try_join!(nobody_subscribes(first), revoke(&cluster, second, (&root, &early)))?;
    let left = left.saturating_duration_since(cut).as_secs_f64();
    sheet.at_most("seconds from the cut until nobody subscribes there", left, LEFT_WITHIN);
    let name = "seconds until a revocation at the moment of the cut is in force at every gateway";
    sheet.at_most(name, at_cut, IN_FORCE_SINCE_CUT_WITHIN);
    let later = revoke(&cluster, second, (&root, &late)).await?;
    sheet.at_most("seconds until a later revocation is in force at every gateway", later, IN_FORCE_WITHIN);
    everywhere(&cluster, &list(&kept), 200).await.context("of a token that nobody revoked")?;
    // It has read nothing meanwhile.
    let age = gauge(first, "asp_snapshot_store_age_seconds", "").await?;
    sheet.at_least("seconds since the control plane read its store", age, cut.elapsed().as_secs_f64() - 2.0);
    mend(&cluster, sheet).await
}

/// Brings all subscribers to the first control plane.
async fn gather(cluster: &mut Cluster) -> Result<()> {
    let (second, _) = cluster.second_control.as_mut().context("a second control plane")?;
    second.signal(Signal::KILL)?;
    second.wait(wait::CONVERGE).await?;
    let (first, _) = admins(cluster)?;
    let follow = || async {
        let gateways = subscriptions(first, "subscriber=\"gateway\"").await.ok()?;
        let edges = subscriptions(first, "subscriber=\"edge\"").await.ok()?;
        (gateways >= f64::from(GATEWAYS) && edges >= 1.0).then_some(())
    };
    wait::until("all follow the first control plane", wait::START, follow).await?;
    cluster.restart_second_control().await?;
    let (_, ports) = cluster.second_control.as_ref().context("a second control plane")?;
    is_current(cluster, ports).await?;
    cluster.wait_hosts(GATEWAYS.into()).await
}

async fn is_current(cluster: &Cluster, control: &Ports) -> Result<()> {
    let is_current = || async {
        let snapshot = cluster.admin_of(control, "/api/snapshot").await.ok()?;
        let covers = snapshot.get("coversRevision").filter(|covers| covers.is_u64())?;
        (Some(covers) == snapshot.get("storeRevision")).then_some(())
    };
    wait::until("a control plane publishes what is stored", wait::START, is_current).await
}

/// The admin APIs of the first control plane and of the other one.
fn admins(cluster: &Cluster) -> Result<(SocketAddr, SocketAddr)> {
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let (_, second) = cluster.second_control.as_ref().context("a second control plane")?;
    Ok((at(cluster.control_ports.admin), at(second.admin)))
}

async fn caller(cluster: &Cluster, user: &str) -> Result<String> {
    cluster.token(&["--org", "acme", "--user", user, "--ttl", TOKEN]).await
}

fn list(token: &str) -> Request {
    modern(token, "tools/list", json!({}), &[])
}

async fn subscriptions(admin: SocketAddr, label: &str) -> Result<f64> {
    gauge(admin, "asp_snapshot_subscribers", label).await
}

/// The fewest gateways that follow this control plane within a while.
async fn fewest(admin: SocketAddr) -> Result<f64> {
    let until = Instant::now() + QUIET;
    let mut fewest = f64::INFINITY;
    while Instant::now() < until {
        fewest = fewest.min(subscriptions(admin, "subscriber=\"gateway\"").await?);
        sleep(POLL).await;
    }
    Ok(fewest)
}

/// Waits until there is no subscription of any kind; when that was.
async fn nobody_subscribes(admin: SocketAddr) -> Result<Instant> {
    let left = || async { (subscriptions(admin, "").await.ok()? < 1.0).then(Instant::now) };
    wait::until("nobody subscribes to the control plane that is cut off", wait::CONVERGE, left).await
}

/// Waits until every gateway answers with this status; when the last of them first did.
async fn everywhere(cluster: &Cluster, probe: &Request, status: u16) -> Result<Instant> {
    let gateways = cluster.addresses();
    let since = gateways.iter().map(|gateway| in_force(*gateway, probe, status));
    try_join_all(since).await?.into_iter().max().context("a gateway")
}

/// Revokes a token; seconds from the answer until every gateway refuses it.
async fn revoke(cluster: &Cluster, at: SocketAddr, (root, token): (&str, &str)) -> Result<f64> {
    let answer = http1::send(at, &revocation(root, token)).await?;
    ensure!(answer.status < 300, "{} {}", answer.status, answer.text());
    let answered = Instant::now();
    let last = everywhere(cluster, &list(token), 401).await?;
    Ok(last.saturating_duration_since(answered).as_secs_f64())
}

/// Lets the control plane reach the database again; it publishes again.
async fn mend(cluster: &Cluster, sheet: &mut Sheet) -> Result<()> {
    cluster.database_cable.as_ref().context("a cable to the database")?.mend();
    let mended = Instant::now();
    is_current(cluster, &cluster.control_ports).await?;
    sheet.note("seconds from its return until it publishes again", mended.elapsed().as_secs_f64());
    Ok(())
}
