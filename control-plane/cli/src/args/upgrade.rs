//! The command line of `asp upgrade`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Subcommand)]
pub enum UpgradeCommand {
    /// Prints the settings to paste and the offers to store so that today's calls still work after an upgrade to this version
    #[command(after_help = "\
Examples:
  asp upgrade check --settings /etc/asp/control.env --settings /etc/asp/gateway.env
                                      before the upgrade, against the running version
  asp upgrade check --settings /etc/asp/control.env --settings /etc/asp/gateway.env --write
                                      after it; stores the offers that are not marked

Reads the installation as a platform admin (ASP_ADMIN_URL, ASP_ADMIN_TOKEN) and changes nothing without --write.
A `# check:` comment means that the line below it may grant more than the operator intended: read it before you paste it.

Exit code: 0 if nothing is left to do, 1 if something is, if a setting's name is unknown, or if no setting of a process is
given. See docs/upgrade.md for the steps.")]
    Check(CheckArgs),
}

#[derive(Clone, Debug, Default, Args)]
pub struct CheckArgs {
    /// File of NAME=VALUE lines with settings of the installation, which override the environment; repeat for more
    #[arg(long, value_name = "FILE")]
    pub settings: Vec<PathBuf>,
    /// Stores the offers that are not marked
    #[arg(long)]
    pub write: bool,
    /// Also stores the marked offers
    #[arg(long, requires = "write")]
    pub all: bool,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}
