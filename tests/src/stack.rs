//! A whole platform on this machine: `asp serve` with both roles, real Envoy, a state directory of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde::Deserialize;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::envoy::{self, Envoy};
use crate::journal::Journal;
use crate::port::Reserved;
use crate::process::{Log, Process};
use crate::runtime::{self, Runtime};
use crate::tap::Tap;
use crate::tool::Build;
use crate::wait::ErrorDetails;
use crate::wire::{self, Link};
use crate::{http1, tool, wait};

/// Where `asp` writes what it listens on, in its state directory.
const PORTS: &str = "ports.json";

/// What a stack serves.
pub struct Options {
    /// The programs; this repository's by default.
    pub build: Build,
    /// A directory of primitive specs; the repository's own by default.
    pub primitives: PathBuf,
    /// The origin clients use; Envoy's own address by default.
    pub public_url: Option<String>,
    /// A host of proxied specs that is mapped to a port where nobody listens.
    pub dead_upstream: Option<String>,
    /// Certificate and key of the edge.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Whether plugins run.
    pub plugins: bool,
    /// With plugins: what the runtime finds around it.
    pub runtime: runtime::World,
    /// More of the environment of `asp serve`.
    pub environment: Vec<(&'static str, String)>,
}

impl Options {
    pub fn repository() -> Result<Options> {
        Ok(Options::of(Build::own()?))
    }

    /// The primitives of a build's own checkout.
    pub fn of(build: Build) -> Options {
        Options {
            primitives: build.root.join("primitives"),
            build,
            public_url: None,
            dead_upstream: None,
            tls: None,
            plugins: false,
            runtime: runtime::World::default(),
            environment: Vec::new(),
        }
    }
}

/// A running stack. Dropping it ends its processes; [`Stack::stop`] ends them in order and judges their logs.
pub struct Stack {
    pub envoy: Envoy,
    pub asp: Process,
    pub ports: Ports,
    pub state: TempDir,
    /// Behind a lock, because a test may kill it and start it again while its client waits.
    pub runtime: Option<Mutex<Runtime>>,
    /// Between the gateway and the runtime.
    pub tap: Option<Tap>,
    /// Between clients and Envoy, where the run is recorded.
    recorder: Option<wire::Tap>,
    options: Options,
    public_url: String,
    dead: Reserved,
}

/// Where `asp` listens (`ports.json` in its state directory).
#[derive(Clone, Debug, Deserialize)]
pub struct Ports {
    pub admin: u16,
    pub gateway: u16,
    /// 0 where there is none.
    #[serde(default)]
    pub gateway_mtls: u16,
    pub xds: u16,
}

impl Stack {
    /// Starts everything and waits until the gateway is ready, and Envoy with all that it judges requests by.
    pub async fn start(mut options: Options) -> Result<Stack> {
        let state = tempfile::tempdir()?;
        let port = Reserved::new()?;
        let tls = options.tls.is_some();
        let recorder = match wire::recording() {
            // What passes in TLS cannot be read.
            Some(record) if !tls => Some(wire::Tap::start(port.address(), Link::EDGE, record).await?),
            _ => None,
        };
        let edge = recorder.as_ref().map_or(port.address(), |tap| tap.address);
        let public_url = options.public_url.clone().unwrap_or_else(|| format!("http://{edge}"));
        let dead = Reserved::new()?;
        let runtime = match options.plugins {
            true => Some(Runtime::start(&options.primitives, std::mem::take(&mut options.runtime)).await?),
            false => None,
        };
        let mut command = serve(&options, state.path(), &public_url, &dead)?;
        let tap = runtime.as_ref().map(|runtime| Tap::start(&runtime.socket)).transpose()?;
        if let Some(tap) = &tap {
            command.env("ASP_RUNTIMES", runtime::address(&tap.socket));
        }
        let mut asp = Process::start("asp", command)?;
        let ports = ports(&mut asp, state.path()).await?;
        let settings = envoy::Settings {
            directory: state.path(),
            template: options.build.root.join("envoy/bootstrap.yaml"),
            port,
            xds_port: ports.xds,
            tls: options.tls.clone(),
            variables: envoy::filter_variable(&options.build.filter_wasm),
        };
        let envoy = Envoy::start(settings).await?;
        let mut stack = Stack {
            envoy,
            asp,
            ports,
            state,
            runtime: runtime.map(Mutex::new),
            tap,
            recorder,
            options,
            public_url,
            dead,
        };
        stack.wait_ready(tls).await?;
        Ok(stack)
    }

    /// Ends `asp` by a signal and starts it again over the same state, on the same ports.
    pub async fn restart_asp(&mut self, signal: Signal) -> Result<()> {
        self.asp.signal(signal)?;
        self.asp.wait(wait::START).await?;
        fs::remove_file(self.state.path().join(PORTS))?;
        let mut command = serve(&self.options, self.state.path(), &self.public_url, &self.dead)?;
        let Ports { admin, gateway, xds, .. } = self.ports;
        let mut kept = Vec::new();
        for (name, port) in [("ASP_ADMIN_PORT", admin), ("ASP_GATEWAY_PORT", gateway), ("ASP_XDS_PORT", xds)]
        {
            kept.push(Reserved::again(port)?);
            command.env(name, port.to_string());
        }
        if let Some(tap) = &self.tap {
            command.env("ASP_RUNTIMES", runtime::address(&tap.socket));
        }
        self.asp = Process::start("asp", command)?;
        self.ports = ports(&mut self.asp, self.state.path()).await?;
        self.wait_ready(self.options.tls.is_some()).await
    }

    /// The address of the edge, as clients know it.
    pub fn edge(&self) -> SocketAddr {
        self.recorder.as_ref().map_or(self.envoy.address, |tap| tap.address)
    }

    /// Writes the messages of A2A at the edge into a journal from now on.
    pub fn write_agents_to(&self, journal: &Journal) -> Result<()> {
        let record = wire::recording().context("the run is not recorded")?;
        record.write_agents_at(self.edge(), journal);
        Ok(())
    }

    /// The address of the gateway behind it.
    pub fn gateway(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.gateway))
    }

    /// The address of the admin API.
    pub fn admin(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.admin))
    }

    /// The URL of a server's MCP endpoint, as a client is told it.
    pub fn mcp_url(&self, server: &str) -> String {
        format!("http://{}/{server}/mcp", self.edge())
    }

    /// Mints a token with `asp token`; the arguments are its own, e.g. `["--org", "acme", "--user", "alice"]`.
    pub async fn token(&self, arguments: &[&str]) -> Result<String> {
        mint(self.state.path(), arguments).await
    }

    /// A token of org `acme`, user `alice`.
    pub async fn alice(&self) -> Result<String> {
        self.token(&["--org", "acme", "--user", "alice"]).await
    }

    /// Ends the stack in order; fails on a process that does not end and on every unlisted error it logged.
    pub async fn stop(mut self, expected: &[&str]) -> Result<()> {
        let asp = self.asp.stop().await?;
        self.envoy.process.stop().await?;
        if !asp.success() {
            bail!("asp ended with {asp}");
        }
        let mut logs = vec![self.asp.log(), self.envoy.process.log()];
        if let Some(runtime) = &mut self.runtime {
            let runtime = runtime.get_mut();
            let ended = runtime.process.stop().await?;
            if !ended.success() {
                bail!("asp-runtime ended with {ended}");
            }
            logs.push(runtime.process.log());
        }
        let faults = faults(&logs, expected);
        if !faults.is_empty() {
            bail!("errors in the logs:\n{}", faults.join("\n"));
        }
        Ok(())
    }

    /// Ready is what a client sees (behind TLS, that Envoy has its gateway), and that Envoy has its snapshot and the list of
    /// revoked tokens, without which it accepts none.
    async fn wait_ready(&mut self, tls: bool) -> Result<()> {
        let edge = self.edge();
        let gateway = self.gateway();
        let envoy = &self.envoy;
        let healthy = wait::until("the edge serves", wait::START, || async move {
            // A gateway is alive (`/healthz`) before it has its snapshot.
            http1::get(gateway, "/readyz", &[]).await.ok().filter(|answer| answer.status == 200)?;
            envoy.has_snapshot().await.ok().filter(|has| *has)?;
            if tls {
                let gateways = envoy.stat("cluster.gateway.membership_healthy").await.ok()?;
                (gateways > 0).then_some(())
            } else {
                http1::get(edge, "/healthz", &[]).await.ok().filter(|answer| answer.status == 200).map(drop)
            }
        });
        healthy.await.with_details(|| format!("{}\n{}", self.asp.tail(), self.envoy.process.tail()))
    }
}

/// Lines of the logs that report an error, except those that contain one of `expected`.
pub fn faults(logs: &[&Log], expected: &[&str]) -> Vec<String> {
    let is_error = |line: &String| {
        line.contains("\"level\":\"ERROR\"")
            || line.contains("][error]")
            || line.contains("][critical]")
            || line.contains("panicked at")
    };
    let listed = |line: &String| expected.iter().any(|text| line.contains(text));
    logs.iter().flat_map(|log| log.lines()).filter(|line| is_error(line) && !listed(line)).collect()
}

fn serve(options: &Options, state: &Path, public_url: &str, dead: &Reserved) -> Result<Command> {
    let mut command = Command::new(&options.build.asp);
    command.args(["serve", "--dev", "--primitives"]).arg(&options.primitives);
    command
        .env("ASP_STATE_DIR", state)
        .env("ASP_PUBLIC_URL", public_url)
        .env("ASP_FILTER_WASM", &options.build.filter_wasm)
        .env("ASP_PORT", "0")
        .env("ASP_ADMIN_PORT", "0")
        .env("ASP_GATEWAY_PORT", "0")
        .env("ASP_XDS_PORT", "0")
        .envs(options.environment.iter().map(|(name, value)| (name, value)));
    if let Some(host) = &options.dead_upstream {
        command.env("ASP_UPSTREAMS", format!("{host}=http://{}", dead.address()));
    }
    Ok(command)
}

/// Runs `asp token` on a state directory; the arguments are its own.
pub async fn mint(state: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(tool::asp()?);
    command.arg("token").args(arguments).env("ASP_STATE_DIR", state).kill_on_drop(true);
    let output = command.output().await?;
    if !output.status.success() {
        bail!("asp token: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_string())
}

/// Waits for `ports.json` of a starting `asp serve`.
pub async fn ports(asp: &mut Process, state: &Path) -> Result<Ports> {
    let file = state.join(PORTS);
    let deadline = tokio::time::Instant::now() + wait::START;
    loop {
        asp.check_alive()?;
        if let Ok(text) = fs::read_to_string(&file) {
            return serde_json::from_str(&text).context("read ports.json");
        }
        if tokio::time::Instant::now() >= deadline {
            bail!("asp wrote no ports.json\n{}", asp.tail());
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
