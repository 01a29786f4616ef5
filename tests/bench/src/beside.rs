//! The gateway beside the peer: the same load in the same run, alone, behind an Envoy with one worker each and behind one
//! with as many workers as the development stack gives it.

use std::fmt::Write;

use anyhow::{Context, Result};
use asp_e2e::spread::{Spread, cell};
use asp_e2e::tool::Build;
use serde::Serialize;

use crate::chain::{Chain, Policy, TOOL};
use crate::edge::{self, Edge};
use crate::goal::{self, Goal};
use crate::loops::{self, Cell, FEW, Figure, Lane, MANY, gateway_cpu, rate};
use crate::measurement::{Measurement, Place};
use crate::path::Path;
use crate::peer::{self, PEER_TOOL, Peer};
use crate::plan::Plan;
use crate::progress::say;
use crate::session::Endpoint;
use crate::traffic::{Caller, Shape};
use crate::usage::Processes;

const ECHO: &str = "backend";
const ALONE: &str = "peer";
const BEHIND_ENVOY: &str = "envoy+peer";
const WHOLE_PATH: &str = "path";
/// Both with [`edge::SHIPPED`] workers of Envoy: with one, and many connections, that one has no time left while the
/// machine has.
const BEHIND_ENVOY_OF_TWO: &str = "envoy+peer, 2 workers";
const WHOLE_PATH_OF_TWO: &str = "path, 2 workers";

/// Part of the peer's requests per second that the whole path must reach, and what it is to reach.
const REACHED: [(usize, f64, f64); 2] = [(FEW, 1.0, 1.3), (MANY, 1.6, 2.0)];

/// What was measured, in the order it was taken.
#[derive(Serialize)]
pub(crate) struct Beside {
    pub measurements: Vec<Measurement>,
}

/// Measures every row in turns.
pub(crate) async fn measure(plan: &Plan) -> Result<Beside> {
    let mut measurements = Vec::new();
    for run in 1..=plan.runs {
        let build = Build::own()?;
        let path = Path::start(build.clone()).await.context("start the stack")?;
        let peer = Peer::start().await.context("start the peer")?;
        let url = path.public_url();
        let policy = Policy { public_url: &url, issuers: &[] };
        let envoy = Edge::start(Chain::Plain, &policy, peer.address(), edge::ONE).await?;
        let envoy_of_two = Edge::start(Chain::Plain, &policy, peer.address(), edge::SHIPPED).await?;
        let edge_of_two = path.another_edge(&build, edge::SHIPPED).await?;
        let callers = path.callers(&path.issuer, plan.tokens)?;
        let mut lanes = loops::lanes(&path, &callers);
        lanes.push(loops::through(&path, WHOLE_PATH_OF_TWO, &edge_of_two, &callers));
        lanes.extend(peer_lanes(&peer, [&envoy, &envoy_of_two], &callers).await?);
        for lane in &lanes {
            say(&format!("run {run}/{}: {} beside the peer", plan.runs, lane.place.row));
            measurements.extend(loops::turn(plan, run, lane).await?);
        }
    }
    Ok(Beside { measurements })
}

async fn peer_lanes(peer: &Peer, [one, two]: [&Edge; 2], callers: &[Caller]) -> Result<Vec<Lane>> {
    let with = |envoy: &Edge| Processes { envoy: envoy.processes().envoy, ..peer.processes() };
    // A thread of the backend ends with its connection, and what it used is lost; the peer keeps its connections.
    let nobody = Processes::default();
    let places = [
        (Place { row: ECHO, address: peer.echo_address(), processes: nobody }, "/mcp", TOOL),
        (Place { row: ALONE, address: peer.address(), processes: peer.processes() }, "/", PEER_TOOL),
        (Place { row: BEHIND_ENVOY, address: one.address(), processes: with(one) }, "/", PEER_TOOL),
        (Place { row: BEHIND_ENVOY_OF_TWO, address: two.address(), processes: with(two) }, "/", PEER_TOOL),
    ];
    let mut lanes = Vec::new();
    for (place, target, tool) in places {
        let authority = place.address.to_string();
        let endpoint =
            Endpoint { address: place.address, target: target.into(), authority: authority.clone() };
        let callers = peer::admitted(&endpoint, callers).await.context(place.row)?;
        let target = target.to_owned();
        lanes.push(Lane { place, shape: Shape::Legacy, target, tool, authority, callers });
    }
    Ok(lanes)
}

/// The peer's row that a row is held against.
fn peer_of(row: &str) -> &'static str {
    if [WHOLE_PATH_OF_TWO, BEHIND_ENVOY_OF_TWO].contains(&row) { BEHIND_ENVOY_OF_TWO } else { BEHIND_ENVOY }
}

impl Beside {
    /// A row's part of a figure of the peer behind Envoy, with as many workers.
    fn of_peer(&self, row: &'static str, connections: usize, figure: Figure) -> Option<Spread> {
        let taken = self.measurements.as_slice();
        let theirs = Cell { row: peer_of(row), connections };
        loops::ratio((Cell { row, connections }, taken), (theirs, taken), figure)
    }

    /// Every goal that the figures speak to.
    pub(crate) fn judge(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        for row in [WHOLE_PATH, WHOLE_PATH_OF_TWO] {
            goals.extend(REACHED.into_iter().filter_map(|(connections, floor, aim)| {
                let reached = self.of_peer(row, connections, rate)?;
                let peer = peer_of(row);
                let what = format!(
                    "{row}: at least {floor:.1} of the requests/s of {peer}, {connections} connections"
                );
                Some(goal::at_least(what, reached, floor, aim))
            }));
        }
        goals
    }

    /// The section.
    pub(crate) fn render(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n## Beside the peer\n")?;
        writeln!(
            text,
            "`{ALONE}` is the `mcp-proxy` crate before an MCP server of the bench with the same echo (`{ECHO}` is that \
             server alone); it has no token, policy, limit or audit to look at. Closed loops; the load generator and \
             all processes of a row share the machine. CPU is in us per request. Ratios are those within a run, to the peer \
             behind an Envoy with as many workers: one, or the two of `{WHOLE_PATH_OF_TWO}`, which the development stack \
             has.\n"
        )?;
        writeln!(
            text,
            "| row | connections | req/s | p50 us | p99 us | Envoy CPU | gateway or peer CPU | backend CPU \
             | of `{BEHIND_ENVOY}` req/s | of its CPU but the backend's |\n|---|---|---|---|---|---|---|---|---|---|"
        )?;
        let mut rows: Vec<&'static str> = Vec::new();
        for one in &self.measurements {
            if !rows.contains(&one.row) {
                rows.push(one.row);
            }
        }
        for connections in [FEW, MANY] {
            for row in &rows {
                self.line(text, Cell { row, connections })?;
            }
        }
        Ok(())
    }

    fn line(&self, text: &mut String, at: Cell) -> std::fmt::Result {
        let of = |figure: Figure, decimals| cell(at.over_runs(&self.measurements, figure), decimals);
        let ratio = |figure: Figure| cell(self.of_peer(at.row, at.connections, figure), 2);
        writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            at.row,
            at.connections,
            of(rate, 0),
            of(|one| Some(one.p50_us), 0),
            of(|one| Some(one.p99_us), 0),
            of(|one| one.envoy_cpu_us, 1),
            of(gateway_cpu, 1),
            of(|one| one.backend_cpu_us, 1),
            ratio(rate),
            ratio(|one| Some(one.envoy_cpu_us? + one.gateway_cpu_us?)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::tests::measured;

    fn beside(few: f64, many: f64) -> Beside {
        let measurements = vec![
            measured(1, BEHIND_ENVOY, FEW, 100.0),
            measured(1, WHOLE_PATH, FEW, few),
            measured(1, BEHIND_ENVOY, MANY, 100.0),
            measured(1, WHOLE_PATH, MANY, many),
            measured(1, BEHIND_ENVOY_OF_TWO, MANY, 200.0),
            measured(1, WHOLE_PATH_OF_TWO, MANY, 320.0),
        ];
        Beside { measurements }
    }

    #[test]
    fn the_path_is_held_against_the_peer_behind_envoy() {
        let met = |few, many| beside(few, many).judge().iter().map(|goal| goal.met).collect::<Vec<_>>();
        assert_eq!(met(100.0, 160.0), [true, true, true]);
        assert_eq!(met(99.0, 159.0), [false, false, true]);
        assert!(beside(100.0, 160.0).judge()[0].figures.contains("aim of 1.3 missed"));
    }

    #[test]
    fn the_table_has_a_line_for_each_row_and_number_of_connections() {
        let mut text = String::new();
        beside(110.0, 170.0).render(&mut text).unwrap();
        assert!(text.contains("| `path` | 8 | 110 (110..110) |"), "{text}");
        assert!(text.contains("| `envoy+peer` | 64 | 100 (100..100) |"), "{text}");
        assert!(text.contains("1.70 (1.70..1.70)"), "{text}");
    }
}
