//! `make chaos`: breaks a running plugin runtime in the ways plugins break, and holds it to the time it may take.
//!
//! Prints a table, writes it with every figure below target/chaos, and fails when a row missed its bound.

mod bed;
mod call;
mod enforcement;
mod events;
mod hostile;
mod neighbours;
mod older;
mod plan;
mod plugins;
mod processes;
mod report;
mod rows;
mod sheet;

use std::process::ExitCode;

use clap::Parser;

use crate::plan::Plan;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let plan = Plan::parse();
    let report = rows::run(&plan).await?;
    report.write(&plan.out()?)?;
    Ok(if report.missed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
