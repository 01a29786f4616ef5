//! Who may call from a browser, and under which host name (DNS rebinding, MCP transport security).
//!
//! Owns the comparison of `Origin` and `Host` with the server's lists. An absent Origin passes (no browser);
//! a present one must equal an allowed value as scheme, host and port. Nothing is matched by prefix or suffix.

/// Allowed origins of one server, lower case.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    allowed: Vec<String>,
    /// Development: loopback hosts with any port.
    loopback: bool,
}

impl Origins {
    /// `listed` empty means the origin of the public URL only.
    pub(crate) fn new(listed: &[String], public_url: &str, dev: bool) -> Origins {
        let mut allowed: Vec<String> = listed.iter().map(|origin| origin.to_ascii_lowercase()).collect();
        if allowed.is_empty() {
            allowed.push(public_url.to_ascii_lowercase());
        }
        Origins { allowed, loopback: dev }
    }

    pub(crate) fn allow(&self, origin: &[u8]) -> bool {
        let origin = origin.to_ascii_lowercase();
        self.allowed.iter().any(|allowed| allowed.as_bytes() == origin)
            || (self.loopback && is_loopback(&origin))
    }
}

/// Whether `host` is one of the lower-case `listed` values; an empty list allows any.
pub(crate) fn host_allowed(listed: &[String], host: Option<&[u8]>) -> bool {
    if listed.is_empty() {
        return true;
    }
    let host = host.unwrap_or_default().to_ascii_lowercase();
    listed.iter().any(|listed| listed.to_ascii_lowercase().as_bytes() == host)
}

fn is_loopback(origin: &[u8]) -> bool {
    let Ok(origin) = std::str::from_utf8(origin) else { return false };
    let Some(authority) = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")) else {
        return false;
    };
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
    fn hosts_are_compared_whole() {
        let listed = ["mcp.example.com".to_owned(), "[::1]:8080".to_owned()];
        assert!(host_allowed(&[], None));
        assert!(host_allowed(&listed, Some(b"MCP.example.com")));
        assert!(host_allowed(&listed, Some(b"[::1]:8080")));
        for bad in ["", "mcp.example.com:444", "mcp.example.com.", "a@mcp.example.com", "x.mcp.example.com"] {
            assert!(!host_allowed(&listed, Some(bad.as_bytes())), "{bad}");
        }
        assert!(!host_allowed(&listed, None));
    }
}
