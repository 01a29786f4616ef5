//! The command line of `asp calls` and `asp sessions`.

use clap::Args;

use super::JsonArgs;
use super::usage::CallFilterArgs;

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp calls --org acme                                             calls that have run for more than a second, the longest first
  asp calls --org acme --primitive count
  asp calls --cancel 0190f000-0000-7000-8000-000000000001          cancels one, on whichever gateway runs it")]
pub struct CallsArgs {
    /// Only calls of this org
    #[arg(long)]
    pub org: Option<String>,
    #[command(flatten)]
    pub filter: CallFilterArgs,
    /// Only calls of this primitive: its id, with or without `@version`
    #[arg(long, value_name = "ID")]
    pub primitive: Option<String>,
    /// Cancels the call with this id; with --org also one that is not listed yet
    #[arg(long, value_name = "CALL", conflicts_with_all = ["user", "server", "primitive"])]
    pub cancel: Option<String>,
    /// Number of calls
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    #[command(flatten)]
    pub output: JsonArgs,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp sessions --org acme --user bob
  asp sessions --end 0190f00000007000800000000000000a      ends one with its calls, on every gateway

Only clients of MCP up to 2025-11-25 have sessions. A client whose session was ended can open another one: `asp revoke` keeps its
user out.")]
pub struct SessionsArgs {
    /// Only sessions of this org
    #[arg(long)]
    pub org: Option<String>,
    /// Only sessions of users of this name
    #[arg(long)]
    pub user: Option<String>,
    /// Only sessions at this server
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,
    /// Ends the session with this id; with --org also one that is not listed
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["user", "server"])]
    pub end: Option<String>,
    /// Number of sessions
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    #[command(flatten)]
    pub output: JsonArgs,
}
