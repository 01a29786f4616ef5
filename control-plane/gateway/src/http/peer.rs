//! Network address of the client, for budgets of work that is done before the client has proved anything.
//!
//! Refuses: use as identity. Behind Envoy the address is what the filter wrote into [`asp_edge::PEER_HEADER`]; only an
//! Envoy proved by its certificate, or a process on this machine, is believed. Otherwise it is the other end of the connection.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use asp_edge::PEER_HEADER;
use asp_peer::{Identity, Role};
use axum::extract::ConnectInfo;
use http::request::Parts;

use crate::digest::PeerKey;

/// The client's key. IPv6 clients share the key of their /64, the smallest network that is assigned to one site
/// (RFC 6177 section 2). Clients without an address share one key.
pub(super) fn key(parts: &Parts) -> PeerKey {
    let connected =
        parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip());
    let is_envoy = parts.extensions.get::<Identity>().is_some_and(|peer| peer.role == Role::Envoy);
    let is_local = connected.is_some_and(|address| address.is_loopback());
    let written = parts.headers.get(PEER_HEADER).and_then(|value| value.to_str().ok());
    let written = written.filter(|_| is_envoy || is_local).and_then(address);
    let of_nobody = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    match written.or(connected).unwrap_or(of_nobody).to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => (u128::from(address) & (u128::MAX << 64)).to_be_bytes(),
    }
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
        let direct = key(&parts("198.51.100.1:5", None));
        assert_eq!(key(&parts("198.51.100.1:5", Some("203.0.113.9:1"))), direct, "a client's own header");
        let through = key(&parts("127.0.0.1:5", Some("198.51.100.1:9")));
        assert_eq!(through, direct);
        assert_eq!(key(&parts("127.0.0.1:5", Some("x"))), key(&parts("127.0.0.1:6", None)));
    }

    #[test]
    fn a_client_cannot_multiply_itself_within_its_ipv6_network() {
        let of = |address: &str| key(&parts(address, None));
        assert_eq!(of("[2001:db8:1:2::1]:1"), of("[2001:db8:1:2:ffff::9]:2"));
        assert_ne!(of("[2001:db8:1:2::1]:1"), of("[2001:db8:1:3::1]:1"));
        assert_eq!(of("[::ffff:192.0.2.1]:1"), of("192.0.2.1:7"));
    }
}
