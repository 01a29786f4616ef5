//! The command line of `asp vault`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Commands on the file of the vault's keys that `asp serve` would use: `ASP_VAULT_KMS`, or `vault-key` in the state directory
#[derive(Clone, Debug, Subcommand)]
pub enum VaultCommand {
    /// Lists the keys, and the one that seals now
    Keys(VaultKeysArgs),
    /// Adds a key that seals from now on; the former ones still open what they sealed
    Rotate(VaultRotateArgs),
    /// Removes a key that nothing uses any more
    Forget(VaultForgetArgs),
}

#[derive(Clone, Debug, Args)]
pub struct VaultKeysArgs {
    /// File of the keys [default: that of ASP_VAULT_KMS, or of the state directory]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp vault rotate                                   on one machine; `asp serve` may keep running
  asp vault rotate --file vault-key --in 600         for several machines: time to give the file to all of them

The file is created if it does not exist. Back it up: what is sealed with a lost key is lost.
Records are sealed again under the new key when they are used.")]
pub struct VaultRotateArgs {
    /// File of the keys [default: that of ASP_VAULT_KMS, or of the state directory]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Time until the key seals, so that every machine has it before
    #[arg(long = "in", value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=604_800))]
    pub delay: u64,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
What is still sealed under the key cannot be opened any more: its users link their accounts again. Keys that stay cost nothing.")]
pub struct VaultForgetArgs {
    /// Id of the key, as `asp vault keys` shows it
    #[arg(value_name = "KEY")]
    pub key: String,
    /// File of the keys [default: that of ASP_VAULT_KMS, or of the state directory]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}
