//! The command line of `asp orgs`.

use clap::Args;

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp orgs                        orgs with their servers, bindings, limits, machines and revocations
  asp orgs --after acme           the orgs after acme in the order of their names

An org of which nothing is stored is not listed; it has what servers allow everyone.")]
pub struct OrgsArgs {
    /// Shows only orgs after this name
    #[arg(long, value_name = "ORG")]
    pub after: Option<String>,
    /// Number of orgs
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}
