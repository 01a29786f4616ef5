//! Closed loops of whole paths with few and with many connections: what the gateway is compared with the peer and
//! with an earlier commit by.
//!
//! Keeps true: rows are compared by the ratios within a run, because what the machine does besides changes between
//! runs more than within one.

use anyhow::{Context, Result, bail};
use asp_e2e::spread::Spread;
use serde::Serialize;

use crate::chain::{SERVER, TOOL};
use crate::edge::Edge;
use crate::load::Pace;
use crate::measurement::{self, Measurement, Phase, Place};
use crate::path::Path;
use crate::plan::Plan;
use crate::traffic::{Caller, Shape, Traffic};

/// Connections of the load generator: few, where wake-ups are most of the cost, and many.
pub(crate) const FEW: usize = 8;
pub(crate) const MANY: usize = 64;

/// The gateway's rows.
pub(crate) const ROWS: [&str; 3] = ["gateway", "path", "path-modern"];

/// One row: where it is sent to, and what.
pub(crate) struct Lane {
    pub place: Place,
    pub shape: Shape,
    pub target: String,
    pub tool: &'static str,
    pub authority: String,
    pub callers: Vec<Caller>,
}

/// The gateway alone and behind Envoy, in both eras.
pub(crate) fn lanes(path: &Path, callers: &[Caller]) -> Vec<Lane> {
    let [gateway, whole, modern] = ROWS;
    vec![
        lane(path, (path.alone(gateway), Shape::Legacy), callers),
        through(path, whole, &path.edge, callers),
        lane(path, (path.behind(modern, &path.edge), Shape::Modern), callers),
    ]
}

/// The gateway behind an Envoy, legacy.
pub(crate) fn through(path: &Path, row: &'static str, edge: &Edge, callers: &[Caller]) -> Lane {
    lane(path, (path.behind(row, edge), Shape::Legacy), callers)
}

fn lane(path: &Path, (place, shape): (Place, Shape), callers: &[Caller]) -> Lane {
    Lane {
        place,
        shape,
        target: format!("/{SERVER}/mcp"),
        tool: TOOL,
        authority: path.authority(),
        callers: callers.to_vec(),
    }
}

/// A row's turn: for each number of connections a loop that is not measured, and one that is.
pub(crate) async fn turn(plan: &Plan, run: u32, lane: &Lane) -> Result<Vec<Measurement>> {
    let mut taken = Vec::new();
    for connections in [FEW, MANY] {
        let once = |length| {
            let pace = (Phase::Saturation, Pace::Closed { length });
            measurement::take(run, lane.place, pace, lane.traffic(), connections)
        };
        let settled = once(plan.settle).await.with_context(|| format!("row {}", lane.place.row))?;
        if let Some(error) = settled.first_error {
            bail!("row {} does not work: {error}", lane.place.row);
        }
        taken.push(once(plan.closed).await.with_context(|| format!("row {}", lane.place.row))?);
    }
    Ok(taken)
}

impl Lane {
    fn traffic(&self) -> Traffic {
        Traffic {
            shape: self.shape,
            target: self.target.clone(),
            tool: self.tool,
            authority: self.authority.clone(),
            callers: self.callers.clone(),
        }
    }
}

/// One figure of a measurement.
pub(crate) type Figure = fn(&Measurement) -> Option<f64>;

pub(crate) fn rate(one: &Measurement) -> Option<f64> {
    Some(one.requests_per_second)
}

pub(crate) fn gateway_cpu(one: &Measurement) -> Option<f64> {
    one.gateway_cpu_us
}

/// A row with a number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cell {
    pub row: &'static str,
    pub connections: usize,
}

impl Cell {
    pub(crate) fn of(self, taken: &[Measurement]) -> impl Iterator<Item = &Measurement> {
        taken.iter().filter(move |one| (one.row, one.connections) == (self.row, self.connections))
    }

    /// A figure over the runs.
    pub(crate) fn over_runs(self, taken: &[Measurement], figure: Figure) -> Option<Spread> {
        Spread::of(self.of(taken).filter_map(figure))
    }
}

/// The ratios of a figure within each run.
pub(crate) fn ratio(
    (ours, taken): (Cell, &[Measurement]),
    (theirs, theirs_taken): (Cell, &[Measurement]),
    figure: Figure,
) -> Option<Spread> {
    Spread::of(ours.of(taken).filter_map(|one| {
        let other = theirs.of(theirs_taken).find(|other| other.run == one.run)?;
        Some(figure(one)? / figure(other)?)
    }))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A measurement whose rate and CPU are that figure.
    pub(crate) fn measured(run: u32, row: &'static str, connections: usize, figure: f64) -> Measurement {
        Measurement {
            run,
            row,
            phase: Phase::Saturation,
            connections,
            requests: 1,
            errors: 0,
            first_error: None,
            seconds: 1.0,
            requests_per_second: figure,
            p50_us: figure,
            p99_us: figure,
            max_us: figure,
            envoy_cpu_us: None,
            gateway_cpu_us: Some(figure),
            backend_cpu_us: None,
            envoy_rss_kib: None,
            gateway_rss_kib: None,
        }
    }

    #[test]
    fn rows_are_compared_within_a_run_and_with_the_same_connections() {
        let taken = [
            measured(1, "path", 8, 10.0),
            measured(1, "peer", 8, 20.0),
            measured(1, "peer", 64, 1.0),
            measured(2, "peer", 8, 100.0),
            measured(2, "path", 8, 80.0),
            measured(3, "path", 8, 1.0),
        ];
        let cell = |row| Cell { row, connections: 8 };
        let found = ratio((cell("path"), &taken), (cell("peer"), &taken), rate);
        assert_eq!(found, Spread::of([0.5, 0.8]), "run 3 has no partner");
        assert_eq!(cell("path").over_runs(&taken, rate).unwrap().median, 10.0);
    }
}
