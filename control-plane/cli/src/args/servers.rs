//! The command line of `asp servers`.

use clap::{Args, Subcommand};

use super::JsonArgs;

#[derive(Clone, Debug, Subcommand)]
pub enum ServersCommand {
    /// Shows the stored servers
    List(JsonArgs),
    /// Shows which orgs a server is offered to or, with --org, whether one org has it
    Show(ServersShowArgs),
    /// Offers a server to an org, which can then switch it on (`asp policy ORG --expose SERVER`)
    Offer(ServersOfferArgs),
    /// Switches A2A on for a server that a version without A2A applied
    Confirm(ServersConfirmArgs),
    /// Shows the deprecated primitives of the stored servers and, with --callers, who still calls them
    Deprecated(ServersDeprecatedArgs),
    /// Disables a server, or some of its primitives, until they are enabled
    Disable(ServersDisableArgs),
    /// Enables a disabled server, or some of its primitives
    Enable(ServersDisableArgs),
    /// Deletes a server with its offers; a rollback to one of its versions stores it again
    Delete(ServersDeleteArgs),
    /// Shows the latest versions of a server, newest first
    Versions(ServersVersionsArgs),
    /// Rolls a server back to one of its versions, even if the server was deleted
    Rollback(ServersRollbackArgs),
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Admins of the platform and of the server may see every org that has it; admins of an org give --org with their own.

Exit code: with --org, 1 if the server is not offered to the org.")]
pub struct ServersShowArgs {
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// Org to show the server for
    #[arg(long, value_name = "ORG")]
    pub org: Option<String>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Admins of the platform and of the server may offer it. An offer that comes from `defaultExposure: allow` or `offeredTo` in its
server.yaml can only be withdrawn there.")]
pub struct ServersOfferArgs {
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// Org to offer the server to; repeat for more
    #[arg(long, value_name = "ORG", required = true)]
    pub to: Vec<String>,
    /// Withdraws the offer: within a second the org no longer has the server
    #[arg(long)]
    pub withdraw: bool,
    /// Offers it even to an org that the platform has no record of
    #[arg(long, conflicts_with = "withdraw")]
    pub force: bool,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
`asp apply` does the same. `asp upgrade check` lists these servers, the callers that A2A lets in, and the bindings that do not hold
over it.")]
pub struct ServersConfirmArgs {
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// Protocol to switch on
    #[arg(long, value_name = "PROTOCOL", value_parser = ["a2a"])]
    pub protocol: String,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp servers deprecated                  every primitive with `deprecated` in its spec
  asp servers deprecated crm --callers    and the users and machines that call those of crm, from the audit log")]
pub struct ServersDeprecatedArgs {
    /// Shows only those of this server
    #[arg(value_name = "SERVER")]
    pub server: Option<String>,
    /// Shows the callers in the latest events of the audit log
    #[arg(long)]
    pub callers: bool,
    /// Number of events to read
    #[arg(long, value_name = "COUNT", default_value_t = 20_000, requires = "callers", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub events: u32,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Within a second callers get the answer for an unknown server or primitive, and running calls are cancelled. The stored version,
its offers and the orgs' policy stay as they are, and a new version is stored disabled as well.
Admins of the platform and of the server may do this.

Examples:
  asp servers disable crm
  asp servers disable crm --primitive export-all
  asp servers enable crm --primitive export-all")]
pub struct ServersDisableArgs {
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// Primitive to disable or enable, instead of the whole server; repeat for more
    #[arg(long = "primitive", value_name = "ID")]
    pub primitives: Vec<String>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Within a second callers get the answer for an unknown server, and running calls are cancelled. Its ids stay its own. Its versions
are kept for 30 days: `asp servers rollback` stores one again, without the offers to orgs. To switch it off for a while, disable
it.")]
pub struct ServersDeleteArgs {
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ServersVersionsArgs {
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The result is stored as a new version, even if that breaks callers; the audit log names the version it was taken from.
The directory of specs is not changed: `asp apply` applies whatever it contains.")]
pub struct ServersRollbackArgs {
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// Revision of the version, as shown by `asp servers versions`
    #[arg(long, value_name = "REVISION")]
    pub to: u64,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}
