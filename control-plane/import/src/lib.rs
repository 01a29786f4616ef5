//! `asp import`: imports an upstream MCP server, over HTTP or run in a sandbox here, a remote A2A agent, or an OpenAPI document,
//! into a directory of primitives.
//!
//! Leaves out what cannot be served, names the member and the rule, and imports the rest: imported content is checked for
//! hidden text and oversized schemas like what people write. Keeps true: a change since the previous import is reported, and
//! written only if it is accepted, under a new major version if it breaks callers; an existing `server.yaml` keeps everything
//! but its list of imported primitives and the protocols that the operator chooses (`protocols`), and specs keep the
//! operator's edits (`edited`).

mod agent;
mod args;
mod choices;
mod client;
mod edited;
mod files;
mod icons;
mod listing;
mod openapi;
mod package;
mod protocols;
mod report;
mod served;
mod specs;
mod upstream;
mod versions;
mod write;

use anyhow::Context;
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_identity::issuers::credentials::NamedCredentials;
use asp_platform::shell;

pub use args::ImportArgs;
#[cfg(feature = "testing")]
pub use asp_outbound as outbound_testkit;
#[cfg(feature = "testing")]
pub use openapi::testkit as openapi_testkit;
use package::ListingRuntime;
use report::ImportReport;
use specs::Upstream;
use write::write_import;

/// Reads, converts, checks and writes. `named` reads the operator's credentials, if the import names one.
pub fn run(args: &ImportArgs, named: &dyn Fn() -> Result<NamedCredentials, Failure>) -> Result<(), Failure> {
    let mut args = args.clone();
    if let Some(file) = &args.names {
        args.renames.extend(choices::read_names(file)?);
    }
    let mut report = ImportReport::new(args.json);
    let result = import(&args, named, &mut report);
    report.finish(result.as_ref().err());
    result
}

/// Imports what the command line names.
fn import(
    args: &ImportArgs,
    named: &dyn Fn() -> Result<NamedCredentials, Failure>,
    report: &mut ImportReport,
) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    if let Some(file) = &args.client {
        return client::import(args, file, &runtime, &ProcessEnvironment, report);
    }
    for (program, line) in [("npx", &args.npx), ("uvx", &args.uvx)] {
        if let Some(line) = line {
            let command = (program, line.as_str());
            return client::import_package(args, command, &runtime, &ProcessEnvironment, report);
        }
    }
    report.begin_server(&args.server, None);
    let imported = match (&args.mcp, &args.stdio, &args.a2a, &args.openapi) {
        (Some(url), _, _, _) => {
            let lists = runtime.block_on(upstream::list(url, args.credential.as_deref(), named))?;
            specs::convert(args, &Upstream::Url(url), &lists)
        }
        (None, Some(name), _, _) => {
            let (lists, package) = runtime.block_on(package::list(args, name, ListingRuntime::default()))?;
            specs::convert(args, &Upstream::Package(package), &lists)
        }
        (None, None, Some(place), _) => {
            agent::convert(args, &runtime.block_on(agent::read(args, place, named))?)?
        }
        (None, None, None, Some(place)) => {
            openapi::import(args, &runtime.block_on(openapi::read(place))?, report)?
        }
        (None, None, None, None) => {
            return Err(Failure::bad(
                "--mcp",
                "name an upstream by --mcp, --stdio, --a2a or --openapi, or a client's file",
            ));
        }
    };
    write_import(args, imported, report)?;
    report.next_step(&format!("asp deploy {}", shell::path(&args.out)));
    Ok(())
}

#[cfg(test)]
mod cases;
