//! F40: PostgreSQL is silent towards the control plane, and closes no connection, while admins write without pause. Once it
//! answers again, what is written then is in force soon.
//!
//! The connections of the silence end when it is over, as those over a route that is back do; or they stay silent, as those to a
//! machine that is gone do.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::{Cluster, Layout};
use asp_e2e::figures::gauge;
use asp_e2e::http1::{self, Request};
use asp_e2e::message::{modern, revocation};
use asp_e2e::stores::Postgres;
use asp_e2e::wait;
use asp_e2e::writers::{Writers, exposure_write};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::org_writers::UNBOUNDED;
use crate::enforcement::{Endpoints, in_force};
use crate::sheet::Sheet;

const SILENCE: Duration = Duration::from_secs(60);
/// Bound on the time until a change that is written after the silence is in force, in seconds from its end.
const IN_FORCE_WITHIN: f64 = 5.0;
/// Admins of orgs who write: as many as there are connections for their writes, so that each of these is in use.
const ADMINS: usize = 4;
/// Between two attempts to write.
const PAUSE: Duration = Duration::from_millis(50);
/// Longer than the row.
const TOKEN: &str = "2h";

/// The end of the connections that the silence met.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Connections {
    End,
    StaySilent,
}

pub(crate) const ALL: [Connections; 2] = [Connections::End, Connections::StaySilent];

impl Connections {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Connections::End => "whose connections end after it",
            Connections::StaySilent => "whose connections stay silent",
        }
    }
}

pub(crate) async fn run(connections: Connections, sheet: &mut Sheet) -> Result<()> {
    let postgres = Postgres::start().await?;
    let unbounded = (UNBOUNDED.0, UNBOUNDED.1.to_owned());
    let layout = Layout {
        environment: vec![("ASP_DATABASE_URL", postgres.url()), unbounded],
        control_database: Some(postgres.socket()),
        ..Layout::of(1)?
    };
    let cluster = Cluster::start_as(layout).await?;
    let at = Endpoints::of(&cluster)?;
    let root = cluster.token(&["--admin", "--user", "root", "--ttl", TOKEN]).await?;
    let lost = cluster.token(&["--org", "acme", "--user", "lost", "--ttl", TOKEN]).await?;
    let other = cluster.token(&["--org", "acme", "--user", "other", "--ttl", TOKEN]).await?;
    let probe = modern(&lost, "tools/list", json!({}), &[]);
    at.settle(&probe, 200).await?;
    let admins = write(&cluster, at.api).await?;

    let cable = cluster.database_cable.as_ref().context("a cable to the database")?;
    cable.cut();
    // Connections for revocations are in use, too.
    let revoking = Writers::start(at.api, vec![vec![revocation(&root, &other)]]);
    sleep(SILENCE).await;
    let age = gauge(at.api, "asp_snapshot_store_age_seconds", "").await?;
    let ready = http1::get(at.api, "/readyz", &[]).await?;
    sheet.at_least("seconds since the store was read, at the end of the silence", age, 55.0);
    sheet.expect("the status of /readyz in the silence", &ready.status.to_string(), "503");
    let failed: u64 = admins.tallies().iter().map(|tally| tally.failed).sum();
    #[expect(clippy::cast_precision_loss, reason = "a number of writes")]
    sheet.note("writes of admins that failed in the silence", failed as f64);
    match connections {
        Connections::End => cable.mend(),
        Connections::StaySilent => cable.replace(),
    }
    let returned = Instant::now();
    accept(at.api, &revocation(&root, &lost)).await?;
    sheet.note("seconds until a write is accepted", returned.elapsed().as_secs_f64());
    let since = in_force(at.gateway, &probe, 401).await?;
    let seconds = since.saturating_duration_since(returned).as_secs_f64();
    sheet.at_most("seconds until it is in force at the gateway", seconds, IN_FORCE_WITHIN);
    drop((revoking, admins));
    Ok(())
}

/// Admins who write without pause, each of whose writes are accepted.
async fn write(cluster: &Cluster, api: SocketAddr) -> Result<Writers> {
    let mut cycles = Vec::new();
    for number in 0..ADMINS {
        let org = format!("busy-{number}");
        let admin = cluster.org_admin(&org).await?;
        cycles.push([false, true].map(|enabled| exposure_write(&org, &admin, enabled)).to_vec());
    }
    let writers = Writers::start(api, cycles);
    writers.progress(1).await?;
    Ok(writers)
}

/// Sends a write until it is accepted.
async fn accept(api: SocketAddr, write: &Request) -> Result<()> {
    let began = Instant::now();
    loop {
        let answer = http1::send(api, write).await?;
        if answer.status < 300 {
            return Ok(());
        }
        ensure!(began.elapsed() < wait::CONVERGE, "{} {}", answer.status, answer.text());
        sleep(PAUSE).await;
    }
}
