//! Time of a change from its request until it is in force in a fleet: an edge and three gateways over PostgreSQL and Redis. A
//! push is a server that is switched off or on for an org; a revocation ends a call that streams and the right to the next one.
//!
//! Each probe takes a connection of its own, so that it may meet either worker of Envoy.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::Cluster;
use asp_e2e::http1::{self, Request};
use asp_e2e::message::{modern, rest};
use asp_e2e::revoking::{self, Loss};
use asp_e2e::spread::percentile;
use asp_e2e::stores::{Postgres, Redis};
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::goal::Goal;
use crate::plan::Plan;
use crate::progress::say;

const GATEWAYS: usize = 3;
/// Org whose server is switched off and on; nobody else's calls belong to it.
const ORG: &str = "bench-push";
/// Answers of the new kind in a row that show that both workers of Envoy have changed: by chance one in a million.
const STREAK: u32 = 20;
/// Between two probes of one place, so that they leave the processors to what is measured.
const PAUSE: Duration = Duration::from_millis(2);
/// Hang guard on a busy machine: thirty times the goal.
const BOUND: Duration = Duration::from_secs(30);
/// Callers that are revoked at a time, while the calls of all of them stream.
const AT_ONCE: usize = 5;
/// Goals in milliseconds.
const P99_MS: f64 = 1_000.0;
const MAX_MS: f64 = 5_000.0;

/// Times of one kind of change until one of its effects.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ChangeRow {
    pub change: &'static str,
    pub effect: &'static str,
    /// Milliseconds from the admin's request, in the order they were taken.
    pub ms: Vec<f64>,
}

/// Times of every kind.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Changes {
    pub gateways: usize,
    pub rows: Vec<ChangeRow>,
}

/// Measures pushes, then revocations.
pub(crate) async fn measure(plan: &Plan) -> Result<Changes> {
    say("changes in a fleet");
    let postgres = Postgres::start().await?;
    let redis = Redis::start().await?;
    let environment = vec![("ASP_DATABASE_URL", postgres.url()), ("ASP_REDIS_URL", redis.url())];
    let cluster = Cluster::start_in(environment, GATEWAYS).await?;
    let mut rows = pushes(&cluster, plan.flips).await?;
    say("revocations in a fleet");
    rows.extend(revocations(&cluster, plan.flips).await?);
    Ok(Changes { gateways: GATEWAYS, rows })
}

/// Switches a server off and on so often.
async fn pushes(cluster: &Cluster, flips: u32) -> Result<Vec<ChangeRow>> {
    let root = cluster.token(&["--admin", "--user", "root"]).await?;
    let token = cluster.token(&["--org", ORG, "--user", "carol"]).await?;
    let list = modern(&token, "tools/list", json!({}), &[]);
    let api = SocketAddr::from(([127, 0, 0, 1], cluster.control_ports.admin));
    let path = format!("/api/policy/orgs/{ORG}/exposure?force=true");
    let row = |change, effect| ChangeRow { change, effect, ms: Vec::new() };
    let mut at_edge = row("push of a policy", "enforced at the edge");
    let mut at_gateways = row("push of a policy", "enforced at every gateway");
    let gateways = cluster.addresses();
    for flip in 0..flips.saturating_mul(2) {
        let is_on = flip % 2 == 1;
        let body = json!({"server": "demo", "protocol": "mcp", "enabled": is_on});
        let write = rest("PUT", &path, &root, &body);
        let status = if is_on { 200 } else { 404 };
        let requested = Instant::now();
        let written = async {
            let answer = http1::send(api, &write).await?;
            ensure!(answer.status < 300, "{path}: {} {}", answer.status, answer.text());
            anyhow::Ok(())
        };
        let edge = in_force(cluster.envoy.address, &list, status);
        let all = in_force_everywhere(&gateways, &list, status);
        let ((), edge, last) = tokio::try_join!(written, edge, all)?;
        at_edge.ms.push(millis(edge.saturating_duration_since(requested)));
        at_gateways.ms.push(millis(last.saturating_duration_since(requested)));
    }
    Ok(vec![at_edge, at_gateways])
}

/// Probes each place until all of its answers have this status; the arrival of the first of them at the last place.
async fn in_force_everywhere(places: &[SocketAddr], probe: &Request, status: u16) -> Result<Instant> {
    let mut probing = JoinSet::new();
    for place in places {
        let place = *place;
        let probe = probe.clone();
        probing.spawn(async move { in_force(place, &probe, status).await });
    }
    let mut last: Option<Instant> = None;
    while let Some(first) = probing.join_next().await {
        last = last.max(Some(first??));
    }
    last.context("a place")
}

/// Probes a place until all answers have this status; the arrival of the first of them.
async fn in_force(place: SocketAddr, probe: &Request, status: u16) -> Result<Instant> {
    let began = Instant::now();
    let mut first = None;
    let mut streak = 0;
    loop {
        let answer = http1::send(place, probe).await?;
        if answer.status == status {
            first.get_or_insert_with(Instant::now);
            streak += 1;
        } else {
            (first, streak) = (None, 0);
        }
        if let (Some(first), STREAK..) = (first, streak) {
            return Ok(first);
        }
        ensure!(
            began.elapsed() < BOUND,
            "{place} does not answer {status} within {} s but {} {}",
            BOUND.as_secs(),
            answer.status,
            answer.text()
        );
        sleep(PAUSE).await;
    }
}

/// Takes so many samples of each loss.
async fn revocations(cluster: &Cluster, each: u32) -> Result<Vec<ChangeRow>> {
    let count = usize::try_from(each)?.saturating_mul(Loss::ALL.len());
    let samples = revoking::samples(cluster, 0, count, AT_ONCE).await?;
    let mut rows = Vec::new();
    for loss in Loss::ALL {
        let row = |effect| ChangeRow { change: loss.name(), effect, ms: Vec::new() };
        let mut stopped = row("running call stopped");
        let mut refused = row("refused at the edge and every gateway");
        for sample in samples.iter().filter(|sample| sample.loss == loss) {
            sample.judge()?;
            stopped.ms.push(millis(sample.until_ended));
            refused.ms.push(millis(sample.until_refused));
        }
        rows.extend([stopped, refused]);
    }
    Ok(rows)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

impl Changes {
    /// The section.
    pub(crate) fn render(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n## From a change's request to its effect\n")?;
        writeln!(
            text,
            "An edge and {} gateways over PostgreSQL and Redis. Milliseconds from the admin's request; every time is in the \
             JSON.\n",
            self.gateways
        )?;
        writeln!(text, "| change | effect | samples | p50 | p99 | longest |\n|---|---|---|---|---|---|")?;
        for ChangeRow { change, effect, ms } in &self.rows {
            let at = |share| percentile(ms, share).map_or("-".to_owned(), |value| format!("{value:.1}"));
            let count = ms.len();
            let p50 = at(0.5);
            let p99 = at(0.99);
            let longest = at(1.0);
            writeln!(text, "| {change} | {effect} | {count} | {p50} | {p99} | {longest} |")?;
        }
        Ok(())
    }

    /// A second for the 99th percentile of each row, five for its longest.
    pub(crate) fn judge(&self) -> Vec<Goal> {
        let goal = |row: &ChangeRow| {
            let p50 = percentile(&row.ms, 0.5)?;
            let p99 = percentile(&row.ms, 0.99)?;
            let longest = percentile(&row.ms, 1.0)?;
            Some(Goal {
                goal: format!("{}: {} within 1 s (p99) and 5 s at most", row.change, row.effect),
                met: p99 <= P99_MS && longest <= MAX_MS,
                figures: format!("p50 {p50:.0} ms, p99 {p99:.0} ms, longest {longest:.0} ms"),
            })
        };
        self.rows.iter().filter_map(goal).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(ms: Vec<f64>) -> Changes {
        Changes { gateways: 1, rows: vec![ChangeRow { change: "a revocation", effect: "stopped", ms }] }
    }

    #[test]
    fn a_row_is_shown_and_is_late_after_a_second() {
        let in_time = changes(vec![10.0, 1_000.0]);
        let mut text = String::new();
        in_time.render(&mut text).unwrap();
        assert!(text.contains("| a revocation | stopped | 2 | 10.0 | 1000.0 | 1000.0 |"), "{text}");
        assert!(in_time.judge().iter().all(|goal| goal.met));
        assert!(changes(vec![10.0, 1_001.0]).judge().iter().all(|goal| !goal.met));
        assert!(changes(Vec::new()).judge().is_empty());
    }
}
