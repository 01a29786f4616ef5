//! What is measured how long: the arguments, and the two sizes of a run.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use asp_e2e::tool;
use clap::{Parser, ValueEnum};
use serde::Serialize;

/// The arguments of `asp-bench`.
#[derive(Parser)]
#[command(name = "asp-bench", about = "Measures the edge, the whole path and the plugin runtime")]
pub(crate) struct Args {
    /// One short run: shows that every row works; its figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// How often every row is measured; the rows take turns.
    #[arg(long)]
    runs: Option<u32>,
    /// Measures this part alone.
    #[arg(long)]
    only: Option<Part>,
    /// Folder of the report; target/bench by default.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// A part of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Part {
    /// The edge and the whole path.
    Edge,
    /// The plugin runtime.
    Plugins,
}

impl Args {
    pub(crate) fn out(&self) -> Result<PathBuf> {
        if let Some(out) = &self.out {
            return Ok(out.clone());
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or(tool::root()?.join("target"), PathBuf::from);
        Ok(target.join("bench"))
    }
}

/// Sizes and times of one benchmark.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    pub quick: bool,
    /// The only part that is measured.
    pub only: Option<Part>,
    /// Alternated runs.
    pub runs: u32,
    /// Distinct tokens of a row in a run; each is new to the row.
    pub tokens: usize,
    /// Keep-alive connections of the load generator, one thread each.
    pub connections: usize,
    /// Length of the closed loop before a row's turn that is not measured.
    pub settle: Duration,
    /// Length of the open loop, per row and run.
    pub steady: Duration,
    /// Length of the closed loop, per row and run.
    pub saturation: Duration,
    /// Length of the open loop of a variant.
    pub variant: Duration,
    /// Arrival rate as a fraction of the slowest row's capacity.
    pub fraction: f64,
    /// Changes of each kind whose enforcement is timed.
    pub flips: u32,
    /// Calls of a plugin in a loop.
    pub calls: u32,
    /// Calls of a plugin before any that is measured.
    pub settling_calls: u32,
    /// Cold starts of a plugin, of each kind.
    pub starts: u32,
}

impl Plan {
    pub(crate) fn of(args: &Args) -> Plan {
        let full = Plan {
            quick: false,
            only: args.only,
            runs: 5,
            tokens: 1000,
            connections: 16,
            settle: Duration::from_secs(1),
            steady: Duration::from_secs(3),
            saturation: Duration::from_secs(2),
            variant: Duration::from_secs(2),
            fraction: 0.5,
            flips: 50,
            calls: 2000,
            settling_calls: 2000,
            starts: 30,
        };
        let quick = Plan {
            quick: true,
            only: args.only,
            runs: 1,
            tokens: 200,
            connections: 4,
            settle: Duration::from_millis(100),
            steady: Duration::from_millis(300),
            saturation: Duration::from_millis(200),
            variant: Duration::from_millis(200),
            fraction: 0.3,
            flips: 3,
            calls: 50,
            settling_calls: 20,
            starts: 2,
        };
        let plan = if args.quick { quick } else { full };
        Plan { runs: args.runs.unwrap_or(plan.runs).max(1), ..plan }
    }

    pub(crate) fn measures(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }
}
