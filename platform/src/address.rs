//! Addresses that a request may go to: public ones, and private ones that an operator lists (SSRF guard).
//!
//! Owns `private` (the networks that may be listed). Keeps true: special ranges are refused after resolution, whatever
//! spelling led there, and a name that resolves to a public and a private address is refused altogether.

mod private;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use private::{Network, NetworkError};

/// Whether a request may go to `address`, given the listed private networks.
pub fn may_reach(address: IpAddr, listed: &[Network]) -> bool {
    is_public(address) || listed.iter().any(|network| network.contains(address))
}

/// Whether `address` is a public unicast address (IANA special-purpose registries).
pub fn is_public(address: IpAddr) -> bool {
    match embedded_ipv4(address) {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Whether the host of a URL is this machine: `localhost` or a loopback address, an IPv6 one with or without brackets.
pub fn is_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns the IPv4 address embedded in an IPv6 address (mapped, NAT64 of RFC 6052, 6to4 of RFC 3056), which decides
/// about it.
fn embedded_ipv4(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else { return address };
    match six.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => IpAddr::V4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))),
        _ => address,
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        // Shared address space (RFC 6598), benchmarking (RFC 2544), protocol assignments (RFC 6890), 6to4 relay.
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (b == 18 || b == 19))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        // Azure's platform services answer a machine's own requests at this address (WireServer).
        || address == Ipv4Addr::new(168, 63, 129, 16))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // Only global unicast (2000::/3), without Teredo, ORCHID and documentation.
    (first & 0xe000) == 0x2000
        && !(first == 0x2001 && (second < 0x0200 || second == 0x0db8))
        && !(first == 0x3fff && second < 0x1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_name_and_loopback_addresses() {
        for host in ["localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "::1", "[::1]", "::ffff:127.0.0.1"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["", "localhost.example", "127.0.0.1.example", "10.0.0.1", "::2", "0.0.0.0"] {
            assert!(!is_this_machine(host), "{host}");
        }
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table of cases")]
    fn special_ranges_are_not_public_in_any_notation() {
        let refused = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.1.2.3",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "3fff::1",
        ];
        for text in refused {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        let public = [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.255.255",
            "172.32.0.1",
            "198.17.255.255",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ];
        for text in public {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }
}
