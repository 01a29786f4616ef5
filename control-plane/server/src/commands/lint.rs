//! `asp lint`: every fault of a directory of primitives, with place and hint. Offline.

use anyhow::Context;
use serde_json::json;

use super::{Failure, print};
use crate::args::LintArgs;
use crate::catalog;

/// Checks, prints, and fails when there is a fault.
pub fn run(args: &LintArgs) -> Result<(), Failure> {
    let sources = asp_registry::read_dir(&args.directory)
        .with_context(|| format!("read {}", args.directory.display()))?;
    let report = asp_registry::check(&sources);
    if args.json {
        print::json(&json!({
            "valid": report.catalog.is_some(),
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
    }
    if report.catalog.is_some() { Ok(()) } else { Err(Failure::Refused) }
}
