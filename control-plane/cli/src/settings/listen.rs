//! Addresses and ports that a process listens on.

use std::net::IpAddr;

use clap::Args;

use super::source::Checks;
use super::values::{List, address, list, number};

pub const ENV_PORT: &str = "ASP_PORT";
pub const DEFAULT_PORT: u16 = 8080;
pub const DEFAULT_ADMIN_PORT: u16 = 8081;
pub const DEFAULT_GATEWAY_PORT: u16 = 8082;

/// Addresses and ports; port 0 takes a free one from the operating system
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Listeners")]
pub struct Listen {
    /// Port of Envoy, for clients
    #[arg(long, env = ENV_PORT, default_value_t = DEFAULT_PORT, value_parser = number(0..=u16::MAX))]
    pub edge_port: u16,
    /// Port of the admin API
    #[arg(long, env = "ASP_ADMIN_PORT", default_value_t = DEFAULT_ADMIN_PORT, value_parser = number(0..=u16::MAX))]
    pub admin_port: u16,
    /// Port of the gateway
    #[arg(long, env = "ASP_GATEWAY_PORT", default_value_t = DEFAULT_GATEWAY_PORT, value_parser = number(0..=u16::MAX))]
    pub gateway_port: u16,
    /// Port of the gateway for Envoys over mutual TLS; requires `ASP_PEER_CERT` (docs/certificates.md) [default: none]
    #[arg(long, env = "ASP_GATEWAY_MTLS_PORT", value_parser = number(0..=u16::MAX))]
    pub gateway_mtls_port: Option<u16>,
    /// Port of the xDS server
    #[arg(long, env = "ASP_XDS_PORT", default_value_t = 18000, value_parser = number(0..=u16::MAX))]
    pub xds_port: u16,
    /// Port of Envoy's own admin API
    #[arg(long, env = "ASP_ENVOY_ADMIN_PORT", default_value_t = 9901, value_parser = number(0..=u16::MAX))]
    pub envoy_admin_port: u16,
    /// Address of every listener
    #[arg(long, env = "ASP_BIND", default_value = "127.0.0.1", value_parser = address)]
    pub bind: IpAddr,
    /// Address of the admin API; beyond loopback it requires `ASP_ADMIN_TLS_CERT` [default: that of `ASP_BIND`]
    #[arg(long, env = "ASP_ADMIN_BIND", value_parser = address)]
    admin_bind: Option<IpAddr>,
    /// Address of the gateway; beyond loopback it requires `ASP_GATEWAY_MTLS_PORT`, and the other port then serves health
    /// checks only [default: that of `ASP_BIND`]
    #[arg(long, env = "ASP_GATEWAY_BIND", value_parser = address)]
    gateway_bind: Option<IpAddr>,
    /// Address of the xDS server; beyond loopback it requires `ASP_PEER_CERT` [default: that of `ASP_BIND`]
    #[arg(long, env = "ASP_XDS_BIND", value_parser = address)]
    xds_bind: Option<IpAddr>,
    /// User ids, besides its own and root, that may subscribe to xDS without a certificate on this machine, and log in in
    /// development: those of an Envoy, gateway or browser in another account (SECURITY.md) [default: none]
    #[arg(long, env = "ASP_XDS_ACCOUNTS", default_value = "", value_parser = accounts)]
    pub xds_accounts: List<u32>,
    /// Whether to take a free port if another process listens on `gateway_port`
    #[arg(skip)]
    pub gateway_port_yields: bool,
}

impl Listen {
    /// Applies the flag `--bind`, which takes precedence over `ASP_BIND`.
    pub(super) fn apply_flag(&mut self, checks: &mut Checks<'_>, bind: Option<&str>) {
        match bind.map(address).transpose() {
            Ok(bind) => self.bind = bind.unwrap_or(self.bind),
            Err(fault) => checks.fault("--bind", fault),
        }
    }

    pub fn admin(&self) -> IpAddr {
        self.admin_bind.unwrap_or(self.bind)
    }

    pub fn gateway(&self) -> IpAddr {
        self.gateway_bind.unwrap_or(self.bind)
    }

    pub fn xds(&self) -> IpAddr {
        self.xds_bind.unwrap_or(self.bind)
    }
}

/// Parses user ids separated by commas.
fn accounts(text: &str) -> Result<List<u32>, String> {
    list(text, |id| id.parse().map_err(|_| format!("`{id}` is not a user id, as `id -u NAME` prints it")))
}
