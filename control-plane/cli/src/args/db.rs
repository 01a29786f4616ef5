//! The command line of `asp db`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::JsonArgs;

/// Commands on the database that `asp serve` would open: `ASP_DATABASE_URL`, or the files in the state directory
#[derive(Clone, Debug, Subcommand)]
pub enum DbCommand {
    /// Migrates the tables to this version, as `asp serve` does at start
    Migrate(JsonArgs),
    /// Shows the database and the number of rows in each table
    Status(JsonArgs),
    /// Writes the whole database to a file, as a backup or for another database
    #[command(alias = "backup")]
    Export(DbExportArgs),
    /// Imports an exported file into an empty database and verifies every table
    #[command(alias = "restore")]
    Import(DbImportArgs),
    /// Raises the revision after an older database was restored, so that edges and gateways accept what is stored
    RaiseRevision(DbRaiseArgs),
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Edges and gateways reject a revision below the one they have in force. If that is later than the published one, `asp status` and
the log of `asp serve` show it. `asp serve` may keep running: it picks up the new revision within a second.")]
pub struct DbRaiseArgs {
    /// Revision to go past [default: far beyond the stored one]
    #[arg(long, value_name = "REVISION")]
    pub past: Option<u64>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Stop `asp serve` first: SQLite's files are read one after the other.
The file contains policy, key hashes and the sealed results of calls; it is readable by its owner only.
It does not contain the seal key (ASP_SEAL_KEY, or seal-key in the state directory), the keys of the vault (docs/vault.md), artifacts
or packages.")]
pub struct DbExportArgs {
    /// File to create, which must not exist; `-` writes to standard output
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct DbImportArgs {
    /// File written by `asp db export` of the same version; `-` reads standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}
