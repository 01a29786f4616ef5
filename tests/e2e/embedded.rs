//! `asp mcp --embedded`: a client that starts one program has the servers of a directory, plugins and all, with no platform
//! beside it. Official clients, both eras.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use asp_e2e::{tool, wait};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::clients::{self, LEGACY, MODERN, Place, node_v2_at, python_at};
use crate::plugins::MODES;
use crate::trial::{Shared, trials};

trials! { embedded:
    official_clients_list_and_call_in_both_eras_with_one_command,
    standard_output_has_messages_alone_and_nothing_is_left,
    what_cannot_be_served_ends_with_the_reason,
}

/// A directory with the demo server and one with a plugin, and programs that serve them as a client starts them.
struct Desk {
    work: TempDir,
}

impl Desk {
    async fn new() -> Result<Desk> {
        let desk = Desk { work: tempfile::tempdir()? };
        fs::create_dir_all(desk.at("tmp"))?;
        let demo = desk.at("mine/demo");
        fs::create_dir_all(&demo)?;
        for entry in fs::read_dir(tool::root()?.join("primitives/demo"))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), demo.join(entry.file_name()))?;
            }
        }
        let output = Command::new(tool::asp()?)
            .args(["plugin", "new", "greet", "--language", "python"])
            .arg(desk.at("mine"))
            .output()
            .await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(desk)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.work.path().join(path)
    }

    /// A program that is `asp mcp --embedded` with these arguments, as clients start programs: without an environment.
    fn program(&self, name: &str, arguments: &[&str]) -> Result<PathBuf> {
        let program = self.at(name);
        let quoted = |path: &Path| format!("'{}'", path.display());
        let text = format!(
            "#!/bin/sh\nexport TMPDIR={} ASP_PLUGIN_PYTHON={} ASP_RUNTIME_BIN={}\nexec {} mcp --embedded {} {}\n",
            quoted(&self.at("tmp")),
            quoted(&tool::plugin_python()?),
            quoted(&tool::runtime()?),
            quoted(&tool::asp()?),
            quoted(&self.at("mine")),
            arguments.join(" "),
        );
        tool::write_program(&program, &text)?;
        Ok(program)
    }

    /// Runs such a program with lines on its standard input, which then ends.
    async fn run(&self, arguments: &[&str], lines: &[Value]) -> Result<Output> {
        let mut command = Command::new(self.program("raw", arguments)?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let mut input = child.stdin.take().context("it has an input")?;
        for line in lines {
            let written = input.write_all(format!("{line}\n").as_bytes()).await;
            // It may have refused and gone; its words and its status are judged.
            if written.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) {
                break;
            }
            written?;
        }
        let output = tokio::time::timeout(wait::START, async {
            // The answers first: closing is what ends it.
            let mut output = tokio::io::BufReader::new(child.stdout.take().context("it has an output")?);
            let mut said = Vec::new();
            for _ in lines.iter().filter(|line| line.get("id").is_some()) {
                if tokio::io::AsyncBufReadExt::read_until(&mut output, b'\n', &mut said).await? == 0 {
                    break;
                }
            }
            drop(input);
            tokio::io::AsyncReadExt::read_to_end(&mut output, &mut said).await?;
            let ended = child.wait_with_output().await?;
            anyhow::Ok(Output { stdout: said, ..ended })
        });
        output.await.context("it does not end")?
    }
}

async fn official_clients_list_and_call_in_both_eras_with_one_command(_: &Shared) -> Result<()> {
    let desk = Desk::new().await?;
    // The client programs take a server's name from a URL; nothing listens there.
    let demo = desk.program("demo", &["--server", "demo"])?;
    let environment = [("ASP_BRIDGE", demo.to_str().context("text")?)];
    let place = Place { environment: &environment, ..Place::demo("http://127.0.0.1:1/demo/mcp", "none") };
    python_at(&place, "legacy", LEGACY).await.context("python, legacy")?;
    python_at(&place, "auto", MODERN).await.context("python, auto")?;
    node_v2_at(&place, "legacy", LEGACY).await.context("npm client 2, legacy")?;
    node_v2_at(&place, MODERN, MODERN).await.context("npm client 2, modern")?;

    let greet = desk.program("greet", &["--server", "greet"])?;
    let environment = [("ASP_BRIDGE", greet.to_str().context("text")?)];
    let url = "http://127.0.0.1:1/greet/mcp";
    let place = Place { url, token: "none", tools: &[], environment: &environment };
    for (mode, protocol) in MODES {
        let answer = clients::python_calls(&place, mode, "greet", &json!({"name": "Ada"})).await?;
        ensure!(answer["protocol"] == protocol, "{mode}: {answer}");
        let said = &answer["result"]["structuredContent"]["greeting"];
        ensure!(*said == "Hello, Ada!", "{mode}: {answer}");
    }
    Ok(())
}

fn list(id: u64) -> Value {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": MODERN,
                      "io.modelcontextprotocol/clientCapabilities": {}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/list", "params": {"_meta": meta}})
}

async fn standard_output_has_messages_alone_and_nothing_is_left(_: &Shared) -> Result<()> {
    let desk = Desk::new().await?;
    fs::remove_dir_all(desk.at("mine/demo"))?;
    // The only server needs no name.
    let output = desk.run(&[], &[list(1), list(2)]).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    let lines: Vec<Value> =
        String::from_utf8(output.stdout)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(lines.len() == 2, "{lines:?}\n{said}");
    for line in &lines {
        ensure!(line["result"]["tools"][0]["name"] == "greet", "{line}");
    }
    let left: Vec<_> = fs::read_dir(desk.at("tmp"))?.flatten().map(|entry| entry.path()).collect();
    ensure!(left.is_empty(), "nothing is left: {left:?}");
    Ok(())
}

async fn what_cannot_be_served_ends_with_the_reason(_: &Shared) -> Result<()> {
    let desk = Desk::new().await?;
    let refused = async |arguments: &[&str], because: &str| {
        let output = desk.run(arguments, &[list(1)]).await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && output.stdout.is_empty(), "{}: {said}", output.status);
        ensure!(said.contains(because), "{because}: {said}");
        Ok(())
    };
    refused(&[], "existing servers: demo, greet").await?;
    refused(&["--server", "other"], "server other does not exist").await?;
    let spec = desk.at("mine/greet/greet.yaml");
    let text = fs::read_to_string(&spec)?;
    fs::write(&spec, text.replace("type: tool", "type: tole"))?;
    refused(&["--server", "greet"], "greet/greet.yaml:3").await?;
    fs::remove_dir_all(desk.at("mine"))?;
    refused(&[], "asp plugin new").await
}
