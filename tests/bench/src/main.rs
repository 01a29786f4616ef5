//! `make bench`: figures as a table and JSON. It measures and asserts nothing about time; only a request
//! that failed makes it fail.

mod agreement;
mod backend;
mod chain;
mod edge;
mod enforcement;
mod framing;
mod goal;
mod issuer;
mod load;
mod machine;
mod measurement;
mod path;
mod plan;
mod plugins;
mod report;
mod rows;
mod spread;
mod summary;
mod table;
mod traffic;
mod usage;

use clap::Parser;

use crate::machine::Machine;
use crate::plan::{Args, Part, Plan};
use crate::report::Report;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let plan = Plan::of(&args);
    let report = measure(&plan).await?;
    report.write(&args.out()?, &table::render(&report))?;
    report.check()
}

async fn measure(plan: &Plan) -> anyhow::Result<Report> {
    let started = Machine::now();
    let edge = if plan.measures(Part::Edge) { Some(rows::measure_all(plan).await?) } else { None };
    let plugins = if plan.measures(Part::Plugins) { Some(plugins::measure(plan).await?) } else { None };
    Ok(Report::new(plan.clone(), [started, Machine::now()], edge.unwrap_or_default(), plugins))
}
