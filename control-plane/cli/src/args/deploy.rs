//! The command line of `asp deploy`.

use std::path::PathBuf;

use clap::Args;

#[derive(Clone, Debug, Args)]
#[command(
    group = clap::ArgGroup::new("decided").args(["plan", "yes"]),
    after_help = "\
Examples:
  asp deploy mine          shows the plan, asks, deploys, and waits until it is served
  asp deploy mine --plan   shows the plan only and changes nothing
  asp deploy mine --yes    for scripts: deploys without asking

Plugins are built and packed, their packages are pushed to the artifact store, and their digests are written into the specs
(`runtime.artifactSha256`); commit the files that the plan lists under `write`. Then the servers are applied. Runtimes install the
packages with `asp plugin install --from URL --every SECONDS`; a runtime on this machine gets them from this command.
Exit code: 3 if a contract breaks without a new major version; 1 if a fault is found, if the answer is no, or if it is not
served in time. What was applied by then stays applied: `asp servers rollback` undoes it.

Environment:
  ASP_ADMIN_URL, ASP_ADMIN_TOKEN   the control plane
  ASP_EDGE_URL                     URL of the platform, for the addresses printed at the end [http://127.0.0.1:8080]
  ASP_STATE_DIR                    state directory of a platform on this machine [.asp]"
)]
pub struct DeployArgs {
    /// Directory of primitives, with one folder for each server
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Shows the plan, without changing anything
    #[arg(long)]
    pub plan: bool,
    /// Deploys without asking
    #[arg(long)]
    pub yes: bool,
    /// Applies changes that break callers without a new major version; the audit log records it
    #[arg(long)]
    pub force: bool,
    /// Deploys a plugin whose code has changed without a new version (for development: runtimes keep the installed code
    /// unless they are told to replace it)
    #[arg(long)]
    pub replace: bool,
    /// Directory in which a runtime on this machine looks for plugins [default: plugins in the state directory, if it exists
    /// and the control plane is on this machine]
    #[arg(long, value_name = "DIR")]
    pub plugins: Option<PathBuf>,
    /// Seconds to wait until everything is served
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
    /// Prints JSON
    #[arg(long, requires = "decided")]
    pub json: bool,
}
