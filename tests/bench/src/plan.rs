//! What is measured how long: the arguments, and the two sizes of a run.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use asp_e2e::tool;
use clap::{Parser, ValueEnum};
use serde::Serialize;

/// The arguments of `asp-bench`.
#[derive(Parser)]
#[command(
    name = "asp-bench",
    about = "Measures the edge, the whole path beside a peer and an earlier commit, and the plugin runtime"
)]
pub(crate) struct Args {
    /// One short run: shows that every row works; its figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// How often every row is measured; the rows take turns.
    #[arg(long)]
    runs: Option<u32>,
    /// How long the clients that only wait do so, in seconds.
    #[arg(long)]
    waiting: Option<u64>,
    /// Measures these parts alone.
    #[arg(long)]
    only: Vec<Part>,
    /// An earlier commit, made by scripts/bench-against, that is measured in turns with this one.
    #[arg(long, value_name = "DIR")]
    baseline: Option<PathBuf>,
    /// Serves the echo that the peer stands before, and nothing else.
    #[arg(long, hide = true)]
    serve_echo: bool,
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
    /// The gateway beside the `mcp-proxy` crate.
    Peer,
    /// Who calls, and what proves a call to its service.
    Identity,
    /// Decisions of policy and limits, without HTTP.
    Decisions,
    /// Time of pushes and revocations until they are in force in a fleet.
    Changes,
    /// The plugin runtime.
    Plugins,
    /// Clients that only wait: ten minutes, so only where it is asked for.
    Streams,
    /// A2A beside MCP, streams of tasks and pushes: some minutes, so only where it is asked for.
    Agents,
    /// Many orgs, servers and revocations: a quarter of an hour, so only where it is asked for.
    Scale,
    /// Cost of telemetry, all tools at one address, edits in `asp dev`: some minutes, so only where it is asked for.
    FirstDay,
    /// This commit beside the one of `--baseline`.
    Compare,
}

impl Args {
    pub(crate) fn serves_echo(&self) -> bool {
        self.serve_echo
    }

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
    /// The only parts that are measured.
    pub only: Vec<Part>,
    pub baseline: Option<PathBuf>,
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
    /// Length of a closed loop beside the peer or an earlier commit.
    pub closed: Duration,
    /// Length of the open loop of a variant.
    pub variant: Duration,
    /// Arrival rate as a fraction of the slowest row's capacity.
    pub fraction: f64,
    /// Changes of each kind whose enforcement is timed.
    pub flips: u32,
    /// Calls of a plugin in a loop, one after the other.
    pub calls: u32,
    /// Calls of a plugin in a loop with many in flight; as many as above would be over in a tenth of a second.
    pub crowded_calls: u32,
    /// Calls of a plugin before any that is measured.
    pub settling_calls: u32,
    /// Cold starts of a plugin, of each kind.
    pub starts: u32,
    /// Clients that only wait.
    pub streams: usize,
    /// How long they wait.
    pub waiting: Duration,
    /// Tasks of A2A that run at once, each with a stream.
    pub tasks: usize,
    /// Tasks of A2A whose states are pushed.
    pub pushed: usize,
    /// Subscribers beside the gateway and the Envoy.
    pub stubs: usize,
}

impl Plan {
    pub(crate) fn of(args: &Args) -> Result<Plan> {
        if args.only.contains(&Part::Compare) && args.baseline.is_none() {
            bail!(
                "`--only compare` needs `--baseline DIR`; `scripts/bench-against REVISION` makes one and calls this"
            );
        }
        let full = Plan {
            quick: false,
            only: args.only.clone(),
            baseline: args.baseline.clone(),
            runs: 5,
            tokens: 1000,
            connections: 16,
            settle: Duration::from_secs(1),
            steady: Duration::from_secs(3),
            saturation: Duration::from_secs(2),
            closed: Duration::from_secs(6),
            variant: Duration::from_secs(2),
            fraction: 0.5,
            flips: 50,
            calls: 2000,
            crowded_calls: 20_000,
            settling_calls: 2000,
            starts: 30,
            streams: 10_000,
            waiting: Duration::from_secs(600),
            tasks: 5_000,
            pushed: 1_000,
            stubs: 48,
        };
        let quick = Plan {
            quick: true,
            only: args.only.clone(),
            baseline: args.baseline.clone(),
            runs: 1,
            tokens: 200,
            connections: 4,
            settle: Duration::from_millis(100),
            steady: Duration::from_millis(300),
            saturation: Duration::from_millis(200),
            closed: Duration::from_millis(200),
            variant: Duration::from_millis(200),
            fraction: 0.3,
            flips: 3,
            calls: 50,
            crowded_calls: 100,
            settling_calls: 20,
            starts: 2,
            streams: 400,
            waiting: Duration::from_secs(2),
            tasks: 50,
            pushed: 10,
            stubs: 4,
        };
        let plan = if args.quick { quick } else { full };
        let runs = args.runs.unwrap_or(plan.runs).max(1);
        let waiting = args.waiting.map_or(plan.waiting, Duration::from_secs);
        Ok(Plan { runs, waiting, ..plan })
    }

    pub(crate) fn measures(&self, part: Part) -> bool {
        match self.only.as_slice() {
            [] => match part {
                Part::Compare => self.baseline.is_some(),
                Part::Streams | Part::Agents | Part::Scale | Part::FirstDay => false,
                _ => true,
            },
            only => only.contains(&part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(arguments: &[&str]) -> Result<Plan> {
        Plan::of(&Args::parse_from([&["asp-bench"], arguments].concat()))
    }

    fn measured(arguments: &[&str]) -> Vec<Part> {
        let plan = plan(arguments).unwrap();
        let all = [
            Part::Edge,
            Part::Peer,
            Part::Identity,
            Part::Decisions,
            Part::Changes,
            Part::Plugins,
            Part::Streams,
            Part::Agents,
            Part::Scale,
            Part::FirstDay,
            Part::Compare,
        ];
        all.into_iter().filter(|part| plan.measures(*part)).collect()
    }

    #[test]
    fn an_earlier_commit_is_measured_only_where_one_is_named() {
        let usual = [Part::Edge, Part::Peer, Part::Identity, Part::Decisions, Part::Changes, Part::Plugins];
        assert_eq!(measured(&[]), usual);
        assert_eq!(measured(&["--only", "edge", "--only", "plugins"]), [Part::Edge, Part::Plugins]);
        assert_eq!(measured(&["--only", "compare", "--baseline", "x"]), [Part::Compare]);
        assert_eq!(measured(&["--only", "streams", "--only", "scale"]), [Part::Streams, Part::Scale]);
        assert_eq!(measured(&["--only", "agents"]), [Part::Agents]);
        assert_eq!(measured(&["--only", "first-day"]), [Part::FirstDay]);
        assert_eq!(measured(&["--baseline", "x"]).len(), usual.len() + 1);
        let error = plan(&["--only", "compare"]).unwrap_err();
        assert!(error.to_string().contains("scripts/bench-against"), "{error}");
    }

    #[test]
    fn a_comparison_has_five_runs_unless_told_otherwise() {
        assert_eq!(plan(&["--baseline", "x"]).unwrap().runs, 5);
        assert_eq!(plan(&["--baseline", "x", "--runs", "2"]).unwrap().runs, 2);
        assert_eq!(plan(&["--quick"]).unwrap().runs, 1);
    }

    #[test]
    fn clients_wait_for_ten_minutes_unless_told_otherwise() {
        assert_eq!(plan(&["--only", "streams"]).unwrap().waiting, Duration::from_secs(600));
        assert_eq!(plan(&["--waiting", "60"]).unwrap().waiting, Duration::from_secs(60));
    }
}
