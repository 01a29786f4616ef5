//! Every door of the platform and every certificate that is not for it; certificates that change while requests run.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use asp_e2e::http1;
use asp_e2e::process::Process;
use asp_e2e::stack;
use asp_e2e::tls_tunnel::TlsTunnel;
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{tool, wait};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::certificate::{Authority, Files};
use crate::message::modern;
use crate::peers::{NAME, control_with, foreign_with, gateway_with, peer_socket};
use crate::trial::{Shared, trials};

/// RFC 9113 section 3.4: the preface of HTTP/2, then empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Serial numbers: of certificates that are good, and of the one that is taken back.
const GOOD: u64 = 1;
const REVOKED: u64 = 666;
const FUTURE: i32 = 2999;
const PAST: i32 = 2021;
/// Requests at a time while certificates change, and how often they do.
const CALLERS: usize = 6;
const ROTATIONS: u64 = 4;
/// The serial number of the first that Envoy shows there.
const ENVOY: u64 = 200;

trials! { doors:
    every_door_refuses_every_certificate_that_is_not_for_it,
    people_reach_the_admin_api_over_tls_and_never_in_clear,
    an_open_subscription_ends_when_its_certificate_is_revoked,
    certificates_change_under_load_and_no_request_fails,
}

/// Certificates, good and bad, for one world.
struct World {
    directory: tempfile::TempDir,
    authority: Authority,
    foreign: Authority,
    list: String,
}

impl World {
    fn new() -> Result<World> {
        let directory = tempfile::tempdir()?;
        let place = |name: &str| -> Result<Authority> {
            let path = directory.path().join(name);
            std::fs::create_dir(&path)?;
            Authority::new(&path)
        };
        let (authority, foreign) = (place("own")?, place("foreign")?);
        let list = authority.revoke(&[REVOKED])?.to_string_lossy().into_owned();
        Ok(World { directory, authority, foreign, list })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn good(&self, holder: &str) -> Result<Files> {
        self.authority.process_until(&format!("good-{}", holder.replace('/', "-")), holder, GOOD, FUTURE)
    }

    /// Whom a door for `role` must not let in, and why.
    fn bad(&self, role: &str, others: &[&str]) -> Result<Vec<(String, Option<Files>)>> {
        let holder = format!("{role}/0");
        let own = &self.authority;
        let mut bad = vec![
            ("none".to_owned(), None),
            ("foreign".to_owned(), Some(self.foreign.process_until("foreign", &holder, GOOD, FUTURE)?)),
            ("expired".to_owned(), Some(own.process_until("expired", &holder, GOOD, PAST)?)),
            ("revoked".to_owned(), Some(own.process_until("revoked", &holder, REVOKED, FUTURE)?)),
        ];
        for other in others {
            bad.push((format!("role {other}"), Some(self.good(&format!("{other}/0"))?)));
        }
        Ok(bad)
    }

    async fn control(&self) -> Result<(Process, stack::Ports)> {
        let files = self.authority.process("control/0", NAME)?;
        control_with(self.path(), &files, &[("ASP_PEER_CRL", &self.list)]).await
    }

    async fn gateway(&self, xds_port: u16) -> Result<(Process, stack::Ports)> {
        let more = [("ASP_PEER_CRL", self.list.as_str()), ("ASP_GATEWAY_MTLS_PORT", "0")];
        gateway_with(self.path(), &self.good("gateway/0")?, xds_port, &more).await
    }

    /// A runtime without plugins; where it listens.
    async fn runtime(&self) -> Result<(Process, SocketAddr)> {
        let files = self.good("runtime/0")?;
        let place = tempfile::Builder::new().prefix("rt").tempdir_in(self.path())?.keep();
        let plugins = place.join("plugins");
        std::fs::create_dir(&plugins)?;
        let mut command = Command::new(tool::runtime()?);
        command.args(["--listen", "127.0.0.1:0", "--bounds", "sampled", "--min-level", "1"]);
        command.arg("--plugins").arg(&plugins).arg("--state").arg(place.join("state"));
        command.arg("--tls-cert").arg(&files.chain).arg("--tls-key").arg(&files.key);
        command.arg("--tls-client-ca").arg(&files.authority).arg("--tls-crl").arg(&self.list);
        let process = Process::start("asp-runtime", command)?;
        let said = "serving by mutual TLS";
        process.logged(said).await?;
        let line = process.log().lines().into_iter().find(|line| line.contains(said)).context("the line")?;
        let line: Value = serde_json::from_str(&line)?;
        Ok((process, line["address"].as_str().context("an address")?.parse()?))
    }
}

/// Whether a door answers HTTP/2 to whoever shows this.
async fn lets_in(door: SocketAddr, authority: &Path, own: Option<&Files>) -> Result<bool> {
    let own = own.map(|files| (files.chain.as_path(), files.key.as_path()));
    let tunnel = TlsTunnel::start(door, authority, own).await?;
    let mut stream = TcpStream::connect(tunnel.address).await?;
    stream.write_all(PREFACE).await?;
    // Err: the door has closed the connection.
    let read = timeout(wait::CONVERGE, stream.read(&mut [0; 9])).await.context("the door says nothing")?;
    Ok(read.is_ok_and(|bytes| bytes > 0))
}

async fn every_door_refuses_every_certificate_that_is_not_for_it(_: &Shared) -> Result<()> {
    let world = World::new()?;
    let (mut control, control_ports) = world.control().await?;
    let (mut gateway, gateway_ports) = world.gateway(control_ports.xds).await?;
    let (mut runtime, runtime_address) = world.runtime().await?;
    let local = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let doors: [(&str, SocketAddr, &Process, &str, &[&str]); 3] = [
        ("xDS", local(control_ports.xds), &control, "envoy", &["runtime", "gateways"]),
        ("gateway", local(gateway_ports.gateway_mtls), &gateway, "envoy", &["gateway", "control", "runtime"]),
        ("runtime", runtime_address, &runtime, "gateway", &["envoy", "runtime"]),
    ];
    for (door, address, process, role, others) in doors {
        let good = world.good(&format!("{role}/0"))?;
        ensure!(lets_in(address, &good.authority, Some(&good)).await?, "{door}: {}", process.tail());
        for (why, files) in world.bad(role, others)? {
            let came = lets_in(address, &good.authority, files.as_ref()).await?;
            ensure!(!came, "{door} lets in: {why}");
        }
        ensure!(lets_in(address, &good.authority, Some(&good)).await?, "{door} is still open");
        for said in ["certificate is revoked", "certificate has expired", "its certificate is not for this"] {
            process.logged(said).await.context(door)?;
        }
        let mut plain = TcpStream::connect(address).await?;
        plain.write_all(PREFACE).await?;
        let mut answer = Vec::new();
        // Err: closed by force.
        let _ = timeout(wait::CONVERGE, plain.read_to_end(&mut answer)).await.context("it stays open")?;
        ensure!(!answer.starts_with(&PREFACE[24..28]), "{door} speaks in clear");
    }
    for process in [&mut runtime, &mut gateway, &mut control] {
        ensure!(process.stop().await?.success(), "it ended badly: {}", process.tail());
    }
    let faults = stack::faults(&[control.log(), gateway.log(), runtime.log()], &[]);
    ensure!(faults.is_empty(), "errors in the logs:\n{}", faults.join("\n"));
    Ok(())
}

/// `asp status` as people run it, with the authorities that this machine trusts.
async fn status(url: &str, token: &str, trusted: &Path) -> Result<(bool, String)> {
    let mut command = Command::new(tool::asp()?);
    command
        .arg("status")
        .env("ASP_ADMIN_URL", url)
        .env("ASP_ADMIN_TOKEN", token)
        .env("SSL_CERT_FILE", trusted)
        .kill_on_drop(true);
    let output = command.output().await?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

async fn people_reach_the_admin_api_over_tls_and_never_in_clear(_: &Shared) -> Result<()> {
    let world = World::new()?;
    let shown = world.good("admin/0")?;
    let state = world.path().join("state");
    std::fs::create_dir(&state)?;
    let mut command = Command::new(tool::asp()?);
    command
        .args(["serve", "--dev", "--roles", "control", "--primitives"])
        .arg(tool::root()?.join("primitives"))
        .env("ASP_STATE_DIR", &state)
        .env("ASP_PUBLIC_URL", "http://asp.test")
        .env("ASP_FILTER_WASM", tool::filter_wasm()?)
        .env("ASP_ADMIN_TLS_CERT", &shown.chain)
        .env("ASP_ADMIN_TLS_KEY", &shown.key)
        .envs(["ASP_PORT", "ASP_ENVOY_ADMIN_PORT", "ASP_ADMIN_PORT", "ASP_XDS_PORT"].map(|name| (name, "0")));
    let mut control = Process::start("control", command)?;
    let ports = stack::ports(&mut control, &state).await?;
    let token = stack::mint(&state, &["--admin", "--user", "root"]).await?;
    let url = format!("https://127.0.0.1:{}", ports.admin);
    let answers = || async { status(&url, &token, &shown.authority).await.ok().filter(|(good, _)| *good) };
    wait::until("the admin API answers over TLS", wait::START, answers)
        .await
        .with_details(|| control.tail())?;
    let (good, said) = status(&url, "not.a.token", &shown.authority).await?;
    ensure!(!good, "a certificate is no token: {said}");

    let foreign = world.foreign.process("admin/0", "x.test")?;
    let (good, said) = status(&url, &token, &foreign.authority).await?;
    ensure!(!good && said.contains("SSL_CERT_FILE"), "whom nobody trusts is told nothing: {said}");
    let admin = SocketAddr::from(([127, 0, 0, 1], ports.admin));
    ensure!(http1::get(admin, "/healthz", &[]).await.is_err(), "it speaks no plain HTTP");

    // An expired one takes its place, is refused by clients, and goes when a good one comes.
    let replace = |files: &Files| -> Result<()> {
        std::fs::copy(&files.chain, &shown.chain)?;
        std::fs::copy(&files.key, &shown.key)?;
        Ok(())
    };
    replace(&world.authority.process_until("old", "admin/0", GOOD, PAST)?)?;
    let (good, said) = status(&url, &token, &shown.authority).await?;
    ensure!(!good && said.contains("certificate"), "{said}");
    replace(&world.authority.process_until("new", "admin/0", GOOD, FUTURE)?)?;
    let (good, said) = status(&url, &token, &shown.authority).await?;
    ensure!(good, "without a restart: {said}");
    ensure!(control.stop().await?.success(), "it ended badly: {}", control.tail());
    Ok(())
}

async fn an_open_subscription_ends_when_its_certificate_is_revoked(_: &Shared) -> Result<()> {
    let world = World::new()?;
    let (mut control, ports) = world.control().await?;
    let door = SocketAddr::from(([127, 0, 0, 1], ports.xds));
    let lost = world.authority.process_until("lost", "gateway/7", 7, FUTURE)?;
    let tunnel = TlsTunnel::start(door, &lost.authority, Some((&lost.chain, &lost.key))).await?;
    let mut stream = TcpStream::connect(tunnel.address).await?;
    stream.write_all(PREFACE).await?;
    ensure!(stream.read(&mut [0; 9]).await? > 0, "the subscriber is let in");
    world.authority.revoke(&[REVOKED, 7])?;
    let ended = async {
        // Err: it is ended by force.
        while stream.read(&mut [0; 64]).await.is_ok_and(|bytes| bytes > 0) {}
    };
    // Pings of HTTP/2 that go unanswered would end it too, later.
    timeout(wait::CONVERGE, ended).await.with_details(|| control.tail())?;
    control.logged("open connections are ended").await?;
    ensure!(!lets_in(door, &lost.authority, Some(&lost)).await?, "nor does it come back");
    ensure!(control.stop().await?.success(), "it ended badly: {}", control.tail());
    Ok(())
}

fn echo(token: &str) -> http1::Request {
    let params = json!({"name": "echo", "arguments": {"message": "still here"}});
    modern(token, "tools/call", params, &[("mcp-name", "echo")])
}

/// A directory whose files are exchanged by exchanging a link, as Kubernetes mounts a secret.
struct Mounted(PathBuf);

impl Mounted {
    fn new(path: PathBuf) -> Result<Mounted> {
        std::fs::create_dir(&path)?;
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(format!("..data/{name}"), path.join(name))?;
        }
        Ok(Mounted(path))
    }

    /// Puts another certificate of an Envoy there.
    fn exchange(&self, world: &World, serial: u64) -> Result<()> {
        let files = world.authority.process_until("mounted", "envoy/0", serial, FUTURE)?;
        let version = self.0.join(format!("..{serial}"));
        std::fs::create_dir(&version)?;
        for (from, name) in [(&files.chain, "tls.crt"), (&files.key, "tls.key"), (&files.authority, "ca.crt")]
        {
            std::fs::copy(from, version.join(name))?;
        }
        symlink(format!("..{serial}"), self.0.join("..new"))?;
        Ok(std::fs::rename(self.0.join("..new"), self.0.join("..data"))?)
    }

    /// A socket of the shipped configuration whose certificate Envoy reads again, as docs/certificates.md has it.
    fn socket(&self, path: &str) -> Result<String> {
        let file = |name: &str| self.0.join(name);
        let files = Files { authority: file("ca.crt"), chain: file("tls.crt"), key: file("tls.key") };
        let mut socket: Value = serde_json::from_str(&peer_socket(path, &files)?)?;
        let secret = json!({"resources": [{
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            "name": "peer",
            "tls_certificate": {
                "certificate_chain": {"filename": files.chain},
                "private_key": {"filename": files.key},
                "watched_directory": {"path": self.0},
            },
        }]});
        let place = self.0.with_extension("json");
        std::fs::write(&place, secret.to_string())?;
        let source = json!({"resource_api_version": "V3", "path_config_source": {"path": place}});
        let context = socket.pointer_mut("/typed_config/common_tls_context").and_then(Value::as_object_mut);
        let context = context.context("a context of TLS")?;
        context.remove("tls_certificates").context("certificates")?;
        let secrets = json!([{"name": "peer", "sds_config": source}]);
        context.insert("tls_certificate_sds_secret_configs".into(), secrets);
        Ok(socket.to_string())
    }
}

/// Connections to the gateway end after a few requests, so that new ones meet every certificate.
fn brief(text: String) -> String {
    let Some((before, gateway)) = text.split_once("- name: gateway\n") else { return text };
    let options = gateway.lines().find(|line| line.trim() == "explicit_http_config:").unwrap_or_default();
    let brief = options
        .replace("explicit_http_config:", "common_http_protocol_options: { max_requests_per_connection: 5 }");
    let gateway = gateway.replacen(options, &format!("{brief}\n{options}"), 1);
    format!("{before}- name: gateway\n{gateway}")
}

/// Callers that go on until they are told, or until one is refused.
struct Load {
    over: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    callers: JoinSet<Result<()>>,
}

impl Load {
    fn start(address: SocketAddr, token: &str) -> Load {
        let mut load = Load { over: Arc::default(), answered: Arc::default(), callers: JoinSet::new() };
        for _ in 0..CALLERS {
            let (over, answered) = (Arc::clone(&load.over), Arc::clone(&load.answered));
            let request = echo(token);
            load.callers.spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    let answer = http1::send(address, &request).await?;
                    let good = answer.status == 200 && answer.text().contains("still here");
                    ensure!(good, "{} {}", answer.status, answer.text());
                    answered.fetch_add(1, Ordering::SeqCst);
                }
                Ok(())
            });
        }
        load
    }

    fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }

    /// Fails when one was refused.
    async fn end(mut self) -> Result<()> {
        self.over.store(true, Ordering::SeqCst);
        while let Some(ended) = self.callers.join_next().await {
            ended??;
        }
        Ok(())
    }
}

async fn certificates_change_under_load_and_no_request_fails(_: &Shared) -> Result<()> {
    let world = World::new()?;
    let (mut control, ports) = world.control().await?;
    let (mut gateway, _) = world.gateway(ports.xds).await?;
    let token = stack::mint(&world.path().join("control"), &["--org", "acme", "--user", "alice"]).await?;
    let mounted = Mounted::new(world.path().join("mounted"))?;
    mounted.exchange(&world, ENVOY)?;
    let sockets = [mounted.socket("envoy/upstream-mtls.json")?, mounted.socket("envoy/gateway-mtls.json")?];
    let mut envoy =
        foreign_with(&world.path().join("edge"), ports.xds, [&sockets[0], &sockets[1]], brief).await?;
    let address = envoy.address;
    let first = echo(&token);
    wait::until("a call passes by mutual TLS", wait::START, || async {
        http1::send(address, &first).await.ok().filter(|answer| answer.status == 200)
    })
    .await
    .with_details(|| format!("{}\n{}\n{}", control.tail(), gateway.tail(), envoy.process.tail()))?;

    let load = Load::start(address, &token);
    let connections = "cluster.gateway.upstream_cx_total";
    for serial in 1..=ROTATIONS {
        let before = (load.answered(), envoy.stat(connections).await?);
        // Chain and key are written one after the other: between, they do not fit.
        for (file, holder) in [("good-gateway-0", "gateway/0"), ("control-0", "control/0")] {
            world.authority.process_until(file, holder, serial, FUTURE)?;
        }
        mounted.exchange(&world, ENVOY + serial)?;
        let (load, envoy) = (&load, &envoy);
        wait::until("requests and connections go on", wait::START, || async move {
            let now = envoy.stat(connections).await.ok()?;
            (now >= before.1 + 5 && load.answered() > before.0 + 50).then_some(())
        })
        .await?;
    }
    load.end().await.with_details(|| format!("{}\n{}", gateway.tail(), envoy.process.tail()))?;
    for process in [&gateway, &control] {
        process.logged("renewed certificate files are in use").await?;
    }
    // What Envoy has shown before opens nothing any more, and Envoy does not need it.
    let before: Vec<u64> = (ENVOY..ENVOY + ROTATIONS).collect();
    world.authority.revoke(&before)?;
    for process in [&gateway, &control] {
        process.logged("open connections are ended").await?;
    }
    for _ in 0..20 {
        let answer = http1::send(address, &first).await?;
        ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
    }
    let failed = envoy.stats("cluster.gateway.upstream_cx_connect_fail").await?;
    ensure!(failed.values().all(|count| *count == 0), "{failed:?}");
    envoy.process.stop().await?;
    for process in [&mut gateway, &mut control] {
        ensure!(process.stop().await?.success(), "it ended badly: {}", process.tail());
    }
    Ok(())
}
