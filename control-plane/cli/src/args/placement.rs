//! The command line of `asp routes`, `asp regions` and `asp artifacts`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::JsonArgs;

#[derive(Clone, Debug, Subcommand)]
pub enum RoutesCommand {
    /// Shows the routes of requests to gateway pools
    List(JsonArgs),
    /// Replaces all routes with those in a file; an empty list removes them
    #[command(after_help = "\
Example of a file:
  - {primitive: \"risky.*\", pool: sandboxed}
  - {server: shop, method: tools/call, pool: heavy}

A missing server, method or primitive is `*`; of several routes that match, the most specific one applies.")]
    Put(PutListArgs),
    /// Shows the pools that have gateways or routes
    Pools(JsonArgs),
}

#[derive(Clone, Debug, Subcommand)]
pub enum RegionsCommand {
    /// Shows the regions
    List(JsonArgs),
    /// Replaces all regions with those in a file; an empty list removes them
    #[command(after_help = "\
Example of a file:
  - {name: eu, here: true}
  - {name: us, cluster: asp-us}")]
    Put(PutListArgs),
    /// Shows the home regions of orgs
    Homes(JsonArgs),
    /// Sets or removes the home region of an org
    #[command(after_help = "\
Examples:
  asp regions home acme --set us
  asp regions home 'eu-*' --set eu   every org whose name begins with eu-
  asp regions home acme --remove     a less specific entry applies, or this region")]
    Home(HomeArgs),
}

#[derive(Clone, Debug, Subcommand)]
pub enum ArtifactsCommand {
    /// Lists the stored packages of plugins, and the primitives that pin them
    List(ArtifactsListArgs),
    /// Deletes a package that no primitive pins
    Delete(ArtifactsDeleteArgs),
}

#[derive(Clone, Debug, Args)]
pub struct PutListArgs {
    /// YAML or JSON file with the list; `-` reads standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["set", "remove"]))]
pub struct HomeArgs {
    /// An org, `prefix*` or `*`
    #[arg(value_name = "ORG")]
    pub org: String,
    /// Region that serves the org
    #[arg(long, value_name = "REGION")]
    pub set: Option<String>,
    /// Removes the entry of the org
    #[arg(long)]
    pub remove: bool,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ArtifactsListArgs {
    /// Shows only packages of this org
    #[arg(long)]
    pub org: Option<String>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ArtifactsDeleteArgs {
    /// SHA-256 of the package, as `asp artifacts list` shows it
    #[arg(value_name = "SHA256")]
    pub sha256: String,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}
