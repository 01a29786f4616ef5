//! Origins that browsers may call from, and host names to call (DNS rebinding, MCP transport security).
//!
//! Owns the comparison of `Origin` and `Host` with the server's lists. An absent Origin passes (not a browser); a
//! present one must equal an allowed value in scheme, host and port. Nothing is matched by prefix or suffix. A host with
//! the default port of the public URL's scheme is the host without it: clients of gRPC write it.

/// Allowed origins of one server, canonical.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    allowed: Vec<Vec<u8>>,
    /// Whether loopback hosts with any port are allowed (development).
    loopback: bool,
}

impl Origins {
    /// Allows the `listed` origins, or only the origin of the public URL if none is listed.
    pub(crate) fn new(listed: &[String], public_url: &str, dev: bool) -> Origins {
        let mut allowed: Vec<Vec<u8>> =
            listed.iter().map(|origin| canonical_origin(origin.as_bytes())).collect();
        if allowed.is_empty() {
            allowed.push(canonical_origin(public_url.as_bytes()));
        }
        Origins { allowed, loopback: dev }
    }

    pub(crate) fn allow(&self, origin: &[u8]) -> bool {
        let origin = canonical_origin(origin);
        self.allowed.contains(&origin) || (self.loopback && is_loopback(&origin))
    }
}

/// Allowed values of Host of one server, canonical.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    /// Empty if any host is allowed.
    allowed: Vec<Vec<u8>>,
    /// Whether loopback hosts with any port are also allowed.
    loopback: bool,
    default_port: &'static str,
}

impl Hosts {
    /// Allows the `listed` hosts, or any host if none is listed. Exception: a `local_only` server runs without
    /// authentication in development behind a loopback listener, and a page on a rebound name must not read from it.
    pub(crate) fn new(listed: &[String], public_url: &str, local_only: bool) -> Hosts {
        let default_port = default_port(public_url);
        let canonical = |host: &str| canonical_host(host.as_bytes(), default_port);
        let mut allowed: Vec<Vec<u8>> = listed.iter().map(|host| canonical(host)).collect();
        let loopback = local_only && allowed.is_empty();
        if loopback {
            allowed.push(canonical(authority(public_url)));
        }
        Hosts { allowed, loopback, default_port }
    }

    /// Returns the listed hosts; none if any host is allowed, or only those of a `local_only` server.
    pub(crate) fn listed(&self) -> &[Vec<u8>] {
        if self.loopback { &[] } else { &self.allowed }
    }

    pub(crate) fn allow(&self, host: Option<&[u8]>) -> bool {
        if self.allowed.is_empty() {
            return true;
        }
        let host = canonical_host(host.unwrap_or_default(), self.default_port);
        self.allowed.contains(&host)
            || (self.loopback && std::str::from_utf8(&host).is_ok_and(is_loopback_authority))
    }
}

/// Whether two values of Host name one host; a host may also be a whole URL's origin. The port that `public_url` need not name
/// makes no difference.
pub fn is_same_host(one: &str, other: &str, public_url: &str) -> bool {
    let [one, other] =
        [one, other].map(|host| canonical_host(authority(host).as_bytes(), default_port(public_url)));
    one == other
}

/// Returns host and port of the public URL.
pub(crate) fn authority(public_url: &str) -> &str {
    public_url.split_once("://").map_or(public_url, |(_, authority)| authority)
}

/// Returns the port that a URL of the public URL's scheme need not name, with its colon.
pub(crate) fn default_port(public_url: &str) -> &'static str {
    if public_url.starts_with("https://") { ":443" } else { ":80" }
}

/// Returns a host in lower case and without the default port.
pub(crate) fn canonical_host(host: &[u8], default_port: &str) -> Vec<u8> {
    let mut host = host.to_ascii_lowercase();
    if host.ends_with(default_port.as_bytes()) {
        host.truncate(host.len() - default_port.len());
    }
    host
}

/// Returns an origin in lower case and without the default port of its scheme, as browsers write it (RFC 6454 section 6.2).
fn canonical_origin(origin: &[u8]) -> Vec<u8> {
    let is_https = origin.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https://"));
    canonical_host(origin, if is_https { ":443" } else { ":80" })
}

fn is_loopback(origin: &[u8]) -> bool {
    let Ok(origin) = std::str::from_utf8(origin) else { return false };
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(is_loopback_authority)
}

fn is_loopback_authority(authority: &str) -> bool {
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|host| match authority.strip_prefix(host) {
        Some("") => true,
        Some(port) => port.strip_prefix(':').is_some_and(is_port),
        None => false,
    })
}

fn is_port(text: &str) -> bool {
    (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_origins_pass() {
        let origins = Origins::new(&["https://app.example.com".into()], "https://mcp.example.com", false);
        assert!(origins.allow(b"https://app.example.com"));
        assert!(origins.allow(b"HTTPS://App.Example.com"));
        for bad in [
            "null",
            "",
            "http://app.example.com",
            "https://app.example.com:8443",
            "https://app.example.com.",
            "https://app.example.com/",
            "https://evil-app.example.com",
            "https://app.example.com.evil.com",
            "https://user@app.example.com",
            "https://mcp.example.com",
            "http://localhost",
            "https://\u{430}pp.example.com",
        ] {
            assert!(!origins.allow(bad.as_bytes()), "{bad}");
        }
        assert!(!origins.allow(b"https://app.example.com\xff"));
    }

    #[test]
    fn the_default_port_of_its_scheme_is_no_part_of_an_origin() {
        let listed: [String; 2] = ["https://a.example.com:443".into(), "http://b.example.com".into()];
        let origins = Origins::new(&listed, "https://h", false);
        for good in [
            "https://a.example.com",
            "HTTPS://A.example.com:443",
            "http://b.example.com",
            "http://b.example.com:80",
        ] {
            assert!(origins.allow(good.as_bytes()), "{good}");
        }
        for bad in [
            "https://a.example.com:80",
            "https://a.example.com:443:443",
            "http://a.example.com",
            "http://b.example.com:443",
            "https://b.example.com",
        ] {
            assert!(!origins.allow(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn without_a_list_the_public_origin_passes_alone() {
        let origins = Origins::new(&[], "https://mcp.example.com", false);
        assert!(origins.allow(b"https://mcp.example.com"));
        assert!(!origins.allow(b"https://app.example.com"));
    }

    #[test]
    fn null_passes_only_when_listed() {
        assert!(Origins::new(&["null".into()], "https://h", false).allow(b"null"));
        assert!(!Origins::new(&[], "https://h", true).allow(b"null"));
    }

    #[test]
    fn development_adds_loopback_with_any_port_and_nothing_like_it() {
        let origins = Origins::new(&[], "http://127.0.0.1:8080", true);
        for good in ["http://localhost", "https://localhost:5173", "http://127.0.0.1:1", "http://[::1]:65535"]
        {
            assert!(origins.allow(good.as_bytes()), "{good}");
        }
        for bad in [
            "http://evil-localhost",
            "http://localhost.evil.com",
            "http://localhost.",
            "http://localhost:",
            "http://localhost:80@evil.com",
            "http://localhost:123456",
            "http://user@localhost",
            "http://127.0.0.10",
            "http://[::1",
            "http://[::2]",
            "ftp://localhost",
            "localhost",
        ] {
            assert!(!origins.allow(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn a_host_is_the_same_with_the_default_port_and_in_any_case() {
        for (one, other, is_same) in [
            ("H", "h:443", true),
            ("h:443", "https://h", true),
            ("h:8443", "https://h", false),
            ("h.example.com", "h", false),
        ] {
            assert_eq!(is_same_host(one, other, "https://h"), is_same, "{one} {other}");
        }
        assert!(!is_same_host("h:443", "h", "http://h"));
    }

    #[test]
    fn hosts_are_compared_whole() {
        let hosts = Hosts::new(&["MCP.example.com".into(), "[::1]:8080".into()], "https://h", true);
        assert!(hosts.allow(Some(b"mcp.Example.com")));
        assert!(hosts.allow(Some(b"[::1]:8080")));
        for bad in [
            "",
            "localhost",
            "mcp.example.com:444",
            "mcp.example.com.",
            "a@mcp.example.com",
            "x.mcp.example.com",
        ] {
            assert!(!hosts.allow(Some(bad.as_bytes())), "{bad}");
        }
        assert!(!hosts.allow(None));
    }

    #[test]
    fn the_default_port_of_the_public_scheme_is_no_part_of_a_host() {
        let secure = Hosts::new(&["a.example.com".into(), "b.example.com:443".into()], "https://h", false);
        for good in ["a.example.com", "A.example.com:443", "b.example.com", "b.example.com:443"] {
            assert!(secure.allow(Some(good.as_bytes())), "{good}");
        }
        assert!(!secure.allow(Some(b"a.example.com:80")));
        let plain = Hosts::new(&["a.example.com".into()], "http://h:8080", false);
        assert!(plain.allow(Some(b"a.example.com:80")) && !plain.allow(Some(b"a.example.com:443")));
        assert_eq!(secure.listed().len(), 2);
        assert!(Hosts::new(&[], "http://h", true).listed().is_empty());
    }

    #[test]
    fn without_a_list_any_host_passes_except_where_the_server_is_local_only() {
        let anywhere = Hosts::new(&[], "http://dev.example:8080", false);
        assert!(anywhere.allow(None) && anywhere.allow(Some(b"evil.example")));
        let local = Hosts::new(&[], "http://dev.example:8080", true);
        for good in ["dev.example:8080", "localhost", "127.0.0.1:9", "[::1]:8080", "LOCALHOST:8080"] {
            assert!(local.allow(Some(good.as_bytes())), "{good}");
        }
        for bad in [
            "evil.example:8080",
            "localhost.evil.example",
            "dev.example",
            "127.0.0.1.evil.example",
            "localhost:",
        ] {
            assert!(!local.allow(Some(bad.as_bytes())), "{bad}");
        }
        assert!(!local.allow(None) && !local.allow(Some(b"localhost\xff")));
    }
}
