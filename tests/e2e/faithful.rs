//! I-14 whole: JSON of every kind by each protocol through Envoy and the filter, to a service, an MCP server and a stdio
//! server in the sandbox, none of which decodes it.
//!
//! The recorder on the wire judges decoded messages, which these are not: clients go to Envoy's own port.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{self, Request};
use asp_e2e::process::Process;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{message, tool};
use asp_json::{Json, kinds, named};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::trial::{Shared, trials};
use crate::upstreams::port;

/// Letters of an answer of 4 MiB.
const LARGE: usize = 4 << 20;

trials! { faithful:
    json_passes_by_every_protocol_to_every_upstream_as_it_was_written,
}

const SERVER: &str = "
apiVersion: asp/v1
name: demo
title: Verbatim
description: Upstreams that do not decode what they are given.
version: 1.0.0
protocols: [mcp, rest]
sessions: both
defaultExposure: allow
auth: {schemes: [jwt], issuers: [dev]}
primitives: [{ref: demo/http}, {ref: demo/mcp}, {ref: demo/stdio}]
";

/// An upstream, by the name of its tool.
#[derive(Clone, Copy, Debug)]
enum Backend {
    Http,
    Mcp,
    Stdio,
}

impl Backend {
    const ALL: [Backend; 3] = [Backend::Http, Backend::Mcp, Backend::Stdio];

    fn tool(self) -> &'static str {
        match self {
            Backend::Http => "http",
            Backend::Mcp => "mcp",
            Backend::Stdio => "stdio",
        }
    }

    fn spec(self) -> String {
        let id = self.tool();
        let runtime = match self {
            Backend::Http => {
                r#"{mode: proxy, http: {method: POST, url: "http://verbatim.internal/items", body: args}}"#
            }
            Backend::Mcp => r#"{mode: proxy, mcp: {url: "http://verbatim.internal/mcp", tool: verbatim}}"#,
            Backend::Stdio => "{mode: mcp-stdio, package: verbatim@1.0.0, tool: verbatim}",
        };
        format!(
            "id: {id}\nname: {id}\ntype: tool\nversion: 1.0.0\nowner: test@example.com\nsummary: Answers with its \
             arguments.\nmutation: read_only\nprimitiveSchema: {{input_schema: {{type: object}}}}\n\
             security: {{riskClass: low}}\nruntime: {runtime}\n"
        )
    }
}

/// The specs, and the package of the stdio server.
fn primitives(root: &Path) -> Result<()> {
    let demo = root.join("demo");
    let package = demo.join("plugins/verbatim");
    fs::create_dir_all(&package)?;
    fs::write(demo.join("server.yaml"), SERVER)?;
    for backend in Backend::ALL {
        fs::write(demo.join(format!("{}.yaml", backend.tool())), backend.spec())?;
    }
    fs::copy(tool::root()?.join("tests/services/verbatim.py"), package.join("server.py"))?;
    let manifest = json!({
        "manifest_version": "0.3", "name": "verbatim", "version": "1.0.0", "description": "For a test.",
        "author": {"name": "test"},
        "server": {"type": "python", "entry_point": "server.py",
                   "mcp_config": {"command": "python", "args": ["${__dirname}/server.py"]}},
    });
    Ok(fs::write(package.join("manifest.json"), manifest.to_string())?)
}

/// A protocol that clients speak.
#[derive(Clone, Copy, Debug)]
enum Door {
    /// MCP 2025-11-25 with a session.
    Legacy,
    /// MCP 2026-07-28.
    Modern,
    Rest,
}

/// A caller with its legacy session.
struct Caller<'a> {
    stack: &'a Stack,
    token: String,
    session: String,
}

impl Caller<'_> {
    /// Calls the tool with arguments as text; the text of the answer. `id` is the call's over REST.
    async fn call(&self, door: Door, tool: &str, arguments: &str, id: &str) -> Result<String> {
        let params = json!({"name": tool, "arguments": "@"});
        let session = [("mcp-session-id", self.session.as_str()), ("mcp-protocol-version", "2025-11-25")];
        let mut request = match door {
            Door::Legacy => message::legacy(&self.token, "tools/call", params, &session),
            Door::Modern => message::modern(&self.token, "tools/call", params, &[("mcp-name", tool)]),
            Door::Rest => {
                let path = format!("/demo/rest/tools/{tool}/calls/{id}");
                let mut put = message::rest("PUT", &path, &self.token, &json!("@"));
                put.headers.push(("prefer".into(), b"wait=20".to_vec()));
                put
            }
        };
        request.body = String::from_utf8(request.body)?.replacen("\"@\"", arguments, 1).into_bytes();
        self.send(&request).await
    }

    async fn send(&self, request: &Request) -> Result<String> {
        Ok(http1::send(self.stack.envoy.address, request).await?.text())
    }
}

/// The texts of a result's content and structured content, whichever protocol the answer is of.
fn result(answer: &str) -> Result<(&str, &str)> {
    let message = answer.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap_or(answer);
    let result = named(message, ["result"]).and_then(|[result]| result);
    let parts = result.and_then(|result| named(result, ["content", "structuredContent"]));
    match parts {
        Some([Some(content), Some(structured)]) => Ok((content, structured)),
        _ => anyhow::bail!("no result: {answer:.1000}"),
    }
}

/// The string that a JSON text is.
fn string(text: &str) -> Result<String> {
    Ok(Json::part(text).as_str().context("a string")?.to_owned())
}

/// Compares what came to the upstream with `arguments`, and what the client got with `said`, byte by byte.
fn check(backend: Backend, answer: &str, arguments: &str, said: &str) -> Result<()> {
    let (content, structured) = result(answer)?;
    let blocks = Json::part(content).elements().context("content is a list")?;
    let first = blocks.first().context("content has a block")?;
    let text = first["text"].as_str().context("it has a text")?;
    let (came, structured) = match backend {
        Backend::Http => {
            // A service has no content: it is the text of the structured one, as a string.
            ensure!(text == structured, "{text:.500} is not {structured:.500}");
            match named(structured, ["came", "data"]) {
                Some([Some(came), Some(data)]) => (string(came)?, data),
                _ => anyhow::bail!("{structured:.500}"),
            }
        }
        Backend::Mcp | Backend::Stdio => {
            let cut = blocks.get(1).map(Json::text);
            ensure!(cut == Some(r#"{"type":"text","text":"cut \ud800"}"#), "{cut:?}");
            (text.to_owned(), structured)
        }
    };
    ensure!(came == arguments, "{came:.500} came, and not {arguments:.500}");
    ensure!(structured == said, "{structured:.500} was got, and not {said:.500}");
    Ok(())
}

async fn json_passes_by_every_protocol_to_every_upstream_as_it_was_written(_: &Shared) -> Result<()> {
    let specs = tempfile::tempdir()?;
    primitives(specs.path())?;
    let mut command = Command::new(tool::python()?);
    command.arg("-B").arg(tool::root()?.join("tests/services/verbatim.py")).arg("--http");
    let service = Process::start("verbatim.py", command)?;
    let upstream = format!("verbatim.internal=http://127.0.0.1:{}", port(&service).await?);
    let environment = vec![("ASP_UPSTREAMS", upstream)];
    let primitives = specs.path().to_owned();
    let options = Options { primitives, plugins: true, environment, ..Options::repository()? };
    let stack = Stack::start(options).await?;
    let token = stack.alice().await?;
    let session = message::initialize(stack.envoy.address, &token).await?;
    let caller = Caller { stack: &stack, token, session };
    calls(&caller).await.with_details(|| stack.asp.tail())?;
    refusals(&caller).await?;
    drop(service);
    stack.stop(&[]).await
}

/// All kinds at once, a string of 900 KiB, and an answer of 4 MiB.
async fn calls(caller: &Caller<'_>) -> Result<()> {
    let (all, long, large) = (kinds::all(), kinds::long(900 << 10), format!(r#"{{"large":{LARGE}}}"#));
    let answer = kinds::long(LARGE);
    let rows = [("all", &all, &all), ("long", &long, &long), ("large", &large, &answer)];
    for door in [Door::Legacy, Door::Modern, Door::Rest] {
        for backend in Backend::ALL {
            for (name, arguments, said) in rows {
                let place = || format!("{name}, {door:?}, {backend:?}");
                // Over REST, one id is one call of one tool.
                let id = format!("{name}-{}", backend.tool());
                let got = caller.call(door, backend.tool(), arguments, &id).await.with_context(place)?;
                check(backend, &got, arguments, said).with_context(place)?;
            }
        }
    }
    Ok(())
}

/// An envelope with a key twice is refused at the edge, in both eras.
async fn refusals(caller: &Caller<'_>) -> Result<()> {
    let params = json!({"name": "mcp", "arguments": {}});
    let session = [("mcp-session-id", caller.session.as_str()), ("mcp-protocol-version", "2025-11-25")];
    for mut request in [
        message::legacy(&caller.token, "tools/call", params.clone(), &session),
        message::modern(&caller.token, "tools/call", params.clone(), &[("mcp-name", "mcp")]),
    ] {
        let twice = String::from_utf8(request.body)?.replacen("\"id\":1", r#""id":1,"\u0069d":2"#, 1);
        request.body = twice.into_bytes();
        let answer = http1::send(caller.stack.envoy.address, &request).await?;
        let error: Value = answer.json()?["error"].clone();
        ensure!(answer.status == 400 && error["data"]["reason"] == "invalid_request", "{}", answer.text());
        ensure!(error["message"] == "the body is not a valid JSON-RPC 2.0 message", "{error}");
    }
    Ok(())
}
