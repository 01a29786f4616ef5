//! What it costs to know who calls, of each kind, and to prove a call to the service behind it, of each kind: cold, where
//! whoever calls is seen for the first time, and warm.
//!
//! Rows of callers are whole paths with the builtin echo; rows of services are the gateway alone before a service of the
//! bench. All rows send calls of 2026-07-28, so none needs a session. Issuer and service are the bench's own and answer at
//! once: what a company's issuer takes is not measured.

mod fixture;
mod world;

use std::fmt::Write;

use anyhow::{Result, bail};
use asp_e2e::spread::{Spread, cell};
use serde::Serialize;

use crate::load::Pace;
use crate::measurement::{self, Measurement, Phase, Place};
use crate::plan::Plan;
use crate::progress::say;
use crate::rows::requests;
use crate::summary::{Summary, summarise};
use crate::traffic::{Caller, Shape, Traffic};

use world::World;

/// Who calls: the row, the server that admits such callers, how they show who they are.
pub(crate) const CALLERS: [(&str, &str, Shown); 4] = [
    ("nobody", "anyone", Shown::Signed),
    ("jwt", "signed", Shown::Signed),
    ("opaque", "opaque", Shown::Opaque),
    ("machine key", "machines", Shown::MachineKey),
];
/// What proves the call to its service: the row, and the tool whose spec says so.
pub(crate) const SERVICES: [(&str, &str); 7] = [
    ("service, nothing", "nothing"),
    ("service, the platform's token", "token"),
    ("service, token exchange", "exchange"),
    ("service, bearer", "bearer"),
    ("service, basic", "basic"),
    ("service, header", "header"),
    ("service, OAuth client", "client"),
];
/// What the further rows of each kind are compared with.
const PLAIN_CALLER: &str = "jwt";
const PLAIN_SERVICE: &str = "service, nothing";

/// How a caller shows who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Signed,
    Opaque,
    MachineKey,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Identity {
    /// Arrivals per second.
    pub rate: f64,
    pub summaries: Vec<Summary>,
    /// Raw figures, in the order they were taken.
    pub measurements: Vec<Measurement>,
}

#[derive(Clone, Copy)]
struct Row {
    place: Place,
    server: &'static str,
    tool: &'static str,
    shown: Shown,
}

/// Measures every row in turns.
pub(crate) async fn measure(plan: &Plan) -> Result<Identity> {
    let world = World::start().await?;
    let mut slowest = f64::INFINITY;
    for row in rows(&world) {
        slowest = slowest.min(capacity(&world, plan, row).await?);
    }
    drop(world);
    let rate = slowest * plan.fraction;
    let mut measurements = Vec::new();
    for run in 1..=plan.runs {
        let world = World::start().await?;
        for row in rows(&world) {
            say(&format!("run {run}/{}: {}", plan.runs, row.place.row));
            measurements.extend(turn(&world, plan, run, row, rate).await?);
        }
    }
    Ok(Identity { rate, summaries: summarise(&measurements), measurements })
}

fn rows(world: &World) -> Vec<Row> {
    let path = &world.path;
    let callers = CALLERS.map(|(row, server, shown)| Row {
        place: path.behind(row, &path.edge),
        server,
        tool: fixture::ECHO,
        shown,
    });
    let services = SERVICES.map(|(row, tool)| Row {
        place: path.alone(row),
        server: fixture::BEHIND,
        tool,
        shown: Shown::Signed,
    });
    callers.into_iter().chain(services).collect()
}

/// Requests per second in a closed loop.
async fn capacity(world: &World, plan: &Plan, row: Row) -> Result<f64> {
    let callers = world.callers(row.shown, plan.tokens)?;
    let phase = (Phase::Saturation, Pace::Closed { length: plan.settle });
    let taken =
        measurement::take(0, row.place, phase, traffic(world, row, callers), plan.connections).await?;
    match taken.first_error {
        None => Ok(taken.requests_per_second),
        Some(error) => bail!("row {} does not work: {error}", row.place.row),
    }
}

/// A row's turn: callers never seen, then the same ones again.
async fn turn(world: &World, plan: &Plan, run: u32, row: Row, rate: f64) -> Result<Vec<Measurement>> {
    // Connections and code, warmed by other callers.
    capacity(world, plan, row).await?;
    let callers = world.callers(row.shown, plan.tokens)?;
    let phases = [
        (Phase::Cold, Pace::Open { rate, requests: callers.len() as u64 }),
        (Phase::Warm, Pace::Open { rate, requests: requests(rate, plan.steady) }),
    ];
    let mut taken = Vec::new();
    for phase in phases {
        let traffic = traffic(world, row, callers.clone());
        taken.push(measurement::take(run, row.place, phase, traffic, plan.connections).await?);
    }
    Ok(taken)
}

fn traffic(world: &World, row: Row, callers: Vec<Caller>) -> Traffic {
    let target = format!("/{}/mcp", row.server);
    Traffic { shape: Shape::Modern, target, tool: row.tool, authority: world.path.authority(), callers }
}

impl Identity {
    fn of(&self, row: &str, phase: Phase) -> Option<&Summary> {
        self.summaries.iter().find(|summary| summary.row == row && summary.phase == phase)
    }

    /// The section.
    pub(crate) fn render(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n## Who calls, and what proves a call\n")?;
        writeln!(
            text,
            "Calls of 2026-07-28 in an open loop of {:.0}/s; CPU in us per request. Cold: every caller for the first time \
             (machine keys: at most {} of them). Issuer and service are the bench's own and answer at once.\n",
            self.rate,
            world::MACHINE_KEYS
        )?;
        self.table(text, &CALLERS.map(|(row, ..)| row), PLAIN_CALLER)?;
        writeln!(text)?;
        self.table(text, &SERVICES.map(|(row, _)| row), PLAIN_SERVICE)
    }

    fn table(&self, text: &mut String, rows: &[&str], plain: &str) -> std::fmt::Result {
        writeln!(
            text,
            "| row | gateway CPU cold | beyond warm `{plain}` | gateway CPU warm | beyond warm `{plain}` \
             | Envoy CPU cold | Envoy CPU warm | p50 cold | p99 cold | p50 warm | p99 warm |\n\
             |---|---|---|---|---|---|---|---|---|---|---|"
        )?;
        let gateway = |row: &str, phase| self.of(row, phase).and_then(|summary| summary.gateway_cpu_us);
        let least = gateway(plain, Phase::Warm);
        for row in rows {
            let (Some(cold), Some(warm)) = (self.of(row, Phase::Cold), self.of(row, Phase::Warm)) else {
                continue;
            };
            writeln!(
                text,
                "| `{row}` | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                cell(cold.gateway_cpu_us, 1),
                more(cold.gateway_cpu_us, least),
                cell(warm.gateway_cpu_us, 1),
                more(warm.gateway_cpu_us, least),
                cell(cold.envoy_cpu_us, 1),
                cell(warm.envoy_cpu_us, 1),
                cell(cold.p50_us, 0),
                cell(cold.p99_us, 0),
                cell(warm.p50_us, 0),
                cell(warm.p99_us, 0),
            )?;
        }
        Ok(())
    }
}

fn more(ours: Option<Spread>, plain: Option<Spread>) -> String {
    ours.zip(plain).map_or("-".into(), |(ours, plain)| format!("{:+.1}", ours.median - plain.median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_shown_beside_the_plain_one_of_its_kind() {
        let summary = |row, phase, cpu: f64| Summary {
            gateway_cpu_us: Spread::of([cpu]),
            ..Summary::empty(row, phase)
        };
        let summaries = vec![
            summary(PLAIN_CALLER, Phase::Cold, 30.0),
            summary(PLAIN_CALLER, Phase::Warm, 20.0),
            summary("opaque", Phase::Cold, 95.0),
            summary("opaque", Phase::Warm, 19.0),
        ];
        let mut text = String::new();
        Identity { rate: 100.0, summaries, measurements: Vec::new() }.render(&mut text).unwrap();
        assert!(
            text.contains("| `opaque` | 95.0 (95.0..95.0) | +75.0 | 19.0 (19.0..19.0) | -1.0 |"),
            "{text}"
        );
        assert!(!text.contains("`machine key`"), "a row without figures is left out: {text}");
    }
}
