//! Network rules of a plugin: exact hosts and `*.suffix`, on the ports of HTTP, and the private networks in which they
//! may be.

use std::net::IpAddr;

use asp_platform::address::{Network, may_reach};
use asp_platform::operator_list;

use super::head::plain;

/// Allowed ports. Other ports are for other protocols, to which a list of domains does not apply.
pub(super) const PLAIN: u16 = 80;
pub(super) const TLS: u16 = 443;

/// Networks of a developer's machine and company; never link-local ones, where clouds serve credentials.
const DEVELOPMENT: [&str; 7] =
    ["127.0.0.0/8", "::1", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"];

#[derive(Clone, Debug)]
pub struct EgressRules {
    exact: Vec<String>,
    /// Suffixes with their leading dot.
    suffixes: Vec<String>,
    private: Vec<PrivateRoute>,
    /// Networks open for every name, on any port; only in development.
    development: Vec<Network>,
}

/// A private network that one name may resolve to, and the primitives whose plugins may connect to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateRoute {
    /// A host or `*.suffix`, as in `allowedDomains`.
    name: String,
    network: Network,
    primitives: Vec<String>,
}

impl PrivateRoute {
    /// Parses `NAME=NETWORK`.
    pub fn parse(text: &str, primitives: Vec<String>) -> Result<PrivateRoute, String> {
        let Some((name, network)) = text.split_once('=') else {
            return Err("must be NAME=ADDRESS/PREFIX;for=SERVER/PRIMITIVE".to_owned());
        };
        let host = name.strip_prefix("*.").unwrap_or(name);
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:".contains(&byte);
        if host.is_empty() || !host.bytes().all(plain) || host.starts_with('.') || host.ends_with('.') {
            return Err("names no host or *.suffix in lower case before its `=`".to_owned());
        }
        let network = network.parse().map_err(|error| format!("{network} {error}"))?;
        Ok(PrivateRoute { name: name.to_owned(), network, primitives })
    }

    /// Whether plugins that are called as `server/primitive` may use it.
    pub fn serves(&self, called_as: &str) -> bool {
        let parts = called_as.split_once('/');
        parts.is_some_and(|(server, primitive)| operator_list::allows(&self.primitives, server, primitive))
    }

    fn leads(&self, host: &str, address: IpAddr) -> bool {
        operator_list::names_host(&self.name, host) && self.network.contains(address)
    }
}

impl EgressRules {
    /// Creates the rules of a manifest's `allowedDomains`, which have been checked there.
    pub fn new(domains: &[String]) -> EgressRules {
        let mut exact = Vec::new();
        let mut suffixes = Vec::new();
        for domain in domains {
            match domain.strip_prefix('*') {
                Some(suffix) => suffixes.push(suffix.to_owned()),
                None => exact.push(domain.clone()),
            }
        }
        EgressRules { exact, suffixes, private: Vec::new(), development: Vec::new() }
    }

    /// Returns the same names; those of `private` may also be in its networks.
    #[must_use]
    pub fn with_private(self, private: &[PrivateRoute]) -> EgressRules {
        EgressRules { private: private.to_vec(), ..self }
    }

    /// Returns the same names on any port, at any private address: for one developer's machine.
    #[must_use]
    pub fn for_development(self) -> EgressRules {
        EgressRules {
            development: DEVELOPMENT.iter().filter_map(|network| network.parse().ok()).collect(),
            ..self
        }
    }

    /// Whether a request may go to an address that `host` resolved to.
    pub(super) fn allow_address(&self, host: &str, address: IpAddr) -> bool {
        let host = plain(host);
        may_reach(address, &self.development) || self.private.iter().any(|route| route.leads(&host, address))
    }

    /// Whether a request may go to this port. TLS needs a `tunnel` (CONNECT).
    pub(super) fn allow_port(&self, port: u16, tunnel: bool) -> bool {
        !self.development.is_empty() || port == PLAIN || (port == TLS && tunnel)
    }

    /// Whether `host` is listed; a bare address must be listed as such. The port of a credential's origin is the
    /// operator's choice.
    pub(super) fn allow_host(&self, host: &str) -> bool {
        let host = plain(host);
        let under = |suffix: &String| host.len() > suffix.len() && host.ends_with(suffix.as_str());
        self.exact.contains(&host) || self.suffixes.iter().any(under)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(text: &str, pattern: &str) -> PrivateRoute {
        PrivateRoute::parse(text, vec![pattern.to_owned()]).unwrap()
    }

    #[test]
    fn a_private_address_belongs_to_the_name_that_the_operator_pairs_it_with() {
        let names = ["crm.internal".to_owned(), "x.evil.example".into(), "*.corp.example".into()];
        let routes = [route("crm.internal=10.0.0.0/8", "crm/*"), route("*.corp.example=fd00:20::/48", "*")];
        let rules = EgressRules::new(&names).with_private(&routes);
        for (host, address, allowed) in [
            ("crm.internal", "10.0.0.5", true),
            ("CRM.internal.", "10.0.0.5", true),
            ("crm.internal", "192.168.0.5", false),
            ("crm.internal", "fd00:20::1", false),
            // Its own DNS resolves to this address, which proves nothing.
            ("x.evil.example", "10.0.0.5", false),
            ("x.evil.example", "8.8.8.8", true),
            ("a.corp.example", "fd00:20::1", true),
            ("corp.example", "fd00:20::1", false),
            ("acorp.example", "fd00:20::1", false),
            ("a.corp.example", "10.0.0.5", false),
            ("10.0.0.5", "10.0.0.5", false),
        ] {
            assert_eq!(rules.allow_address(host, address.parse().unwrap()), allowed, "{host} {address}");
        }
    }

    /// Invariant I-12.
    #[test]
    fn a_route_serves_the_primitives_it_names() {
        let crm = route("crm.internal=10.0.0.0/8", "crm/*");
        for (called_as, serves) in [
            ("crm/find", true),
            ("crm/a/b", true),
            ("evil/find", false),
            ("crm", false),
            ("", false),
            ("/crm", false),
        ] {
            assert_eq!(crm.serves(called_as), serves, "{called_as}");
        }
        assert!(route("crm.internal=10.0.0.0/8", "*").serves("any/thing"));
        assert!(!route("crm.internal=10.0.0.0/8", "*").serves(""), "a gateway that does not say");
        for bad in [
            "10.0.0.0/8",
            "=10.0.0.0/8",
            "*=10.0.0.0/8",
            "*.=10.0.0.0/8",
            "CRM.internal=10.0.0.0/8",
            "a b=10.0.0.0/8",
            "a.=10.0.0.0/8",
            "a.*=10.0.0.0/8",
            "crm.internal=8.8.8.0/24",
            "crm.internal=169.254.0.0/16",
            "crm.internal=10.0.0.1/8",
            "crm.internal=",
        ] {
            assert!(PrivateRoute::parse(bad, Vec::new()).is_err(), "{bad}");
        }
    }

    #[test]
    fn exact_names_and_suffixes_on_http_ports() {
        let rules = EgressRules::new(&["api.example.com".into(), "*.example.org".into()]);
        for (host, port, allowed) in [
            ("api.example.com", 443, true),
            ("API.example.com.", 443, true),
            ("api.example.com", 22, false),
            ("x.api.example.com", 443, false),
            ("example.org", 443, false),
            ("a.example.org", 443, true),
            ("a.b.example.org", 443, true),
            ("evilexample.org", 443, false),
            ("127.0.0.1", 443, false),
            ("", 443, false),
        ] {
            assert_eq!(rules.allow_host(host) && rules.allow_port(port, true), allowed, "{host}:{port}");
        }
        assert!(rules.allow_port(80, false));
        assert!(!rules.allow_port(443, false));
    }

    #[test]
    fn in_development_private_addresses_and_any_port_are_allowed_for_listed_names_alone() {
        let rules = EgressRules::new(&["localhost".into()]).for_development();
        assert_eq!(rules.development.len(), DEVELOPMENT.len());
        assert!(rules.allow_port(28_900, false) && rules.allow_port(5432, true));
        for (address, allowed) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("10.1.2.3", true),
            ("fd00::1", true),
            ("8.8.8.8", true),
            ("169.254.169.254", false),
            ("100.100.100.200", false),
            ("fd00:ec2::254", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(rules.allow_address("localhost", address.parse().unwrap()), allowed, "{address}");
        }
        assert!(!rules.allow_host("other.example"));
    }
}
