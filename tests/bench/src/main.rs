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
mod report;
mod rows;
mod spread;
mod table;
mod traffic;
mod usage;

use clap::Parser;

use crate::plan::{Args, Plan};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let plan = Plan::of(&args);
    let report = rows::measure_all(&plan).await?;
    report.write(&args.out()?)?;
    report.check()
}
