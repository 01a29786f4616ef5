//! The control planes that a gateway may follow: those in its settings, and each address of a name.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use asp_peer::Role;
use tokio::net::lookup_host;
use tonic::transport::{Channel, Endpoint, Uri};

use super::SubscriptionTarget;
use crate::contract::CONNECT_TIMEOUT;

/// Keepalive of a connection: a control plane that vanished silently is noticed after the sum of the two.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for the addresses of a name.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of control planes that a gateway chooses from.
const MAX_CONTROLS: usize = 16;

/// One control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ControlPlane {
    pub(super) uri: Uri,
    /// Name in its certificate; its host by default.
    name: Option<String>,
}

impl ControlPlane {
    pub(super) fn new(target: &SubscriptionTarget, uri: Uri) -> ControlPlane {
        ControlPlane { uri, name: target.name.clone() }
    }

    /// Connects to it with the target's certificate.
    pub(super) async fn connect(
        &self,
        target: &SubscriptionTarget,
    ) -> Result<Channel, tonic::transport::Error> {
        let endpoint = match target.peer {
            None => Endpoint::from(self.uri.clone()),
            Some(_) => Endpoint::from(asp_peer::endpoint_uri(&self.uri)),
        };
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        match &target.peer {
            None => endpoint.connect().await,
            Some(peer) => {
                let connector = asp_peer::connector(peer.clone(), Role::Control, self.name.clone());
                endpoint.connect_with_connector(connector).await
            }
        }
    }
}

/// Returns every control plane of a target, in the order of the settings.
pub(super) async fn resolve(target: &SubscriptionTarget) -> Vec<ControlPlane> {
    let mut controls: Vec<ControlPlane> = Vec::new();
    for uri in &target.uris {
        for control in resolve_one(target, uri).await {
            if !controls.contains(&control) && controls.len() < MAX_CONTROLS {
                controls.push(control);
            }
        }
    }
    controls
}

/// Returns one control plane for each address if the name has several, as that of a headless Service; else the URL as
/// it is.
async fn resolve_one(target: &SubscriptionTarget, uri: &Uri) -> Vec<ControlPlane> {
    let as_it_is = || vec![ControlPlane::new(target, uri.clone())];
    let Some(host) = uri.host().map(|host| host.trim_start_matches('[').trim_end_matches(']')) else {
        return as_it_is();
    };
    if host.parse::<IpAddr>().is_ok() {
        return as_it_is();
    }
    let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    let port = uri.port_u16().unwrap_or(default_port);
    let Ok(Ok(found)) = tokio::time::timeout(RESOLVE_TIMEOUT, lookup_host((host, port))).await else {
        return as_it_is();
    };
    let mut addresses: Vec<SocketAddr> = found.collect();
    addresses.sort_unstable();
    addresses.dedup();
    // `localhost` is one process with two addresses, and may listen on only one of them.
    if addresses.len() < 2 || addresses.iter().all(|address| address.ip().is_loopback()) {
        return as_it_is();
    }
    let name = target.name.clone().unwrap_or_else(|| host.to_owned());
    let at = |address: SocketAddr| {
        let scheme = uri.scheme_str().unwrap_or("http");
        let authority = address.to_string();
        let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build().ok()?;
        Some(ControlPlane { uri, name: Some(name.clone()) })
    };
    addresses.into_iter().filter_map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(urls: &[&str]) -> SubscriptionTarget {
        SubscriptionTarget {
            uris: urls.iter().map(|url| url.parse().unwrap()).collect(),
            node_id: String::new(),
            advertise: String::new(),
            pool: String::new(),
            peer: None,
            name: None,
        }
    }

    #[tokio::test]
    async fn addresses_are_taken_as_they_are_each_once() {
        let urls = ["http://127.0.0.1:1", "http://[::1]:2", "http://localhost:3", "http://127.0.0.1:1"];
        let found = resolve(&target(&urls)).await;
        let found: Vec<String> = found.iter().map(|control| control.uri.to_string()).collect();
        assert_eq!(found, ["http://127.0.0.1:1/", "http://[::1]:2/", "http://localhost:3/"]);
    }
}
