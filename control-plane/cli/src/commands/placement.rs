//! `asp routes`, `asp regions` and `asp artifacts`: where requests run, and the packages of plugins.

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use serde_json::{Value, json};

use super::answer::{self, is, number, text, texts};
use super::client::{AdminClient, api_path, block_on, with_query};
use super::policy::read_list;
use crate::args::placement::{ArtifactsCommand, HomeArgs, PutListArgs, RegionsCommand, RoutesCommand};

const ROUTES: &str = "/api/routes";
const REGIONS: &str = "/api/regions";

/// Runs one of the commands of `asp routes`.
pub fn routes(command: &RoutesCommand) -> Result<(), Failure> {
    match command {
        RoutesCommand::List(args) => show(ROUTES, args.json, route),
        RoutesCommand::Put(args) => put(ROUTES, args, route),
        RoutesCommand::Pools(args) => show("/api/pools", args.json, |pool| {
            format!(
                "{} gateways {} routes {}",
                text(pool, "pool"),
                number(pool, "gateways"),
                number(pool, "routes")
            )
        }),
    }
}

/// Runs one of the commands of `asp regions`.
pub fn regions(command: &RegionsCommand) -> Result<(), Failure> {
    match command {
        RegionsCommand::List(args) => show(REGIONS, args.json, region),
        RegionsCommand::Put(args) => put(REGIONS, args, region),
        RegionsCommand::Homes(args) => show("/api/regions/orgs", args.json, |home| {
            format!("{} is at home in {}", text(home, "org"), text(home, "region"))
        }),
        RegionsCommand::Home(args) => home(args),
    }
}

/// Runs one of the commands of `asp artifacts`.
pub fn artifacts(command: &ArtifactsCommand) -> Result<(), Failure> {
    match command {
        ArtifactsCommand::List(args) => {
            let query: Vec<_> = args.org.clone().map(|org| ("org", org)).into_iter().collect();
            show(&with_query("/api/artifacts", &query)?, args.json, artifact)
        }
        ArtifactsCommand::Delete(args) => {
            let api = AdminClient::new(&ProcessEnvironment)?;
            let path = api_path(&["api", "artifacts", &args.sha256]);
            let done = block_on(async { api.delete(&path).await?.accepted() })?;
            answer::show(&done, args.json, &format!("{}: deleted", args.sha256));
            Ok(())
        }
    }
}

/// Prints a list of the API.
fn show(path: &str, as_json: bool, line: impl Fn(&Value) -> String) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let list = block_on(async { api.get(path).await?.accepted() })?;
    answer::rows(&list, as_json, line);
    Ok(())
}

/// Replaces a list with that of a file, and prints it.
fn put(path: &str, args: &PutListArgs, line: impl Fn(&Value) -> String) -> Result<(), Failure> {
    let list = read_list("FILE", &args.file)?;
    let api = AdminClient::new(&ProcessEnvironment)?;
    let stored = block_on(async { api.put(path, &list).await?.accepted() })?;
    answer::rows(&stored, args.json, line);
    Ok(())
}

fn home(args: &HomeArgs) -> Result<(), Failure> {
    let HomeArgs { org, set, remove: _, json } = args;
    let api = AdminClient::new(&ProcessEnvironment)?;
    let path = api_path(&["api", "regions", "orgs", org]);
    let (done, words) = block_on(async {
        Ok::<_, Failure>(match set {
            Some(region) => {
                let done = api.put(&path, &json!({ "region": region })).await?.accepted()?;
                (done, format!("{org} is at home in {region}"))
            }
            None => (api.delete(&path).await?.accepted()?, format!("{org}: removed")),
        })
    })?;
    answer::show(&done, *json, &words);
    Ok(())
}

fn route(route: &Value) -> String {
    let of = |member: &str| text(route, member);
    format!("{} of {} by {} -> {}", of("primitive"), of("server"), of("method"), of("pool"))
}

fn region(region: &Value) -> String {
    match is(region, "here") {
        true => format!("{} (this one)", text(region, "name")),
        false => format!("{} by the cluster {}", text(region, "name"), text(region, "cluster")),
    }
}

fn artifact(artifact: &Value) -> String {
    let pins = texts(artifact, "pinnedBy").join(", ");
    let pinned = if pins.is_empty() { String::new() } else { format!(" pinned by {pins}") };
    let sha256 = text(artifact, "sha256");
    let name = text(artifact, "name");
    format!("{sha256} {name} {} bytes{pinned}", number(artifact, "size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_regions_and_packages_are_lines() {
        let sent =
            json!({ "server": "*", "method": "tools/call", "primitive": "risky.*", "pool": "sandboxed" });
        assert_eq!(route(&sent), "risky.* of * by tools/call -> sandboxed");
        assert_eq!(region(&json!({ "name": "eu", "here": true })), "eu (this one)");
        assert_eq!(region(&json!({ "name": "us", "cluster": "asp-us" })), "us by the cluster asp-us");
        let package = json!({ "sha256": "ab", "name": "greet.whl", "size": 9, "pinnedBy": ["greet@1.0.0"] });
        assert_eq!(artifact(&package), "ab greet.whl 9 bytes pinned by greet@1.0.0");
    }
}
