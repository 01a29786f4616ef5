//! The command line of `asp push`.

use clap::{Args, Subcommand};

use super::JsonArgs;

#[derive(Clone, Debug, Subcommand)]
pub enum PushCommand {
    /// Lists push notifications that were not received, latest first
    List(PushListArgs),
    /// Shows one push notification that was not received
    Show(PushIdArgs),
    /// Sends a push notification again that was not received
    Replay(PushIdArgs),
    /// Deletes a push notification that was not received
    Drop(PushIdArgs),
}

#[derive(Clone, Debug, Args)]
pub struct PushListArgs {
    /// Shows only those of this org
    #[arg(long)]
    pub org: Option<String>,
    /// Number of notifications
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    /// Shows only notifications before this one: the number at the start of a line
    #[arg(long, value_name = "NUMBER")]
    pub before: Option<i64>,
    #[command(flatten)]
    pub output: JsonArgs,
}

#[derive(Clone, Debug, Args)]
pub struct PushIdArgs {
    /// Number of the notification, as `asp push list` shows it
    #[arg(value_name = "NUMBER")]
    pub id: i64,
    #[command(flatten)]
    pub output: JsonArgs,
}
