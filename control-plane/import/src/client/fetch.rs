//! Packages from npm and PyPI, as folders of stdio MCP servers: the code at one exact version, and a `manifest.json`.
//!
//! Keeps true: a package is installed as the dependencies of plugins are (`asp_packaging::dependencies`): nothing of it runs, and npm
//! and pip reach the registries of the account alone; a folder is replaced as a whole or not at all; a version that is there stays
//! until changes are accepted.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use asp_packaging::dependencies::{install_npm_package, install_pypi_package};
use serde_json::{Map, Value, json};

use super::command::{PackageCommand, PackageRegistry};

const MANIFEST: &str = "manifest.json";
/// Folder of Python packages, which a worker has on its path.
const SITE: &str = "site-packages";
/// Script that starts a Python package.
const START: &str = "asp_start.py";

/// Code of a package, and the first words of its command line.
struct PackageCode {
    version: String,
    kind: &'static str,
    /// Script, relative to the package.
    script: String,
}

/// Fetches the package into its folder below `plugins`, unless it is there, and writes its manifest with these variables, each
/// with the name of its secret. Returns `name@version`.
pub(super) async fn fetch(
    command: &PackageCommand,
    variables: &[(String, String)],
    plugins: &Path,
    accept: bool,
) -> Result<String> {
    let folder = plugins.join(folder_name(&command.name));
    if let Some(code) = present(&folder, command, accept) {
        write_manifest(&folder, command, &code, variables)?;
        return Ok(format!("{}@{}", command.name, code.version));
    }
    if folder.exists() && read_manifest(&folder, command).is_none() {
        bail!(
            "{} does not come from an import of {} and would be replaced: move it away, or import it with --stdio",
            folder.display(),
            command.name
        );
    }
    let work = asp_packaging::work(plugins)?;
    let fresh = work.path().join("package");
    let code = match command.registry {
        PackageRegistry::Npm => npm(command, &fresh).await?,
        PackageRegistry::PyPi => pypi(command, &fresh).await?,
    };
    write_manifest(&fresh, command, &code, variables)?;
    if folder.exists() {
        fs::rename(&folder, work.path().join("old"))
            .with_context(|| format!("replace {}", folder.display()))?;
    }
    fs::rename(&fresh, &folder).with_context(|| format!("write {}", folder.display()))?;
    Ok(format!("{}@{}", command.name, code.version))
}

/// Returns the folder of a package below `plugins`: a scope becomes part of the name.
fn folder_name(name: &str) -> String {
    name.trim_start_matches('@').replace('/', "__")
}

/// Returns the manifest in a folder, if it is of this package.
fn read_manifest(folder: &Path, command: &PackageCommand) -> Option<Value> {
    let manifest: Value = serde_json::from_str(&fs::read_to_string(folder.join(MANIFEST)).ok()?).ok()?;
    let is_its = manifest.get("name").and_then(Value::as_str) == Some(command.name.as_str());
    is_its.then_some(manifest)
}

/// Returns the code that is there, if it is this package at a version that may stay.
fn present(folder: &Path, command: &PackageCommand, accept: bool) -> Option<PackageCode> {
    let manifest = read_manifest(folder, command)?;
    let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
    let version = text("/version")?;
    // A range or a tag may mean a newer version now.
    let is_exact = command.version.as_deref() == Some(version);
    let is_open =
        command.version.as_deref().is_none_or(|version| !version.starts_with(|c: char| c.is_ascii_digit()));
    let kind = match command.registry {
        PackageRegistry::Npm => "node",
        PackageRegistry::PyPi => "python",
    };
    let script = text("/server/mcp_config/args/0")?.strip_prefix("${__dirname}/")?;
    let code = PackageCode { version: version.to_owned(), kind, script: script.to_owned() };
    (text("/server/type") == Some(kind) && (is_exact || (is_open && !accept))).then_some(code)
}

/// Returns the package as its registry's tool names it.
fn tool_name(command: &PackageCommand) -> String {
    let PackageCommand { registry, name, version, extras, .. } = command;
    let version = version.as_deref();
    match registry {
        PackageRegistry::Npm => format!("{name}{}", version.map(|v| format!("@{v}")).unwrap_or_default()),
        PackageRegistry::PyPi => {
            let extras = if extras.is_empty() { String::new() } else { format!("[{extras}]") };
            format!("{name}{extras}{}", version.map(|v| format!("=={v}")).unwrap_or_default())
        }
    }
}

/// Installs a package of npm.
async fn npm(command: &PackageCommand, folder: &Path) -> Result<PackageCode> {
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    install_npm_package(&tool_name(command), folder).await?;
    let package = format!("node_modules/{}", command.name);
    let text =
        fs::read_to_string(folder.join(&package).join("package.json")).context("read its package.json")?;
    let described: Value = serde_json::from_str(&text).context("read its package.json")?;
    let version =
        described.get("version").and_then(Value::as_str).context("its package.json has no version")?;
    let script = npm_program(&described, command)?;
    Ok(PackageCode {
        version: version.to_owned(),
        kind: "node",
        script: format!("{package}/{}", script.trim_start_matches("./")),
    })
}

/// Returns the script of the program that npx would run.
fn npm_program(package: &Value, command: &PackageCommand) -> Result<String> {
    let own = command.name.rsplit('/').next().unwrap_or(&command.name);
    let wanted = command.program.as_deref().unwrap_or(own);
    let script = match package.get("bin") {
        Some(Value::String(script)) if wanted == own => Some(script.as_str()),
        Some(Value::Object(programs)) => {
            let only = programs.values().next().filter(|_| programs.len() == 1 && command.program.is_none());
            programs.get(wanted).or(only).and_then(Value::as_str)
        }
        _ => None,
    };
    script.map(str::to_owned).with_context(|| format!("{} has no program {wanted}", command.name))
}

/// Installs a package of PyPI from wheels, and writes the script that starts its program.
async fn pypi(command: &PackageCommand, folder: &Path) -> Result<PackageCode> {
    let site = folder.join(SITE);
    fs::create_dir_all(&site).with_context(|| format!("create {}", site.display()))?;
    install_pypi_package(&tool_name(command), &site).await?;
    let (version, programs) = python_package(&site, &command.name)?;
    let program = command.program.as_deref().unwrap_or(&command.name);
    let only = programs.first().filter(|_| programs.len() == 1 && command.program.is_none());
    let found = programs.iter().find(|(name, _)| name == program).or(only);
    let (_, entry) = found.with_context(|| format!("{} has no program {program}", command.name))?;
    let (module, function) = entry.split_once(':').context("its program names no function")?;
    let first = function.split('.').next().unwrap_or(function);
    let script = format!("import sys\n\nfrom {module} import {first}\n\nsys.exit({function}())\n");
    fs::write(folder.join(START), script).context("write the script that starts it")?;
    Ok(PackageCode { version, kind: "python", script: START.to_owned() })
}

/// Returns version and programs (name, `module:function`) of an installed package, from its metadata (PyPA core metadata and
/// entry points).
fn python_package(site: &Path, name: &str) -> Result<(String, Vec<(String, String)>)> {
    let same = |one: &str| one.to_ascii_lowercase().replace(['_', '.'], "-");
    for entry in fs::read_dir(site).with_context(|| format!("read {}", site.display()))?.flatten() {
        let folder = entry.path();
        if folder.extension().is_none_or(|extension| extension != "dist-info") {
            continue;
        }
        let metadata = fs::read_to_string(folder.join("METADATA")).unwrap_or_default();
        let field =
            |field: &str| metadata.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(": "));
        if field("Name").is_none_or(|found| same(found.trim()) != same(name)) {
            continue;
        }
        let version = field("Version").context("its metadata has no version")?.trim().to_owned();
        let entries = fs::read_to_string(folder.join("entry_points.txt")).unwrap_or_default();
        return Ok((version, console_scripts(&entries)));
    }
    bail!("pip installed no {name}")
}

fn console_scripts(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().map(str::trim).skip_while(|line| *line != "[console_scripts]").skip(1);
    let of_section = lines.take_while(|line| !line.starts_with('['));
    let script = |line: &str| {
        let (name, entry) = line.split_once('=')?;
        // `module:function [extra]`
        Some((name.trim().to_owned(), entry.split('[').next()?.trim().to_owned()))
    };
    of_section.filter_map(script).collect()
}

/// Writes the manifest of an MCP bundle.
fn write_manifest(
    folder: &Path,
    command: &PackageCommand,
    code: &PackageCode,
    variables: &[(String, String)],
) -> Result<()> {
    let script = format!("${{__dirname}}/{}", code.script);
    let arguments: Vec<&str> =
        [script.as_str()].into_iter().chain(command.arguments.iter().map(String::as_str)).collect();
    let secret = |(name, secret): &(String, String)| (name.clone(), json!(format!("${{secret:{secret}}}")));
    let environment: Map<String, Value> = variables.iter().map(secret).collect();
    let manifest = json!({
        "manifest_version": "0.3",
        "name": command.name,
        "version": code.version,
        "server": {
            "type": code.kind,
            "entry_point": code.script,
            "mcp_config": { "command": code.kind, "args": arguments, "env": environment },
        },
    });
    let text = serde_json::to_string_pretty(&manifest).context("write the manifest")? + "\n";
    let path = folder.join(MANIFEST);
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    asp_packaging::stdio::launch(folder).map(drop).map_err(|error| anyhow!("{}: {error:#}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(registry: PackageRegistry, version: Option<&str>) -> PackageCommand {
        PackageCommand {
            registry,
            name: "@a/kit".to_owned(),
            version: version.map(str::to_owned),
            extras: String::new(),
            program: None,
            arguments: vec!["stdio".to_owned()],
        }
    }

    #[test]
    fn a_package_is_named_as_its_tool_names_it() {
        let of = |registry, version, extras: &str| {
            tool_name(&PackageCommand { extras: extras.to_owned(), ..command(registry, version) })
        };
        assert_eq!(of(PackageRegistry::Npm, None, ""), "@a/kit");
        assert_eq!(of(PackageRegistry::Npm, Some("^1"), ""), "@a/kit@^1");
        assert_eq!(of(PackageRegistry::PyPi, None, ""), "@a/kit");
        assert_eq!(of(PackageRegistry::PyPi, Some("1.2"), "cli,x"), "@a/kit[cli,x]==1.2");
    }

    #[test]
    fn a_program_is_found_as_npx_finds_it() {
        let of = |bin: Value, program: Option<&str>| {
            let program = program.map(str::to_owned);
            npm_program(
                &json!({ "bin": bin }),
                &PackageCommand { program, ..command(PackageRegistry::Npm, None) },
            )
            .ok()
        };
        assert_eq!(of(json!("dist/x.js"), None).as_deref(), Some("dist/x.js"));
        assert_eq!(of(json!({"other": "a.js"}), None).as_deref(), Some("a.js"), "the only one");
        assert_eq!(of(json!({"other": "a.js", "kit": "b.js"}), None).as_deref(), Some("b.js"));
        assert_eq!(of(json!({"other": "a.js", "kit": "b.js"}), Some("other")).as_deref(), Some("a.js"));
        assert_eq!(of(json!({"other": "a.js"}), Some("kit")), None);
        assert_eq!((of(json!({"x": "a.js", "y": "b.js"}), None), of(Value::Null, None)), (None, None));
    }

    #[test]
    fn a_python_package_is_found_by_its_metadata_with_its_programs() {
        let site = tempfile::tempdir().unwrap();
        let folder = site.path().join("mcp_server_time-1.2.dist-info");
        fs::create_dir(&folder).unwrap();
        fs::write(
            folder.join("METADATA"),
            "Metadata-Version: 2.4\nName: mcp-server.time\nVersion: 1.2\n\nName: x\n",
        )
        .unwrap();
        let entries = "[gui_scripts]\nno = a:b\n[console_scripts]\nmcp-server-time = mcp_server_time:main\ncli=x.y:App.run [cli]\n\n[z]\nq = r:s\n";
        fs::write(folder.join("entry_points.txt"), entries).unwrap();
        let (version, programs) = python_package(site.path(), "MCP_Server-Time").unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(version, "1.2");
        assert_eq!(programs, [pair("mcp-server-time", "mcp_server_time:main"), pair("cli", "x.y:App.run")]);
        assert!(python_package(site.path(), "other").is_err());
    }

    #[test]
    fn a_version_that_is_there_stays_until_another_is_named_or_changes_are_accepted() {
        let plugins = tempfile::tempdir().unwrap();
        let folder = plugins.path().join(folder_name("@a/kit"));
        fs::create_dir(&folder).unwrap();
        let code = PackageCode { version: "1.2.0".to_owned(), kind: "node", script: "x.js".to_owned() };
        let variables = [("TOKEN".to_owned(), "kit.TOKEN".to_owned())];
        write_manifest(&folder, &command(PackageRegistry::Npm, None), &code, &variables).unwrap();
        let launch = asp_packaging::stdio::launch(&folder).unwrap();
        assert_eq!(launch.command, ["node", "x.js", "stdio"]);
        assert_eq!(launch.env["TOKEN"], json!({"secret": "kit.TOKEN"}));
        for (version, accept, stays) in [
            (None, false, true),
            (None, true, false),
            (Some("^1"), false, true),
            (Some("latest"), true, false),
            (Some("1.2.0"), true, true),
            (Some("1.3.0"), false, false),
        ] {
            let found = present(&folder, &command(PackageRegistry::Npm, version), accept);
            assert_eq!(found.is_some(), stays, "{version:?} {accept}");
        }
        assert!(present(&folder, &command(PackageRegistry::PyPi, None), false).is_none());
        assert!(present(plugins.path(), &command(PackageRegistry::Npm, None), false).is_none());
    }

    #[tokio::test]
    async fn a_folder_that_no_import_made_is_not_replaced() {
        let plugins = tempfile::tempdir().unwrap();
        let own = plugins.path().join(folder_name("@a/kit")).join("index.js");
        fs::create_dir(own.parent().unwrap()).unwrap();
        fs::write(&own, "mine").unwrap();
        let refused = fetch(&command(PackageRegistry::Npm, None), &[], plugins.path(), true).await;
        assert!(refused.unwrap_err().to_string().contains("move it away"));
        assert_eq!(fs::read_to_string(&own).unwrap(), "mine");
    }
}
