//! Several processes as in production: one control plane, any number of gateways, one Envoy before them.
//!
//! Envoy runs the shipped bootstrap with one addition: every answer names the replica that gave it
//! (`x-served-by`), which a client must never see and a test must know.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use tokio::process::Command;

use crate::cut::Cable;
use crate::envoy::{self, Envoy};
use crate::port::Reserved;
use crate::process::Process;
use crate::stack::{self, Ports};
use crate::{http1, tool, wait};

/// The answer's header that names the replica.
pub const SERVED_BY: &str = "x-served-by";
/// All replicas open each other's sessions.
const SEAL_KEY: &str = "a seal key of the tests, thirty-two bytes and more";

/// A running cluster; dropping it ends every process.
pub struct Cluster {
    pub envoy: Envoy,
    pub control: Process,
    pub control_ports: Ports,
    pub gateways: Vec<Gateway>,
    pub directory: TempDir,
    /// Between the gateways and the control plane, where there is one.
    pub cable: Option<Cable>,
    public_url: String,
    /// What every process of it has in its environment.
    environment: Vec<(&'static str, String)>,
}

/// One replica.
pub struct Gateway {
    pub process: Process,
    pub address: SocketAddr,
}

impl Cluster {
    /// Starts a cluster of `replicas` gateways and waits until Envoy knows all of them.
    pub async fn start(replicas: usize) -> Result<Cluster> {
        Cluster::start_with(replicas, false, Vec::new()).await
    }

    /// The same; its processes have more in their environment.
    pub async fn start_in(environment: Vec<(&'static str, String)>, replicas: usize) -> Result<Cluster> {
        Cluster::start_with(replicas, false, environment).await
    }

    /// The same; the gateways reach the control plane over a cable that can be cut.
    pub async fn start_over_cable(replicas: usize) -> Result<Cluster> {
        Cluster::start_with(replicas, true, Vec::new()).await
    }

    /// The same, over a directory whose `control` is the state of a control plane; no primitives come to it.
    pub async fn start_on(directory: TempDir, replicas: usize) -> Result<Cluster> {
        Cluster::start_in_directory(directory, replicas, false, Vec::new()).await
    }

    async fn start_with(
        replicas: usize,
        over_cable: bool,
        environment: Vec<(&'static str, String)>,
    ) -> Result<Cluster> {
        Cluster::start_in_directory(tempfile::tempdir()?, replicas, over_cable, environment).await
    }

    async fn start_in_directory(
        directory: TempDir,
        replicas: usize,
        over_cable: bool,
        environment: Vec<(&'static str, String)>,
    ) -> Result<Cluster> {
        let port = Reserved::new()?;
        let public_url = format!("http://{}", port.address());
        let (control, control_ports) =
            start_control(directory.path(), &public_url, "0", &environment).await?;
        let template = traced_bootstrap(directory.path())?;
        let settings = envoy::Settings {
            directory: directory.path(),
            template,
            port,
            xds_port: control_ports.xds,
            tls: None,
            variables: BTreeMap::new(),
        };
        let envoy = Envoy::start(settings).await?;
        let cable = match over_cable {
            true => Some(Cable::start(SocketAddr::from(([127, 0, 0, 1], control_ports.xds))).await?),
            false => None,
        };
        let gateways = Vec::new();
        let mut cluster =
            Cluster { envoy, control, control_ports, gateways, directory, cable, public_url, environment };
        for _ in 0..replicas {
            cluster.add_gateway().await?;
        }
        Ok(cluster)
    }

    /// Starts one more replica and waits until Envoy sends to it. In the place of one that was last and has ended it finds that
    /// one's state.
    pub async fn add_gateway(&mut self) -> Result<()> {
        let state = self.directory.path().join(format!("gateway-{}", self.gateways.len()));
        std::fs::create_dir_all(&state)?;
        // Of one that was killed.
        let _ = std::fs::remove_file(state.join("ports.json"));
        let xds = self.cable.as_ref().map_or(self.control_ports.xds, |cable| cable.address.port());
        let mut command = Command::new(tool::asp()?);
        command
            .args(["serve", "--dev", "--roles", "gateway"])
            .env("ASP_STATE_DIR", &state)
            .env("ASP_PUBLIC_URL", &self.public_url)
            .env("ASP_XDS_URL", format!("http://127.0.0.1:{xds}"))
            .env("ASP_SEAL_KEY", SEAL_KEY)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .envs(["ASP_PORT", "ASP_ENVOY_ADMIN_PORT", "ASP_GATEWAY_PORT"].map(|name| (name, "0")));
        let mut process = Process::start("gateway", command)?;
        let ports = stack::ports(&mut process, &state).await?;
        let address = SocketAddr::from(([127, 0, 0, 1], ports.gateway));
        self.gateways.push(Gateway { process, address });
        self.wait_hosts(self.gateways.len()).await
    }

    /// Waits until exactly `count` gateways of Envoy's cluster are healthy. Those that were lost stay known.
    pub async fn wait_hosts(&self, count: usize) -> Result<()> {
        let envoy = &self.envoy;
        wait::until("Envoy knows its gateways", wait::START, || async move {
            let healthy = envoy.stat("cluster.gateway.membership_healthy").await.ok()?;
            (usize::try_from(healthy) == Ok(count)).then_some(())
        })
        .await
        .with_context(|| self.control.tail())
    }

    /// Starts the control plane again on its port and state, after it was killed.
    pub async fn restart_control(&mut self) -> Result<()> {
        let port = self.control_ports.xds.to_string();
        let directory = self.directory.path();
        let (control, ports) = start_control(directory, &self.public_url, &port, &self.environment).await?;
        (self.control, self.control_ports) = (control, ports);
        Ok(())
    }

    /// What the control plane says at `path` of its admin API.
    pub async fn admin(&self, path: &str) -> Result<serde_json::Value> {
        let admin = SocketAddr::from(([127, 0, 0, 1], self.control_ports.admin));
        let bearer = format!("Bearer {}", self.token(&["--admin", "--user", "root"]).await?);
        let answer = http1::get(admin, path, &[("authorization", &bearer)]).await?;
        serde_json::from_str(&answer.text()).with_context(|| format!("{path}: {}", answer.status))
    }

    /// Mints a token; the arguments are those of `asp token`.
    pub async fn token(&self, arguments: &[&str]) -> Result<String> {
        stack::mint(&self.directory.path().join("control"), arguments).await
    }
}

async fn start_control(
    directory: &Path,
    public_url: &str,
    xds_port: &str,
    environment: &[(&'static str, String)],
) -> Result<(Process, Ports)> {
    let state = directory.join("control");
    // Whose state it is has its servers.
    let is_new = !state.exists();
    std::fs::create_dir_all(&state)?;
    let is_again = std::fs::remove_file(state.join("ports.json")).is_ok();
    let mut command = Command::new(tool::asp()?);
    command.args(["serve", "--dev", "--roles", "control"]);
    if is_new || is_again {
        command.arg("--primitives").arg(tool::root()?.join("primitives"));
    }
    command
        .env("ASP_STATE_DIR", &state)
        .env("ASP_PUBLIC_URL", public_url)
        .env("ASP_FILTER_WASM", tool::filter_wasm()?)
        .env("ASP_XDS_PORT", xds_port)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .envs(["ASP_PORT", "ASP_ENVOY_ADMIN_PORT", "ASP_ADMIN_PORT"].map(|name| (name, "0")));
    let mut control = Process::start("control", command)?;
    let ports = stack::ports(&mut control, &state).await?;
    let admin = SocketAddr::from(([127, 0, 0, 1], ports.admin));
    wait::until("the admin API answers", wait::START, || async move {
        http1::get(admin, "/healthz", &[]).await.ok().filter(|answer| answer.status == 200)
    })
    .await
    .with_context(|| control.tail())?;
    Ok((control, ports))
}

/// The shipped bootstrap whose answers name their replica.
fn traced_bootstrap(directory: &Path) -> Result<PathBuf> {
    const VIRTUAL_HOST: &str = "              domains: [\"*\"]\n";
    let shipped = std::fs::read_to_string(tool::root()?.join("envoy/bootstrap.yaml"))?;
    let traced = format!(
        "{VIRTUAL_HOST}              response_headers_to_add: [{{ header: {{ key: {SERVED_BY}, value: \
         \"%UPSTREAM_REMOTE_ADDRESS%\" }} }}]\n"
    );
    if !shipped.contains(VIRTUAL_HOST) {
        bail!("envoy/bootstrap.yaml has no virtual host for every domain");
    }
    let path = directory.join("bootstrap.yaml");
    std::fs::write(&path, shipped.replacen(VIRTUAL_HOST, &traced, 1))?;
    Ok(path)
}
