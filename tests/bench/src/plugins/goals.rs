//! The goals of the plugin runtime, per language.

use asp_e2e::spread::percentile;

use super::figures::{Language, Plugins};
use super::{MANY, ONE};
use crate::goal::{self, Goal};

/// What the runtime may add to a warm call, one at a time, in microseconds.
const ADDED_P50_US: f64 = 250.0;
const ADDED_P99_US: f64 = 2000.0;
/// Part of the bare worker's calls per second that each language must keep, and what all are to keep.
const KEPT: [(&str, f64); 3] = [("python", 0.8), ("node", 0.75), ("java", 0.65)];
const KEPT_AIM: f64 = 0.8;
const WARM_HITS: f64 = 0.999;
/// A fresh process's first answer, 95th percentile in milliseconds.
const COLD_MS: [(&str, f64); 3] = [("python", 150.0), ("node", 250.0), ("java", 500.0)];

/// Every goal that the figures speak to.
pub(crate) fn judge(plugins: &Plugins) -> Vec<Goal> {
    plugins.languages.iter().flat_map(of_language).collect()
}

fn of_language(found: &Language) -> Vec<Goal> {
    [added(found), kept(found), cold(found), warm(found)].into_iter().flatten().collect()
}

fn added(found: &Language) -> Option<Goal> {
    let p50 = found.added(ONE, |one| one.p50_us)?;
    let p99 = found.added(ONE, |one| one.p99_us)?;
    Some(Goal {
        goal: format!("{}: the runtime adds at most 0.25 ms (p50) and 2 ms (p99) to a call", found.language),
        met: p50.median <= ADDED_P50_US && p99.median <= ADDED_P99_US,
        figures: format!("p50 {} us, p99 {} us", p50.text(0), p99.text(0)),
    })
}

fn kept(found: &Language) -> Option<Goal> {
    let kept = found.kept(MANY)?;
    let (_, floor) = KEPT.into_iter().find(|(language, _)| *language == found.language)?;
    let goal = format!("{}: at least {floor} of the bare calls per second, {MANY} in flight", found.language);
    Some(goal::at_least(goal, kept, floor, KEPT_AIM))
}

fn cold(found: &Language) -> Option<Goal> {
    let (_, bound) = COLD_MS.into_iter().find(|(language, _)| *language == found.language)?;
    let of = |values: &[f64]| Some((percentile(values, 0.5)?, percentile(values, 0.95)?));
    let (p50, p95) = of(&found.cold_answer_ms)?;
    Some(Goal {
        goal: format!("{}: a fresh process answers within {bound:.0} ms (p95)", found.language),
        met: p95 <= bound,
        figures: format!("{} starts; p50 {p50:.0} ms, p95 {p95:.0} ms", found.cold_answer_ms.len()),
    })
}

fn warm(found: &Language) -> Option<Goal> {
    let (calls, warm) = found.warm_hits();
    (calls > 0).then(|| Goal {
        goal: format!("{}: at least 99.9 % of the calls meet a warm worker", found.language),
        met: warm as f64 >= WARM_HITS * calls as f64,
        figures: format!("{warm} of {calls}"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::language;
    use super::*;

    fn met(found: &Language) -> Vec<bool> {
        of_language(found).iter().map(|goal| goal.met).collect()
    }

    #[test]
    fn every_goal_has_its_bound() {
        let good = language(&[(1000.0, 1249.0)]);
        assert_eq!(met(&good), [true; 4]);
        let slow = language(&[(1000.0, 1251.0)]);
        assert_eq!(met(&slow), [false, false, true, true]);
        let cold = Language { cold_answer_ms: vec![151.0], ..good.clone() };
        assert_eq!(met(&cold), [true, true, false, true]);
        let mut missed = good.clone();
        missed.loops.iter_mut().for_each(|one| one.warm -= 2);
        assert_eq!(met(&missed), [true, true, true, false]);
    }
}
