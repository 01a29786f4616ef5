//! An upstream MCP server and an HTTP API that want a key of the operator's: imported and called, and the key is found nowhere
//! but in its file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use asp_e2e::process::Process;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{http1, tool, wait};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::plugins::{Client, MODES};
use crate::trial::Shared;

/// What the beginning of a secret is that may not be anywhere either.
const BEGINNING: usize = 16;

/// The service, its two keys, and the file that tells the gateway of them.
struct Keyed {
    dir: TempDir,
    _process: Process,
    port: u64,
    keys: [String; 2],
}

impl Keyed {
    async fn start() -> Result<Keyed> {
        let dir = tempfile::tempdir()?;
        // Random, so that nothing else has them.
        let keys = [0, 1].map(|_| URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()));
        let mut command = Command::new(tool::python()?);
        command.arg("-B").arg(tool::root()?.join("tests/services/keyed.py"));
        for (name, key) in ["mcp", "api"].iter().zip(&keys) {
            let file = dir.path().join(name);
            std::fs::write(&file, key)?;
            command.arg(file);
        }
        let process = Process::start("keyed.py", command)?;
        let port = wait::until("the service listens", wait::START, || async {
            let lines = process.log().lines();
            serde_json::from_str::<Value>(lines.first()?).ok()?["port"].as_u64()
        });
        let port = port.await.with_details(|| process.tail())?;
        let keyed = Keyed { dir, _process: process, port, keys };
        let header = json!({ "name": "x-api-key", "valueFile": keyed.dir.path().join("mcp") });
        let credentials = json!({
            "notes": { "origin": keyed.origin(), "primitives": ["notes/*"], "header": header },
            "items": { "origin": keyed.origin(), "primitives": ["items/*"], "bearerFile": keyed.dir.path().join("api") },
        });
        std::fs::write(keyed.credentials(), credentials.to_string())?;
        Ok(keyed)
    }

    fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn credentials(&self) -> PathBuf {
        self.dir.path().join("credentials.json")
    }

    /// `asp import`; what it printed.
    async fn import(&self, out: &Path, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(tool::asp()?);
        command
            .arg("import")
            .args(arguments)
            .arg("--out")
            .arg(out)
            .env("ASP_CREDENTIALS", self.credentials());
        let output = command.kill_on_drop(true).output().await?;
        let said =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        ensure!(output.status.success(), "{said}");
        // Nobody sees what was imported before somebody has looked at it.
        for server in ["notes", "items"] {
            let file = out.join(server).join("server.yaml");
            if let Ok(text) = std::fs::read_to_string(&file) {
                std::fs::write(&file, text.replace("defaultExposure: deny", "defaultExposure: allow"))?;
            }
        }
        Ok(said)
    }
}

pub(super) async fn an_upstream_and_an_api_that_want_a_key_never_show_it(_: &Shared) -> Result<()> {
    let service = Keyed::start().await?;
    let primitives = tempfile::tempdir()?;
    let out = primitives.path();
    let url = format!("{}/mcp", service.origin());
    let there = ["--proxy-url", "http://keyed.internal/mcp", "--owner", "team@example.com"];
    let notes = [&["--mcp", &url, "--server", "notes", "--credential", "notes"][..], &there].concat();
    let mut said = service.import(out, &notes).await?;
    let document = tool::root()?.join("tests/services/items.json").display().to_string();
    let there = ["--proxy-url", "http://keyed.internal", "--owner", "team@example.com"];
    let items =
        [&["--openapi", &document, "--server", "items", "--credential", "items"][..], &there].concat();
    said += &service.import(out, &items).await?;
    let stack = Stack::start(Options {
        primitives: out.to_owned(),
        environment: vec![
            ("ASP_UPSTREAMS", format!("keyed.internal={}", service.origin())),
            ("ASP_CREDENTIALS", service.credentials().display().to_string()),
            ("ASP_LOG", "debug".into()),
        ],
        ..Options::repository()?
    })
    .await?;
    for (mode, protocol) in MODES {
        let client = Client { stack: &stack, mode, protocol };
        let answer = client.call("notes", "greet", &json!({"name": "Ada"}), &json!({})).await?;
        let result = answer.result.with_context(|| format!("{mode}: {:?}", answer.error))?;
        ensure!(result["content"][0]["text"] == "Hello Ada", "{mode}: {result}");
        let answer = client.call("items", "getItem", &json!({"id": "7"}), &json!({})).await?;
        let result = answer.result.with_context(|| format!("{mode}: {:?}", answer.error))?;
        ensure!(result["structuredContent"]["title"] == "An item", "{mode}: {result}");
    }
    nowhere(&service, &stack, out, said).await?;
    drop(service);
    stack.stop(&[]).await
}

/// Looks for the keys wherever the platform writes, and finds one that was planted.
async fn nowhere(service: &Keyed, stack: &Stack, out: &Path, said: String) -> Result<()> {
    let mut places = BTreeMap::from([("asp import".to_owned(), said.into_bytes())]);
    let log = |process: &Process| process.log().lines().join("\n").into_bytes();
    places.insert("the log of asp".into(), log(&stack.asp));
    places.insert("the log of Envoy".into(), log(&stack.envoy.process));
    places.insert("Envoy's configuration".into(), stack.envoy.admin("/config_dump").await?.into_bytes());
    let admin = format!("Bearer {}", stack.token(&["--admin", "--user", "ops"]).await?);
    for path in ["/api/audit", "/api/audit/calls", "/api/registry/servers", "/api/issuers"] {
        let answer = http1::get(stack.admin(), path, &[("authorization", &admin)]).await?;
        places.insert(path.into(), answer.body.to_vec());
    }
    for process in [&stack.asp, &stack.envoy.process] {
        let id = process.id().context("it runs")?;
        places.insert(format!("the environment of {id}"), std::fs::read(format!("/proc/{id}/environ"))?);
        places.insert(format!("the command line of {id}"), std::fs::read(format!("/proc/{id}/cmdline"))?);
    }
    for dir in [stack.state.path(), out] {
        read_all(dir, &mut places)?;
    }
    ensure!(places.keys().any(|place| place.ends_with("audit.db")), "{:?}", places.keys());
    let forms: Vec<Vec<u8>> = service.keys.iter().flat_map(|key| forms(key)).collect();
    for (place, text) in &places {
        ensure!(!holds(text, &forms), "{place} holds a key");
    }
    for (at, planted) in service.keys.iter().flat_map(|key| forms_of_plant(key)).enumerate() {
        ensure!(holds(format!("a {planted} b").as_bytes(), &forms), "a planted key is not found: {at}");
    }
    Ok(())
}

/// How a key may be written: as it is, in base64 at each of the three places of a group, in hexadecimal; and so its beginning.
pub(super) fn forms(key: &str) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for text in [key, &key[..BEGINNING]] {
        all.push(text.as_bytes().to_vec());
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        all.push(hex.to_uppercase().into_bytes());
        all.push(hex.into_bytes());
        for shift in 0..3 {
            let shifted = [&"xxx".as_bytes()[..shift], text.as_bytes()].concat();
            let coded = STANDARD.encode(shifted);
            // What the bytes before and behind it make otherwise is left out.
            let from = [0, 2, 3][shift];
            let coded = coded.trim_end_matches('=');
            all.push(coded.as_bytes()[from..coded.len() - 1].to_vec());
        }
    }
    all
}

pub(super) fn forms_of_plant(key: &str) -> Vec<String> {
    let half = &key[..BEGINNING];
    vec![
        key.to_owned(),
        format!("{half}..."),
        STANDARD.encode(key),
        STANDARD.encode(format!("Bearer {key}")),
        STANDARD.encode(format!("u:{half}rest")),
        key.bytes().map(|byte| format!("{byte:02x}")).collect(),
    ]
}

pub(super) fn holds(text: &[u8], forms: &[Vec<u8>]) -> bool {
    forms.iter().any(|form| memchr::memmem::find(text, form).is_some())
}

pub(super) fn read_all(dir: &Path, into: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let kind = std::fs::symlink_metadata(&path)?.file_type();
        if kind.is_dir() {
            read_all(&path, into)?;
        } else if kind.is_file() {
            into.insert(path.display().to_string(), std::fs::read(&path)?);
        }
    }
    Ok(())
}
