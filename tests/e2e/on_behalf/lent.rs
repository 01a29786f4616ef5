//! Plugins of each language that ask a service over TLS which wants a key of the operator's: their proxy adds it, it goes
//! nowhere else whatever a plugin writes, and it is found in no sandbox, file, log or process but the platform's own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use asp_e2e::process::Process;
use asp_e2e::runtime::World;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{http1, tool, wait};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::LANGUAGES;
use super::keys::{forms, forms_of_plant, holds, read_all};
use crate::certificate::certificates;
use crate::plugins::{Client, MODES};
use crate::trial::Shared;

const HOST: &str = "crm.test";
/// As the plugin has it.
const MASK: u8 = 0x55;

/// The service, a place beside it, and what the platform is told of both.
struct Recording {
    dir: TempDir,
    process: Process,
    port: u64,
    other: u64,
    key: String,
    authority: PathBuf,
}

impl Recording {
    async fn start() -> Result<Recording> {
        let dir = tempfile::tempdir()?;
        // Random, so that nothing else has it.
        let key = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        let files = certificates(dir.path(), HOST)?;
        let secret = dir.path().join("secret");
        std::fs::write(&secret, &key)?;
        let mut command = Command::new(tool::python()?);
        command.arg("-B").arg(tool::root()?.join("tests/services/recording.py"));
        command.arg(&files.chain).arg(&files.key).arg(&secret);
        let process = Process::start("recording.py", command)?;
        let ports = wait::until("the service listens", wait::START, || async {
            let lines = process.log().lines();
            let ports: Value = serde_json::from_str(lines.first()?).ok()?;
            Some((ports["port"].as_u64()?, ports["other"].as_u64()?))
        });
        let (port, other) = ports.await.with_details(|| process.tail())?;
        let header = json!({ "name": "x-api-key", "valueFile": secret });
        let credential =
            json!({ "origin": format!("https://{HOST}:{port}"), "primitives": ["lent/*"], "header": header });
        std::fs::write(dir.path().join("credentials.json"), json!({ "crm": credential }).to_string())?;
        std::fs::write(dir.path().join("hosts"), format!("127.0.0.1 localhost {HOST} other.test\n"))?;
        Ok(Recording { dir, process, port, other, key, authority: files.authority })
    }

    fn options(&self) -> Result<Options> {
        let file = |name: &str| self.dir.path().join(name);
        let environment = vec![
            (
                "ASP_RUNTIME_EGRESS_ALLOW_PRIVATE",
                format!("{HOST}=127.0.0.0/8;for=lent/*, other.test=127.0.0.0/8;for=lent/*"),
            ),
            ("SSL_CERT_FILE", self.authority.display().to_string()),
            ("ASP_LOG", "debug".into()),
        ];
        Ok(Options {
            primitives: tool::root()?.join("tests/fixtures/lent"),
            plugins: true,
            runtime: World { hosts: Some(file("hosts")), environment, ..World::default() },
            environment: vec![
                ("ASP_CREDENTIALS", file("credentials.json").display().to_string()),
                ("ASP_LOG", "debug".into()),
            ],
            ..Options::repository()?
        })
    }

    /// What came on each connection to the service or the place beside it, by now.
    fn heard(&self, place: &str) -> Vec<String> {
        let lines = self.process.log().lines();
        let told = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        told.filter(|line| line["place"] == place)
            .filter_map(|line| Some(line["heard"].as_str()?.to_owned()))
            .filter(|heard| !heard.is_empty())
            .collect()
    }
}

pub(super) async fn plugins_ask_a_service_that_wants_a_key_and_never_have_it(_: &Shared) -> Result<()> {
    let service = Recording::start().await?;
    let stack = Stack::start(service.options()?).await?;
    let item = json!({ "url": format!("http://{HOST}:{}/items/7", service.port) });
    for (mode, protocol) in MODES {
        let client = Client { stack: &stack, mode, protocol };
        for language in LANGUAGES {
            let said = ask(&client, &format!("ask_{language}"), &item).await?;
            let text = said.to_string();
            ensure!(said["status"] == 200 && text.contains("An item"), "{mode} {language}: {text}");
        }
        // The same question from a plugin whose spec does not let it reach the service.
        let answer = client.call("lent", "astray", &item, &json!({})).await?;
        let said = answer.result.map(|result| result.to_string()).unwrap_or_default();
        ensure!(said.contains("allowedDomains"), "{mode}: {said}");
    }
    let (mode, protocol) = MODES[1];
    let client = Client { stack: &stack, mode, protocol };
    lies(&client, &service).await?;
    inside(&client, &service).await?;
    outside(&stack, &service).await?;
    drop(service);
    stack.stop(&[]).await
}

async fn ask(client: &Client<'_>, plugin: &str, arguments: &Value) -> Result<Value> {
    let answer = client.call("lent", plugin, arguments, &json!({})).await?;
    let result = answer.result.with_context(|| format!("{plugin}: {:?}", answer.error))?;
    ensure!(result["structuredContent"].is_object(), "{plugin}: {result}\n{}", client.stack.asp.tail());
    Ok(result["structuredContent"].clone())
}

/// A plugin writes what it likes to its proxy.
async fn lies(client: &Client<'_>, service: &Recording) -> Result<()> {
    let Recording { port, other, key, .. } = service;
    let own = format!("{HOST}:{port}");
    let second = format!("GET http://{own}/second HTTP/1.1\r\nHost: {own}\r\nx-api-key: mine\r\n\r\n");
    for (raw, status) in [
        (format!("GET http://{own}/ HTTP/1.1\r\nx-api-key: mine\r\nX_API_KEY: mine\r\n\r\n"), 200),
        (format!("GET http://{own}/ HTTP/1.1\r\nConnection: x-api-key\r\n\r\n{second}"), 200),
        (format!("POST http://{own}/ HTTP/1.1\r\nContent-Length: 2\r\n\r\n{{}}{second}"), 200),
        (format!("GET http://{own}/ HTTP/1.1\r\nHost: {HOST}:{other}\r\n\r\n"), 400),
        (
            format!(
                "POST http://{own}/ HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{second}"
            ),
            400,
        ),
        (format!("TRACE http://{own}/ HTTP/1.1\r\n\r\n"), 400),
        (format!("GET http://{HOST}:{other}/ HTTP/1.1\r\n\r\n"), 403),
        (format!("GET http://localhost:{other}/ HTTP/1.1\r\n\r\n"), 403),
        (format!("GET http://other.test:{other}/ HTTP/1.1\r\n\r\n"), 403),
        (format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n"), 403),
        (
            format!("CONNECT {own} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: {own}\r\nx-api-key: mine\r\n\r\n"),
            200,
        ),
        (format!("CONNECT {own} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: {HOST}:{other}\r\n\r\n"), 200),
        (format!("CONNECT {HOST}:{other} HTTP/1.1\r\n\r\n"), 403),
    ] {
        let said = ask(client, "ask_python", &json!({ "raw": raw })).await?;
        let answer = said["answer"].as_str().context("the proxy answered")?;
        ensure!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{raw}: {answer}");
        ensure!(!answer.contains(key), "{raw}: the answer holds the key");
    }
    ensure!(service.heard("other").is_empty(), "somebody else was asked: {:?}", service.heard("other"));
    // Two modes in three languages, and what was meant for it here.
    let heard = wait::until("the service was asked", wait::START, || async {
        Some(service.heard("service")).filter(|heard| heard.len() >= 10)
    });
    let heard = heard.await.with_context(|| format!("{:?}", service.heard("service")))?;
    for request in heard {
        let (head, rest) = request.split_once("\r\n\r\n").context("a whole head")?;
        ensure!(head.matches(key).count() == 1 && head.contains(&format!("host: {own}\r\n")), "{head}");
        ensure!(!request.contains("mine") && !request.contains("/second") && rest.len() <= 2, "{request}");
    }
    Ok(())
}

/// What a plugin finds that looks for the key in its own sandbox.
async fn inside(client: &Client<'_>, service: &Recording) -> Result<()> {
    let hex = |form: &Vec<u8>| form.iter().map(|byte| format!("{:02x}", byte ^ MASK)).collect::<String>();
    let masked: Vec<String> = forms(&service.key).iter().map(hex).collect();
    let said = ask(client, "ask_python", &json!({ "masked": masked })).await?;
    let looked = said["looked"].as_object().context("where it looked")?;
    for place in ["memory", "environ", "cmdline"] {
        let seen = looked.iter().filter(|(name, _)| name.ends_with(place));
        let bytes: u64 = seen.filter_map(|(_, bytes)| bytes.as_u64()).sum();
        ensure!(bytes > 0, "it could not look at {place}: {:?}", looked.keys());
    }
    ensure!(said["found"] == json!([]), "a key in the sandbox: {}", said["found"]);
    // What is laid out there is found, in a file and in memory. It is another key: this process is looked at later.
    let other: Vec<String> = forms("planted-planted-planted-planted").iter().map(hex).collect();
    let said = ask(client, "ask_python", &json!({ "masked": other, "plant": true })).await?;
    let found = said["found"].to_string();
    ensure!(found.contains("memory") && found.contains("planted"), "what was planted is not found: {found}");
    Ok(())
}

/// What somebody finds who may look everywhere on the machine.
async fn outside(stack: &Stack, service: &Recording) -> Result<()> {
    let mut places = BTreeMap::new();
    let runtime = stack.runtime.as_ref().context("the stack has a runtime")?.lock().await;
    for process in [&stack.asp, &stack.envoy.process, &runtime.process] {
        let id = process.id().context("it runs")?;
        places.insert(format!("the log of {id}"), process.log().lines().join("\n").into_bytes());
        for file in ["environ", "cmdline"] {
            places.insert(format!("{file} of {id}"), std::fs::read(format!("/proc/{id}/{file}"))?);
        }
    }
    ensure!(runtime.process.log().contains("\"level\":\"DEBUG\""), "the runtime logs at debug");
    let admin = format!("Bearer {}", stack.token(&["--admin", "--user", "ops"]).await?);
    for path in ["/api/audit", "/api/audit/calls", "/api/registry/servers", "/api/runtimes"] {
        let answer = http1::get(stack.admin(), path, &[("authorization", &admin)]).await?;
        places.insert(path.into(), answer.body.to_vec());
    }
    for dir in [stack.state.path(), runtime.disk(), runtime.plugins()] {
        read_all(dir, &mut places)?;
    }
    let forms = forms(&service.key);
    for (place, text) in &places {
        ensure!(!holds(text, &forms), "{place} holds the key");
    }
    for planted in forms_of_plant(&service.key) {
        ensure!(holds(planted.as_bytes(), &forms), "a planted key is not found");
    }
    let workers = runtime.workers()?;
    ensure!(workers.len() >= LANGUAGES.len(), "a worker of each language is there: {workers:?}");
    for worker in workers {
        let (read, found) = memory(Path::new(&format!("/proc/{worker}")), &service.key)?;
        ensure!(
            read > 1 << 20 && !found,
            "worker {worker}: {read} bytes of memory, the key among them: {found}"
        );
    }
    // It is found where it is meant to be: at the gateway.
    let id = stack.asp.id().context("it runs")?;
    let (_, found) = memory(Path::new(&format!("/proc/{id}")), &service.key)?;
    ensure!(found, "the key is not found where it is");
    Ok(())
}

/// Reads the memory of a process: how much, and whether the key is in it.
fn memory(process: &Path, key: &str) -> Result<(usize, bool)> {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string(process.join("maps"))?;
    let memory = std::fs::File::open(process.join("mem"))?;
    let (mut read, mut found) = (0, false);
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (place, access) = words.next().zip(words.next()).context("a line of maps")?;
        let (start, end) = place.split_once('-').context("a place")?;
        let (start, end) = (u64::from_str_radix(start, 16)?, u64::from_str_radix(end, 16)?);
        // Without backing it cannot be read; reserved memory of Java and Node is not touched.
        if !access.starts_with('r') {
            continue;
        }
        let mut part = vec![0; 1 << 20];
        let mut at = start;
        while at < end {
            let wanted = usize::try_from(end - at)?.min(part.len());
            let Ok(length @ 1..) = memory.read_at(&mut part[..wanted], at) else { break };
            read += length;
            found |= memchr::memmem::find(&part[..length], key.as_bytes()).is_some();
            // What lies across two parts is looked at with the second.
            let step =
                if at + length as u64 == end { length } else { length.saturating_sub(key.len()).max(1) };
            at += step as u64;
        }
    }
    Ok((read, found))
}
