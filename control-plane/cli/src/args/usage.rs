//! The command line of `asp usage`.

use clap::Args;

use super::JsonArgs;

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "\
Examples:
  asp usage acme                              calls of the last 30 days by primitive
  asp usage acme --by user --since 7d
  asp usage acme --by day --primitive pay --since 2026-01-01 --until 2026-01-31
  asp usage --by org                          every org, for admins of the platform
  asp usage acme --unused 30d                 primitives without an admitted call in 30 days

Days are in UTC and kept for 400 days; today counts with the calls that ended until a few seconds ago. `other` stands for what is
beyond the number of rows that an org keeps for a day. p50 and p99 are estimated. The cost is that of the tokens of models, by
ASP_MODEL_PRICE of the gateways.")]
pub struct UsageArgs {
    /// Org whose calls count [default: every org that the admin may read]
    #[arg(value_name = "ORG")]
    pub org: Option<String>,
    /// Group of a line
    #[arg(long, value_parser = ["primitive", "user", "server", "day", "org"], default_value = "primitive")]
    pub by: String,
    /// First day, or an age such as 7d [default: 30d]
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Last day [default: today]
    #[arg(long, value_name = "DAY")]
    pub until: Option<String>,
    #[command(flatten)]
    pub filter: CallFilterArgs,
    /// Only calls of this primitive, by its id or by the name that clients see
    #[arg(long, value_name = "ID")]
    pub primitive: Option<String>,
    /// Lists the primitives without an admitted call for this long, e.g. 30d
    #[arg(long, value_name = "AGE", conflicts_with_all = ["since", "until", "user", "server", "primitive"])]
    pub unused: Option<String>,
    /// Number of lines
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    #[command(flatten)]
    pub output: JsonArgs,
}

#[derive(Clone, Debug, Default, Args)]
pub struct CallFilterArgs {
    /// Only calls of users of this name
    #[arg(long)]
    pub user: Option<String>,
    /// Only calls at this server
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,
}
