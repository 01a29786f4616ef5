//! Lists of a stdio MCP server, run in the sandbox in which calls will run it.
//!
//! Owns: the location of its code, and the parts of its former specs that stay, which concern its process. Refuses a package
//! without code: its command line comes only from its own `manifest.json`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use asp_command::failure::Failure;
use asp_mcp_client::listing::Lists;
use asp_packaging::languages::Languages;
use asp_packaging::local::Local;
use asp_packaging::pack::pack;
use asp_packaging::{MCP_STDIO, Unit, units};
use asp_proto::snapshot::McpStdio;
use asp_registry::{Source, stdio_package};
use serde_json::{Map, Value};

use crate::args::ImportArgs;
use crate::files::spec_path;

/// Version of an imported primitive, under which a package without a version of its own is installed.
const VERSION: &str = "1.0.0";
/// Members of a spec about the process, which no server lists.
const KEPT: [&str; 4] = ["resources", "pool", "minIsolation", "artifactSha256"];

/// A package next to its specs.
pub(super) struct Package<'a> {
    pub name: &'a str,
    pub sha256: String,
    /// Whether specs without a digest get it: a package that the import fetched is theirs alone.
    pub is_pinned: bool,
}

/// Runtime for the listing of a package.
#[derive(Default)]
pub(super) struct ListingRuntime {
    /// Variable and path of the file of secrets, instead of those of the environment.
    pub secrets: Option<(String, String)>,
    /// Whether the specs pin the digest of the package.
    pub is_pinned: bool,
}

/// Runs the package for as long as the listing takes.
pub(super) async fn list<'a>(
    args: &ImportArgs,
    name: &'a str,
    runtime: ListingRuntime,
) -> Result<(Lists, Package<'a>), Failure> {
    let target = McpStdio { package: name.to_owned(), ..McpStdio::default() };
    let (id, version) = stdio_package(&target, VERSION);
    let folder = args.out.join(&args.server).join("plugins").join(&id);
    if !folder.is_dir() {
        let place = folder.display();
        let message = format!("there is no {place}: put the code of {name} there, with its manifest.json");
        return Err(Failure::bad("--stdio", message));
    }
    // Former specs may state requirements of its process.
    let sources = asp_registry::read_dir(&args.out).context("read the earlier import")?;
    let prefix = format!("{}/", args.server);
    let own: Vec<Source> = sources.into_iter().filter(|source| source.path.starts_with(&prefix)).collect();
    let servers = asp_registry::check(&own).catalog.map(|catalog| catalog.servers).unwrap_or_default();
    let known = units(&servers, Some(&args.out))
        .into_iter()
        .find(|unit| (&unit.id, &unit.version) == (&id, &version));
    let mut unit = known.unwrap_or_else(|| Unit {
        id: id.clone(),
        version: version.clone(),
        server: args.server.clone(),
        language: MCP_STDIO.to_owned(),
        pins: Default::default(),
        primitives: Vec::new(),
        folder: None,
    });
    let packages = tempfile::tempdir().context("make a directory for the package")?;
    let packed = pack(&unit, &folder, packages.path()).with_context(|| format!("pack {name}"))?;
    unit.folder = Some(folder);
    let mut languages = Languages::find_async().await;
    languages.environment.extend(runtime.secrets);
    let mut local = Local::start(&[unit], languages).await?;
    let installed = local.installed.first().cloned().context("the package is not installed")?;
    let lists = match local.lists(&installed, &args.server).await {
        Ok(lists) => lists,
        Err(error) => {
            let wrote = local.output_at_end().await.join("\n");
            return Err(error.context(format!("read the lists of {name}:\n{wrote}")).into());
        }
    };
    Ok((lists, Package { name, sha256: packed.sha256, is_pinned: runtime.is_pinned }))
}

impl Package<'_> {
    /// Returns the members about the process in the primitive's former spec; a pinned package is pinned to its current digest.
    pub(super) fn former_process(&self, args: &ImportArgs, id: &str) -> Map<String, Value> {
        let mut kept = former(&args.out.join(spec_path(&args.server, id)), "runtime");
        kept.retain(|key, _| KEPT.contains(&key.as_str()));
        if self.is_pinned || kept.contains_key("artifactSha256") {
            kept.insert("artifactSha256".to_owned(), self.sha256.clone().into());
        }
        kept
    }

    /// Returns what its former spec lets the process reach: `allowedDomains` or `allowedTcp`.
    pub(super) fn reached(args: &ImportArgs, id: &str, key: &str) -> Option<Value> {
        former(&args.out.join(spec_path(&args.server, id)), "security").remove(key)
    }
}

/// Returns a member of a former spec, which an import wrote as JSON; empty if there is no such file.
fn former(file: &Path, member: &str) -> Map<String, Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let spec: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap_or_default();
    spec.get(member).and_then(Value::as_object).cloned().unwrap_or_default()
}
