//! Network address of the client, for budgets of work done before a caller is authenticated.
//!
//! Refuses: use as identity. Behind Envoy the address is the one the filter wrote into [`asp_edge::PEER_HEADER`]. It is
//! trusted from an Envoy authenticated by its certificate, from a process on this machine, and in a mesh from any peer:
//! there the peer is a sidecar or a proxy that all clients share, and the mesh's rules decide which peers may connect.
//! Otherwise the address is the peer's own.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use asp_call::digest::PeerKey;
use asp_edge::PEER_HEADER;
use asp_peer::{Identity, Role};
use axum::extract::ConnectInfo;
use http::request::Parts;

/// Returns the client's key. IPv6 clients share the key of their /64, the smallest network that is assigned to one site
/// (RFC 6177 section 2). Clients without an address share one key.
pub(super) fn key(parts: &Parts, in_mesh: bool) -> PeerKey {
    let connected =
        parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip());
    let is_envoy = parts.extensions.get::<Identity>().is_some_and(|peer| peer.role == Role::Envoy);
    let is_local = connected.is_some_and(|address| address.is_loopback());
    let written = parts.headers.get(PEER_HEADER).and_then(|value| value.to_str().ok());
    let written = written.filter(|_| in_mesh || is_envoy || is_local).and_then(address);
    let of_nobody = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    match written.or(connected).unwrap_or(of_nobody).to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => (u128::from(address) & (u128::MAX << 64)).to_be_bytes(),
    }
}

/// Returns the key as text, to reserve memory by the client's network.
pub(super) fn network(key: &PeerKey) -> String {
    format!("{:032x}", u128::from_be_bytes(*key))
}

fn address(text: &str) -> Option<IpAddr> {
    text.parse::<SocketAddr>().map(|address| address.ip()).or_else(|_| text.parse()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(connected: &str, header: Option<&str>) -> Parts {
        let mut request = http::Request::new(());
        request.extensions_mut().insert(ConnectInfo(connected.parse::<SocketAddr>().unwrap()));
        if let Some(header) = header {
            request.headers_mut().insert(PEER_HEADER, header.parse().unwrap());
        }
        request.into_parts().0
    }

    #[test]
    fn the_header_counts_only_from_this_machine_or_a_proved_envoy() {
        let key = |connected, header| key(&parts(connected, header), false);
        let direct = key("198.51.100.1:5", None);
        assert_eq!(key("198.51.100.1:5", Some("203.0.113.9:1")), direct, "a client's own header");
        let through = key("127.0.0.1:5", Some("198.51.100.1:9"));
        assert_eq!(through, direct);
        assert_eq!(key("127.0.0.1:5", Some("x")), key("127.0.0.1:6", None));
    }

    #[test]
    fn clients_behind_one_proxy_of_a_mesh_are_told_apart_by_the_header() {
        let key = |header| key(&parts("10.0.0.7:5", header), true);
        assert_ne!(key(Some("198.51.100.1:9")), key(Some("198.51.100.2:9")));
        assert_eq!(key(Some("x")), key(None), "what is no address is the proxy's");
    }

    #[test]
    fn a_client_cannot_multiply_itself_within_its_ipv6_network() {
        let of = |address: &str| key(&parts(address, None), false);
        assert_eq!(of("[2001:db8:1:2::1]:1"), of("[2001:db8:1:2:ffff::9]:2"));
        assert_ne!(of("[2001:db8:1:2::1]:1"), of("[2001:db8:1:3::1]:1"));
        assert_eq!(of("[::ffff:192.0.2.1]:1"), of("192.0.2.1:7"));
    }
}
