//! F60: a load over every protocol and backend on one process, on a gateway apart from its control plane and on three gateways;
//! a gateway is killed amid every other wave of it. Each call has one start and one finish in the audit, with the outcome that
//! its client saw, or `unknown` where it saw none; also a call that was answered right before the kill.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use asp_e2e::audited::{self, PLUGINS, Platform, Run, Verdict, denial, limit};
use asp_e2e::cluster::{Cluster, Layout};
use asp_e2e::history::History;
use asp_e2e::runtime::{self, Runtime, World};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::stores::Postgres;
use asp_e2e::works::Works;
use asp_e2e::{http1, message, tool, wait};
use rustix::process::Signal;

use crate::sheet::Sheet;

/// Calls that are sent at once.
const WAVE: usize = 100;

/// Processes of the platform.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Topology {
    OneProcess,
    Gateways(usize),
}

pub(crate) const ALL: [Topology; 3] = [Topology::OneProcess, Topology::Gateways(1), Topology::Gateways(3)];

impl Topology {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Topology::OneProcess => "one process",
            Topology::Gateways(1) => "a gateway apart from control",
            Topology::Gateways(_) => "three gateways",
        }
    }
}

pub(crate) async fn run(topology: Topology, calls: usize, sheet: &mut Sheet) -> Result<()> {
    let verdict = match topology {
        Topology::OneProcess => one_process(calls).await?,
        Topology::Gateways(gateways) => several(gateways, calls).await?,
    };
    let missing = verdict.missing();
    #[expect(clippy::cast_precision_loss, reason = "numbers of calls")]
    {
        let all = verdict.calls as f64;
        sheet.at_least("calls", all, calls as f64);
        sheet.at_most("calls without their rows, or with others", verdict.faults.len() as f64, 0.0);
        sheet.at_most("kinds of ends and protocols that were not tried", missing.len() as f64, 0.0);
        let unknown = verdict.outcomes.get("unknown").copied().unwrap_or_default();
        sheet.at_least("calls that a kill ended", unknown as f64, 1.0);
    }
    for fault in verdict.faults.iter().take(5) {
        sheet.fault(fault.clone());
    }
    if !missing.is_empty() {
        sheet.fault(format!("not tried: {missing:?}"));
    }
    Ok(())
}

async fn one_process(calls: usize) -> Result<Verdict> {
    let works = Works::start(&History::default()).await?;
    let specs = audited::specs()?;
    let primitives = specs.path().to_owned();
    let environment = vec![("ASP_UPSTREAMS", works.upstream())];
    let options = Options { primitives, environment, plugins: true, ..Options::repository()? };
    let mut stack = Stack::start(options).await?;
    let mut platform = Platform {
        gateways: vec![stack.gateway()],
        admin: stack.admin(),
        admin_token: stack.token(&["--admin", "--user", "root", "--ttl", "12h"]).await?,
        caller: stack.token(&["--org", "acme", "--user", "alice", "--ttl", "12h"]).await?,
        denied: stack.token(&["--org", "acme", "--user", "bob", "--ttl", "12h"]).await?,
        limited: stack.token(&["--org", "acme", "--user", "carol", "--ttl", "12h"]).await?,
    };
    for (path, body) in [denial(), limit()] {
        let written = message::rest("PUT", path, &platform.admin_token, &body);
        let written = http1::send(platform.admin, &written).await?;
        ensure!(written.status < 300, "{path}: {}", written.text());
    }
    platform.serves().await?;
    let mut run = Run::default();
    for wave in 0..calls.div_ceil(WAVE) {
        let sent = run.begin(&platform, WAVE).await?;
        if wave % 2 == 1 {
            run.leave(&platform, stack.gateway()).await?;
            stack.restart_asp(Signal::KILL).await?;
        }
        run.end(sent).await?;
        platform.gateways = vec![stack.gateway()];
        platform.serves().await?;
    }
    run.judged(&platform).await
}

async fn several(gateways: usize, calls: usize) -> Result<Verdict> {
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
    let mut cluster = Cluster::start_as(Layout { environment, primitives, ..Layout::of(gateways)? }).await?;
    for (path, body) in [denial(), limit()] {
        cluster.put(path, &body).await?;
    }
    let mut platform = Platform {
        gateways: cluster.addresses(),
        admin: SocketAddr::from(([127, 0, 0, 1], cluster.control_ports.admin)),
        admin_token: cluster.token(&["--admin", "--user", "root", "--ttl", "12h"]).await?,
        caller: cluster.token(&["--org", "acme", "--user", "alice", "--ttl", "12h"]).await?,
        denied: cluster.token(&["--org", "acme", "--user", "bob", "--ttl", "12h"]).await?,
        limited: cluster.token(&["--org", "acme", "--user", "carol", "--ttl", "12h"]).await?,
    };
    let mut run = Run::default();
    for wave in 0..calls.div_ceil(WAVE) {
        platform.serves().await?;
        let sent = run.begin(&platform, WAVE).await?;
        let killed = (wave % 2 == 1).then_some(wave / 2 % gateways);
        if let Some(number) = killed {
            run.leave(&platform, *platform.gateways.get(number).context("a gateway")?).await?;
            let gateway = cluster.gateways.get_mut(number).context("a gateway")?;
            gateway.process.signal(Signal::KILL)?;
            gateway.process.wait(wait::CONVERGE).await?;
        }
        run.end(sent).await?;
        if let Some(number) = killed {
            cluster.restart_gateway(number).await?;
            platform.gateways = cluster.addresses();
        }
    }
    run.judged(&platform).await
}
