//! The command line of `asp servers`.

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Subcommand)]
pub enum ServersCommand {
    /// Shows the stored servers
    List(ServersListArgs),
    /// Shows what a server was before: its last versions, the newest first
    Versions(ServersVersionsArgs),
    /// Makes a server again what it was at one of its versions, one that was deleted too
    Rollback(ServersRollbackArgs),
}

#[derive(Clone, Debug, Args)]
pub struct ServersListArgs {
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ServersVersionsArgs {
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
It is stored as a new version, also where that breaks callers; the audit says which version it was.
The directory of its specs stays as it is: `asp apply` brings what stands there.")]
pub struct ServersRollbackArgs {
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// A version's revision, as `asp servers versions` shows it
    #[arg(long, value_name = "REVISION")]
    pub to: u64,
    /// For programs
    #[arg(long)]
    pub json: bool,
}
