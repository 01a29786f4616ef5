//! `make bench`: figures as a table and JSON. It measures and asserts nothing about time; only a request
//! that failed makes it fail.

mod admin;
mod agents;
mod agreement;
mod backend;
mod beside;
mod chain;
mod changes;
mod compare;
mod decisions;
mod echo;
mod edge;
mod enforcement;
mod first_day;
mod framing;
mod goal;
mod identity;
mod issuer;
mod load;
mod loops;
mod machine;
mod measurement;
mod path;
mod peer;
mod plan;
mod plugins;
mod progress;
mod report;
mod rows;
mod scale;
mod session;
mod streams;
mod summary;
mod table;
mod traffic;
mod usage;

use clap::Parser;

use crate::machine::Machine;
use crate::plan::{Args, Part, Plan};
use crate::report::{Parts, Report};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.serves_echo() {
        return echo::serve().await;
    }
    let plan = Plan::of(&args)?;
    let report = Box::pin(measure(&plan)).await?;
    report.write(&args.out()?, &table::render(&report))?;
    report.check()
}

async fn measure(plan: &Plan) -> anyhow::Result<Report> {
    let started = Machine::now();
    let edge = if plan.measures(Part::Edge) { Some(Box::pin(rows::measure_all(plan)).await?) } else { None };
    let beside = if plan.measures(Part::Peer) { Some(Box::pin(beside::measure(plan)).await?) } else { None };
    let identity =
        if plan.measures(Part::Identity) { Some(Box::pin(identity::measure(plan)).await?) } else { None };
    let decisions =
        if plan.measures(Part::Decisions) { Some(Box::pin(decisions::measure(plan)).await?) } else { None };
    let changes =
        if plan.measures(Part::Changes) { Some(Box::pin(changes::measure(plan)).await?) } else { None };
    let plugins = if plan.measures(Part::Plugins) { Some(plugins::measure(plan).await?) } else { None };
    let streams =
        if plan.measures(Part::Streams) { Some(Box::pin(streams::measure(plan)).await?) } else { None };
    let agents =
        if plan.measures(Part::Agents) { Some(Box::pin(agents::measure(plan)).await?) } else { None };
    let scale = if plan.measures(Part::Scale) { Box::pin(scale::measure(plan)).await? } else { Vec::new() };
    let first_day =
        if plan.measures(Part::FirstDay) { Some(Box::pin(first_day::measure(plan)).await?) } else { None };
    let comparison = match &plan.baseline {
        Some(baseline) if plan.measures(Part::Compare) => {
            Some(Box::pin(compare::measure(plan, baseline)).await?)
        }
        _ => None,
    };
    let parts = Parts {
        edge: edge.unwrap_or_default(),
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
    };
    Ok(Report::new(plan.clone(), [started, Machine::now()], parts))
}
