//! The command line of `asp issuer`.

use std::path::PathBuf;

use asp_issuers::preset::Preset;
use clap::{Args, Subcommand};

use super::JsonArgs;

#[derive(Clone, Debug, Subcommand)]
pub enum IssuerCommand {
    /// Adds the identity provider of a company by name, and tries a login there first
    Add(IssuerAddArgs),
    /// Shows what the platform makes of a token of a stored issuer
    Try(IssuerTryArgs),
    /// Lists the issuers, how many keys of each are in force, and their faults
    List(JsonArgs),
    /// Deletes an issuer; its tokens are refused within a second
    Remove(IssuerNameArgs),
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp issuer add --preset okta --at acme.okta.com --client-id 0oa1example --org acme
  asp issuer add --preset keycloak --at https://login.acme.example/realms/acme --client-id mcp --org acme --no-login
  asp issuer add --preset entra --at 11111111-2222-3333-4444-555555555555 --client-id 66666666-7777-8888-9999-aaaaaaaaaaaa \\
    --org acme --print

Values that are missing are asked at the terminal. docs/issuers describes what to set up at each provider. The login is one for
devices without a browser; --token takes a token of any other login. An issuer whose token would be refused is not stored.
Tokens are evaluated for the platform at ASP_EDGE_URL.")]
pub struct IssuerAddArgs {
    /// Name of the issuer, which `auth.issuers` of a server.yaml refers to [default: the preset]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Identity provider
    #[arg(long, value_name = "PROVIDER", value_parser = Preset::NAMES)]
    pub preset: String,
    /// Tenant, domain or URL of the company at the provider
    #[arg(long, value_name = "PLACE")]
    pub at: Option<String>,
    /// Client that is registered there
    #[arg(long, value_name = "ID")]
    pub client_id: Option<String>,
    /// Org that its users belong to
    #[arg(long, value_name = "ORG")]
    pub org: Option<String>,
    /// Audience of the tokens [default: the provider's usual one]
    #[arg(long, value_name = "AUDIENCE")]
    pub audience: Option<String>,
    /// File with a token to try instead of a login; `-` reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["no_login", "print"])]
    pub token: Option<PathBuf>,
    /// Stores the issuer without trying a login
    #[arg(long)]
    pub no_login: bool,
    /// Replaces a stored issuer of the name
    #[arg(long)]
    pub replace: bool,
    /// Prints the proposed document, for the operator's file (ASP_ISSUERS), and stores nothing
    #[arg(long)]
    pub print: bool,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Exit code: 1 if the token would be refused.")]
pub struct IssuerTryArgs {
    /// Name of the issuer
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Identity provider, for remedies at that provider
    #[arg(long, value_name = "PROVIDER", value_parser = Preset::NAMES)]
    pub preset: Option<String>,
    /// File with the token [default: a login at the issuer]; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub token: Option<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct IssuerNameArgs {
    /// Name of the issuer
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Deletes the issuer of admins with this name, instead of the one of clients
    #[arg(long)]
    pub admins: bool,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}
