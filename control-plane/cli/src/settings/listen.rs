//! Addresses and ports that a process listens on.

use std::net::{IpAddr, Ipv4Addr};

use super::source::Reader;

pub const ENV_PORT: &str = "ASP_PORT";
pub const ENV_ADMIN_PORT: &str = "ASP_ADMIN_PORT";
pub const ENV_GATEWAY_PORT: &str = "ASP_GATEWAY_PORT";
pub const ENV_GATEWAY_MTLS_PORT: &str = "ASP_GATEWAY_MTLS_PORT";
pub const ENV_XDS_PORT: &str = "ASP_XDS_PORT";
pub const ENV_ENVOY_ADMIN_PORT: &str = "ASP_ENVOY_ADMIN_PORT";
pub const ENV_BIND: &str = "ASP_BIND";
pub const ENV_ADMIN_BIND: &str = "ASP_ADMIN_BIND";
pub const ENV_GATEWAY_BIND: &str = "ASP_GATEWAY_BIND";
pub const ENV_XDS_BIND: &str = "ASP_XDS_BIND";
pub const ENV_XDS_ACCOUNTS: &str = "ASP_XDS_ACCOUNTS";
pub const DEFAULT_PORT: u16 = 8080;
pub const DEFAULT_ADMIN_PORT: u16 = 8081;
pub const DEFAULT_GATEWAY_PORT: u16 = 8082;
pub const DEFAULT_XDS_PORT: u16 = 18000;
pub const DEFAULT_ENVOY_ADMIN_PORT: u16 = 9901;

/// Addresses and ports; port 0 takes a free one from the operating system.
#[derive(Clone, Copy, Debug)]
pub struct Listen {
    /// Address of the edge, and default of every other listener.
    pub bind: IpAddr,
    pub admin: IpAddr,
    pub gateway: IpAddr,
    pub xds: IpAddr,
    pub edge_port: u16,
    pub admin_port: u16,
    pub gateway_port: u16,
    /// Whether to take a free port if another process listens on `gateway_port`.
    pub gateway_port_yields: bool,
    /// Port on which Envoys reach the gateway over mutual TLS; `None`: there is no such listener.
    pub gateway_mtls_port: Option<u16>,
    pub xds_port: u16,
    pub envoy_admin_port: u16,
}

pub(super) fn read(reader: &mut Reader<'_>, bind_flag: Option<&str>) -> Listen {
    let text = bind_flag.map(str::to_owned).or_else(|| reader.optional(ENV_BIND));
    let bind = address(reader, "--bind", text).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let [admin, gateway, xds] = [ENV_ADMIN_BIND, ENV_GATEWAY_BIND, ENV_XDS_BIND].map(|name| {
        let text = reader.optional(name);
        address(reader, name, text)
    });
    let any = 0..=u16::MAX;
    Listen {
        bind,
        admin: admin.unwrap_or(bind),
        gateway: gateway.unwrap_or(bind),
        xds: xds.unwrap_or(bind),
        edge_port: reader.number(ENV_PORT, DEFAULT_PORT, any.clone()),
        admin_port: reader.number(ENV_ADMIN_PORT, DEFAULT_ADMIN_PORT, any.clone()),
        gateway_port: reader.number(ENV_GATEWAY_PORT, DEFAULT_GATEWAY_PORT, any.clone()),
        gateway_port_yields: false,
        gateway_mtls_port: mtls_port(reader),
        xds_port: reader.number(ENV_XDS_PORT, DEFAULT_XDS_PORT, any.clone()),
        envoy_admin_port: reader.number(ENV_ENVOY_ADMIN_PORT, DEFAULT_ENVOY_ADMIN_PORT, any),
    }
}

/// Parses user ids separated by commas.
pub(super) fn accounts(reader: &mut Reader<'_>) -> Vec<u32> {
    let text = reader.optional(ENV_XDS_ACCOUNTS).unwrap_or_default();
    let mut accounts = Vec::new();
    for id in text.split(',').map(str::trim).filter(|id| !id.is_empty()) {
        match id.parse() {
            Ok(id) => accounts.push(id),
            Err(_) => {
                reader.fault(ENV_XDS_ACCOUNTS, format!("`{id}` is not a user id, as `id -u NAME` prints it"))
            }
        }
    }
    accounts
}

fn mtls_port(reader: &mut Reader<'_>) -> Option<u16> {
    reader.optional(ENV_GATEWAY_MTLS_PORT)?;
    Some(reader.number(ENV_GATEWAY_MTLS_PORT, 0, 0..=u16::MAX))
}

fn address(reader: &mut Reader<'_>, name: &str, text: Option<String>) -> Option<IpAddr> {
    let text = text?;
    let parsed = text.parse().ok();
    if parsed.is_none() {
        reader.fault(name, format!("`{text}` is not an IP address"));
    }
    parsed
}
