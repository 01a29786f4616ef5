//! The command lines of `asp links` and `asp link-provider`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::JsonArgs;

#[derive(Clone, Debug, Subcommand)]
pub enum LinksCommand {
    /// Lists the accounts that users have linked, newest first
    List(LinksListArgs),
    /// Removes the accounts of a user or at a provider, at every gateway within a second and at the provider
    Remove(LinksRemoveArgs),
}

#[derive(Clone, Debug, Args)]
pub struct LinksListArgs {
    #[command(flatten)]
    pub filter: LinksFilterArgs,
    /// Number of accounts
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    #[command(flatten)]
    pub output: JsonArgs,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp links remove --org acme --user alice                       all of a user
  asp links remove --org acme --user alice --provider github
  asp links remove --provider github                             all of a provider")]
pub struct LinksRemoveArgs {
    #[command(flatten)]
    pub filter: LinksFilterArgs,
    #[command(flatten)]
    pub output: JsonArgs,
}

/// Filter of linked accounts
#[derive(Clone, Debug, Default, Args)]
pub struct LinksFilterArgs {
    /// Org of the users
    #[arg(long)]
    pub org: Option<String>,
    /// Name of the users' issuer
    #[arg(long)]
    pub issuer: Option<String>,
    /// User, as their issuer names them
    #[arg(long)]
    pub user: Option<String>,
    /// Provider of the accounts
    #[arg(long)]
    pub provider: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum LinkProviderCommand {
    /// Adds a service at which users link accounts, or replaces the one of the name
    Add(Box<LinkProviderAddArgs>),
    /// Lists the providers, with their clients and who may use them
    List(JsonArgs),
    /// Deletes a provider at which nobody has an account
    Remove(LinkProviderNameArgs),
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp link-provider add github --client-id Ov23example --for 'crm/*'
  asp link-provider add salesforce --client-id 3MVexample --origin https://acme.my.salesforce.com --for crm/find
  asp link-provider add acme --discover https://login.acme.example/realms/apps --client-id asp \\
    --scope offline_access --origin https://crm.acme.example --for 'crm/*'

github, google, microsoft, atlassian, slack and salesforce need only a client. Register <public URL>/account/callback as its
redirect. The secret is asked at the terminal if no file is given.")]
pub struct LinkProviderAddArgs {
    /// Name, which `auth: {linked: NAME}` of a spec refers to
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Known provider [default: the one of the name, unless --discover is given]
    #[arg(long, value_name = "PROVIDER", conflicts_with = "discover")]
    pub preset: Option<String>,
    /// Issuer whose endpoints are found by OpenID Connect discovery
    #[arg(long, value_name = "URL")]
    pub discover: Option<String>,
    /// Client that is registered there
    #[arg(long, value_name = "ID")]
    pub client_id: String,
    /// File with the secret of the client; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub client_secret_file: Option<PathBuf>,
    /// Registers a client without a secret
    #[arg(long, conflicts_with = "client_secret_file")]
    pub public: bool,
    /// Primitive that may use the accounts: `server/primitive`, `server/prefix*` or `*` [default: none]
    #[arg(long = "for", value_name = "PRIMITIVE")]
    pub primitives: Vec<String>,
    /// Org whose users may link accounts: a name, `prefix*` or `*` [default: *]
    #[arg(long, value_name = "ORG")]
    pub org: Vec<String>,
    /// Origin that tokens may be sent to, in addition to those of the preset
    #[arg(long, value_name = "ORIGIN")]
    pub origin: Vec<String>,
    /// Scope that each link requests in addition to those of the specs
    #[arg(long, value_name = "SCOPE")]
    pub scope: Vec<String>,
    /// Days after which a link ends [default: 90]
    #[arg(long, value_name = "DAYS")]
    pub ttl_days: Option<u32>,
    #[command(flatten)]
    pub output: JsonArgs,
}

#[derive(Clone, Debug, Args)]
pub struct LinkProviderNameArgs {
    /// Name of the provider
    #[arg(value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub output: JsonArgs,
}
