//! The specs of a directory, as the commands read them that need them whole.

use std::path::Path;

use anyhow::Context;
use asp_control::catalog;
use asp_registry::{Catalog, Report, Source};

use crate::failure::Failure;
use crate::print;

/// The files and what they make; else every fault is told, and the command is refused.
pub(super) fn checked(directory: &Path) -> Result<(Vec<Source>, Catalog), Failure> {
    read(directory, asp_registry::check)
}

/// As [`checked`], without the schemas that plugins' code says: they are about to be made.
pub(super) fn before_build(directory: &Path) -> Result<(Vec<Source>, Catalog), Failure> {
    read(directory, asp_registry::check_before_build)
}

fn read(directory: &Path, check: fn(&[Source]) -> Report) -> Result<(Vec<Source>, Catalog), Failure> {
    let sources =
        asp_registry::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
    let report = check(&sources);
    let Some(found) = report.catalog else {
        for fault in &report.faults {
            print::error(&catalog::describe(fault));
        }
        return Err(Failure::Refused);
    };
    Ok((sources, found))
}
