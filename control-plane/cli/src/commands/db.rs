//! `asp db`: commands on the database of `asp serve`, of either kind.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::{print, state_dir};
use asp_platform::clock;
use asp_store::archive::{self, ArchiveDatabase, ArchiveError, Summary};
use serde_json::{Value, json};

use super::answer;
use super::client::block_on;
use crate::args::JsonArgs;
use crate::args::db::{DbCommand, DbExportArgs, DbImportArgs, DbRaiseArgs};
use crate::serve::stores::{self, AUDIT_FILE, CALLS_FILE};
use crate::settings::StateSettings;
use crate::settings::database::{Database, ENV_DATABASE_URL, Server};

/// Stands for standard output or standard input, the only way to move an archive in or out of a container without a shell.
const STREAM: &str = "-";
/// Maximum connections: statements run one after the other.
const CONNECTIONS: u32 = 2;

pub fn run(command: &DbCommand) -> Result<(), Failure> {
    let stored = StateSettings::read(&ProcessEnvironment).map_err(Failure::Configuration)?;
    block_on(async {
        let open = Box::pin(OperatorDatabase::of(stored)).await?;
        match command {
            DbCommand::Migrate(args) => {
                archive::migrate(&open.source).await.context("migrate the tables")?;
                let words = format!("{}: the tables are up to date", open.name);
                answer::show(&json!({ "database": open.name, "migrated": true }), args.json, &words);
                Ok(())
            }
            DbCommand::Status(args) => status(&open, args).await,
            DbCommand::Export(args) => export(&open, args).await,
            DbCommand::Import(args) => import(&open, args).await,
            DbCommand::RaiseRevision(args) => raise(&open, args).await,
        }
    })
}

/// The operator's database, opened.
struct OperatorDatabase {
    name: String,
    source: ArchiveDatabase,
}

impl OperatorDatabase {
    async fn of(stored: StateSettings) -> Result<OperatorDatabase, Failure> {
        let StateSettings { state_dir, database, .. } = stored;
        match database {
            Database::Postgres(server) => {
                let server = Server { connections: CONNECTIONS, ..server };
                let source = ArchiveDatabase::Postgres(stores::connect(&server).await?);
                // The URL may contain a password.
                Ok(OperatorDatabase { name: "PostgreSQL".into(), source })
            }
            Database::Sqlite(control) => {
                let shown = state_dir.display();
                state_dir::create(&state_dir).with_context(|| format!("create {shown}"))?;
                let name = format!("SQLite ({}, and the calls in {shown})", control.display());
                let [calls, audit] = [CALLS_FILE, AUDIT_FILE].map(|file| state_dir.join(file));
                Ok(OperatorDatabase { name, source: ArchiveDatabase::Files { control, calls, audit } })
            }
            Database::Memory => {
                let what = "names a database in memory, which is gone when its process ends";
                Err(Failure::bad(ENV_DATABASE_URL, what))
            }
        }
    }
}

async fn status(open: &OperatorDatabase, args: &JsonArgs) -> Result<(), Failure> {
    let counted = archive::count(&open.source).await.context("count the rows")?;
    if args.json {
        let tables: serde_json::Map<String, Value> =
            counted.iter().map(|summary| (summary.table.to_owned(), summary.rows.into())).collect();
        print::json(&json!({"database": open.name, "rows": tables}));
        return Ok(());
    }
    print::line(&open.name);
    for Summary { table, rows, .. } in counted {
        print::line(&format!("  {table:<18} {rows:>10}"));
    }
    Ok(())
}

async fn raise(open: &OperatorDatabase, args: &DbRaiseArgs) -> Result<(), Failure> {
    let raised = archive::raise_revision(&open.source, args.past, clock::now_ms()).await;
    let (before, after) = raised.context("raise the revision")?;
    let words = match before == after {
        true => format!("{}: the revision is {before}, which is past that already", open.name),
        false => format!("{}: the revision was {before} and is {after}", open.name),
    };
    answer::show(&json!({"database": open.name, "before": before, "after": after}), args.json, &words);
    Ok(())
}

async fn export(open: &OperatorDatabase, args: &DbExportArgs) -> Result<(), Failure> {
    let path = &args.file;
    if path == Path::new(STREAM) {
        let written = archive::export(&open.source, BufWriter::new(std::io::stdout())).await;
        let written = written.context("export to standard output; the output is incomplete")?;
        print_summary(path, "exported", &written, args.json, print::note);
        return Ok(());
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let file = file.with_context(|| format!("create {}, which must not exist yet", path.display()))?;
    let written = archive::export(&open.source, BufWriter::new(&file)).await;
    let written = match written.map_err(anyhow::Error::from).and_then(|written| {
        file.sync_all()?;
        Ok(written)
    }) {
        Ok(written) => written,
        Err(error) => {
            // A partial export is useless and must not be taken for a whole one.
            let _ = std::fs::remove_file(path);
            return Err(error.context(format!("export to {}", path.display())).into());
        }
    };
    print_summary(path, "exported", &written, args.json, print::line);
    Ok(())
}

async fn import(open: &OperatorDatabase, args: &DbImportArgs) -> Result<(), Failure> {
    let path = &args.file;
    let archive: Box<dyn Read> = match path == Path::new(STREAM) {
        true => Box::new(std::io::stdin()),
        false => Box::new(File::open(path).with_context(|| format!("open {}", path.display()))?),
    };
    let came = archive::import(&open.source, BufReader::new(archive)).await;
    let came = came.map_err(|error: ArchiveError| {
        anyhow::Error::from(error).context(format!("import {} into {}", path.display(), open.name))
    })?;
    print_summary(path, "imported", &came, args.json, print::line);
    Ok(())
}

fn print_summary(path: &Path, what: &str, tables: &[Summary], as_json: bool, line: fn(&str)) {
    if as_json {
        let tables: serde_json::Map<String, Value> = tables
            .iter()
            .map(|Summary { table, rows, sha256 }| {
                ((*table).to_owned(), json!({"rows": rows, "sha256": sha256}))
            })
            .collect();
        line(&format!("{:#}", json!({"file": path.display().to_string(), "tables": tables})));
        return;
    }
    for Summary { table, rows, sha256 } in tables {
        line(&format!("  {table:<18} {rows:>10}  {sha256}"));
    }
    let rows: u64 = tables.iter().map(|summary| summary.rows).sum();
    line(&format!("{what} {rows} rows: {}", path.display()));
}
