//! The head of a request to the proxy: CONNECT, or a method with an absolute `http` URI.

/// Maximum size of a request line and its headers.
pub(super) const MAX_HEAD: usize = 16 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) method: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// `host[:port]` as the request has it.
    pub(super) authority: String,
    /// Path and query; empty for CONNECT.
    pub(super) path: String,
    /// Whether any two readers find the same end of the body.
    pub(super) is_framed: bool,
}

impl Head {
    /// Parses a head with its final empty line. `None`: it is not a request for a proxy.
    pub(super) fn parse(bytes: &[u8]) -> Option<Head> {
        let text = std::str::from_utf8(bytes).ok().filter(|_| bytes.len() <= MAX_HEAD)?;
        let (line, headers) = text.split_once("\r\n")?;
        let mut words = line.split(' ');
        let method = words.next()?;
        let target = words.next()?;
        let version = words.next()?;
        let token = |byte: u8| byte.is_ascii_uppercase();
        if words.next().is_some() || !is_plain(target, version) || !method.bytes().all(token) {
            return None;
        }
        if method == "CONNECT" {
            let (host, port) = authority(target, None)?;
            let (method, authority) = (method.to_owned(), target.to_owned());
            return Some(Head { method, host, port, authority, path: String::new(), is_framed: true });
        }
        // A worker speaks TLS itself, so an absolute URI is always plain HTTP.
        let rest = target.strip_prefix("http://")?;
        let (name, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let (host, port) = authority(name, Some(80))?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        let path = format!("{slash}{path}");
        let mut framing = Framing::default();
        let mut hosts = 0;
        for header in headers.split("\r\n").filter(|header| !header.is_empty()) {
            let (key, value) = header.split_once(':')?;
            // A line that two readers may interpret differently could smuggle another host past this check.
            if !is_name(key) || value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
                return None;
            }
            framing.read(key, value);
            if key.eq_ignore_ascii_case("host") {
                hosts += 1;
                let (named, named_port) = authority(value.trim_matches([' ', '\t']), Some(80))?;
                if hosts > 1 || !same_host(&named, &host) || named_port != port {
                    return None;
                }
            }
        }
        let is_framed = framing.is_clear(version);
        let (method, authority) = (method.to_owned(), name.to_owned());
        Some(Head { method, host, port, authority, path, is_framed })
    }

    /// Parses the first plain request in a tunnel to `host` and `port`, as if it had been sent to the proxy. `None`: it
    /// is not a request, or for another host.
    pub(super) fn in_tunnel(bytes: &[u8], host: &str, port: u16) -> Option<Head> {
        let text = std::str::from_utf8(bytes).ok().filter(|_| bytes.len() <= MAX_HEAD)?;
        let (line, headers) = text.split_once("\r\n")?;
        let (method, rest) = line.split_once(' ')?;
        let (path, version) = rest.split_once(' ')?;
        let asked = headers.split("\r\n").filter_map(|header| header.split_once(':'));
        let mut asked = asked.filter(|(key, _)| key.eq_ignore_ascii_case("host"));
        let (name, asked_port) = authority(asked.next()?.1.trim(), Some(80))?;
        let is_same = asked_port == port && name.eq_ignore_ascii_case(host);
        if asked.next().is_some() || !is_same || !path.starts_with('/') {
            return None;
        }
        let name = if port == 80 { name } else { format!("{name}:{port}") };
        // The same parser applies, so the same contents are allowed and the same are dropped as in a request to the
        // proxy itself.
        let absolute = format!("{method} http://{name}{path} {version}\r\n{headers}");
        Head::parse(absolute.as_bytes())
    }

    pub(super) fn is_connect(&self) -> bool {
        self.method == "CONNECT"
    }
}

/// Headers that determine where the body ends (RFC 9112 section 6.3).
#[derive(Default)]
struct Framing {
    lengths: u32,
    codings: u32,
    /// Whether a value is ambiguous to readers.
    odd: bool,
}

impl Framing {
    fn read(&mut self, key: &str, value: &str) {
        let value = value.trim_matches([' ', '\t']);
        if key.eq_ignore_ascii_case("content-length") {
            self.lengths += 1;
            self.odd |= value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit());
            self.odd |= value.parse::<u64>().is_err();
        } else if key.eq_ignore_ascii_case("transfer-encoding") {
            self.codings += 1;
            self.odd |= !value.eq_ignore_ascii_case("chunked");
        }
    }

    /// Whether the end of the body is unambiguous. Both headers, or one of them twice, allow request smuggling;
    /// HTTP/1.0 has no codings, and some readers end its body with the connection.
    fn is_clear(&self, version: &str) -> bool {
        let bodies = self.lengths + self.codings;
        !self.odd && (bodies == 0 || (bodies == 1 && version == "HTTP/1.1"))
    }
}

/// Whether the request line contains nothing that another reader may take for its end (RFC 9112 section 2.2: a bare
/// LF).
fn is_plain(target: &str, version: &str) -> bool {
    matches!(version, "HTTP/1.0" | "HTTP/1.1") && !target.bytes().any(|byte| byte.is_ascii_control())
}

/// Whether `key` is a token (RFC 9110 section 5.6.2): no space before the colon, no folded line.
fn is_name(key: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !key.is_empty() && key.bytes().all(token)
}

/// Whether a header frames a message or belongs to one connection. Such a header is not forwarded, and cannot be a
/// credential.
pub(super) fn hop_by_hop(key: &str) -> bool {
    const NAMES: [&str; 13] = [
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    NAMES.iter().any(|name| key.eq_ignore_ascii_case(name))
}

/// Whether two spellings are the same host (RFC 9110 section 4.2.3), with or without the root's dot.
pub(super) fn same_host(one: &str, other: &str) -> bool {
    plain(one) == plain(other)
}

/// Lower-cases a host and removes the dot of the root.
pub(super) fn plain(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Parses `host[:port]` or `[v6][:port]`, without user information.
pub(super) fn authority(text: &str, default: Option<u16>) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    if host.is_empty() || host.len() > 253 || !host.bytes().all(plain) {
        return None;
    }
    let port = match port {
        Some(port) if port.starts_with('+') => return None,
        Some(port) => port.parse().ok()?,
        None => default?,
    };
    Some((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_line_holds_no_second_request() {
        for line in [
            "GET http://a.example/ HTTP/1.1\nHost:evil\nConnection:keep-alive\n\n",
            "GET http://a.example/x\nHost:evil HTTP/1.1",
            "GET http://a.example/ HTTP/1.2",
            "GET http://a.example/ HTTP/1.1\t",
        ] {
            let head = format!("{line}\r\nAccept: x\r\n\r\n");
            assert_eq!(Head::parse(head.as_bytes()), None, "{line:?}");
            let inner =
                head.replacen("http://a.example", "", 1).replacen("\r\n", "\r\nHost: a.example\r\n", 1);
            assert_eq!(Head::in_tunnel(inner.as_bytes(), "a.example", 80), None, "{line:?}");
        }
    }

    #[test]
    fn connect_and_absolute_requests_are_read() {
        let connect = Head::parse(b"CONNECT api.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(connect.is_connect());
        assert_eq!((connect.host.as_str(), connect.port), ("api.example.com", 443));
        let get = b"GET http://a.example:8080/p?q=1 HTTP/1.1\r\nAccept: */*\r\n\r\n";
        let get = Head::parse(get).unwrap();
        let Head { method, host, port, authority, path, is_framed } = &get;
        assert_eq!((method.as_str(), host.as_str(), *port, *is_framed), ("GET", "a.example", 8080, true));
        assert_eq!(
            (authority.as_str(), path.as_str(), get.is_connect()),
            ("a.example:8080", "/p?q=1", false)
        );
        let bare = Head::parse(b"GET http://a.example?x HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(bare.path, "/?x");
    }

    #[test]
    fn a_host_header_names_the_host_of_the_target() {
        for (headers, is_same) in [
            ("", true),
            ("Host: a.example", true),
            ("host:A.EXAMPLE.", true),
            ("Host: a.example:80", true),
            ("Host: a.example:8080", false),
            ("Host: evil.example", false),
            ("Host: user@a.example", false),
            ("Host:", false),
            ("Host: a.example\r\nHost: a.example", false),
            ("Host: a.example\r\nhost: evil.example", false),
        ] {
            let head = format!("GET http://a.example/ HTTP/1.1\r\n{headers}\r\n\r\n");
            let head = head.replace("1.1\r\n\r\n\r\n", "1.1\r\n\r\n");
            assert_eq!(Head::parse(head.as_bytes()).is_some(), is_same, "{headers:?}");
        }
    }

    #[test]
    fn a_tunnel_without_tls_carries_one_request_for_its_host() {
        let asked = |text: &str| Head::in_tunnel(text.as_bytes(), "a.example", 80);
        let good = asked("GET /p HTTP/1.1\r\nhost: A.example:80\r\nAccept: */*\r\n\r\n").unwrap();
        assert_eq!((good.authority.as_str(), good.path.as_str()), ("A.example", "/p"));
        for bad in [
            "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example\r\nHost: evil.example\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example:8080\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a.example\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET http://evil.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "SSH-2.0-OpenSSH_9.9\r\n\r\n",
        ] {
            assert_eq!(asked(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_body_whose_end_two_readers_may_find_in_two_places_is_told_apart() {
        for (headers, framed) in [
            ("", true),
            ("Content-Length: 5", true),
            ("content-length:0005", true),
            ("Transfer-Encoding: Chunked", true),
            ("Content-Length: 5\r\nContent-Length: 5", false),
            ("Content-Length: 5\r\ncontent-length: 6", false),
            ("Content-Length: 5, 5", false),
            ("Content-Length: +5", false),
            ("Content-Length: -1", false),
            ("Content-Length: 0x5", false),
            ("Content-Length: ", false),
            ("Content-Length: 99999999999999999999", false),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked", false),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", false),
            ("Transfer-Encoding: gzip, chunked", false),
            ("Transfer-Encoding: identity", false),
            ("Transfer-Encoding: \u{b}chunked", false),
            ("Transfer-Encoding: xchunked", false),
        ] {
            let line = |version: &str| format!("POST http://a.example/ HTTP/{version}\r\n{headers}\r\n\r\n");
            let read = Head::parse(line("1.1").as_bytes());
            assert_eq!(read.is_some_and(|head| head.is_framed), framed, "{headers:?}");
            if !headers.is_empty() {
                assert!(
                    !Head::parse(line("1.0").as_bytes()).is_some_and(|head| head.is_framed),
                    "{headers:?}"
                );
            }
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for bad in [
            "GET /origin-form HTTP/1.1\r\n\r\n",
            "GET https://a.example/ HTTP/1.1\r\n\r\n",
            "GET http://user@a.example/ HTTP/1.1\r\n\r\n",
            "CONNECT a.example HTTP/1.1\r\n\r\n",
            "CONNECT a.example:99999 HTTP/1.1\r\n\r\n",
            "CONNECT a.example:+443 HTTP/1.1\r\n\r\n",
            "CONNECT :443 HTTP/1.1\r\n\r\n",
            "CONNECT a b:443 HTTP/1.1\r\n\r\n",
            "get http://a.example/ HTTP/1.1\r\n\r\n",
            "GET http://a.example/ HTTP/2\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nno colon\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHost : evil.example\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\n Host: evil.example\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nX: y\nHost: evil.example\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nX: y\rHost: evil.example\r\n\r\n",
            "",
        ] {
            assert_eq!(Head::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
