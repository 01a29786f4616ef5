//! The command line of `asp machines`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Subcommand)]
pub enum MachinesCommand {
    /// Manages keys, which machines send as bearer tokens (`psk`)
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Shows or changes the groups and scopes that an org's machines may have
    #[command(after_help = "\
Examples:
  asp machines bound acme                                        shows what is allowed and which keys and certificates exceed it
  asp machines bound acme --allow-group robots --allow-scope orders:read   for admins of the platform
  asp machines bound acme --withdraw-scope orders:write          keys and certificates with it stop working")]
    Bound(BoundArgs),
    /// Manages certificates, which machines present to Envoy (`mtls`)
    #[command(subcommand)]
    Certificates(CertificatesCommand),
}

#[derive(Clone, Debug, Subcommand)]
pub enum KeysCommand {
    /// Lists an org's keys, without their secrets
    List(OrgArgs),
    /// Creates a key and prints only the key; it cannot be shown again
    #[command(after_help = "\
Example:
  asp machines keys create acme press-7 --group robots --scope orders:read --ttl 30d > press-7.key")]
    Create(CreateKeyArgs),
    /// Creates another key for the machine of a key, with the same groups and scopes, and prints only the key; the old one
    /// stays valid until it is revoked or expires
    #[command(after_help = "\
Example:
  asp machines keys rotate acme 0a1b2c3d4e5f6071 > press-7.key
  asp machines keys revoke acme 0a1b2c3d4e5f6071    once the machine has the new one")]
    Rotate(RotateKeyArgs),
    /// Deletes a key: within a second it is rejected and its running calls are cancelled
    Revoke(IdArgs),
}

#[derive(Clone, Debug, Subcommand)]
pub enum CertificatesCommand {
    /// Lists an org's certificates
    List(OrgArgs),
    /// Registers a certificate for a machine; renews it if the machine already has it
    #[command(after_help = "\
Examples:
  asp machines certificates register acme press-7 --certificate press-7.crt --key press-7.key --group robots
  asp machines certificates register acme press-7 --uri spiffe://factory.example/press-7   for admins of the platform")]
    Register(RegisterArgs),
    /// Removes a certificate: within a second it is rejected and its running calls are cancelled
    Revoke(IdArgs),
}

#[derive(Clone, Debug, Args)]
pub struct OrgArgs {
    #[arg(value_name = "ORG")]
    pub org: String,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub struct BoundArgs {
    #[arg(value_name = "ORG")]
    pub org: String,
    /// Group that machines of the org may have; repeat for more
    #[arg(long, value_name = "GROUP")]
    pub allow_group: Vec<String>,
    /// Scope that machines of the org may have; repeat for more
    #[arg(long, value_name = "SCOPE")]
    pub allow_scope: Vec<String>,
    /// Group that machines of the org may no longer have; repeat for more
    #[arg(long, value_name = "GROUP")]
    pub withdraw_group: Vec<String>,
    /// Scope that machines of the org may no longer have; repeat for more
    #[arg(long, value_name = "SCOPE")]
    pub withdraw_scope: Vec<String>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct IdArgs {
    #[arg(value_name = "ORG")]
    pub org: String,
    #[arg(value_name = "ID")]
    pub id: String,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct CreateKeyArgs {
    #[command(flatten)]
    pub terms: TermsArgs,
    /// Prints JSON: the key and its metadata
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct RotateKeyArgs {
    #[arg(value_name = "ORG")]
    pub org: String,
    /// Id of the current key
    #[arg(value_name = "ID")]
    pub id: String,
    /// Lifetime of the new key, e.g. 1h or 30d [default: that of the current key]
    #[arg(long)]
    pub ttl: Option<String>,
    /// Prints JSON: the key and its metadata
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["certificate", "fingerprint", "uri"]))]
pub struct RegisterArgs {
    /// File with the certificate, PEM or DER; if it has several, the first is used
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// File with the certificate's private key, PEM. It signs the registration on this machine and is never sent. Without it
    /// the certificate is registered by its hash only, which requires a platform admin
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// SHA-256 of the certificate, in hex with or without colons; requires a platform admin
    #[arg(long, value_name = "HEX")]
    pub fingerprint: Option<String>,
    /// URI of the certificate: registers every certificate with it that Envoy accepts
    #[arg(long, value_name = "URI")]
    pub uri: Option<String>,
    #[command(flatten)]
    pub terms: TermsArgs,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub struct TermsArgs {
    #[arg(value_name = "ORG")]
    pub org: String,
    /// Name of the machine: a machine in policy and limits, a user of the org in revocations and audit
    #[arg(value_name = "MACHINE")]
    pub machine: String,
    /// Group of the machine; repeat for more
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// Scope of the machine; repeat for more
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,
    /// Lifetime, e.g. 1h or 30d; at most 366d [default: 90d]
    #[arg(long)]
    pub ttl: Option<String>,
}
