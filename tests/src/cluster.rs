//! Several processes as in production: a control plane or two, any number of gateways, one Envoy before them.
//!
//! Envoy runs the shipped bootstrap with one addition: every answer names the replica that gave it
//! (`x-served-by`), which a client must never see and a test must know.

mod bootstrap;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::process::Command;

use crate::cut::Cable;
use crate::envoy::{self, Envoy};
use crate::port::Reserved;
use crate::process::Process;
use crate::relay::Relay;
use crate::stack::{self, Ports};
use crate::stores::OWNER;
use crate::tool::Build;
use crate::wait::ErrorDetails;
use crate::{http1, message, wait};

/// The answer's header that names the replica.
pub const SERVED_BY: &str = "x-served-by";
/// Below a cluster's directory: the states of the control planes.
const CONTROL: &str = "control";
const SECOND_CONTROL: &str = "second-control";
/// In a state: the key of the development issuer.
const DEV_ISSUER: &str = "dev-issuer.json";
/// All replicas open each other's sessions.
const SEAL_KEY: &str = "a seal key of the tests, thirty-two bytes and more";

/// What a cluster is made of.
pub struct Layout {
    /// The programs of its processes; this repository's by default.
    pub build: Build,
    pub gateways: usize,
    /// Another control plane on the database that the environment names.
    pub has_second_control: bool,
    /// What the gateways reach over cables that can be cut.
    pub cut: Cut,
    /// Socket of PostgreSQL that the first control plane reaches over a cable of its own.
    pub control_database: Option<PathBuf>,
    /// What every process has in its environment.
    pub environment: Vec<(&'static str, String)>,
    /// A directory of specs.
    pub primitives: PathBuf,
    /// Clusters of Envoy that lead to other regions' edges.
    pub regions: Vec<(&'static str, SocketAddr)>,
}

/// Where there are cables.
pub enum Cut {
    Nothing,
    /// One between all gateways and the control plane.
    Control,
    /// None; all gateways reach each control plane over a relay.
    Relayed,
    /// Each gateway's own, to the control planes, and to PostgreSQL and Redis at these sockets.
    Each {
        postgres: PathBuf,
        redis: PathBuf,
    },
}

/// One gateway's own cables.
pub struct Cables {
    pub stores: Vec<Cable>,
    pub controls: Vec<Cable>,
}

impl Cables {
    /// From now on the gateway hears nothing of the stores, and they nothing of it.
    pub fn cut_stores(&self) {
        self.stores.iter().for_each(Cable::cut);
    }

    /// The same of the control planes.
    pub fn cut_controls(&self) {
        self.controls.iter().for_each(Cable::cut);
    }

    pub fn mend(&self) {
        self.stores.iter().chain(&self.controls).for_each(Cable::mend);
    }
}

impl Layout {
    /// The repository's primitives, and one control plane.
    pub fn of(gateways: usize) -> Result<Layout> {
        let build = Build::own()?;
        Ok(Layout {
            primitives: build.root.join("primitives"),
            build,
            gateways,
            has_second_control: false,
            cut: Cut::Nothing,
            control_database: None,
            environment: Vec::new(),
            regions: Vec::new(),
        })
    }
}

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
    /// Between the first control plane and PostgreSQL, where there is one.
    pub database_cable: Option<Cable>,
    /// Before each control plane, where there are any.
    pub relays: Vec<Relay>,
    public_url: String,
    layout: Layout,
}

/// One replica.
pub struct Gateway {
    pub process: Process,
    pub address: SocketAddr,
    pub cables: Option<Cables>,
}

impl Cluster {
    /// Starts a cluster of `replicas` gateways and waits until Envoy knows all of them.
    pub async fn start(replicas: usize) -> Result<Cluster> {
        Cluster::start_as(Layout::of(replicas)?).await
    }

    /// The same; its processes have more in their environment.
    pub async fn start_in(environment: Vec<(&'static str, String)>, replicas: usize) -> Result<Cluster> {
        Cluster::start_as(Layout { environment, ..Layout::of(replicas)? }).await
    }

    /// The same; the gateways reach the control plane over a cable that can be cut.
    pub async fn start_over_cable(replicas: usize) -> Result<Cluster> {
        Cluster::start_as(Layout { cut: Cut::Control, ..Layout::of(replicas)? }).await
    }

    /// The same, with two control planes; the environment names the database that they share.
    pub async fn start_with_two_controls(
        environment: Vec<(&'static str, String)>,
        replicas: usize,
    ) -> Result<Cluster> {
        Cluster::start_as(Layout { has_second_control: true, environment, ..Layout::of(replicas)? }).await
    }

    /// The same, over a directory whose `control` is the state of a control plane; no primitives come to it.
    pub async fn start_on(directory: TempDir, replicas: usize) -> Result<Cluster> {
        Cluster::start_in_directory(directory, Layout::of(replicas)?).await
    }

    /// The same, as a region: it trusts what the development issuer of `other` has signed, and its Envoy knows ways to the
    /// edges of other regions.
    pub async fn start_region(
        other: Option<&Cluster>,
        environment: Vec<(&'static str, String)>,
        regions: Vec<(&'static str, SocketAddr)>,
    ) -> Result<Cluster> {
        let directory = tempfile::tempdir()?;
        if let Some(other) = other {
            let state = directory.path().join(CONTROL);
            std::fs::create_dir(&state)?;
            std::fs::copy(other.directory.path().join(CONTROL).join(DEV_ISSUER), state.join(DEV_ISSUER))?;
        }
        let layout = Layout { environment, regions, ..Layout::of(1)? };
        Cluster::start_in_directory(directory, layout).await
    }

    pub async fn start_as(layout: Layout) -> Result<Cluster> {
        Cluster::start_in_directory(tempfile::tempdir()?, layout).await
    }

    async fn start_in_directory(directory: TempDir, layout: Layout) -> Result<Cluster> {
        let port = Reserved::new()?;
        let public_url = format!("http://{}", port.address());
        let state = directory.path().join(CONTROL);
        let database_cable = match &layout.control_database {
            Some(socket) => Some(Cable::to_socket(socket).await?),
            None => None,
        };
        let database = database_cable.as_ref().map(database_over);
        let (control, control_ports) = start_control(&state, &public_url, "0", &layout, database).await?;
        let second_control = match layout.has_second_control {
            false => None,
            true => {
                // Both trust what the development issuer of the first has signed.
                let second = directory.path().join(SECOND_CONTROL);
                std::fs::create_dir(&second)?;
                std::fs::copy(state.join(DEV_ISSUER), second.join(DEV_ISSUER))?;
                Some(start_control(&second, &public_url, "0", &layout, None).await?)
            }
        };
        let second_xds = second_control.as_ref().map(|(_, ports)| ports.xds);
        let settings = envoy::Settings {
            directory: directory.path(),
            template: bootstrap::traced(directory.path(), second_xds, &layout.regions)?,
            port,
            xds_port: control_ports.xds,
            tls: None,
            variables: BTreeMap::new(),
        };
        let envoy = Envoy::start(settings).await?;
        let cable = match &layout.cut {
            Cut::Control => Some(Cable::start(SocketAddr::from(([127, 0, 0, 1], control_ports.xds))).await?),
            Cut::Nothing | Cut::Relayed | Cut::Each { .. } => None,
        };
        let mut relays = Vec::new();
        if matches!(layout.cut, Cut::Relayed) {
            for port in [Some(control_ports.xds), second_xds].into_iter().flatten() {
                relays.push(Relay::start(SocketAddr::from(([127, 0, 0, 1], port))).await?);
            }
        }
        let gateways = Vec::new();
        let replicas = layout.gateways;
        let mut cluster = Cluster {
            envoy,
            control,
            control_ports,
            second_control,
            gateways,
            directory,
            cable,
            database_cable,
            relays,
            public_url,
            layout,
        };
        for _ in 0..replicas {
            cluster.add_gateway().await?;
        }
        Ok(cluster)
    }

    /// Starts one more replica and waits until Envoy sends to it. In the place of one that was last and has ended it finds that
    /// one's state.
    pub async fn add_gateway(&mut self) -> Result<()> {
        let gateway = self.start_gateway(self.gateways.len(), None).await?;
        self.gateways.push(gateway);
        self.wait_hosts(self.gateways.len()).await
    }

    /// The same for one of a pool of its own.
    pub async fn add_gateway_of(&mut self, pool: &str) -> Result<()> {
        let gateway = self.start_gateway(self.gateways.len(), Some(pool)).await?;
        self.gateways.push(gateway);
        let (envoy, all) = (&self.envoy, self.gateways.len());
        wait::until("Envoy knows the gateways of all pools", wait::START, || async move {
            let healthy = envoy.stat("cluster.gateway-pools.membership_healthy").await.ok()?;
            (usize::try_from(healthy) == Ok(all)).then_some(())
        })
        .await
        .with_details(|| self.control.tail())
    }

    /// Starts a replica in the place of one that has ended, over its state. Envoy learns of it a moment later.
    pub async fn restart_gateway(&mut self, number: usize) -> Result<()> {
        let gateway = self.start_gateway(number, None).await?;
        *self.gateways.get_mut(number).context("a gateway of this number")? = gateway;
        Ok(())
    }

    /// Adds to the environment of processes that are started from now on.
    pub fn add_environment(&mut self, more: impl IntoIterator<Item = (&'static str, String)>) {
        self.layout.environment.extend(more);
    }

    /// Lets processes that are started from now on have these programs.
    pub fn use_build(&mut self, build: Build) {
        self.layout.build = build;
    }

    async fn start_gateway(&self, number: usize, pool: Option<&str>) -> Result<Gateway> {
        let state = self.directory.path().join(format!("gateway-{number}"));
        std::fs::create_dir_all(&state)?;
        // Of one that was killed.
        let _ = std::fs::remove_file(state.join("ports.json"));
        let second = self.second_control.as_ref().map(|(_, ports)| ports.xds);
        let mut controls: Vec<u16> = [Some(self.control_ports.xds), second].into_iter().flatten().collect();
        let mut stores = Vec::new();
        let cables = self.cables(&controls).await?;
        if let Some(Cables { stores: to_stores, controls: to_controls }) = &cables {
            controls = to_controls.iter().map(|cable| cable.address.port()).collect();
            let at = |number: usize| to_stores.get(number).map(|cable| cable.address).context("a cable");
            stores.push(("ASP_DATABASE_URL", database_at(at(0)?)));
            stores.push(("ASP_REDIS_URL", format!("redis://{}", at(1)?)));
        }
        if let Some(cable) = &self.cable {
            controls = vec![cable.address.port()];
        }
        if !self.relays.is_empty() {
            controls = self.relays.iter().map(|relay| relay.address.port()).collect();
        }
        let urls: Vec<String> = controls.iter().map(|port| format!("http://127.0.0.1:{port}")).collect();
        let mut command = Command::new(&self.layout.build.asp);
        command
            .args(["serve", "--dev", "--roles", "gateway"])
            .env("ASP_STATE_DIR", &state)
            .env("ASP_PUBLIC_URL", &self.public_url)
            .env("ASP_XDS_URL", urls.join(","))
            .env("ASP_SEAL_KEY", SEAL_KEY)
            .envs(self.layout.environment.iter().map(|(name, value)| (name, value)))
            .envs(stores)
            .envs(["ASP_PORT", "ASP_ENVOY_ADMIN_PORT", "ASP_GATEWAY_PORT"].map(|name| (name, "0")));
        if let Some(pool) = pool {
            command.env("ASP_POOL", pool);
        }
        let mut process = Process::start("gateway", command)?;
        let ports = stack::ports(&mut process, &state).await?;
        let address = SocketAddr::from(([127, 0, 0, 1], ports.gateway));
        Ok(Gateway { process, address, cables })
    }

    /// A gateway's own cables, where it has any.
    async fn cables(&self, controls: &[u16]) -> Result<Option<Cables>> {
        let Cut::Each { postgres, redis } = &self.layout.cut else { return Ok(None) };
        let stores = vec![Cable::to_socket(postgres).await?, Cable::to_socket(redis).await?];
        let mut cables = Cables { stores, controls: Vec::new() };
        for port in controls {
            cables.controls.push(Cable::start(SocketAddr::from(([127, 0, 0, 1], *port))).await?);
        }
        Ok(Some(cables))
    }

    /// Waits until exactly `count` gateways of Envoy's cluster are healthy, and it has its snapshot. Those that were lost stay
    /// known.
    pub async fn wait_hosts(&self, count: usize) -> Result<()> {
        let envoy = &self.envoy;
        wait::until("Envoy knows its gateways", wait::START, || async move {
            envoy.has_snapshot().await.ok().filter(|has| *has)?;
            let healthy = envoy.stat("cluster.gateway.membership_healthy").await.ok()?;
            (usize::try_from(healthy) == Ok(count)).then_some(())
        })
        .await
        .with_details(|| self.control.tail())
    }

    /// Starts the control plane again on its port and state, after it was killed.
    pub async fn restart_control(&mut self) -> Result<()> {
        let kept = Reserved::again(self.control_ports.xds)?;
        let port = kept.port().to_string();
        let state = self.directory.path().join(CONTROL);
        let database = self.database_cable.as_ref().map(database_over);
        let (control, ports) = start_control(&state, &self.public_url, &port, &self.layout, database).await?;
        (self.control, self.control_ports) = (control, ports);
        Ok(())
    }

    /// The same of the second one.
    pub async fn restart_second_control(&mut self) -> Result<()> {
        let (_, ports) = self.second_control.as_ref().context("a second control plane")?;
        let kept = Reserved::again(ports.xds)?;
        let port = kept.port().to_string();
        let state = self.directory.path().join(SECOND_CONTROL);
        self.second_control = Some(start_control(&state, &self.public_url, &port, &self.layout, None).await?);
        Ok(())
    }

    /// The ports of every control plane.
    pub fn controls(&self) -> Vec<&Ports> {
        let second = self.second_control.as_ref().map(|(_, ports)| ports);
        [Some(&self.control_ports), second].into_iter().flatten().collect()
    }

    /// Where the gateways are.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.gateways.iter().map(|gateway| gateway.address).collect()
    }

    /// Writes to the admin API, and waits until that is in force at every gateway.
    pub async fn put(&self, path: &str, body: &serde_json::Value) -> Result<()> {
        let admin = self.token(&["--admin", "--user", "root"]).await?;
        let api = SocketAddr::from(([127, 0, 0, 1], self.control_ports.admin));
        let written = http1::send(api, &message::rest("PUT", path, &admin, body)).await?;
        ensure!(written.status < 300, "{}", written.text());
        let applied = || async {
            let mut gateways = 0;
            // A gateway subscribes to one of them.
            for control in self.controls() {
                let snapshot = self.admin_of(control, "/api/snapshot").await.ok()?;
                let is_published = snapshot.get("coversRevision") == snapshot.get("storeRevision");
                let subscribed = subscribed_gateways(&snapshot)?;
                let is_current = |one: &&serde_json::Value| one.get("behind") == Some(&0.into());
                if !is_published || !subscribed.iter().all(is_current) {
                    return None;
                }
                gateways += subscribed.len();
            }
            (gateways == self.gateways.len()).then_some(())
        };
        wait::until("it is in force at every gateway", wait::CONVERGE, applied).await
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

    /// Mints a token of an admin of this org that outlives the longest row of `make chaos`.
    pub async fn org_admin(&self, org: &str) -> Result<String> {
        let role = format!("org:{org}");
        self.token(&["--admin", "--user", org, "--role", &role, "--ttl", "12h"]).await
    }
}

/// The gateways among the subscribers that a control plane lists in `/api/snapshot`.
pub(crate) fn subscribed_gateways(snapshot: &serde_json::Value) -> Option<Vec<&serde_json::Value>> {
    let subscribers = snapshot.get("subscribers")?.as_array()?;
    Some(subscribers.iter().filter(|one| one.get("kind") == Some(&"gateway".into())).collect())
}

/// URL of PostgreSQL behind this cable.
fn database_over(cable: &Cable) -> String {
    database_at(cable.address)
}

fn database_at(address: SocketAddr) -> String {
    format!("postgres://{OWNER}@{address}/postgres")
}

/// Starts a control plane. A `database` takes the place of the one that the environment names.
async fn start_control(
    state: &Path,
    public_url: &str,
    xds_port: &str,
    layout: &Layout,
    database: Option<String>,
) -> Result<(Process, Ports)> {
    // Whose state it was has its servers.
    let is_filled = state.join("asp.db").exists();
    std::fs::create_dir_all(state)?;
    let is_again = std::fs::remove_file(state.join("ports.json")).is_ok();
    let mut command = Command::new(&layout.build.asp);
    command.args(["serve", "--dev", "--roles", "control"]);
    if !is_filled || is_again {
        command.arg("--primitives").arg(&layout.primitives);
    }
    command
        .env("ASP_STATE_DIR", state)
        .env("ASP_PUBLIC_URL", public_url)
        .env("ASP_FILTER_WASM", &layout.build.filter_wasm)
        .env("ASP_XDS_PORT", xds_port)
        .envs(layout.environment.iter().map(|(name, value)| (name, value)))
        .envs(database.map(|url| ("ASP_DATABASE_URL", url)))
        .envs(["ASP_PORT", "ASP_ENVOY_ADMIN_PORT", "ASP_ADMIN_PORT"].map(|name| (name, "0")));
    let mut control = Process::start("control", command)?;
    let ports = stack::ports(&mut control, state).await?;
    let admin = SocketAddr::from(([127, 0, 0, 1], ports.admin));
    wait::until("the admin API answers", wait::START, || async move {
        http1::get(admin, "/healthz", &[]).await.ok().filter(|answer| answer.status == 200)
    })
    .await
    .with_details(|| control.tail())?;
    Ok((control, ports))
}
