//! The command line of `asp db`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// All of these work on the database that `asp serve` would open: `ASP_DATABASE_URL`, or the files in the state directory.
#[derive(Clone, Debug, Subcommand)]
pub enum DbCommand {
    /// Brings the tables up to date; `asp serve` does so too when it starts
    Migrate,
    /// Shows which database it is and how many rows each table has
    Status(DbStatusArgs),
    /// Writes all of it to a file, for another database or as a backup
    Export(DbExportArgs),
    /// Reads such a file into an empty database, and compares every table with it
    Import(DbImportArgs),
    /// Lets edges and gateways take what is stored, after an older database was restored
    RaiseRevision(DbRaiseArgs),
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Edges and gateways refuse a revision below the one that they have in force. The log of `asp serve` and `asp status` say which that
is, where it is later than what is published. `asp serve` may run meanwhile: it takes the new revision within a second.")]
pub struct DbRaiseArgs {
    /// Past this revision; far past the stored one, unless given
    #[arg(long, value_name = "REVISION")]
    pub past: Option<u64>,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct DbStatusArgs {
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
End `asp serve` first: SQLite's files are read one after the other.
The file holds policy, hashes of keys and the sealed results of calls; only its owner may read it.
The seal key (ASP_SEAL_KEY, or seal-key in the state directory), artifacts and packages are not in it.")]
pub struct DbExportArgs {
    /// A file that is not there yet; `-` is standard output
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct DbImportArgs {
    /// What `asp db export` of the same version wrote; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// For programs
    #[arg(long)]
    pub json: bool,
}
