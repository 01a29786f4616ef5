//! Two gateways and two control planes over one PostgreSQL and one object store: a package comes back from the other control
//! plane, an artifact is read at the other gateway (I-3), and while the store is away only what needs it is refused.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::Cluster;
use asp_e2e::http1;
use asp_e2e::object_store::{ObjectStore, SECRET_KEY};
use asp_e2e::runtime::{self, Runtime};
use asp_e2e::stack::Ports;
use asp_e2e::stores::Postgres;
use asp_e2e::{tool, wait};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::message::{modern, rest};
use crate::plugin_wire::asp;
use crate::policy::sha256;
use crate::trial::{Shared, trials};

/// More than gateways put into an answer where they may give URLs.
const LARGE: usize = 1 << 20;
const PLUGIN: &str = r#""""Leaves a file behind."""

from dataclasses import dataclass

from asp_plugin import Context, plugin


@dataclass
class Input:
    name: str


@dataclass
class Output:
    greeting: str


@plugin.tool
async def run(args: Input, ctx: Context) -> Output:
    content = b"x" * (1 << 20) if args.name == "large.bin" else b"the salary of May"
    await ctx.artifact(args.name, content, content_type="text/plain")
    return Output(args.name)
"#;

trials! { object_store:
    what_one_process_keeps_every_process_has_and_its_loss_is_survived,
}

struct Platform {
    store: ObjectStore,
    cluster: Cluster,
    work: tempfile::TempDir,
    token: String,
    admin: String,
    _runtime: Runtime,
    _postgres: Postgres,
}

async fn what_one_process_keeps_every_process_has_and_its_loss_is_survived(_: &Shared) -> Result<()> {
    let mut platform = Platform::start().await?;
    let digest = platform.pushed().await.context("a package that is pushed")?;
    let [small, large] = platform.artifacts().await.context("artifacts")?;
    platform.away(&small).await.context("while the store is away")?;
    platform.back(&small, &large).await.context("when the store is back")?;
    platform.installed(&digest).await.context("a package that is installed")?;
    platform.told_no_secret()
}

impl Platform {
    async fn start() -> Result<Platform> {
        let work = tempfile::tempdir()?;
        let source = work.path().join("src");
        fs::create_dir(&source)?;
        asp(&["plugin", "new", "upload", "--language", "python"], &source).await?;
        fs::write(source.join("upload/plugins/upload/main.py"), PLUGIN)?;
        let (postgres, store) = (Postgres::start().await?, ObjectStore::start().await?);
        let runtime = Runtime::start(&source, runtime::World::default()).await?;
        let mut environment = store.environment();
        environment.push(("ASP_DATABASE_URL", postgres.url()));
        environment.push(("ASP_RUNTIMES", runtime::address(&runtime.socket)));
        environment.push(("ASP_S3_SIGNED_URLS", "60".into()));
        let cluster = Cluster::start_with_two_controls(environment, 2).await?;
        let token = cluster.token(&["--org", "acme", "--user", "alice"]).await?;
        let admin = cluster.token(&["--admin", "--user", "root"]).await?;
        Ok(Platform { store, cluster, work, token, admin, _runtime: runtime, _postgres: postgres })
    }

    fn controls(&self) -> Result<[&Ports; 2]> {
        let second = self.cluster.second_control.as_ref().context("a second control plane")?;
        Ok([&self.cluster.control_ports, &second.1])
    }

    fn gateways(&self) -> [SocketAddr; 2] {
        [self.cluster.gateways[0].address, self.cluster.gateways[1].address]
    }

    /// `asp` in the folder of work, with a control plane.
    async fn asp(&self, control: &Ports, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(tool::asp()?);
        command.args(arguments).current_dir(self.work.path()).stdin(Stdio::null()).kill_on_drop(true);
        command.env("ASP_ADMIN_URL", admin_url(control)).env("ASP_ADMIN_TOKEN", &self.admin);
        command.env("ASP_PLUGIN_PYTHON", tool::plugin_python()?).env("ASP_RUNTIME_BIN", tool::runtime()?);
        let output = command.output().await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?}: {said}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Published through one control plane, and fetched through the other, by a URL of the store.
    async fn pushed(&self) -> Result<String> {
        let [first, second] = self.controls()?;
        self.asp(first, &["apply", "src"]).await?;
        let built: Value =
            serde_json::from_str(&self.asp(first, &["plugin", "build", "src", "--json"]).await?)?;
        let digest = built[0]["sha256"].as_str().context("a digest")?.to_owned();
        self.asp(first, &["plugin", "push"]).await?;
        let path = format!("/api/artifacts/{digest}");
        let address = SocketAddr::from(([127, 0, 0, 1], second.admin));
        let redirected = http1::send(address, &rest("GET", &path, &self.admin, &Value::Null)).await?;
        ensure!(redirected.status == 307, "{} {}", redirected.status, redirected.text());
        ensure!(redirected.header("cache-control") == Some("no-store"));
        let fetched = self.fetch(redirected.header("location").context("a URL")?).await?;
        ensure!(sha256_of(&fetched.body) == digest && fetched.status == 200, "{}", fetched.status);
        let head = http1::send(address, &rest("HEAD", &path, &self.admin, &Value::Null)).await?;
        ensure!(head.status == 200 && head.header("content-length") == Some(&fetched.body.len().to_string()));
        ensure!(self.store.objects("packages")?.len() == 1);
        ensure!(!self.cluster.directory.path().join("control/packages").exists(), "it is on no disk");
        Ok(digest)
    }

    /// By the digest that a spec pins, as beside a runtime.
    async fn installed(&self, digest: &str) -> Result<()> {
        let [first, second] = self.controls()?;
        pin(&self.work.path().join("src/upload/upload.yaml"), digest)?;
        self.asp(first, &["apply", "src"]).await?;
        let url = admin_url(second);
        let install = ["plugin", "install", "--from", &url, "--plugins", "installed", "--json"];
        let installs = || async {
            let installed: Value = serde_json::from_str(&self.asp(second, &install).await.ok()?).ok()?;
            (installed[0]["artifactSha256"] == digest).then_some(())
        };
        wait::until("it is installed", wait::CONVERGE, installs).await
    }

    /// What the store says at a URL that it was asked by.
    async fn fetch(&self, url: &str) -> Result<http1::Response> {
        let path =
            url.strip_prefix(&format!("http://{}", self.store.address)).context("a URL of the store")?;
        http1::get(self.store.address, path, &[]).await
    }

    /// Made at one gateway and read at the other: small ones there, large ones by a URL.
    async fn artifacts(&self) -> Result<[String; 2]> {
        let [first, second] = self.gateways();
        let made = || async { self.link(first, "may.txt").await.ok() };
        let small = wait::until("the plugin is there", wait::START, made).await?;
        let large = self.link(first, "large.bin").await?;
        // The second has another control plane, and may hear of the server later.
        let read = || async {
            let read = self.read(second, &self.token, &small).await.ok()?;
            (read["result"]["contents"][0]["text"] == "the salary of May").then_some(())
        };
        wait::until("the second gateway reads it", wait::CONVERGE, read).await?;
        let read = self.read(second, &self.token, &large).await?;
        let content = &read["result"]["contents"][0];
        ensure!(content["uri"] == *large && content["mimeType"] == "text/uri-list", "{content}");
        ensure!(
            content["_meta"]["asp/size"] == LARGE && content["_meta"]["asp/expiresAt"].is_string(),
            "{content}"
        );
        let fetched = self.fetch(content["text"].as_str().context("a URL")?.trim_end()).await?;
        ensure!(fetched.body == [b'x'; LARGE] && fetched.status == 200, "{}", fetched.status);
        let disposition = fetched.header("content-disposition");
        ensure!(disposition == Some("attachment; filename=\"large.bin\""), "{disposition:?}");

        let bob = self.cluster.token(&["--org", "acme", "--user", "bob"]).await?;
        for uri in [&small, &large] {
            let read = self.read(second, &bob, uri).await?;
            ensure!(read["error"]["data"]["reason"] == "unknown_primitive", "{read}");
        }
        Ok([small, large])
    }

    /// The server's process is gone.
    async fn away(&mut self, small: &str) -> Result<()> {
        self.store.process.signal(Signal::KILL)?;
        self.store.process.wait(wait::CONVERGE).await?;
        let [first, second] = self.gateways();
        let read = self.read(second, &self.token, small).await?;
        ensure!(read["error"]["data"]["reason"] == "upstream_unavailable", "{read}");
        let called = self.call(first, "may.txt").await?;
        let said = called["result"]["content"].to_string();
        ensure!(said.contains("was not stored: the store is not available"), "{called}");
        ensure!(called["result"]["structuredContent"]["greeting"] == "may.txt", "the call goes on: {called}");
        let list = modern(&self.token, "tools/list", json!({}), &[]);
        for gateway in [first, second] {
            ensure!(http1::send(gateway, &list).await?.status == 200);
            ensure!(http1::get(gateway, "/readyz", &[]).await?.status == 200);
        }
        for control in self.controls()? {
            let address = SocketAddr::from(([127, 0, 0, 1], control.admin));
            let mut put =
                rest("PUT", &format!("/api/artifacts/{}?name=a.whl", sha256("late")), &self.admin, &json!(1));
            put.headers.retain(|(name, _)| name != "content-type");
            put.headers.push(("content-type".into(), b"application/octet-stream".to_vec()));
            put.body = b"late".to_vec();
            let refused = http1::send(address, &put).await?;
            ensure!(
                refused.status == 503 && refused.json()?["code"] == "store_unavailable",
                "{}",
                refused.text()
            );
            ensure!(self.cluster.admin_of(control, "/api/artifacts").await?[0]["name"].is_string());
            ensure!(http1::get(address, "/readyz", &[]).await?.status == 200);
        }
        Ok(())
    }

    /// Nobody is restarted but the store.
    async fn back(&mut self, small: &str, large: &str) -> Result<()> {
        self.store.start_again().await?;
        for gateway in self.gateways() {
            let reads = || async {
                let read = self.read(gateway, &self.token, small).await.ok()?;
                (read["result"]["contents"][0]["text"] == "the salary of May").then_some(())
            };
            wait::until("the store is used again", wait::START, reads).await?;
            let keeps = || async { self.link(gateway, "may.txt").await.ok() };
            wait::until("artifacts are kept again", wait::START, keeps).await?;
        }
        let read = self.read(self.gateways()[0], &self.token, large).await?;
        let url = read["result"]["contents"][0]["text"].as_str().context("a URL")?;
        ensure!(self.fetch(url.trim_end()).await?.body.len() == LARGE);
        Ok(())
    }

    /// A failure is a warning, and no line holds a key or a signature.
    fn told_no_secret(&self) -> Result<()> {
        let second = self.cluster.second_control.iter().map(|(process, _)| process);
        let gateways = self.cluster.gateways.iter().map(|gateway| &gateway.process);
        for process in second.chain(gateways).chain([&self.cluster.control]) {
            let log = process.log();
            ensure!(!log.contains(SECRET_KEY) && !log.contains("X-Amz"), "{}", process.tail());
            ensure!(!log.contains("\"level\":\"ERROR\""), "{}", process.tail());
            ensure!(!log.contains("cannot be used yet"), "it was there at the start: {}", process.tail());
        }
        Ok(())
    }

    /// The link in the result of a call that leaves a file of this name.
    async fn link(&self, gateway: SocketAddr, name: &str) -> Result<String> {
        let answer = self.call(gateway, name).await?;
        let content = answer["result"]["content"].as_array().with_context(|| answer.to_string())?;
        let link = content.iter().find(|block| block["type"] == "resource_link");
        Ok(link.with_context(|| answer.to_string())?["uri"].as_str().context("a URI")?.to_owned())
    }

    async fn call(&self, gateway: SocketAddr, name: &str) -> Result<Value> {
        let params = json!({"name": "upload", "arguments": {"name": name}});
        ask(gateway, modern(&self.token, "tools/call", params, &[("mcp-name", "upload")])).await
    }

    async fn read(&self, gateway: SocketAddr, token: &str, uri: &str) -> Result<Value> {
        ask(gateway, modern(token, "resources/read", json!({"uri": uri}), &[("mcp-name", uri)])).await
    }
}

/// The answer to a request to the server of the plugin, whether it comes as JSON or as a stream.
async fn ask(gateway: SocketAddr, mut request: http1::Request) -> Result<Value> {
    request.target = "/upload/mcp".into();
    let text = http1::send(gateway, &request).await?.text();
    let is_answer = |data: &&str| data.contains("\"result\"") || data.contains("\"error\"");
    let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).rfind(is_answer);
    serde_json::from_str(last.unwrap_or(&text)).context(text.clone())
}

fn admin_url(control: &Ports) -> String {
    format!("http://127.0.0.1:{}", control.admin)
}

fn sha256_of(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a digest into a spec, as a pull request would.
fn pin(file: &Path, digest: &str) -> Result<()> {
    let spec = fs::read_to_string(file)?;
    let pinned = spec
        .replacen("runtime:\n", &format!("runtime:\n  artifactSha256: \"{digest}\"\n"), 1)
        .replacen("runtime: {", &format!("runtime: {{artifactSha256: \"{digest}\", "), 1);
    ensure!(pinned != spec, "{} has no runtime", file.display());
    Ok(fs::write(file, pinned)?)
}
