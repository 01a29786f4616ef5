//! What a plugin may reach: exact hosts and `*.suffix`, on the ports of HTTP, and the private networks in which
//! they may lie.

use std::net::IpAddr;

use asp_platform::address::{Network, may_reach};

/// Other ports are other protocols, which a list of domains does not speak of.
pub(super) const PLAIN: u16 = 80;
pub(super) const TLS: u16 = 443;

#[derive(Clone, Debug)]
pub struct Rules {
    exact: Vec<String>,
    /// With their leading dot.
    suffixes: Vec<String>,
    private: Vec<Network>,
}

impl Rules {
    /// `domains` is the manifest's `allowedDomains`, checked there.
    pub fn new(domains: &[String]) -> Rules {
        let mut exact = Vec::new();
        let mut suffixes = Vec::new();
        for domain in domains {
            match domain.strip_prefix('*') {
                Some(suffix) => suffixes.push(suffix.to_owned()),
                None => exact.push(domain.clone()),
            }
        }
        Rules { exact, suffixes, private: Vec::new() }
    }

    /// The same names, which may lie in these networks too.
    #[must_use]
    pub fn with_private(self, private: &[Network]) -> Rules {
        Rules { private: private.to_vec(), ..self }
    }

    /// Whether a request may go to an address that a name led to.
    pub(super) fn allow_address(&self, address: IpAddr) -> bool {
        may_reach(address, &self.private)
    }

    /// Whether a request may go to `host`, which is a name and never a bare address unless listed so. TLS needs a
    /// `tunnel` (CONNECT).
    pub fn allow(&self, host: &str, port: u16, tunnel: bool) -> bool {
        (port == PLAIN || (port == TLS && tunnel)) && self.allow_host(host)
    }

    /// Whether the host is listed. Of the origin of a credential the operator says the port.
    pub(super) fn allow_host(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        let under = |suffix: &String| host.len() > suffix.len() && host.ends_with(suffix.as_str());
        self.exact.iter().any(|exact| exact == host) || self.suffixes.iter().any(under)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_names_and_suffixes_on_http_ports() {
        let rules = Rules::new(&["api.example.com".into(), "*.example.org".into()]);
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
            assert_eq!(rules.allow(host, port, true), allowed, "{host}:{port}");
        }
        assert!(rules.allow("api.example.com", 80, false));
        assert!(!rules.allow("api.example.com", 443, false));
    }
}
