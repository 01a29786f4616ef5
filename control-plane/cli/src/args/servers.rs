//! The command line of `asp servers`.

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Subcommand)]
pub enum ServersCommand {
    /// Shows the stored servers
    List(ServersListArgs),
    /// Shows who a server is offered to or, with --org, whether an organisation has it
    Show(ServersShowArgs),
    /// Offers a server to an organisation, which may switch it on (`asp policy ORG --expose SERVER`)
    Offer(ServersOfferArgs),
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
pub struct ServersShowArgs {
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// This organisation
    #[arg(long, value_name = "ORG")]
    pub org: Option<String>,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Admins of the platform and of the server may offer it. What `defaultExposure: allow` or `offeredTo` in its server.yaml offers is
withdrawn there.")]
pub struct ServersOfferArgs {
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// The organisation; repeat for more
    #[arg(long, value_name = "ORG", required = true)]
    pub to: Vec<String>,
    /// Takes the offer back: within a second the organisation does not have the server any more
    #[arg(long)]
    pub withdraw: bool,
    /// Offers it to an organisation that nothing speaks of yet
    #[arg(long, conflicts_with = "withdraw")]
    pub force: bool,
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
