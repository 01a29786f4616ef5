//! The plan of a deployment: what it writes, pushes, applies and installs, and who gains or loses access by it.

use std::collections::BTreeSet;
use std::path::Path;

use asp_command::failure::Failure;
use asp_registry::CompiledServer;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::super::answer::{list, text};
use super::super::apply::{self, Difference};
use super::super::client::{AdminClient, api_path};
use super::super::server_access;
use super::build::{DeploymentBuild, PackedUnit};

/// A package of a deployment, compared with the stored specs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PackageState {
    New,
    /// The stored specs pin it.
    Unchanged,
    /// The stored specs pin other code under the same version.
    Conflict,
}

/// A server, compared with the stored one.
struct ServerPlan {
    name: String,
    difference: Difference,
    /// Gains and losses of access, one a line.
    access: Vec<String>,
}

/// Changes that a deployment makes.
pub(super) struct DeploymentPlan<'a> {
    /// Files that are written, relative to the directory.
    written: Vec<String>,
    packages: Vec<(&'a PackedUnit, PackageState)>,
    servers: Vec<ServerPlan>,
    /// Directory of a runtime on this machine into which the packages are installed.
    plugins: Option<&'a Path>,
}

impl<'a> DeploymentPlan<'a> {
    /// Compares a build with what the control plane has.
    pub(super) async fn of(
        api: &AdminClient,
        build: &'a DeploymentBuild,
        plugins: Option<&'a Path>,
    ) -> Result<DeploymentPlan<'a>, Failure> {
        let mut servers = Vec::new();
        let mut stored = Vec::new();
        for bundle in &build.bundles {
            let name = &bundle.server.server.name;
            let difference = apply::compare(api, bundle).await?;
            let offers = match difference.state {
                "new" => Value::Null,
                _ => offers(api, name).await?,
            };
            let access = access(name, &difference, &bundle.server, &offers);
            stored.extend(difference.before.clone());
            servers.push(ServerPlan { name: name.clone(), difference, access });
        }
        let stored = asp_packaging::units(&stored, None);
        let state = |packed: &PackedUnit| {
            let is_same = |unit: &&asp_packaging::Unit| {
                unit.id == packed.unit.id && unit.version == packed.unit.version
            };
            match stored.iter().find(is_same) {
                Some(unit) if unit.pins.contains(&packed.package.sha256) => PackageState::Unchanged,
                Some(unit) if !unit.pins.is_empty() => PackageState::Conflict,
                _ => PackageState::New,
            }
        };
        let packages = build.packages.iter().map(|packed| (packed, state(packed))).collect();
        Ok(DeploymentPlan { written: build.changed_files(), packages, servers, plugins })
    }

    /// Packages to push.
    pub(super) fn new_packages(&self) -> impl Iterator<Item = &'a PackedUnit> {
        self.packages.iter().filter(|(_, state)| *state != PackageState::Unchanged).map(|(packed, _)| *packed)
    }

    /// Whether nothing would change in the directory and at the control plane.
    pub(super) fn is_empty(&self) -> bool {
        self.written.is_empty()
            && self.new_packages().next().is_none()
            && self.servers.iter().all(|server| server.difference.state == "unchanged")
    }

    pub(super) fn breaks_callers(&self) -> bool {
        self.servers.iter().any(|server| server.difference.breaks_callers())
    }

    /// Describes each package whose version is deployed with other code.
    pub(super) fn conflicts(&self) -> Vec<String> {
        let conflicts = self.packages.iter().filter(|(_, state)| *state == PackageState::Conflict);
        let line = |(packed, _): &(&PackedUnit, PackageState)| {
            let unit = &packed.unit;
            format!(
                "{}@{} is deployed with other code: raise its version, or deploy with --replace (for development)",
                unit.id, unit.version
            )
        };
        conflicts.map(line).collect()
    }

    /// Returns the plan for a person.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.written.iter().map(|file| format!("write    {file}")).collect();
        for packed in self.new_packages() {
            let package = &packed.package;
            lines.push(format!("push     {} ({} bytes, {})", package.name, package.size, package.sha256));
        }
        for ServerPlan { name, difference, .. } in &self.servers {
            let described = apply::describe_result(name, &apply::difference_json(name, difference));
            lines.push(format!("apply    {described}"));
        }
        if let Some(folder) = self.plugins {
            let line = |(packed, _): &(&PackedUnit, PackageState)| {
                let unit = &packed.unit;
                format!("install  {}@{} in {}", unit.id, unit.version, folder.display())
            };
            lines.extend(self.packages.iter().map(line));
        }
        let access = self.servers.iter().flat_map(|server| &server.access);
        lines.extend(access.map(|line| format!("access   {line}")));
        lines
    }

    pub(super) fn json(&self) -> Value {
        let package =
            |packed: &PackedUnit| json!({ "name": packed.package.name, "sha256": packed.package.sha256 });
        let server = |server: &ServerPlan| {
            let mut plan = apply::difference_json(&server.name, &server.difference);
            if let Some(members) = plan.as_object_mut() {
                members.insert("access".to_owned(), json!(server.access));
            }
            plan
        };
        json!({
            "write": self.written,
            "push": self.new_packages().map(package).collect::<Vec<_>>(),
            "servers": self.servers.iter().map(server).collect::<Vec<_>>(),
            "plugins": self.plugins.map(|folder| folder.display().to_string()),
        })
    }
}

/// Returns the offers of a server; null if this admin may not see them.
async fn offers(api: &AdminClient, name: &str) -> Result<Value, Failure> {
    let answer = api.get(&api_path(&["api", "registry", "servers", name, "offers"])).await?;
    match answer.status {
        StatusCode::FORBIDDEN => Ok(Value::Null),
        _ => answer.accepted(),
    }
}

/// Describes who gains or loses access to a server or to some of its primitives.
fn access(name: &str, difference: &Difference, after: &CompiledServer, offers: &Value) -> Vec<String> {
    let before = difference.before.as_ref();
    if before.is_none() && difference.state != "new" {
        return vec![format!(
            "{name}: unknown, because this version of asp cannot compile the stored server"
        )];
    }
    let stored =
        list(offers, "offers").filter(|offer| text(offer, "by") == "offer").map(|offer| text(offer, "org"));
    let stored: BTreeSet<&str> = stored.collect();
    let orgs = |server: &CompiledServer| -> BTreeSet<String> {
        server.offered_to.iter().cloned().chain(stored.iter().map(|org| (*org).to_owned())).collect()
    };
    let had = before.map(orgs).unwrap_or_default();
    let have = orgs(after);
    let (had_all, have_all) =
        (before.is_some_and(|before| before.edge.default_allow), after.edge.default_allow);
    let mut lines = Vec::new();
    match (had_all, have_all) {
        (false, true) => {
            lines.push(format!("{name}: every organisation gains it (`defaultExposure: allow`)"))
        }
        (true, false) => lines
            .push(format!("{name}: every organisation without an offer loses it (`defaultExposure: deny`)")),
        (true, true) => {}
        (false, false) => {
            let gains = have.difference(&had).map(|org| {
                format!(
                    "{name}: {org} is offered it and switches it on with `{}`",
                    server_access::expose(name, org, "")
                )
            });
            lines.extend(gains);
            lines.extend(had.difference(&have).map(|org| format!("{name}: {org} loses it")));
        }
    }
    if let Some(before) = before {
        let known: BTreeSet<&str> =
            before.server.listings.iter().map(|listing| listing.id.as_str()).collect();
        let new =
            after.server.listings.iter().map(|listing| listing.id.as_str()).filter(|id| !known.contains(id));
        let new: BTreeSet<&str> = new.collect();
        if !new.is_empty() && had_all {
            lines.push(format!("{name}: callers of every organisation gain {}", join(&new)));
        } else if !new.is_empty() && !had.is_empty() {
            lines.push(format!("{name}: callers of {} gain {}", join(&had), join(&new)));
        }
    }
    if !have_all && have.is_empty() && (before.is_none() || !offers.is_null()) {
        lines.push(format!("{name}: offered to nobody: `asp servers offer {name} --to ORG`"));
    }
    lines
}

fn join<T: AsRef<str>>(words: &BTreeSet<T>) -> String {
    words.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use asp_registry::Source;

    use super::*;

    const HEAD: &str = "apiVersion: asp/v1\nname: demo\ndescription: A demo.\nversion: 1.0.0\nprotocols: [mcp]\n\
        auth: {schemes: [jwt], issuers: [dev]}\n";

    /// A server with these lines in its file, and these tools.
    fn server(lines: &str, tools: &[&str]) -> CompiledServer {
        let refs: String = tools.iter().map(|id| format!("  - ref: demo/{id}\n")).collect();
        let file = format!("{HEAD}{lines}primitives:\n{refs}");
        let spec = |id: &&str| Source {
            path: format!("demo/{id}.yaml"),
            text: format!(
                "id: {id}\nname: {id}\ntype: tool\nversion: 1.0.0\nowner: test@example.com\nsummary: Tests it.\n\
                 mutation: read_only\nprimitiveSchema: {{input_schema: {{type: object}}}}\nsecurity: {{riskClass: low}}\n\
                 runtime: {{mode: builtin, entrypoint: echo}}\n"
            ),
        };
        let mut sources = vec![Source { path: "demo/server.yaml".into(), text: file }];
        sources.extend(tools.iter().map(spec));
        let report = asp_registry::check(&sources);
        let found = report.catalog.unwrap_or_else(|| panic!("{:?}", report.faults));
        found.servers.into_iter().next().unwrap()
    }

    fn access_of(before: Option<CompiledServer>, after: &CompiledServer, offers: &Value) -> Vec<String> {
        let state = if before.is_some() { "changed" } else { "new" };
        access("demo", &Difference::of(state, before), after, offers)
    }

    #[test]
    fn a_plan_says_who_gains_and_who_loses() {
        let deny = |tools: &[&str]| server("defaultExposure: deny\n", tools);
        let allow = |tools: &[&str]| server("defaultExposure: allow\n", tools);
        let offered = server("defaultExposure: deny\nofferedTo: [acme]\n", &["a"]);
        let none = json!({ "offers": [] });
        let nobody = "demo: offered to nobody: `asp servers offer demo --to ORG`";
        let stored = json!({ "offers": [{ "org": "beta", "by": "offer" }] });
        assert_eq!(access_of(None, &deny(&["a"]), &Value::Null), [nobody]);
        assert_eq!(
            access_of(None, &allow(&["a"]), &Value::Null),
            ["demo: every organisation gains it (`defaultExposure: allow`)"]
        );
        assert_eq!(
            access_of(Some(deny(&["a"])), &offered, &none),
            ["demo: acme is offered it and switches it on with `asp policy acme --expose demo`"]
        );
        assert_eq!(access_of(Some(offered), &deny(&["a"]), &none), ["demo: acme loses it", nobody]);
        assert_eq!(
            access_of(Some(allow(&["a"])), &deny(&["a"]), &stored),
            ["demo: every organisation without an offer loses it (`defaultExposure: deny`)"]
        );
        assert_eq!(
            access_of(Some(deny(&["a"])), &deny(&["a", "b"]), &stored),
            ["demo: callers of beta gain b"]
        );
        assert_eq!(
            access_of(Some(allow(&["a"])), &allow(&["a", "b", "c"]), &none),
            ["demo: callers of every organisation gain b, c"]
        );
        assert_eq!(
            access_of(Some(deny(&["a"])), &deny(&["a"]), &Value::Null),
            [""; 0],
            "offers that this admin may not see"
        );
    }
}
