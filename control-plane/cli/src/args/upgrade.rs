//! The command line of `asp upgrade`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Subcommand)]
pub enum UpgradeCommand {
    /// Prints what an upgrade to this version needs so that today's calls go on: settings to paste and offers to store
    #[command(after_help = "\
Examples:
  asp upgrade check --settings /etc/asp/control.env --settings /etc/asp/gateway.env
                                      before the upgrade, against the version that runs
  asp upgrade check --write           after it: stores the offers that are not marked

It reads the installation as an admin of the platform (ASP_ADMIN_URL, ASP_ADMIN_TOKEN) and changes nothing without --write.
A line after `# check:` would let somebody do more than an operator may have meant: read it before you paste the next one.

Ends with 0 when nothing is left to do, 1 when something is. docs/upgrade.md has the steps.")]
    Check(CheckArgs),
}

#[derive(Clone, Debug, Default, Args)]
pub struct CheckArgs {
    /// File of NAME=VALUE lines with settings of the installation, over those of the environment; repeat for more
    #[arg(long, value_name = "FILE")]
    pub settings: Vec<PathBuf>,
    /// Stores the offers that have no mark
    #[arg(long)]
    pub write: bool,
    /// With --write: stores the marked offers too
    #[arg(long, requires = "write")]
    pub all: bool,
}
