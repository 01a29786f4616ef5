//! Envoy's bootstrap for a cluster: the shipped one with what the tests add to it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::SERVED_BY;
use crate::tool;

/// The shipped bootstrap whose answers name their replica, with a second control plane where there is one, and with the
/// clusters that lead to other regions.
pub(super) fn traced(
    directory: &Path,
    second_xds: Option<u16>,
    regions: &[(&'static str, SocketAddr)],
) -> Result<PathBuf> {
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
    const CLUSTERS: &str = "  clusters:\n";
    for (name, address) in regions {
        if !template.contains(CLUSTERS) {
            bail!("envoy/bootstrap.yaml has no clusters");
        }
        let ip = address.ip();
        let port = address.port();
        let region = format!(
            "  - {{ name: {name}, type: STATIC, connect_timeout: 1s, load_assignment: {{ cluster_name: {name}, endpoints: \
             [{{ lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: {{ address: {ip}, port_value: {port} }} }} }} }}] }}] }} }}\n"
        );
        template = template.replacen(CLUSTERS, &format!("{CLUSTERS}{region}"), 1);
    }
    let path = directory.join("bootstrap.yaml");
    std::fs::write(&path, template)?;
    Ok(path)
}
