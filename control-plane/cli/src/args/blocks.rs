//! The command line of `asp block` and `asp unblock`.

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Subcommand)]
pub enum BlockCommand {
    /// Blocks a user of an org, and a machine with that name: every call is refused, with any token
    #[command(after_help = "\
Examples:
  asp block user bob --org acme --reason 'left the company'
  asp unblock user bob --org acme")]
    User(BlockUserArgs),
    /// Blocks an org (for admins of the platform)
    Org(BlockOrgArgs),
    /// Lists blocked users and orgs, newest first
    List(BlockListArgs),
}

#[derive(Clone, Debug, Subcommand)]
pub enum UnblockCommand {
    /// Lets a user of an org in again
    User(UnblockUserArgs),
    /// Lets an org in again (for admins of the platform)
    Org(UnblockOrgArgs),
}

#[derive(Clone, Debug, Args)]
pub struct BlockUserArgs {
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Org of the user [default: the org of an org's admin]
    #[arg(long)]
    pub org: Option<String>,
    /// Reason, which the blocked user is shown
    #[arg(long)]
    pub reason: Option<String>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct BlockOrgArgs {
    #[arg(value_name = "ORG")]
    pub name: String,
    /// Reason, which callers of the org are shown
    #[arg(long)]
    pub reason: Option<String>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct BlockListArgs {
    /// Only blocks of this org
    #[arg(long)]
    pub org: Option<String>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct UnblockUserArgs {
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Org of the user [default: the org of an org's admin]
    #[arg(long)]
    pub org: Option<String>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct UnblockOrgArgs {
    #[arg(value_name = "ORG")]
    pub name: String,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}
