//! TCP to the hosts and ports that a plugin lists (`allowedTcp`), for databases and brokers.
//!
//! Keeps true: each destination has a socket of its own, whose connections go to that destination and to no other; its addresses
//! are checked after resolution, as those of the proxy are; every connection leaves one audit line. The content is not inspected.

use std::net::{IpAddr, Ipv4Addr};

use tokio::io::copy_bidirectional;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::head::Head;
use super::{Proxy, TUNNEL_WITHIN};

/// Name of this machine, which the sandbox has on its loopback anyway.
const LOCALHOST: &str = "localhost";

/// One host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub host: String,
    pub port: u16,
}

impl Destination {
    /// Parses `host:port`. `None`: it has no port, or its host is an address.
    pub fn parse(text: &str) -> Option<Destination> {
        let (host, port) = text.rsplit_once(':')?;
        // One spelling of each port.
        let is_plain = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
        let port = Some(port).filter(|_| is_plain)?.parse().ok()?;
        if host.is_empty() || host.parse::<IpAddr>().is_ok() {
            return None;
        }
        Some(Destination { host: host.to_owned(), port })
    }
}

/// Returns the loopback address of each destination's host inside the sandbox: the code uses the host's own name and port.
pub fn loopback_addresses(destinations: &[Destination]) -> Vec<Ipv4Addr> {
    let mut hosts: Vec<&str> = Vec::new();
    let mut addresses = Vec::new();
    for Destination { host, .. } in destinations {
        if host == LOCALHOST {
            addresses.push(Ipv4Addr::LOCALHOST);
            continue;
        }
        let known = hosts.iter().position(|known| known == host);
        let number = known.unwrap_or_else(|| {
            hosts.push(host);
            hosts.len() - 1
        });
        // There are fewer hosts than a byte has values: the manifest bounds them.
        addresses.push(Ipv4Addr::new(127, 0, 1, u8::try_from(number + 1).unwrap_or(u8::MAX)));
    }
    addresses
}

impl Proxy {
    /// Connects a stream to a destination. A refused one is closed.
    pub(super) async fn carry_tcp(&self, mut stream: UnixStream, to: &Destination) {
        self.rate_limit.acquire().await;
        let connected = self.reach(&to.host, to.port).await;
        let head = Head {
            method: "TCP".to_owned(),
            host: to.host.clone(),
            port: to.port,
            authority: String::new(),
            path: String::new(),
            is_framed: true,
        };
        self.audit(&head, "", connected.as_ref().err().copied());
        if let Ok(mut upstream) = connected {
            // Err: one side disconnected, which ends the other.
            let _ = timeout(TUNNEL_WITHIN, copy_bidirectional(&mut stream, &mut upstream)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_a_name_and_a_port() {
        let destination = Destination::parse("db.internal:5432").unwrap();
        assert_eq!((destination.host.as_str(), destination.port), ("db.internal", 5432));
        for wrong in [
            "db.internal",
            "db.internal:",
            ":5432",
            "db:0",
            "db:080",
            "db:+1",
            "db:65536",
            "10.0.0.1:5432",
            "::1:5432",
        ] {
            assert_eq!(Destination::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn each_host_has_an_address_on_the_loopback() {
        let listed = ["db.a:5432", "db.b:5432", "localhost:6379", "db.a:5433"];
        let destinations: Vec<Destination> =
            listed.iter().filter_map(|text| Destination::parse(text)).collect();
        let address = |last| Ipv4Addr::new(127, 0, 1, last);
        let expected = [address(1), address(2), Ipv4Addr::LOCALHOST, address(1)];
        assert_eq!(loopback_addresses(&destinations), expected);
    }
}
