//! What was found about the plugin runtime: raw figures of every loop, and what they say together.

use std::time::Duration;

use asp_e2e::spread::{Spread, percentile};
use serde::Serialize;

use super::process::Memory;

/// All languages.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plugins {
    /// Level of the sandbox of the runtime's workers; bare workers have none.
    pub isolation_level: u32,
    /// Calls of each loop with one in flight.
    pub calls: u32,
    /// Calls of each loop with many in flight.
    pub crowded_calls: u32,
    /// Starts of each kind and language.
    pub starts: u32,
    pub languages: Vec<Language>,
}

/// One language.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Language {
    pub language: &'static str,
    /// In the order they were taken.
    pub loops: Vec<Loop>,
    /// Allocations of a fresh process, in milliseconds: to the runtime's word that it is ready, to the answer.
    pub cold_ready_ms: Vec<f64>,
    pub cold_answer_ms: Vec<f64>,
    /// Bare processes, in milliseconds: from their start to the first answer.
    pub cold_bare_ms: Vec<f64>,
    /// Of the runtime's worker before its first call.
    pub unused: Memory,
    /// Of the same, idle after the load.
    pub used: Memory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// One Session with a worker that the bench started.
    Bare,
    /// A place, a tunnel and the place given back for each call.
    Runtime,
}

/// One closed loop.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Loop {
    pub run: u32,
    pub way: Way,
    pub in_flight: u32,
    pub calls: u64,
    /// Calls that met a running worker with a place.
    pub warm: u64,
    pub calls_per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

/// What a closed loop gave, before it is a figure.
pub(super) struct Driven {
    pub latencies: Vec<Duration>,
    pub warm: u64,
    pub elapsed: Duration,
}

impl Loop {
    pub(super) fn of(run: u32, way: Way, in_flight: u32, driven: &Driven) -> Loop {
        let micros: Vec<f64> = driven.latencies.iter().map(|one| one.as_secs_f64() * 1e6).collect();
        let at = |share| percentile(&micros, share).unwrap_or_default();
        Loop {
            run,
            way,
            in_flight,
            calls: micros.len() as u64,
            warm: driven.warm,
            calls_per_second: micros.len() as f64 / driven.elapsed.as_secs_f64(),
            p50_us: at(0.5),
            p99_us: at(0.99),
            max_us: at(1.0),
        }
    }
}

impl Language {
    fn of(&self, way: Way, in_flight: u32) -> impl Iterator<Item = &Loop> {
        self.loops.iter().filter(move |one| (one.way, one.in_flight) == (way, in_flight))
    }

    /// A figure over the runs.
    pub(super) fn over_runs(&self, way: Way, in_flight: u32, figure: fn(&Loop) -> f64) -> Option<Spread> {
        Spread::of(self.of(way, in_flight).map(figure))
    }

    /// What the runtime adds to a figure: the differences within each run.
    pub(super) fn added(&self, in_flight: u32, figure: fn(&Loop) -> f64) -> Option<Spread> {
        Spread::of(self.pairs(in_flight).map(|(ours, bare)| figure(ours) - figure(bare)))
    }

    /// What is left of the bare worker's calls per second: the ratios within each run.
    pub(super) fn kept(&self, in_flight: u32) -> Option<Spread> {
        Spread::of(self.pairs(in_flight).map(|(ours, bare)| ours.calls_per_second / bare.calls_per_second))
    }

    /// The runtime's loop and the bare one of the same run.
    fn pairs(&self, in_flight: u32) -> impl Iterator<Item = (&Loop, &Loop)> {
        self.of(Way::Runtime, in_flight).filter_map(move |ours| {
            let bare = self.of(Way::Bare, in_flight).find(|bare| bare.run == ours.run)?;
            Some((ours, bare))
        })
    }

    /// Calls through the runtime in all loops, and how many of them were warm.
    pub(super) fn warm_hits(&self) -> (u64, u64) {
        let ours = || self.loops.iter().filter(|one| one.way == Way::Runtime);
        (ours().map(|one| one.calls).sum(), ours().map(|one| one.warm).sum())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A language whose loops take these times, one run each: bare, then through the runtime.
    pub(in crate::plugins) fn language(runs: &[(f64, f64)]) -> Language {
        let one = |run: usize, way, in_flight, p50_us: f64| Loop {
            run: run as u32,
            way,
            in_flight,
            calls: 1000,
            warm: 1000,
            calls_per_second: 1e6 / p50_us,
            p50_us,
            p99_us: p50_us * 2.0,
            max_us: p50_us * 3.0,
        };
        let loops = runs.iter().enumerate().flat_map(|(run, (bare, ours))| {
            [1, 16].into_iter().flat_map(move |in_flight| {
                [one(run, Way::Bare, in_flight, *bare), one(run, Way::Runtime, in_flight, *ours)]
            })
        });
        let memory = Memory { rss_kib: 20480, pss_kib: 10240 };
        Language {
            language: "python",
            loops: loops.collect(),
            cold_ready_ms: vec![100.0],
            cold_answer_ms: vec![120.0],
            cold_bare_ms: vec![90.0],
            unused: memory,
            used: memory,
        }
    }

    #[test]
    fn what_is_added_is_taken_within_each_run() {
        let language = language(&[(100.0, 300.0), (500.0, 600.0), (100.0, 250.0)]);
        assert_eq!(language.added(1, |one| one.p50_us).unwrap().median, 150.0);
        assert_eq!(language.added(1, |one| one.p99_us).unwrap().median, 300.0);
        assert!((language.kept(16).unwrap().median - 0.4).abs() < 1e-9);
        assert_eq!(language.warm_hits(), (6000, 6000));
    }
}
