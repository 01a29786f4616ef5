//! The command line of `asp machines`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Subcommand)]
pub enum MachinesCommand {
    /// Keys, which machines send as bearer tokens (`psk`)
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Shows the groups and scopes that machines of an org may have, or changes them
    #[command(after_help = "\
Examples:
  asp machines bound acme                                        what is allowed, and what is beyond it
  asp machines bound acme --allow-group robots --allow-scope orders:read   for admins of the platform
  asp machines bound acme --withdraw-scope orders:write          keys and certificates with it open nothing")]
    Bound(BoundArgs),
    /// Certificates, which machines show to Envoy (`mtls`)
    #[command(subcommand)]
    Certificates(CertificatesCommand),
}

#[derive(Clone, Debug, Subcommand)]
pub enum KeysCommand {
    /// Lists an org's keys, without what opens anything
    List(OrgArgs),
    /// Makes a key and prints it alone; it is not shown again
    #[command(after_help = "\
Example:
  asp machines keys create acme press-7 --group robots --scope orders:read --ttl 30d > press-7.key")]
    Create(CreateKeyArgs),
    /// Makes the next key of a key's machine, with its groups and scopes, and prints it alone; the other one stays good
    /// until it is revoked or ends
    #[command(after_help = "\
Example:
  asp machines keys rotate acme 0a1b2c3d4e5f6071 > press-7.key
  asp machines keys revoke acme 0a1b2c3d4e5f6071    once the machine has the new one")]
    Rotate(RotateKeyArgs),
    /// Deletes a key: within a second it opens nothing, and its running calls end
    Revoke(IdArgs),
}

#[derive(Clone, Debug, Subcommand)]
pub enum CertificatesCommand {
    /// Lists an org's certificates
    List(OrgArgs),
    /// Says which machine a certificate is; one that the machine has already is renewed
    #[command(after_help = "\
Examples:
  asp machines certificates register acme press-7 --certificate press-7.crt --key press-7.key --group robots
  asp machines certificates register acme press-7 --uri spiffe://factory.example/press-7   for admins of the platform")]
    Register(RegisterArgs),
    /// Forgets a certificate: within a second it opens nothing, and its running calls end
    Revoke(IdArgs),
}

#[derive(Clone, Debug, Args)]
pub struct OrgArgs {
    #[arg(value_name = "ORG")]
    pub org: String,
    /// For programs
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
    /// Group that they may have no longer; repeat for more
    #[arg(long, value_name = "GROUP")]
    pub withdraw_group: Vec<String>,
    /// Scope that they may have no longer; repeat for more
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
}

#[derive(Clone, Debug, Args)]
pub struct CreateKeyArgs {
    #[arg(value_name = "ORG")]
    pub org: String,
    /// Name of the machine: policy and limits know it as a machine, revocations and audit as a user of the org
    #[arg(value_name = "MACHINE")]
    pub machine: String,
    #[command(flatten)]
    pub terms: TermsArgs,
    /// For programs: the key and what is known of it
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct RotateKeyArgs {
    #[arg(value_name = "ORG")]
    pub org: String,
    /// Of the key before
    #[arg(value_name = "ID")]
    pub id: String,
    /// How long the next one lives: 1h, 30d [default: as long as the one before]
    #[arg(long)]
    pub ttl: Option<String>,
    /// For programs: the key and what is known of it
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["certificate", "fingerprint", "uri"]))]
pub struct RegisterArgs {
    #[arg(value_name = "ORG")]
    pub org: String,
    /// Name of the machine: policy and limits know it as a machine, revocations and audit as a user of the org
    #[arg(value_name = "MACHINE")]
    pub machine: String,
    /// A file with the certificate, PEM or DER; of several the first
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// File with the certificate's private key, PEM: it signs the registration here, and goes nowhere. Without it the
    /// certificate is registered by its hash alone, which is for admins of the platform
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// SHA-256 of the certificate, in hex with or without colons; for admins of the platform
    #[arg(long, value_name = "HEX")]
    pub fingerprint: Option<String>,
    /// Every certificate with this URI that Envoy takes
    #[arg(long, value_name = "URI")]
    pub uri: Option<String>,
    #[command(flatten)]
    pub terms: TermsArgs,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub struct TermsArgs {
    /// A group of the machine; repeat for more
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// A scope; repeat for more
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,
    /// How long it is good: 1h, 30d; at most 366d [default: 90d]
    #[arg(long)]
    pub ttl: Option<String>,
}
