//! Several processes as in production: a control plane or two, any number of gateways, one Envoy before them.
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
/// Below a cluster's directory: the states of the control planes.
const CONTROL: &str = "control";
const SECOND_CONTROL: &str = "second-control";
/// In a state: the key of the development issuer.
const DEV_ISSUER: &str = "dev-issuer.json";
/// All replicas open each other's sessions.
const SEAL_KEY: &str = "a seal key of the tests, thirty-two bytes and more";

/// A running cluster; dropping it ends every process.
pub struct Cluster {
    pub envoy: Envoy,
    pub control: Process,
    pub control_ports: Ports,
    /// Another control plane on the same database, where there is one.
    pub second_control: Option<(Process, Ports)>,
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

    /// The same, with two control planes; the environment names the database that they share.
    pub async fn start_with_two_controls(
        environment: Vec<(&'static str, String)>,
        replicas: usize,
    ) -> Result<Cluster> {
        let directory = tempfile::tempdir()?;
        let port = Reserved::new()?;
        let url = format!("http://{}", port.address());
        let first = start_control(&directory.path().join(CONTROL), &url, "0", &environment).await?;
        // Both trust what the development issuer of the first has signed.
        let state = directory.path().join(SECOND_CONTROL);
        std::fs::create_dir(&state)?;
        std::fs::copy(directory.path().join(CONTROL).join(DEV_ISSUER), state.join(DEV_ISSUER))?;
        let second = start_control(&state, &url, "0", &environment).await?;
        Cluster::around(directory, port, first, Some(second), (replicas, false, environment)).await
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
        let url = format!("http://{}", port.address());
        let control = start_control(&directory.path().join(CONTROL), &url, "0", &environment).await?;
        Cluster::around(directory, port, control, None, (replicas, over_cable, environment)).await
    }

    /// Envoy and gateways around the control planes.
    async fn around(
        directory: TempDir,
        port: Reserved,
        (control, control_ports): (Process, Ports),
        second_control: Option<(Process, Ports)>,
        (replicas, over_cable, environment): (usize, bool, Vec<(&'static str, String)>),
    ) -> Result<Cluster> {
        let public_url = format!("http://{}", port.address());
        let second_xds = second_control.as_ref().map(|(_, ports)| ports.xds);
        let template = traced_bootstrap(directory.path(), second_xds)?;
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
        let mut cluster = Cluster {
            envoy,
            control,
            control_ports,
            second_control,
            gateways,
            directory,
            cable,
            public_url,
            environment,
        };
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
        let second = self.second_control.as_ref().map(|(_, ports)| ports.xds);
        let urls: Vec<String> = [Some(xds), second]
            .into_iter()
            .flatten()
            .map(|port| format!("http://127.0.0.1:{port}"))
            .collect();
        let mut command = Command::new(tool::asp()?);
        command
            .args(["serve", "--dev", "--roles", "gateway"])
            .env("ASP_STATE_DIR", &state)
            .env("ASP_PUBLIC_URL", &self.public_url)
            .env("ASP_XDS_URL", urls.join(","))
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
        let state = self.directory.path().join(CONTROL);
        let (control, ports) = start_control(&state, &self.public_url, &port, &self.environment).await?;
        (self.control, self.control_ports) = (control, ports);
        Ok(())
    }

    /// What the control plane says at `path` of its admin API.
    pub async fn admin(&self, path: &str) -> Result<serde_json::Value> {
        self.admin_of(&self.control_ports, path).await
    }

    /// What that control plane says.
    pub async fn admin_of(&self, control: &Ports, path: &str) -> Result<serde_json::Value> {
        let admin = SocketAddr::from(([127, 0, 0, 1], control.admin));
        let bearer = format!("Bearer {}", self.token(&["--admin", "--user", "root"]).await?);
        let answer = http1::get(admin, path, &[("authorization", &bearer)]).await?;
        serde_json::from_str(&answer.text()).with_context(|| format!("{path}: {}", answer.status))
    }

    /// Mints a token; the arguments are those of `asp token`.
    pub async fn token(&self, arguments: &[&str]) -> Result<String> {
        stack::mint(&self.directory.path().join(CONTROL), arguments).await
    }
}

async fn start_control(
    state: &Path,
    public_url: &str,
    xds_port: &str,
    environment: &[(&'static str, String)],
) -> Result<(Process, Ports)> {
    // Whose state it was has its servers.
    let is_filled = state.join("asp.db").exists();
    std::fs::create_dir_all(state)?;
    let is_again = std::fs::remove_file(state.join("ports.json")).is_ok();
    let mut command = Command::new(tool::asp()?);
    command.args(["serve", "--dev", "--roles", "control"]);
    if !is_filled || is_again {
        command.arg("--primitives").arg(tool::root()?.join("primitives"));
    }
    command
        .env("ASP_STATE_DIR", state)
        .env("ASP_PUBLIC_URL", public_url)
        .env("ASP_FILTER_WASM", tool::filter_wasm()?)
        .env("ASP_XDS_PORT", xds_port)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .envs(["ASP_PORT", "ASP_ENVOY_ADMIN_PORT", "ASP_ADMIN_PORT"].map(|name| (name, "0")));
    let mut control = Process::start("control", command)?;
    let ports = stack::ports(&mut control, state).await?;
    let admin = SocketAddr::from(([127, 0, 0, 1], ports.admin));
    wait::until("the admin API answers", wait::START, || async move {
        http1::get(admin, "/healthz", &[]).await.ok().filter(|answer| answer.status == 200)
    })
    .await
    .with_context(|| control.tail())?;
    Ok((control, ports))
}

/// The shipped bootstrap whose answers name their replica, with a second control plane where there is one.
fn traced_bootstrap(directory: &Path, second_xds: Option<u16>) -> Result<PathBuf> {
    const CONTROL_ENDPOINT: &str = "        - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: ${ASP_XDS_PORT} } } }\n";
    const VIRTUAL_HOST: &str = "              domains: [\"*\"]\n";
    let shipped = std::fs::read_to_string(tool::root()?.join("envoy/bootstrap.yaml"))?;
    let traced = format!(
        "{VIRTUAL_HOST}              response_headers_to_add: [{{ header: {{ key: {SERVED_BY}, value: \
         \"%UPSTREAM_REMOTE_ADDRESS%\" }} }}]\n"
    );
    if !shipped.contains(VIRTUAL_HOST) {
        bail!("envoy/bootstrap.yaml has no virtual host for every domain");
    }
    let mut template = shipped.replacen(VIRTUAL_HOST, &traced, 1);
    if let Some(port) = second_xds {
        if !template.contains(CONTROL_ENDPOINT) {
            bail!("envoy/bootstrap.yaml has no endpoint of the control plane");
        }
        let second = CONTROL_ENDPOINT.replace("${ASP_XDS_PORT}", &port.to_string());
        template = template.replacen(CONTROL_ENDPOINT, &format!("{CONTROL_ENDPOINT}{second}"), 1);
    }
    let path = directory.join("bootstrap.yaml");
    std::fs::write(&path, template)?;
    Ok(path)
}
