//! `asp lint`: reports every fault in a directory of primitives or in one file, with place and hint. Offline.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use asp_command::failure::Failure;
use asp_command::print;
use asp_control::catalog;
use asp_platform::shell;
use asp_registry::{CheckReport, FaultCode, Source};
use serde_json::json;

use super::sarif::{self, Finding, Level};
use super::specs::{is_server, refuse_server};
use crate::args::LintArgs;

fn directory(path: &Path) -> anyhow::Result<(Vec<Source>, CheckReport)> {
    let sources = asp_registry::read_dir(path).with_context(|| format!("read {}", path.display()))?;
    let report = asp_registry::check(&sources);
    Ok((sources, report))
}

/// Checks one file. In the folder of a server the whole root is checked, because files refer to each other, and the faults of
/// this file are reported. Elsewhere a spec is checked by itself.
fn one_file(path: &Path) -> anyhow::Result<(Vec<Source>, CheckReport)> {
    let whole = path.canonicalize().with_context(|| format!("read {}", path.display()))?;
    let folder = whole.parent().unwrap_or(Path::new("/"));
    let named = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = format!("{}/{}", named(folder), named(&whole));
    let (mut sources, mut report) = match folder.parent().filter(|_| is_server(folder)) {
        Some(root) => directory(root)?,
        None => read_file(&whole, &name)?,
    };
    sources.retain(|source| source.path == name);
    if sources.is_empty() {
        bail!("{}: no file of a primitive or server; they end in .yaml, .yml or .json", path.display());
    }
    report.faults.retain(|fault| fault.file == name);
    report.warnings.retain(|warning| warning.file == name);
    Ok((sources, report))
}

fn read_file(path: &Path, name: &str) -> anyhow::Result<(Vec<Source>, CheckReport)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let mut sources = vec![Source { path: name.to_owned(), text }];
    // The schemas derived from its code, which belong to it.
    let beside = path.with_extension("schema.json");
    if let Ok(text) = std::fs::read_to_string(&beside) {
        let name = Path::new(name).with_extension("schema.json").display().to_string();
        sources.push(Source { path: name, text });
    }
    let mut report = asp_registry::check(&sources);
    // Without a server there is no right path yet.
    report.faults.retain(|fault| fault.code != FaultCode::BadPath);
    Ok((sources, report))
}

/// Returns the folder that the paths in a file's faults are relative to.
fn root_of(file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or(Path::new(""));
    folder.parent().map_or_else(|| folder.join(".."), Path::to_path_buf)
}

/// Checks and prints; fails if there is a fault.
pub fn run(args: &LintArgs) -> Result<(), Failure> {
    let (sources, report) = match args.path.is_file() {
        true => one_file(&args.path)?,
        false => refuse_server(&args.path).and_then(|()| Ok(directory(&args.path)?))?,
    };
    if args.sarif {
        let root = if args.path.is_file() { root_of(&args.path) } else { args.path.clone() };
        let of = |level, list: &[asp_registry::Fault]| -> Vec<Finding> {
            list.iter().map(|fault| Finding::of(level, &root, fault)).collect()
        };
        let found = [of(Level::Error, &report.faults), of(Level::Warning, &report.warnings)].concat();
        print::json(&sarif::log(&found));
    } else if args.json {
        print::json(&json!({
            "valid": report.faults.is_empty(),
            "errors": report.faults,
            "warnings": report.warnings,
        }));
    } else {
        for warning in &report.warnings {
            print::line(&format!("warning: {}", catalog::describe(warning)));
        }
        for fault in &report.faults {
            print::line(&format!("error: {}", catalog::describe(fault)));
        }
        let servers = report.catalog.as_ref().map_or(0, |found| found.servers.len());
        print::line(&format!(
            "{} files, {servers} servers, {} errors, {} warnings",
            sources.len(),
            report.faults.len(),
            report.warnings.len()
        ));
        if report.faults.is_empty() && args.path.is_dir() {
            print::next_step(&format!("asp deploy {}", shell::path(&args.path)));
        }
    }
    if report.faults.is_empty() { Ok(()) } else { Err(Failure::Refused) }
}
