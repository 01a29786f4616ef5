//! What a benchmark found: raw data, its summary, the goals; written as JSON and as a table.

use std::path::Path;

use anyhow::{Result, bail};
use serde::Serialize;
use time::OffsetDateTime;

use crate::agreement::Agreement;
use crate::enforcement::Enforcement;
use crate::goal::{self, Goal};
use crate::machine::Machine;
use crate::measurement::{Measurement, Phase};
use crate::plan::Plan;
use crate::plugins::{self, Plugins};
use crate::spread::Spread;
use crate::table;

/// Everything of one benchmark.
#[derive(Serialize)]
pub(crate) struct Report {
    /// UTC, e.g. `20261121T235900Z`.
    pub time: String,
    pub plan: Plan,
    /// Arrivals per second in every open loop.
    pub rate: f64,
    /// At the start and at the end.
    pub machine: [Machine; 2],
    pub goals: Vec<Goal>,
    pub summaries: Vec<Summary>,
    pub agreements: Vec<Agreement>,
    pub enforcement: Vec<Enforcement>,
    pub plugins: Option<Plugins>,
    /// Raw data, in the order it was taken.
    pub measurements: Vec<Measurement>,
}

/// What the edge and the whole path gave; empty when they were not measured.
#[derive(Default)]
pub(crate) struct Found {
    pub rate: f64,
    pub agreements: Vec<Agreement>,
    pub measurements: Vec<Measurement>,
    pub enforcement: Vec<Enforcement>,
}

/// One row and phase over all runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub row: &'static str,
    pub phase: Phase,
    pub requests: u64,
    pub errors: u64,
    pub requests_per_second: Option<Spread>,
    pub p50_us: Option<Spread>,
    pub p99_us: Option<Spread>,
    pub envoy_cpu_us: Option<Spread>,
    pub gateway_cpu_us: Option<Spread>,
    pub envoy_rss_mib: Option<Spread>,
    pub gateway_rss_mib: Option<Spread>,
}

impl Summary {
    pub(crate) fn empty(row: &'static str, phase: Phase) -> Summary {
        Summary {
            row,
            phase,
            requests: 0,
            errors: 0,
            requests_per_second: None,
            p50_us: None,
            p99_us: None,
            envoy_cpu_us: None,
            gateway_cpu_us: None,
            envoy_rss_mib: None,
            gateway_rss_mib: None,
        }
    }

    fn of(row: &'static str, phase: Phase, taken: &[&Measurement]) -> Summary {
        let spread =
            |figure: fn(&Measurement) -> Option<f64>| Spread::of(taken.iter().filter_map(|one| figure(one)));
        Summary {
            requests: taken.iter().map(|one| one.requests).sum(),
            errors: taken.iter().map(|one| one.errors).sum(),
            requests_per_second: spread(|one| Some(one.requests_per_second)),
            p50_us: spread(|one| Some(one.p50_us)),
            p99_us: spread(|one| Some(one.p99_us)),
            envoy_cpu_us: spread(|one| one.envoy_cpu_us),
            gateway_cpu_us: spread(|one| one.gateway_cpu_us),
            envoy_rss_mib: spread(|one| one.envoy_rss_kib.map(mib)),
            gateway_rss_mib: spread(|one| one.gateway_rss_kib.map(mib)),
            ..Summary::empty(row, phase)
        }
    }
}

impl Report {
    pub(crate) fn new(plan: Plan, machine: [Machine; 2], edge: Found, plugins: Option<Plugins>) -> Report {
        let Found { rate, agreements, measurements, enforcement } = edge;
        let summaries = summarise(&measurements);
        Report {
            time: timestamp(OffsetDateTime::now_utc()),
            plan,
            rate,
            machine,
            goals: [
                goal::judge(&summaries, &enforcement),
                plugins.as_ref().map(plugins::judge).unwrap_or_default(),
            ]
            .concat(),
            summaries,
            agreements,
            enforcement,
            plugins,
            measurements,
        }
    }

    /// Writes `<time>.json` and `<time>.md` into `directory` and prints the latter.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory)?;
        let (json, markdown) =
            (directory.join(format!("{}.json", self.time)), directory.join(format!("{}.md", self.time)));
        let text = table::render(self);
        std::fs::write(&json, serde_json::to_string_pretty(self)?)?;
        std::fs::write(&markdown, &text)?;
        println!("{text}");
        println!("raw data: {}", json.display());
        Ok(())
    }

    /// Fails when a request failed: its row's figures are no figures.
    pub(crate) fn check(&self) -> Result<()> {
        let failed = self.measurements.iter().find(|measurement| measurement.errors > 0);
        if let Some(failed) = failed {
            bail!(
                "row {} ({}): {} of {} requests failed, the first with {}",
                failed.row,
                failed.phase.name(),
                failed.errors,
                failed.requests,
                failed.first_error.as_deref().unwrap_or_default()
            );
        }
        Ok(())
    }
}

/// In the order in which rows and phases were first measured.
fn summarise(measurements: &[Measurement]) -> Vec<Summary> {
    let mut keys = Vec::new();
    for measurement in measurements {
        let key = (measurement.row, measurement.phase);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.into_iter()
        .map(|(row, phase)| {
            let taken: Vec<&Measurement> =
                measurements.iter().filter(|one| (one.row, one.phase) == (row, phase)).collect();
            Summary::of(row, phase, &taken)
        })
        .collect()
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

fn timestamp(now: OffsetDateTime) -> String {
    let (date, time) = (now.date(), now.time());
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_sorts_by_time() {
        assert_eq!(timestamp(OffsetDateTime::UNIX_EPOCH), "19700101T000000Z");
    }
}
