//! Must the audit be believed: every call of a mixed load has one start and one finish, with the outcome that its client saw,
//! although gateways are killed amid it, also where it was answered right before. F60 of `make chaos`, in short.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use asp_e2e::audited::{self, PLUGINS, Platform, Run, denial, limit};
use asp_e2e::cluster::{Cluster, Layout};
use asp_e2e::history::History;
use asp_e2e::runtime::{self, Runtime, World};
use asp_e2e::stores::Postgres;
use asp_e2e::works::Works;
use asp_e2e::{tool, wait};
use rustix::process::Signal;

use crate::trial::{Shared, trials};

/// Calls that are sent at once.
const WAVE: usize = 64;

trials! { complete_audit:
    every_call_has_one_start_and_one_finish_although_gateways_are_killed,
}

async fn every_call_has_one_start_and_one_finish_although_gateways_are_killed(_: &Shared) -> Result<()> {
    let postgres = Postgres::start().await?;
    let works = Works::start(&History::default()).await?;
    let runtime = Runtime::start(&tool::root()?.join(PLUGINS), World::default()).await?;
    let environment = vec![
        ("ASP_DATABASE_URL", postgres.url()),
        ("ASP_UPSTREAMS", works.upstream()),
        ("ASP_RUNTIMES", runtime::address(&runtime.socket)),
    ];
    let specs = audited::specs()?;
    let primitives = specs.path().to_owned();
    let mut cluster = Cluster::start_as(Layout { environment, primitives, ..Layout::of(2)? }).await?;
    for (path, body) in [denial(), limit()] {
        cluster.put(path, &body).await?;
    }
    let mut platform = Platform {
        gateways: cluster.addresses(),
        admin: SocketAddr::from(([127, 0, 0, 1], cluster.control_ports.admin)),
        admin_token: cluster.token(&["--admin", "--user", "root"]).await?,
        caller: cluster.token(&["--org", "acme", "--user", "alice"]).await?,
        denied: cluster.token(&["--org", "acme", "--user", "bob"]).await?,
        limited: cluster.token(&["--org", "acme", "--user", "carol"]).await?,
    };
    let mut run = Run::default();
    for killed in [None, Some(0), Some(1), None] {
        platform.serves().await?;
        let wave = run.begin(&platform, WAVE).await?;
        if let Some(number) = killed {
            run.leave(&platform, *platform.gateways.get(number).context("a gateway")?).await?;
            let gateway = cluster.gateways.get_mut(number).context("a gateway")?;
            gateway.process.signal(Signal::KILL)?;
            gateway.process.wait(wait::CONVERGE).await?;
        }
        run.end(wave).await?;
        if let Some(number) = killed {
            cluster.restart_gateway(number).await?;
            platform.gateways = cluster.addresses();
        }
    }
    let verdict = run.judged(&platform).await?;
    ensure!(
        verdict.faults.is_empty(),
        "{} of {}: {:#?}",
        verdict.faults.len(),
        verdict.calls,
        verdict.faults
    );
    ensure!(verdict.outcomes.contains_key("unknown"), "no kill met a call: {:?}", verdict.outcomes);
    ensure!(verdict.missing().is_empty(), "not tried: {:?} of {:?}", verdict.missing(), verdict.seen);
    Ok(())
}
