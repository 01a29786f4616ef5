//! `asp deploy`: brings a directory of primitives to a running platform in one step, after a plan.
//!
//! Owns the order: build, plan, question, write, push, apply, install, wait. Keeps true: nothing is changed before the plan is
//! confirmed, here or at the control plane; the steps themselves are those of `asp plugin` and `asp apply`.

mod build;
mod pin;
mod plan;
mod served;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use asp_command::environment::{Environment, ProcessEnvironment};
use asp_command::failure::Failure;
use asp_command::print;
use asp_packaging::{ConflictPolicy, trust};
use asp_platform::address;
use reqwest::Url;
use serde_json::{Value, json};

use super::answer::number;
use super::call::question;
use super::client::AdminClient;
use super::{apply, mcp, next_call, plugin, stored_login};
use crate::args::deploy::DeployArgs;
use crate::settings::{DEFAULT_STATE_DIR, ENV_STATE_DIR};
use build::DeploymentBuild;
use plan::DeploymentPlan;

/// Time that hanging tasks have at the end, such as one that reads the terminal.
const REST: Duration = Duration::from_millis(100);
/// Directory of installed plugins in a state directory.
const PLUGINS: &str = "plugins";

pub fn run(args: &DeployArgs) -> Result<(), Failure> {
    // Asked before anything runs that a signal would have to end.
    trust::ask(&args.directory)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let done = runtime.block_on(plugin::run_until_signal(deploy(args)));
    runtime.shutdown_timeout(REST);
    done
}

async fn deploy(args: &DeployArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let packages = tempfile::tempdir().context("make a directory for the packages")?;
    let build = DeploymentBuild::of(&args.directory, packages.path()).await?;
    let plugins = plugins_folder(args, &ProcessEnvironment);
    let plan = DeploymentPlan::of(&api, &build, plugins.as_deref()).await?;
    if !args.json {
        plan.lines().iter().for_each(|line| print::line(line));
    }
    let conflicts = plan.conflicts();
    if !args.replace && !conflicts.is_empty() {
        conflicts.iter().for_each(|line| print::error(line));
        return Err(Failure::Refused);
    }
    if !args.force && plan.breaks_callers() {
        print::error("it breaks callers: raise the major version of what breaks, or deploy with --force");
        return Err(Failure::Breaking);
    }
    if args.plan {
        if args.json {
            print::json(&json!({ "plan": plan.json() }));
        }
        return Ok(());
    }
    if !args.yes && !plan.is_empty() {
        confirm().await?;
    }
    let results = carry_out(&api, args, &build, &plan, plugins.as_deref()).await?;
    report(args, &build, &plan, &results)
}

/// Asks at the terminal; fails unless the answer is yes.
async fn confirm() -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        print::error("nothing was changed: there is no terminal to ask at; deploy with --yes");
        return Err(Failure::Refused);
    }
    if question::ask_yes("Deploy this?".to_owned()).await {
        return Ok(());
    }
    print::error("nothing was changed");
    Err(Failure::Refused)
}

/// Writes, pushes, applies, installs, and waits; returns the results of `asp apply`.
async fn carry_out(
    api: &AdminClient,
    args: &DeployArgs,
    build: &DeploymentBuild,
    plan: &DeploymentPlan<'_>,
    plugins: Option<&Path>,
) -> Result<Vec<Value>, Failure> {
    let show = |line: String| {
        if !args.json {
            print::line(&line);
        }
    };
    build.write()?;
    for packed in plan.new_packages() {
        let outcome = plugin::packages::push_package(api, &packed.package).await?;
        show(format!("{outcome} {}", packed.package.name));
    }
    let mut results = Vec::new();
    for bundle in &build.bundles {
        let result = apply::send(api, bundle, args.force).await?;
        show(apply::describe_result(&bundle.server.server.name, &result));
        results.push(result);
    }
    let existing = if args.replace { ConflictPolicy::Replace } else { ConflictPolicy::Keep };
    if let Some(folder) = plugins {
        for unit in &build.units {
            if let Some(installed) = plugin::packages::install_one(api, unit, folder, existing).await? {
                show(format!("{} {}@{}", installed.outcome.word(), installed.id, installed.version));
            }
        }
    }
    let revision = results.iter().map(|result| number(result, "revision")).max().unwrap_or_default();
    let servers = build.bundles.iter().map(|bundle| bundle.server.server.name.as_str()).collect();
    let target = served::Target { revision, servers, plugins: build.plugins() };
    served::wait(api, &target, Duration::from_secs(args.timeout)).await?;
    Ok(results)
}

/// Prints where each server is served, and the next step.
fn report(
    args: &DeployArgs,
    build: &DeploymentBuild,
    plan: &DeploymentPlan<'_>,
    results: &[Value],
) -> Result<(), Failure> {
    let mut served = Vec::new();
    for bundle in &build.bundles {
        let name = &bundle.server.server.name;
        let url = mcp::endpoint(None, name, "mcp", &ProcessEnvironment)?.url;
        let next = next_call::command(&bundle.server);
        if !args.json {
            print::line(&format!("served: {name} at {url}"));
            next.iter().for_each(|command| print::line(&format!("  next: {command}")));
        }
        served.push(json!({ "server": name, "url": url.as_str(), "next": next }));
    }
    if args.json {
        print::json(&json!({ "plan": plan.json(), "results": results, "served": served }));
    }
    Ok(())
}

/// Returns the directory of plugins of a runtime on this machine: the named one, or that of the platform on this machine.
fn plugins_folder(args: &DeployArgs, environment: &dyn Environment) -> Option<PathBuf> {
    if args.plugins.is_some() {
        return args.plugins.clone();
    }
    let url = Url::parse(&stored_login::admin_url(environment)).ok()?;
    let state = environment.get(ENV_STATE_DIR).unwrap_or_else(|| DEFAULT_STATE_DIR.to_owned());
    let folder = Path::new(&state).join(PLUGINS);
    (address::is_this_machine(url.host_str()?) && folder.is_dir()).then_some(folder)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn args(words: &[&str]) -> Option<DeployArgs> {
        match Cli::try_parse_from(["asp", "deploy", "mine"].iter().chain(words)).ok()?.command {
            Command::Deploy(args) => Some(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn json_is_for_programs_that_have_decided() {
        assert!(args(&["--json"]).is_none() && args(&["--plan", "--yes"]).is_none());
        assert!(args(&["--json", "--plan"]).is_some() && args(&["--json", "--yes"]).is_some());
    }

    #[test]
    fn a_runtime_on_this_machine_gets_the_packages_and_one_elsewhere_does_not() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().to_str().unwrap();
        let folder = |words: &[&str], url| {
            let environment = BTreeMap::from([(ENV_STATE_DIR, path), ("ASP_ADMIN_URL", url)]);
            plugins_folder(&args(words).unwrap(), &environment)
        };
        let here = "http://127.0.0.1:8081";
        let there = "https://admin.example.com";
        assert_eq!(folder(&[], here), None);
        std::fs::create_dir(state.path().join(PLUGINS)).unwrap();
        assert_eq!(folder(&[], here), Some(state.path().join(PLUGINS)));
        assert_eq!(folder(&[], there), None);
        assert_eq!(folder(&["--plugins", "p"], there), Some("p".into()));
    }
}
