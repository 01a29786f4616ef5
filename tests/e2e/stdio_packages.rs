//! Stdio MCP servers in the sandbox: imported, pinned, and what they change. The public reference server, and a small one
//! that lists otherwise when it is told to.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use asp_e2e::process::Process;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{tool, wait};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::packages;
use crate::plugins::{Client, MODES};
use crate::trial::{Shared, trials};
use crate::upstreams::{SAY_PORT, counted, port, rpc};

trials! { stdio_packages:
    the_reference_server_is_imported_and_called_as_it_was_pinned,
    the_servers_of_a_clients_file_are_imported_without_its_keys,
    a_package_of_npm_is_imported_by_one_command_and_its_key_is_a_secret,
    what_a_package_changes_waits_until_it_is_accepted,
}

/// `asp import` with the languages of plugins.
fn importing(out: &Path, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(tool::asp()?);
    command.arg("import").arg("--out").arg(out).args(arguments).kill_on_drop(true);
    let (node, shim) = tool::plugin_node()?;
    command.env("ASP_PLUGIN_NODE", node).env("ASP_PLUGIN_NODE_SHIM", shim);
    command.env("ASP_PLUGIN_PYTHON", tool::plugin_python()?).env("ASP_RUNTIME_BIN", tool::runtime()?);
    Ok(command)
}

/// Runs `asp import --stdio`; whether it succeeded, and all that it said.
async fn import(out: &Path, arguments: &[&str]) -> Result<(bool, String)> {
    run(&mut importing(out, arguments)?).await
}

async fn run(command: &mut Command) -> Result<(bool, String)> {
    let output = command.output().await?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Ok((output.status.success(), said))
}

/// A stack with a runtime over what was imported, which is allowed.
async fn stack(primitives: &Path, server: &str) -> Result<Stack> {
    let file = primitives.join(server).join("server.yaml");
    let text = fs::read_to_string(&file)?.replace("defaultExposure: deny", "defaultExposure: allow");
    fs::write(&file, text)?;
    Stack::start(Options { primitives: primitives.to_owned(), plugins: true, ..Options::repository()? }).await
}

async fn names(stack: &Stack, server: &str) -> Result<Vec<String>> {
    let answer = rpc(stack, server, "tools/list", json!({})).await?;
    let tools = answer["result"]["tools"].as_array().with_context(|| answer.to_string())?;
    Ok(tools.iter().filter_map(|tool| Some(tool["name"].as_str()?.to_owned())).collect())
}

async fn the_reference_server_is_imported_and_called_as_it_was_pinned(_: &Shared) -> Result<()> {
    let folder = tempfile::tempdir()?;
    packages::reference_package(&folder.path().join("everything/plugins/reference"))?;
    let arguments = [&["--stdio", "reference@2.0.0", "--server", "everything"][..], &LEFT_OUT].concat();
    let (done, said) = import(folder.path(), &arguments).await?;
    ensure!(done, "{said}");
    let spec = fs::read_to_string(folder.path().join("everything/echo.json"))?;
    let spec: Value = serde_json::from_str(&spec)?;
    let pin = spec["runtime"]["pin"].as_str().unwrap_or_default();
    ensure!(spec["runtime"]["mode"] == "mcp-stdio" && pin.len() == 64, "{spec}");
    let (done, said) = import(folder.path(), &arguments).await?;
    ensure!(done && !said.contains("changed"), "it lists the same twice: {said}");

    let stack = stack(folder.path(), "everything").await?;
    let listed = names(&stack, "everything").await?;
    ensure!(listed.len() > 8, "{listed:?}");
    for (mode, protocol) in MODES {
        let client = Client { stack: &stack, mode, protocol };
        let answer = client
            .call("everything", "echo", &json!({"message": "hello"}), &json!({}))
            .await
            .context(mode)?;
        let result = answer.result.with_context(|| format!("{mode}: {:?}", answer.error))?;
        ensure!(result["content"][0]["text"] == "Echo: hello", "{mode}: {result}");
    }
    // All that was imported is still there after the look.
    ensure!(names(&stack, "everything").await? == listed);
    for standing in ["changed", "incompatible", "removed"] {
        let metrics = asp_e2e::http1::get(stack.gateway(), "/metrics", &[]).await?.text();
        ensure!(
            metrics.contains(&format!("asp_upstream_drift{{standing=\"{standing}\"}} 0")),
            "{standing}: {}",
            stack.asp.tail()
        );
    }
    stack.stop(&[]).await
}

/// Tools of the reference server that are left out: they need abilities of clients that the platform does not have.
const LEFT_OUT: [&str; 6] = [
    "--except",
    "simulate-research-query",
    "--except",
    "trigger-elicitation-request-async",
    "--except",
    "trigger-sampling-request-async",
];

/// Command lines of [`npm`] with which it installed something.
const NPM_LINES: &str = "npm-lines";
/// Variables that name a proxy of the account, which would decide what npm reaches.
const PROXIES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// An `npm` whose registry has the reference server alone.
fn npm(folder: &Path) -> Result<()> {
    let program = tool::everything_js()?;
    let modules = program.ancestors().find(|path| path.ends_with("node_modules")).context("node_modules")?;
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = install ] || exit 1\necho \"$*\" >> '{}'\n\
         while [ \"$1\" != --prefix ]; do shift; done\nmkdir -p \"$2\" && cp -r '{}' \"$2/node_modules\"\n",
        folder.join(NPM_LINES).display(),
        modules.display()
    );
    tool::write_program(&folder.join("npm"), &script)
}

async fn the_servers_of_a_clients_file_are_imported_without_its_keys(_: &Shared) -> Result<()> {
    let mut command = Command::new(tool::node()?);
    command.args(["--import", SAY_PORT]).arg(tool::everything_js()?).arg("streamableHttp").env("PORT", "0");
    let service = Process::start("everything", command)?;
    let port = port(&service).await?;
    let folder = tempfile::tempdir()?;
    npm(folder.path())?;
    let clients = json!({"mcpServers": {
        "Reference": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything", "stdio"],
                      "env": {"API_KEY": "hunter2", "PATH": "/bin"}},
        "web": {"url": format!("http://127.0.0.1:{port}/mcp"), "headers": {"Authorization": "Bearer hunter3"}},
        "box": {"command": "docker", "args": ["run", "-i", "mcp/fetch"]},
    }});
    let file = folder.path().join("mcp.json");
    fs::write(&file, clients.to_string())?;
    let out = folder.path().join("out");
    let state = folder.path().join("state");
    let import = async || {
        let file = file.display().to_string();
        let mut command = importing(&out, &[&[file.as_str()][..], &LEFT_OUT].concat())?;
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH")?);
        run(command.env("PATH", path).env("ASP_STATE_DIR", &state)).await
    };
    let (done, said) = import().await?;
    for part in [
        "2 servers imported, 1 left out",
        "left out: \"box\": a container is not imported",
        "left out of reference: the variable PATH",
        "start the platform with ASP_SECRETS=",
        "add the entry web.internal=http://127.0.0.1:",
    ] {
        ensure!(!done && said.contains(part), "{part}: {said}");
    }
    let spec: Value = serde_json::from_str(&fs::read_to_string(out.join("reference/echo.json"))?)?;
    let package = spec["runtime"]["package"].as_str().unwrap_or_default();
    ensure!(package.starts_with("@modelcontextprotocol/server-everything@"), "{spec}");
    ensure!(spec["runtime"]["artifactSha256"].as_str().is_some_and(|digest| digest.len() == 64), "{spec}");
    let spec: Value = serde_json::from_str(&fs::read_to_string(out.join("web/echo.json"))?)?;
    ensure!(spec["runtime"]["auth"]["credential"] == "web", "{spec}");
    let secrets: Value = serde_json::from_str(&fs::read_to_string(state.join("secrets.json"))?)?;
    ensure!(
        secrets == json!({"reference.API_KEY": {"value": "hunter2", "for": ["reference/*"]}}),
        "{secrets}"
    );
    ensure!(fs::read_to_string(state.join("keys/web"))? == "hunter3");
    let manifest = out.join("reference/plugins/modelcontextprotocol__server-everything/manifest.json");
    ensure!(fs::read_to_string(&manifest)?.contains("${secret:reference.API_KEY}"));
    for server in ["reference", "web"] {
        for entry in fs::read_dir(out.join(server))?.filter_map(|entry| Some(entry.ok()?.path())) {
            let text = if entry.is_file() { fs::read_to_string(&entry)? } else { String::new() };
            ensure!(!text.contains("hunter"), "{} has a key", entry.display());
        }
    }
    ensure!(!said.contains("hunter"), "{said}");
    let (_, again) = import().await?;
    ensure!(again.contains("kept: the secret reference.API_KEY") && !again.contains("changed:"), "{again}");

    // No gateway has its credential.
    fs::remove_dir_all(out.join("web"))?;
    let stack = stack(&out, "reference").await?;
    ensure!(names(&stack, "reference").await?.len() > 8);
    stack.stop(&[]).await
}

async fn a_package_of_npm_is_imported_by_one_command_and_its_key_is_a_secret(_: &Shared) -> Result<()> {
    let folder = tempfile::tempdir()?;
    npm(folder.path())?;
    let out = folder.path().join("out");
    let state = folder.path().join("state");
    let line = "@modelcontextprotocol/server-everything stdio";
    let arguments = ["--npx", line, "--server", "everything", "--env", "API_KEY"];
    let mut command = importing(&out, &[&arguments[..], &LEFT_OUT].concat())?;
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH")?);
    command.env("PATH", path).env("ASP_STATE_DIR", &state).env("API_KEY", "hunter2");
    for variable in PROXIES {
        command.env_remove(variable);
    }
    let (done, said) = run(&mut command).await?;
    ensure!(done && said.contains("1 servers imported, 0 left out"), "{said}");
    ensure!(said.contains("start the platform with ASP_SECRETS=") && !said.contains("hunter2"), "{said}");
    let spec: Value = serde_json::from_str(&fs::read_to_string(out.join("everything/echo.json"))?)?;
    ensure!(spec["runtime"]["mode"] == "mcp-stdio", "{spec}");
    let secrets: Value = serde_json::from_str(&fs::read_to_string(state.join("secrets.json"))?)?;
    let expected = json!({"everything.API_KEY": {"value": "hunter2", "for": ["everything/*"]}});
    ensure!(secrets == expected, "{secrets}");
    // npm reaches the registries of the account alone, as in builds of plugins.
    let line = fs::read_to_string(folder.path().join(NPM_LINES))?;
    for part in
        ["--ignore-scripts", "--proxy=http://127.0.0.1:", "-- @modelcontextprotocol/server-everything\n"]
    {
        ensure!(line.contains(part), "{part}: {line}");
    }
    Ok(())
}

/// The small server, with its manifest.
fn small_package(folder: &Path, edit: impl Fn(String) -> String) -> Result<()> {
    fs::create_dir_all(folder)?;
    let code = fs::read_to_string(tool::root()?.join("tests/services/listing.py"))?;
    fs::write(folder.join("server.py"), edit(code))?;
    let manifest = json!({
        "manifest_version": "0.3", "name": "tickets", "version": "1.0.0", "description": "For a test.",
        "author": {"name": "test"},
        "server": {"type": "python", "entry_point": "server.py",
                   "mcp_config": {"command": "python", "args": ["${__dirname}/server.py"]}},
    });
    Ok(fs::write(folder.join("manifest.json"), manifest.to_string())?)
}

async fn call(stack: &Stack, name: &str, arguments: Value) -> Result<Value> {
    rpc(stack, "tickets", "tools/call", json!({"name": name, "arguments": arguments})).await
}

async fn what_a_package_changes_waits_until_it_is_accepted(_: &Shared) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let package = folder.path().join("tickets/plugins/tickets");
    let arguments = ["--stdio", "tickets@1.0.0", "--server", "tickets"];
    let (done, said) = import(folder.path(), &arguments).await?;
    ensure!(!done && said.contains("manifest.json"), "there is no code: {said}");
    small_package(&package, |code| code)?;
    let (done, said) = import(folder.path(), &arguments).await?;
    ensure!(done && said.contains("2 tools"), "{said}");
    // What it lists is a process's own here: there is to be one.
    for name in ["ticket", "become"] {
        let file = folder.path().join(format!("tickets/{name}.json"));
        let mut spec: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
        spec["runtime"]["pool"] = json!({"max": 1});
        fs::write(&file, spec.to_string())?;
    }
    let stack = stack(folder.path(), "tickets").await?;
    ensure!(names(&stack, "tickets").await? == ["ticket", "become"]);
    let is_done = |answer: &Value| answer["result"]["isError"] == false;
    let answer = call(&stack, "ticket", json!({"id": "7"})).await?;
    ensure!(is_done(&answer), "{answer}");

    for (now, standing, is_served) in [
        ("reworded", "changed", true),
        ("narrower", "incompatible", false),
        ("same", "", true),
        ("gone", "removed", false),
        ("same", "", true),
    ] {
        let answer = call(&stack, "become", json!({"now": now})).await?;
        ensure!(is_done(&answer), "{now}: {answer}");
        if standing.is_empty() {
            wait::until("it is served again", wait::CONVERGE, || async {
                (names(&stack, "tickets").await.ok()?.len() == 2).then_some(())
            })
            .await?;
        } else {
            counted(&stack, standing).await.with_details(|| stack.asp.tail())?;
        }
        let shown = rpc(&stack, "tickets", "tools/list", json!({})).await?;
        ensure!(!shown.to_string().contains("keys"), "a change is not served: {shown}");
        let listed = names(&stack, "tickets").await?;
        ensure!((listed.len() == 2) == is_served, "{now}: {listed:?}");
        let answer = call(&stack, "ticket", json!({"id": "7"})).await?;
        let reason = &answer["error"]["data"]["reason"];
        ensure!(if is_served { is_done(&answer) } else { reason == "unknown_primitive" }, "{now}: {answer}");
    }
    stack.stop(&[]).await?;

    // The next version of the package: what it lists is told, and what its specs say of its process stays.
    small_package(&package, |code| code.replace("Reads a ticket.", "Reads one ticket."))?;
    let (done, said) = import(folder.path(), &arguments).await?;
    ensure!(!done && said.contains("changed: tickets.ticket") && said.contains("--accept"), "{said}");
    let (done, said) = import(folder.path(), &[&arguments[..], &["--accept"]].concat()).await?;
    ensure!(done, "{said}");
    let spec: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("tickets/ticket.json"))?)?;
    ensure!(spec["summary"] == "Reads one ticket." && spec["runtime"]["pool"]["max"] == 1, "{spec}");
    Ok(())
}
