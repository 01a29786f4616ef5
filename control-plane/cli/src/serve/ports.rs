//! The listeners of a process and the file that says where they are.

use std::io;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, anyhow};
use asp_control::listen;
use serde::Serialize;
use tokio::net::TcpListener;

use super::Process;
use crate::settings::Settings;
use crate::state_dir;

/// Where this process listens; 0 for a role it does not have.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Ports {
    /// Envoy's, for clients; the gateway's own where there is no Envoy.
    pub(super) edge: u16,
    pub(super) admin: u16,
    pub(super) gateway: u16,
    pub(super) xds: u16,
    pub(super) envoy_admin: u16,
    /// The sample MCP server's; 0 without `--stack`.
    pub(super) everything: u16,
}

pub(super) struct ControlListeners {
    pub(super) admin: TcpListener,
    pub(super) xds: TcpListener,
}

#[derive(Default)]
pub(super) struct Listeners {
    pub(super) control: Option<ControlListeners>,
    pub(super) gateway: Option<TcpListener>,
}

/// Binds every listener of the process's roles. Envoy's ports are only chosen here.
pub(super) async fn bind(settings: &Settings) -> anyhow::Result<(Ports, Listeners)> {
    let listen = &settings.listen;
    let mut ports = Ports {
        edge: 0,
        envoy_admin: 0,
        everything: match &settings.stack {
            Some(stack) => chosen(stack.everything_port, settings, "sample server").await?,
            None => 0,
        },
        admin: 0,
        gateway: 0,
        xds: 0,
    };
    if !settings.is_direct() {
        ports.edge = chosen(listen.edge_port, settings, "edge").await?;
        ports.envoy_admin = chosen(listen.envoy_admin_port, settings, "Envoy admin").await?;
    }
    let mut listeners = Listeners::default();
    if settings.roles.control {
        let (admin, admin_address) = listen::bind(listen.admin, listen.admin_port, "admin API").await?;
        let (xds, xds_address) = listen::bind(listen.xds, listen.xds_port, "xDS server").await?;
        (ports.admin, ports.xds) = (admin_address.port(), xds_address.port());
        listeners.control = Some(ControlListeners { admin, xds });
    }
    if settings.roles.gateway {
        let bound = listen::bind(listen.gateway, listen.gateway_port, "gateway").await;
        let (gateway, address) = bound.map_err(|error| way_out(error, settings))?;
        ports.gateway = address.port();
        listeners.gateway = Some(gateway);
    }
    if settings.is_direct() {
        ports.edge = ports.gateway;
    }
    Ok((ports, listeners))
}

/// Says what a developer does about a port that another process has.
fn way_out(error: anyhow::Error, settings: &Settings) -> anyhow::Error {
    let cause = error.downcast_ref::<io::Error>().map(io::Error::kind);
    if !settings.is_direct() || cause != Some(io::ErrorKind::AddrInUse) {
        return error;
    }
    anyhow!(
        "another process listens on port {}, maybe another `asp dev`: end that, or take a free port with --port 0",
        settings.listen.gateway_port
    )
}

/// Envoy binds its ports itself; for port 0 a free one is taken here and let go again. Between the two
/// somebody else may take it, and then Envoy says so: good enough for development and tests.
async fn chosen(port: u16, settings: &Settings, what: &str) -> anyhow::Result<u16> {
    if port != 0 {
        return Ok(port);
    }
    let (_listener, address) = listen::bind(settings.listen.bind, 0, what).await?;
    Ok(address.port())
}

/// Writes `ports.json` into the state directory.
pub(super) fn write(process: &Process) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(&process.ports).context("encode the ports")?;
    let path = process.settings.state_dir.join("ports.json");
    state_dir::replace(&path, &text).with_context(|| format!("write {}", path.display()))
}

/// The address of `port` on a listener of this process, as a peer on this machine reaches it.
pub(super) fn local(bound: IpAddr, port: u16) -> SocketAddr {
    let reachable = if !bound.is_unspecified() {
        bound
    } else if bound.is_ipv6() {
        std::net::Ipv6Addr::LOCALHOST.into()
    } else {
        std::net::Ipv4Addr::LOCALHOST.into()
    };
    SocketAddr::new(reachable, port)
}
