//! Figures of a first day: what telemetry costs a call, what one address for all tools saves, how soon an edit takes effect.

mod catalog;
mod edits;
mod sink;
mod telemetry;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::first_day::catalog::Catalog;
use crate::first_day::edits::Edits;
use crate::first_day::telemetry::Telemetry;
use crate::goal::Goal;
use crate::measurement::Measurement;
use crate::plan::Plan;

/// Figures of all three.
#[derive(Serialize)]
pub(crate) struct FirstDay {
    pub telemetry: Telemetry,
    pub catalog: Catalog,
    pub edits: Edits,
}

pub(crate) async fn measure(plan: &Plan) -> Result<FirstDay> {
    let telemetry = Box::pin(telemetry::measure(plan)).await.context("the cost of telemetry")?;
    let catalog = Box::pin(catalog::measure(plan)).await.context("all tools at one address")?;
    let edits = Box::pin(edits::measure(plan)).await.context("edits in asp dev")?;
    Ok(FirstDay { telemetry, catalog, edits })
}

impl FirstDay {
    /// Raw figures whose requests must not have failed.
    pub(crate) fn measurements(&self) -> &[Measurement] {
        &self.telemetry.measurements
    }

    /// Returns every goal that the figures speak to.
    pub(crate) fn judge(&self) -> Vec<Goal> {
        [self.telemetry.judge(), self.catalog.judge(), self.edits.judge()].concat()
    }

    /// Writes the sections.
    pub(crate) fn render(&self, text: &mut String) -> std::fmt::Result {
        self.telemetry.render(text)?;
        self.catalog.render(text)?;
        self.edits.render(text)
    }
}
