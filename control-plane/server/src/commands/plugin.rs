//! `asp plugin`: the code of plugins.

use anyhow::Context;

use super::{Failure, print};
use crate::args::{PluginCommand, PluginInstallArgs};
use crate::catalog;
use crate::plugins::{self, Existing};

pub fn run(command: &PluginCommand) -> Result<(), Failure> {
    match command {
        PluginCommand::Install(args) => install(args),
    }
}

fn install(args: &PluginInstallArgs) -> Result<(), Failure> {
    let sources = asp_registry::read_dir(&args.directory)
        .with_context(|| format!("read {}", args.directory.display()))?;
    let report = asp_registry::check(&sources);
    let Some(found) = report.catalog else {
        for fault in &report.faults {
            print::error(&catalog::describe(fault));
        }
        return Err(Failure::Refused);
    };
    let existing = if args.replace { Existing::Replace } else { Existing::Keep };
    let report =
        plugins::install(&found, &args.directory, &args.plugins, existing).context("install plugins")?;
    for id in &report.without_code {
        print::error(&format!("plugin {id}: no code beside its spec (plugins/{id}/); not installed"));
    }
    if args.json {
        print::json(&report.installed);
        return Ok(());
    }
    for plugin in &report.installed {
        let outcome = serde_json::to_value(plugin.outcome).context("name the outcome")?;
        print::line(&format!(
            "{}@{} {} {} {}",
            plugin.id,
            plugin.version,
            plugin.language,
            plugin.artifact_sha256,
            outcome.as_str().unwrap_or_default()
        ));
    }
    Ok(())
}
