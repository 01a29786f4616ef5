//! This commit beside an earlier one: stacks of both, made by `scripts/bench-against` with the same compiler and profile,
//! take turns under the same load.

use std::fmt::Write;

use anyhow::{Context, Result};
use asp_e2e::spread::Spread;
use asp_e2e::tool::Build;
use serde::Serialize;

use crate::goal::Goal;
use crate::loops::{self, Cell, FEW, Figure, MANY, ROWS, gateway_cpu, rate};
use crate::measurement::Measurement;
use crate::path::Path;
use crate::plan::Plan;
use crate::progress::say;

/// What is compared, and to how many decimals.
const FIGURES: [(&str, Figure, usize); 5] = [
    ("req/s", rate, 0),
    ("p50 us", |one| Some(one.p50_us), 0),
    ("p99 us", |one| Some(one.p99_us), 0),
    ("Envoy CPU us", |one| one.envoy_cpu_us, 1),
    ("gateway CPU us", gateway_cpu, 1),
];
/// The row that is judged, and the part of the baseline's gateway CPU that it may cost.
const JUDGED: &str = "path";
const COST: [(usize, f64); 2] = [(FEW, 0.55), (MANY, 0.65)];

/// Both sides.
#[derive(Serialize)]
pub(crate) struct Comparison {
    /// The directory of the baseline, named by its commit.
    pub baseline: String,
    pub compared: Vec<Compared>,
    /// Raw figures, in the order they were taken.
    pub own: Vec<Measurement>,
    pub theirs: Vec<Measurement>,
}

/// One figure of one row.
#[derive(Serialize)]
pub(crate) struct Compared {
    pub cell: Cell,
    pub figure: &'static str,
    decimals: usize,
    pub own: Spread,
    pub baseline: Spread,
    /// Of the two within each run.
    pub ratio: Spread,
}

/// Lets both take turns; which one is first changes from run to run.
pub(crate) async fn measure(plan: &Plan, baseline: &std::path::Path) -> Result<Comparison> {
    let builds = [("own", Build::own()?), ("baseline", Build::at(baseline)?)];
    let mut own = Vec::new();
    let mut theirs = Vec::new();
    for run in 1..=plan.runs {
        let mut order = [0, 1];
        if run % 2 == 0 {
            order.reverse();
        }
        for (side, (name, build)) in order.into_iter().filter_map(|side| Some((side, builds.get(side)?))) {
            say(&format!("run {run}/{}: {name}", plan.runs));
            let taken = one_side(plan, run, build).await.with_context(|| format!("the {name} stack"))?;
            if side == 0 { own.extend(taken) } else { theirs.extend(taken) }
        }
    }
    let name = baseline.file_name().unwrap_or(baseline.as_os_str()).to_string_lossy().into_owned();
    Ok(Comparison::of(name, own, theirs))
}

async fn one_side(plan: &Plan, run: u32, build: &Build) -> Result<Vec<Measurement>> {
    let path = Path::start(build.clone()).await?;
    let callers = path.callers(&path.issuer, plan.tokens)?;
    let mut taken = Vec::new();
    for lane in loops::lanes(&path, &callers) {
        taken.extend(loops::turn(plan, run, &lane).await?);
    }
    Ok(taken)
}

impl Comparison {
    fn of(baseline: String, own: Vec<Measurement>, theirs: Vec<Measurement>) -> Comparison {
        let cells = ROWS.iter().flat_map(|row| [FEW, MANY].map(|connections| Cell { row, connections }));
        let compared = cells.flat_map(|cell| {
            let own = own.as_slice();
            let theirs = theirs.as_slice();
            FIGURES.iter().filter_map(move |(name, figure, decimals)| {
                Some(Compared {
                    cell,
                    figure: name,
                    decimals: *decimals,
                    own: cell.over_runs(own, *figure)?,
                    baseline: cell.over_runs(theirs, *figure)?,
                    ratio: loops::ratio((cell, own), (cell, theirs), *figure)?,
                })
            })
        });
        Comparison { baseline, compared: compared.collect(), own, theirs }
    }

    /// Every goal that the figures speak to.
    pub(crate) fn judge(&self) -> Vec<Goal> {
        let judged = COST.into_iter().filter_map(|(connections, bound)| {
            let cell = Cell { row: JUDGED, connections };
            let ratio = loops::ratio((cell, &self.own), (cell, &self.theirs), gateway_cpu)?;
            Some(Goal {
                goal: format!(
                    "{JUDGED}: at most {bound} of the gateway CPU per request of {}, {connections} connections",
                    self.baseline
                ),
                met: ratio.median <= bound,
                figures: format!("{} of it", ratio.text(2)),
            })
        });
        judged.collect()
    }

    /// The section.
    pub(crate) fn render(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n## Against {}\n", self.baseline)?;
        writeln!(
            text,
            "Both built in the same profile, each with its own filter, configuration and primitives, in turns; closed \
             loops. CPU is per request. The ratio is that within each run.\n"
        )?;
        writeln!(
            text,
            "| row | connections | figure | baseline | own | own / baseline |\n|---|---|---|---|---|---|"
        )?;
        for one in &self.compared {
            writeln!(
                text,
                "| `{}` | {} | {} | {} | {} | {} |",
                one.cell.row,
                one.cell.connections,
                one.figure,
                one.baseline.text(one.decimals),
                one.own.text(one.decimals),
                one.ratio.text(2),
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::tests::measured;

    fn comparison(few: f64, many: f64) -> Comparison {
        let own = vec![measured(1, JUDGED, FEW, few), measured(1, JUDGED, MANY, many)];
        let theirs = vec![measured(1, JUDGED, FEW, 100.0), measured(1, JUDGED, MANY, 100.0)];
        Comparison::of("abc".into(), own, theirs)
    }

    #[test]
    fn the_gateway_may_cost_so_much_of_the_baseline() {
        let met = |few, many| comparison(few, many).judge().iter().map(|goal| goal.met).collect::<Vec<_>>();
        assert_eq!(met(55.0, 65.0), [true, true]);
        assert_eq!(met(56.0, 66.0), [false, false]);
    }

    #[test]
    fn the_table_shows_both_sides_and_their_ratio() {
        let mut text = String::new();
        comparison(50.0, 60.0).render(&mut text).unwrap();
        let line =
            "| `path` | 8 | gateway CPU us | 100.0 (100.0..100.0) | 50.0 (50.0..50.0) | 0.50 (0.50..0.50) |";
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("Envoy CPU"), "a figure that nobody has is left out: {text}");
    }
}
