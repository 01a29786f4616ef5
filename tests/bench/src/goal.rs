//! The goals: listed as met or missed with their figures, never asserted.

use asp_e2e::spread::{Spread, percentile};
use serde::Serialize;

use crate::enforcement::Enforcement;
use crate::measurement::Phase;
use crate::summary::Summary;

/// Part of the native chain's CPU that the filter may cost.
const FILTER_COST: f64 = 0.95;
/// Bound of the 99th percentile of enforcement, in milliseconds.
const ENFORCEMENT_MS: f64 = 1000.0;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Goal {
    pub goal: String,
    pub met: bool,
    pub figures: String,
}

/// Every goal that the figures speak to.
pub(crate) fn judge(summaries: &[Summary], enforcement: &[Enforcement]) -> Vec<Goal> {
    let phases = [Phase::Warm, Phase::Saturation, Phase::Cold];
    let mut goals: Vec<Goal> =
        phases.into_iter().filter_map(|phase| cheaper("filter", "native", phase, summaries)).collect();
    goals.extend(cheaper("filter-modern", "native-modern", Phase::Warm, summaries));
    goals.extend(cheaper("filter-rs256", "native-rs256", Phase::Warm, summaries));
    goals.extend(cheaper("filter-rs256", "native-rs256", Phase::Cold, summaries));
    goals.extend(enforcement.iter().filter_map(fast_enough));
    goals
}

fn cheaper(ours: &str, theirs: &str, phase: Phase, summaries: &[Summary]) -> Option<Goal> {
    let cost = |row: &str| {
        let summary = summaries.iter().find(|summary| summary.row == row && summary.phase == phase);
        summary?.envoy_cpu_us
    };
    let ours_us = cost(ours)?;
    let theirs_us = cost(theirs)?;
    let part = ours_us.median / theirs_us.median;
    Some(Goal {
        goal: format!("{ours} costs at most {FILTER_COST} of the CPU of {theirs}, {}", phase.name()),
        met: part <= FILTER_COST,
        figures: format!("{part:.2}: {} us against {} us per request", ours_us.text(1), theirs_us.text(1)),
    })
}

/// At least `floor` of what it is compared with, which is the goal; beyond it there is an aim.
pub(crate) fn at_least(goal: String, reached: Spread, floor: f64, aim: f64) -> Goal {
    let beyond = if reached.median >= aim { "met" } else { "missed" };
    let figures = format!("{} of it; the aim of {aim} {beyond}", reached.text(2));
    Goal { goal, met: reached.median >= floor, figures }
}

fn fast_enough(enforcement: &Enforcement) -> Option<Goal> {
    let of = |values: &[f64]| Some((percentile(values, 0.5)?, percentile(values, 0.99)?));
    let (first50, first99) = of(&enforcement.first_ms)?;
    let (last50, last99) = of(&enforcement.last_ms)?;
    Some(Goal {
        goal: format!("{}: {} within 1 s (p99)", enforcement.change, enforcement.seen),
        met: first99 <= ENFORCEMENT_MS && last99 <= ENFORCEMENT_MS,
        figures: format!(
            "{} changes; first new answer p50 {first50:.0} ms, p99 {first99:.0} ms; last old answer \
             p50 {last50:.0} ms, p99 {last99:.0} ms",
            enforcement.first_ms.len()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enforcement(slowest: f64) -> Enforcement {
        let times = vec![10.0, slowest];
        Enforcement { change: "off", seen: "gone", first_ms: times.clone(), last_ms: times }
    }

    #[test]
    fn a_goal_is_missed_when_the_slowest_of_few_is_late() {
        assert!(judge(&[], &[enforcement(900.0)]).iter().all(|goal| goal.met));
        assert!(judge(&[], &[enforcement(1100.0)]).iter().all(|goal| !goal.met));
    }

    #[test]
    fn costs_are_compared_by_their_medians() {
        let summary = |row: &'static str, cpu: f64| Summary {
            envoy_cpu_us: Spread::of([cpu]),
            ..Summary::empty(row, Phase::Warm)
        };
        let met = |ours, theirs| judge(&[summary("filter", ours), summary("native", theirs)], &[])[0].met;
        assert!(met(9.5, 10.0) && !met(9.6, 10.0));
    }
}
