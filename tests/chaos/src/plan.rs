//! What is run, and how often.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use asp_e2e::tool;
use clap::Parser;

/// Breaks a plugin runtime and asserts how fast and how well it recovers
#[derive(Clone, Debug, Parser)]
#[command(name = "asp-chaos")]
pub(crate) struct Plan {
    /// How often each row is repeated; the worst repeat counts
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub repeats: usize,
    /// Once each
    #[arg(long)]
    pub quick: bool,
    /// How long F30 keeps gateways and control plane apart [3600, 60 with --quick]
    #[arg(long, value_name = "N")]
    pub partition_seconds: Option<u64>,
    /// How long all repeats of F34, and all of F35, go on losing parts of a fleet [600, 60 with --quick]
    #[arg(long, value_name = "N")]
    pub fleet_seconds: Option<u64>,
    /// How many tokens F36 revokes in each crowd of writers; their times have a 99th percentile
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub revocations: usize,
    /// Callers that lose their right in each repeat of F21 [500, 100 with --quick]
    #[arg(long, value_name = "N")]
    pub revoked_callers: Option<usize>,
    /// Calls of all repeats of F44 together, about whose ends a gateway is killed [2000, 240 with --quick]
    #[arg(long, value_name = "N")]
    pub lost_calls: Option<usize>,
    /// Kills of all repeats of F47 together, each amid tasks of A2A [200, 10 with --quick]
    #[arg(long, value_name = "N")]
    pub agent_kills: Option<usize>,
    /// Seconds for which F45 keeps a snapshot of all tables open [1800, 60 with --quick]
    #[arg(long, value_name = "N")]
    pub snapshot_seconds: Option<u64>,
    /// Calls of all repeats of F60 together in each topology [10000, 600 with --quick]
    #[arg(long, value_name = "N")]
    pub audit_calls: Option<usize>,
    /// The seed of F34, F35, F44 and F47, as a run printed it
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Only rows whose name begins so, e.g. F9; may be given more than once
    #[arg(long = "only", value_name = "ROW")]
    pub only: Vec<String>,
    /// Directory for the report [target/chaos]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl Plan {
    pub(crate) fn repeats(&self) -> usize {
        if self.quick { 1 } else { self.repeats.max(1) }
    }

    pub(crate) fn partition_seconds(&self) -> u64 {
        self.partition_seconds.unwrap_or(if self.quick { 60 } else { 3_600 })
    }

    pub(crate) fn snapshot_seconds(&self) -> u64 {
        self.snapshot_seconds.unwrap_or(if self.quick { 60 } else { 1_800 })
    }

    /// Of one repeat.
    pub(crate) fn fleet_length(&self) -> Duration {
        let all = self.fleet_seconds.unwrap_or(if self.quick { 60 } else { 600 });
        Duration::from_secs(all) / u32::try_from(self.repeats()).unwrap_or(u32::MAX)
    }

    /// Returns the callers of one repeat.
    pub(crate) fn revoked_callers(&self) -> usize {
        self.revoked_callers.unwrap_or(if self.quick { 100 } else { 500 })
    }

    /// Returns the calls of one repeat.
    pub(crate) fn lost_calls(&self) -> usize {
        self.lost_calls.unwrap_or(if self.quick { 240 } else { 2_000 }).div_ceil(self.repeats())
    }

    /// Returns the kills of one repeat.
    pub(crate) fn agent_kills(&self) -> usize {
        self.agent_kills.unwrap_or(if self.quick { 10 } else { 200 }).div_ceil(self.repeats())
    }

    /// Returns the calls of one repeat in one topology.
    pub(crate) fn audit_calls(&self) -> usize {
        self.audit_calls.unwrap_or(if self.quick { 600 } else { 10_000 }).div_ceil(self.repeats())
    }

    pub(crate) fn wants(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|start| row.starts_with(start.as_str()))
    }

    pub(crate) fn out(&self) -> Result<PathBuf> {
        if let Some(out) = &self.out {
            return Ok(out.clone());
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        Ok(target.map_or_else(|| tool::root().map(|root| root.join("target")), Ok)?.join("chaos"))
    }
}
