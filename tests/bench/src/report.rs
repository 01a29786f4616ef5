//! What a benchmark found: raw data, its summary, the goals; written as JSON and as text.

use std::path::Path;

use anyhow::{Result, bail};
use asp_e2e::report;
use serde::Serialize;

use crate::agents::Agents;
use crate::agreement::Agreement;
use crate::beside::Beside;
use crate::changes::Changes;
use crate::compare::Comparison;
use crate::decisions::Decisions;
use crate::enforcement::Enforcement;
use crate::first_day::FirstDay;
use crate::goal::{self, Goal};
use crate::identity::Identity;
use crate::machine::Machine;
use crate::measurement::Measurement;
use crate::plan::Plan;
use crate::plugins::{self, Plugins};
use crate::rows::Found;
use crate::scale::{self, Step};
use crate::streams::Streams;
use crate::summary::{Summary, summarise};

/// What each part found.
pub(crate) struct Parts {
    pub edge: Found,
    pub beside: Option<Beside>,
    pub identity: Option<Identity>,
    pub decisions: Option<Decisions>,
    pub changes: Option<Changes>,
    pub plugins: Option<Plugins>,
    pub streams: Option<Streams>,
    pub agents: Option<Agents>,
    pub scale: Vec<Step>,
    pub first_day: Option<FirstDay>,
    pub comparison: Option<Comparison>,
}

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
    pub beside: Option<Beside>,
    pub identity: Option<Identity>,
    pub decisions: Option<Decisions>,
    pub changes: Option<Changes>,
    pub plugins: Option<Plugins>,
    pub streams: Option<Streams>,
    pub agents: Option<Agents>,
    pub scale: Vec<Step>,
    pub first_day: Option<FirstDay>,
    pub comparison: Option<Comparison>,
    /// Raw data, in the order it was taken.
    pub measurements: Vec<Measurement>,
}

impl Report {
    pub(crate) fn new(plan: Plan, machine: [Machine; 2], parts: Parts) -> Report {
        let Parts {
            edge,
            beside,
            identity,
            decisions,
            changes,
            plugins,
            streams,
            agents,
            scale,
            first_day,
            comparison,
        } = parts;
        let Found { rate, agreements, measurements, enforcement } = edge;
        let summaries = summarise(&measurements);
        Report {
            time: report::timestamp(),
            plan,
            rate,
            machine,
            goals: [
                goal::judge(&summaries, &enforcement),
                beside.as_ref().map(Beside::judge).unwrap_or_default(),
                decisions.as_ref().map(Decisions::judge).unwrap_or_default(),
                changes.as_ref().map(Changes::judge).unwrap_or_default(),
                plugins.as_ref().map(plugins::judge).unwrap_or_default(),
                streams.as_ref().map(Streams::judge).unwrap_or_default(),
                agents.as_ref().map(Agents::judge).unwrap_or_default(),
                scale::judge(&scale),
                first_day.as_ref().map(FirstDay::judge).unwrap_or_default(),
                comparison.as_ref().map(Comparison::judge).unwrap_or_default(),
            ]
            .concat(),
            summaries,
            agreements,
            enforcement,
            beside,
            identity,
            decisions,
            changes,
            plugins,
            streams,
            agents,
            scale,
            first_day,
            comparison,
            measurements,
        }
    }

    /// Writes `<time>.json` and `text` as `<time>.md` into `directory` and prints the latter.
    pub(crate) fn write(&self, directory: &Path, text: &str) -> Result<()> {
        report::write(directory, &self.time, self, text)
    }

    /// Fails when a request failed: its row's figures are no figures.
    pub(crate) fn check(&self) -> Result<()> {
        let beside = self.beside.iter().flat_map(|beside| &beside.measurements);
        let compared = self.comparison.iter().flat_map(|both| both.own.iter().chain(&both.theirs));
        let identity = self.identity.iter().flat_map(|identity| &identity.measurements);
        let agents = self.agents.iter().flat_map(|agents| &agents.measurements);
        let first_day = self.first_day.iter().flat_map(FirstDay::measurements);
        let all = self
            .measurements
            .iter()
            .chain(beside)
            .chain(identity)
            .chain(agents)
            .chain(first_day)
            .chain(compared);
        let failed = all.into_iter().find(|measurement| measurement.errors > 0);
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
