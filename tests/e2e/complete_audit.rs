//! Must the audit be believed: every call of a mixed load has one start and one finish, with the outcome that its client saw,
//! although gateways are killed amid it. F60 of `make chaos`, in short.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use asp_e2e::audited::{Platform, Run, denial};
use asp_e2e::cluster::{Cluster, Layout};
use asp_e2e::history::History;
use asp_e2e::stores::Postgres;
use asp_e2e::works::Works;
use asp_e2e::{http1, message, tool, wait};
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
    let environment = vec![("ASP_DATABASE_URL", postgres.url()), ("ASP_UPSTREAMS", works.upstream())];
    let primitives = tool::root()?.join("tests/fixtures/works");
    let mut cluster = Cluster::start_as(Layout { environment, primitives, ..Layout::of(2)? }).await?;
    let (path, binding) = denial();
    cluster.put(path, &binding).await?;
    let mut platform = Platform {
        gateways: cluster.addresses(),
        admin: SocketAddr::from(([127, 0, 0, 1], cluster.control_ports.admin)),
        admin_token: cluster.token(&["--admin", "--user", "root"]).await?,
        caller: cluster.token(&["--org", "acme", "--user", "alice"]).await?,
        denied: cluster.token(&["--org", "acme", "--user", "bob"]).await?,
    };
    let mut run = Run::default();
    for killed in [None, Some(0), Some(1), None] {
        let wave = run.begin(&platform, WAVE).await?;
        if let Some(number) = killed {
            run.kill();
            let gateway = cluster.gateways.get_mut(number).context("a gateway")?;
            gateway.process.signal(Signal::KILL)?;
            gateway.process.wait(wait::CONVERGE).await?;
        }
        run.end(wave).await?;
        if let Some(number) = killed {
            cluster.restart_gateway(number).await?;
            platform.gateways = cluster.addresses();
            for at in &platform.gateways {
                serves(*at, &platform.caller).await?;
            }
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
    ensure!(verdict.gathered * 4 <= verdict.calls, "{} of {} calls", verdict.gathered, verdict.calls);
    Ok(())
}

/// Returns when a gateway serves calls again.
async fn serves(at: SocketAddr, token: &str) -> Result<()> {
    let list = message::rest("GET", "/works/rest/openapi.json", token, &serde_json::Value::Null);
    let list = &list;
    let serving = || async move { http1::send(at, list).await.ok().filter(|answer| answer.status == 200) };
    wait::until("the gateway serves again", wait::START, serving).await.map(drop)
}
