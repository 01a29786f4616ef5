//! The specs of a directory, for commands that need all of them.

use std::path::Path;

use anyhow::Context;
use asp_command::failure::Failure;
use asp_command::print;
use asp_control::catalog;
use asp_registry::{Catalog, CheckReport, CompiledServer, Source};
use asp_store::control::SourceFile;

use super::answer::text;
use super::client::{AdminClient, api_path};

/// File names that make a folder a server's folder.
const SERVER_FILES: [&str; 3] = ["server.yaml", "server.yml", "server.json"];

pub(super) fn is_server(folder: &Path) -> bool {
    SERVER_FILES.iter().any(|file| folder.join(file).is_file())
}

/// Refuses the folder of one server: paths of its files start in the folder above.
pub(super) fn refuse_server(directory: &Path) -> Result<(), Failure> {
    if !is_server(directory) {
        return Ok(());
    }
    let whole = directory.canonicalize().with_context(|| format!("read {}", directory.display()))?;
    let above = whole.parent().unwrap_or(&whole).display();
    print::error(&format!(
        "{} is the folder of one server; name the directory above it: {above}",
        directory.display()
    ));
    Err(Failure::Refused)
}

/// Reads the files and compiles them; if there are faults, prints every fault and fails.
pub(super) fn checked(directory: &Path) -> Result<(Vec<Source>, Catalog), Failure> {
    read(directory, asp_registry::check)
}

/// Works like [`checked`], but accepts missing schemas of plugins' code, which are about to be generated.
pub(super) fn checked_before_build(directory: &Path) -> Result<(Vec<Source>, Catalog), Failure> {
    read(directory, asp_registry::check_before_build)
}

/// Compiles the servers that the control plane has, or one of them. One that this version does not compile is reported.
pub(super) async fn stored(api: &AdminClient, only: Option<&str>) -> Result<Vec<CompiledServer>, Failure> {
    let listed = match only {
        Some(name) => vec![name.to_owned()],
        None => {
            let records = api.get("/api/registry/servers").await?.accepted()?;
            records.as_array().into_iter().flatten().map(|record| text(record, "server").to_owned()).collect()
        }
    };
    let mut servers = Vec::new();
    for name in &listed {
        let stored = api.get(&api_path(&["api", "registry", "servers", name])).await?.accepted()?;
        let files = stored.get("files").cloned().unwrap_or_default();
        let files: Vec<SourceFile> = serde_json::from_value(files).context("read the stored files")?;
        match catalog::compile(name, &files) {
            Ok(server) => servers.push(server),
            Err(_) => print::error(&format!("server {name} does not compile here; it is left out")),
        }
    }
    Ok(servers)
}

fn read(directory: &Path, check: fn(&[Source]) -> CheckReport) -> Result<(Vec<Source>, Catalog), Failure> {
    refuse_server(directory)?;
    let sources =
        asp_registry::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
    let found = without_faults(check(&sources))?;
    Ok((sources, found))
}

/// Returns what was compiled; if there are faults, prints every fault and fails.
pub(super) fn without_faults(report: CheckReport) -> Result<Catalog, Failure> {
    let Some(found) = report.catalog else {
        for fault in &report.faults {
            print::error(&catalog::describe(fault));
        }
        return Err(Failure::Refused);
    };
    Ok(found)
}
