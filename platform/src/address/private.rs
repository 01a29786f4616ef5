//! Private networks that an operator lets requests reach, for internal services.
//!
//! Keeps true: the list is empty by default, and holds only networks for private use. Addresses of the machine's own
//! surroundings cannot be reached: link-local addresses cannot be listed, and no listed network includes the metadata
//! services that clouds keep within private networks. Sources: RFC 1918, RFC 4193, RFC 6598 section 7, RFC 1122 section
//! 3.2.1.3 (g).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::embedded_ipv4;

/// Networks for private use; a listed network must lie within one of them.
const PRIVATE: [Network; 7] = [
    Network::v4([10, 0, 0, 0], 8),
    Network::v4([172, 16, 0, 0], 12),
    Network::v4([192, 168, 0, 0], 16),
    Network::v4([100, 64, 0, 0], 10),
    Network::v4([127, 0, 0, 0], 8),
    Network { address: IpAddr::V6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), prefix: 7 },
    Network { address: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix: 128 },
];

/// Addresses of cloud metadata services besides link-local ones, by the clouds' documentation: AWS and Google over
/// IPv6, Alibaba.
const METADATA: [IpAddr; 3] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
];

/// Network `address/prefix`; a bare address is a network of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error("is not of the form address/prefix")]
    Malformed,
    #[error("has bits beyond its prefix")]
    Loose,
    #[error("is not within the networks for private use")]
    NotPrivate,
}

// === impl Network ===

impl Network {
    const fn v4([a, b, c, d]: [u8; 4], prefix: u32) -> Network {
        Network { address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix }
    }

    /// Whether `address`, or the IPv4 address embedded in it, is in this network. False for the address of a metadata
    /// service.
    pub fn contains(self, address: IpAddr) -> bool {
        let address = embedded_ipv4(address);
        !METADATA.contains(&address)
            && address.is_ipv4() == self.address.is_ipv4()
            && self.first(address) == self.first(self.address)
    }

    /// Returns the first address, as a number, of the network of this size that contains `address`.
    fn first(self, address: IpAddr) -> u128 {
        let (number, width) = match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()), Ipv4Addr::BITS),
            IpAddr::V6(address) => (address.to_bits(), Ipv6Addr::BITS),
        };
        let host = width.saturating_sub(self.prefix);
        number.checked_shr(host).and_then(|network| network.checked_shl(host)).unwrap_or(0)
    }

    fn number(self) -> u128 {
        match self.address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError::Malformed)?;
        let width = if address.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS };
        let prefix = prefix.map_or(Ok(width), str::parse).map_err(|_| NetworkError::Malformed)?;
        let network = Network { address, prefix };
        if prefix > width {
            return Err(NetworkError::Malformed);
        }
        if network.first(address) != network.number() {
            return Err(NetworkError::Loose);
        }
        // An IPv6 address with an embedded IPv4 address is never accepted: the operator must list the IPv4 network.
        let within = |wide: &Network| {
            embedded_ipv4(address) == address && wide.prefix <= prefix && wide.contains(address)
        };
        if PRIVATE.iter().any(within) { Ok(network) } else { Err(NetworkError::NotPrivate) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::may_reach;
    use super::*;

    #[test]
    fn a_network_holds_its_addresses_and_no_others() {
        for (network, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.255", "10.2.0.0"),
            ("10.1.0.0/16", "::ffff:10.1.2.3", "::ffff:10.2.0.0"),
            ("10.1.0.0/16", "64:ff9b::10.1.2.3", "64:ff9b::10.2.0.0"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("192.168.0.0/16", "192.168.7.7", "::1"),
            ("fd00:1::/32", "fd00:1:2::3", "fd00:2::"),
            ("::1", "::1", "127.0.0.1"),
            ("fd00::/8", "fd00:ec2::253", "fd00:ec2::254"),
            ("fc00::/7", "fd20:ce::1", "fd20:ce::254"),
            ("100.64.0.0/10", "100.100.100.201", "100.100.100.200"),
            ("100.64.0.0/10", "::ffff:100.100.100.201", "::ffff:100.100.100.200"),
            ("100.64.0.0/10", "2002:6464:64c9::", "2002:6464:64c8::"),
        ] {
            let network: Network = network.parse().unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{network:?} {inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{network:?} {outside}");
        }
    }

    #[test]
    fn no_network_for_private_use_is_public_and_no_metadata_service_is_reached() {
        for network in PRIVATE {
            assert!(!may_reach(network.address, &[]) && may_reach(network.address, &PRIVATE), "{network:?}");
        }
        for address in METADATA {
            assert!(!may_reach(address, &PRIVATE), "{address}");
        }
    }

    #[test]
    fn what_is_not_for_private_use_cannot_be_listed() {
        for (text, error) in [
            ("0.0.0.0/0", NetworkError::NotPrivate),
            ("::/0", NetworkError::NotPrivate),
            ("8.8.8.0/24", NetworkError::NotPrivate),
            ("169.254.169.254", NetworkError::NotPrivate),
            ("fd00:ec2::254", NetworkError::NotPrivate),
            ("100.100.100.200/32", NetworkError::NotPrivate),
            ("169.254.0.0/16", NetworkError::NotPrivate),
            ("fe80::/10", NetworkError::NotPrivate),
            ("8.0.0.0/5", NetworkError::NotPrivate),
            ("64:ff9b::10.0.0.0/104", NetworkError::NotPrivate),
            ("2002:a00::/24", NetworkError::NotPrivate),
            ("fd00::/6", NetworkError::Loose),
            ("10.0.0.1/8", NetworkError::Loose),
            ("10.0.0.0/33", NetworkError::Malformed),
            ("10.0.0.0/-1", NetworkError::Malformed),
            ("10.0.0/8", NetworkError::Malformed),
            ("", NetworkError::Malformed),
            ("localhost", NetworkError::Malformed),
        ] {
            assert_eq!(text.parse::<Network>(), Err(error), "{text}");
        }
    }
}
