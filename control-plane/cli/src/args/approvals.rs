//! The command line of `asp approvals`.

use clap::{Args, Subcommand};

use super::JsonArgs;

#[derive(Clone, Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// Lists requests for approval, latest first
    List(ApprovalsListArgs),
    /// Shows one request with its arguments
    Show(ApprovalsShowArgs),
    /// Approves a call, once
    Approve(ApprovalsDecideArgs),
    /// Denies a call
    Deny(ApprovalsDecideArgs),
}

#[derive(Clone, Debug, Args)]
pub struct ApprovalsListArgs {
    /// Shows only those of this org
    #[arg(long)]
    pub org: Option<String>,
    /// Shows requests in every state [default: only open ones]
    #[arg(long, conflicts_with = "state")]
    pub all: bool,
    /// Shows only requests in this state
    #[arg(long, value_name = "STATE", default_value = "pending",
        value_parser = ["pending", "approved", "denied", "used", "expired", "withdrawn"])]
    pub state: String,
    /// Number of requests
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    /// Shows only requests before this one: the number at the start of a line
    #[arg(long, value_name = "NUMBER")]
    pub before: Option<i64>,
    #[command(flatten)]
    pub output: JsonArgs,
}

#[derive(Clone, Debug, Args)]
pub struct ApprovalsShowArgs {
    /// Id of the request, as `asp approvals list` shows it
    #[arg(value_name = "ID")]
    pub id: String,
    #[command(flatten)]
    pub output: JsonArgs,
}

#[derive(Clone, Debug, Args)]
pub struct ApprovalsDecideArgs {
    /// Id of the request, as `asp approvals list` shows it
    #[arg(value_name = "ID")]
    pub id: String,
    /// Reason for the audit
    #[arg(long)]
    pub reason: Option<String>,
    #[command(flatten)]
    pub output: JsonArgs,
}
