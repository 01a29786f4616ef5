//! The listeners of a process, and the file that records their ports.

use std::io;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, anyhow};
use asp_command::{print, state_dir};
use serde::Serialize;
use tokio::net::{TcpListener, TcpSocket};

use super::Process;
use crate::settings::Settings;

/// Ports of this process; 0 for a role it does not have.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Ports {
    /// Envoy's port for clients; the gateway's own if there is no Envoy.
    pub(super) edge: u16,
    pub(super) admin: u16,
    pub(super) gateway: u16,
    /// The gateway's port for Envoys with a certificate; 0 if it has none.
    pub(super) gateway_mtls: u16,
    pub(super) xds: u16,
    pub(super) envoy_admin: u16,
    /// Port of the sample MCP server; 0 without `--stack`.
    pub(super) everything: u16,
}

pub(super) struct ControlListeners {
    pub(super) admin: TcpListener,
    pub(super) xds: TcpListener,
}

pub(super) struct GatewayListeners {
    pub(super) plain: TcpListener,
    pub(super) mtls: Option<TcpListener>,
}

#[derive(Default)]
pub(super) struct Listeners {
    pub(super) control: Option<ControlListeners>,
    pub(super) gateway: Option<GatewayListeners>,
    /// Sockets that reserve the ports of child processes while this exists.
    _held: Vec<TcpSocket>,
}

/// Binds every listener of the process's roles. The ports of Envoy and the sample server are only reserved.
pub(super) async fn bind(settings: &Settings) -> anyhow::Result<(Ports, Listeners)> {
    let listen = &settings.listen;
    let mut ports = Ports::default();
    let mut listeners = Listeners::default();
    let held = &mut listeners._held;
    if let Some(stack) = &settings.stack {
        ports.everything = choose_port(stack.everything_port, listen.bind, "sample server", held)?;
    }
    if !settings.is_direct() {
        ports.edge = choose_port(listen.edge_port, listen.bind, "edge", held)?;
        ports.envoy_admin = choose_port(listen.envoy_admin_port, listen.bind, "Envoy admin", held)?;
    }
    if settings.roles.control {
        let (admin, admin_address) =
            listener(listen.admin(), listen.admin_port, "admin API", "ASP_ADMIN_PORT").await?;
        let (xds, xds_address) =
            listener(listen.xds(), listen.xds_port, "xDS server", "ASP_XDS_PORT").await?;
        (ports.admin, ports.xds) = (admin_address.port(), xds_address.port());
        listeners.control = Some(ControlListeners { admin, xds });
    }
    if settings.roles.gateway {
        let (plain, address) = gateway(settings).await?;
        ports.gateway = address.port();
        let mut mtls = None;
        if let Some(port) = listen.gateway_mtls_port {
            let (listener, address) =
                listener(listen.gateway(), port, "gateway's mutual TLS", "ASP_GATEWAY_MTLS_PORT").await?;
            ports.gateway_mtls = address.port();
            mtls = Some(listener);
        }
        listeners.gateway = Some(GatewayListeners { plain, mtls });
    }
    if settings.is_direct() {
        ports.edge = ports.gateway;
    }
    Ok((ports, listeners))
}

/// Binds a listener whose port a setting chooses.
async fn listener(
    address: IpAddr,
    port: u16,
    what: &str,
    setting: &str,
) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let bound = asp_inbound::bind(address, port, what).await;
    bound.map_err(|error| if is_in_use(&error) { in_use(port, what, setting) } else { error })
}

/// Returns the error for a port that another process uses.
fn in_use(port: u16, what: &str, setting: &str) -> anyhow::Error {
    anyhow!(
        "port {port} of the {what} is in use by another process: stop that one (`ss -ltnp` shows it), or choose another port \
         with {setting}"
    )
}

async fn gateway(settings: &Settings) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listen = &settings.listen;
    match asp_inbound::bind(listen.gateway(), listen.gateway_port, "gateway").await {
        Err(error) if listen.gateway_port_yields && is_in_use(&error) => {
            let (listener, address) = asp_inbound::bind(listen.gateway(), 0, "gateway").await?;
            print::note(&format!(
                "port {} is in use by another process; serving on port {} instead (--port chooses one)",
                listen.gateway_port,
                address.port()
            ));
            Ok((listener, address))
        }
        bound => bound.map_err(|error| with_remedy(error, settings)),
    }
}

fn is_in_use(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().map(io::Error::kind) == Some(io::ErrorKind::AddrInUse)
}

/// Adds the remedy if the port is in use by another process.
fn with_remedy(error: anyhow::Error, settings: &Settings) -> anyhow::Error {
    if !is_in_use(&error) {
        return error;
    }
    if !settings.is_direct() {
        return in_use(settings.listen.gateway_port, "gateway", "ASP_GATEWAY_PORT");
    }
    anyhow!(
        "another process listens on port {}, maybe another `asp dev`: end that, or take a free port with --port 0",
        settings.listen.gateway_port
    )
}

/// Returns the port for a child process. Envoy binds its ports itself: for port 0 a free one is bound here and held without
/// listening, so that the kernel gives it to no other process. Otherwise two Envoys of a user could share a port, and each
/// would get a part of the other's clients. A process that binds the port by number, as Envoy and the sample server do, still
/// can (socket(7), `SO_REUSEADDR` and `SO_REUSEPORT`).
fn choose_port(port: u16, address: IpAddr, what: &str, held: &mut Vec<TcpSocket>) -> anyhow::Result<u16> {
    if port != 0 {
        return Ok(port);
    }
    let hold = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(true)?;
        socket.bind(SocketAddr::new(address, 0))?;
        io::Result::Ok((socket.local_addr()?.port(), socket))
    };
    let (port, socket) = hold().with_context(|| format!("choose a port for the {what} at {address}"))?;
    held.push(socket);
    Ok(port)
}

/// Writes `ports.json` into the state directory.
pub(super) fn write(process: &Process) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(&process.ports).context("encode the ports")?;
    let path = process.settings.state_dir.join("ports.json");
    state_dir::replace(&path, &text).with_context(|| format!("write {}", path.display()))
}

/// Returns the address of `port` on a listener of this process, as a peer on this machine reaches it.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::settings::dev::{self, Flags};

    #[tokio::test]
    async fn a_default_port_in_use_gives_way_to_a_free_one_and_a_chosen_port_is_refused() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let environment = BTreeMap::<&str, &str>::new();
        let read = |port| {
            let flags = Flags { port, ..Flags::default() };
            dev::read(flags, Path::new("/nonexistent"), &environment).unwrap()
        };
        let mut default = read(None);
        default.listen.gateway_port = port;
        let (ports, listeners) = bind(&default).await.unwrap();
        assert_ne!(ports.gateway, port);
        let bound = listeners.gateway.unwrap().plain.local_addr().unwrap().port();
        assert_eq!((ports.edge, ports.gateway), (bound, bound));
        let refused = bind(&read(Some(port))).await.err().unwrap().to_string();
        assert!(refused.contains(&port.to_string()) && refused.contains("--port 0"), "{refused}");
    }

    #[tokio::test]
    async fn a_port_in_use_is_reported_with_the_setting_that_chooses_another() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let refused = listener([127, 0, 0, 1].into(), port, "admin API", "ASP_ADMIN_PORT").await;
        let refused = refused.err().unwrap().to_string();
        assert!(refused.contains(&format!("port {port} of the admin API is in use")), "{refused}");
        assert!(refused.ends_with("with ASP_ADMIN_PORT"), "{refused}");
    }

    #[tokio::test]
    async fn a_port_that_was_chosen_is_given_to_nobody_else_and_a_child_can_bind_it() {
        let address = IpAddr::from([127, 0, 0, 1]);
        let mut held = Vec::new();
        let port = choose_port(0, address, "edge", &mut held).unwrap();
        // Binds as the kernel does when it looks for a free port: without sharing.
        let other = TcpSocket::new_v4().unwrap();
        let taken = other.bind(SocketAddr::new(address, port)).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        let child = TcpListener::bind((address, port)).await.unwrap();
        let (client, served) = tokio::join!(tokio::net::TcpStream::connect((address, port)), child.accept());
        assert_eq!(client.unwrap().local_addr().unwrap(), served.unwrap().1, "what is held gets no client");
    }

    #[tokio::test]
    async fn a_port_that_was_named_is_left_alone() {
        let mut held = Vec::new();
        assert_eq!(choose_port(8080, [127, 0, 0, 1].into(), "edge", &mut held).unwrap(), 8080);
        assert!(held.is_empty());
    }
}
