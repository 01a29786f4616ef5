use super::{http_url, is_host_name, is_origin, is_private_host, resource_uri};

#[test]
fn urls_that_hide_their_host_are_refused() {
    let table = [
        "https://127.1/",
        "https://0/",
        "https://0x7f000001/",
        "https://0X7F000001/",
        "https://0x7f.1/",
        "https://017700000001/",
        "https://0177.0.0.1/",
        "https://2130706433/",
        "https://127.0.0.01/",
        "https://1.2.3/",
        "https://user@example.com/",
        "https://user:secret@example.com/",
        "https://good.example@evil.example/",
        "https://example.com#@evil.example/",
        "https://example.com\\@evil.example/",
        "https://exa mple.com/",
        "https://例え.jp/",
        "https://example。com/",
        "https://example.com:0/",
        "https://example.com:065/",
        "https://example.com:99999/",
        "https://example.com:/",
        "https://[::1/",
        "https://[::1]x/",
        "https://[not-an-address]/",
        "https:///path",
        "https://-bad.example/",
        "https://example..com/",
        "https://.example.com/",
        "//example.com/",
        "example.com",
        "HTTPS://example.com/",
        "gopher://example.com/",
        "file:///etc/passwd",
        "ftp://example.com/",
        "unix:/run/socket",
        "https://example.com/%zz",
        "https://example.com/a\r\nHost: b",
        "",
    ];
    for url in table {
        assert!(http_url(url).is_err(), "{url}");
    }
}

#[test]
fn plain_urls_are_accepted_with_their_host() {
    let table = [
        ("https://example.com", "example.com"),
        ("https://api.example.com:8443/v1/items?x=1", "api.example.com"),
        ("http://127.0.0.1:9000/mcp", "127.0.0.1"),
        ("https://[2001:db8::1]:443/", "2001:db8::1"),
        ("https://xn--r8jz45g.jp/", "xn--r8jz45g.jp"),
        ("https://example.com/a%20b", "example.com"),
    ];
    for (url, host) in table {
        let parsed = http_url(url).unwrap_or_else(|reason| panic!("{url}: {reason}"));
        assert_eq!(parsed.host, host);
    }
}

#[test]
fn private_hosts_are_told_from_public_ones() {
    for host in [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "198.18.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "::1",
        "::",
        "fd00:ec2::254",
        "fe80::1",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:db8::1",
        "192.88.99.1",
        "168.63.129.16",
        "localhost",
        "intranet",
        "metadata.google.internal",
        "db.svc",
        "a.local",
    ] {
        assert!(is_private_host(host), "{host}");
    }
    for host in ["example.com", "93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "internal.example.com"]
    {
        assert!(!is_private_host(host), "{host}");
    }
}

#[test]
fn resource_uris_need_a_scheme_that_reaches_nothing() {
    for uri in
        ["demo://about", "urn:example:a", "https://example.com/doc", "plasmite:///pools/a", "a+b.c-d:x"]
    {
        assert_eq!(resource_uri(uri), Ok(()), "{uri}");
    }
    for uri in [
        "about",
        "://a",
        "1a:b",
        "demo:",
        "file:///etc/passwd",
        "FILE:///x",
        "javascript:alert(1)",
        "data:text/plain,x",
        "demo://user@host/a",
        "demo://a b",
        "demo://{id}",
        "demo://\u{e9}",
        "demo://a%2",
        "",
    ] {
        assert!(resource_uri(uri).is_err(), "{uri}");
    }
}

#[test]
fn origins_and_host_names_are_exact() {
    for origin in ["https://app.example.com", "http://localhost:3000", "https://[::1]:8443"] {
        assert!(is_origin(origin), "{origin}");
    }
    for origin in
        ["null", "*", "https://*.example.com", "https://a.example/", "https://A.example", "a.example", ""]
    {
        assert!(!is_origin(origin), "{origin}");
    }
    for name in ["example.com", "a", "a-b.example", "xn--a.example", "1a.example"] {
        assert!(is_host_name(name), "{name}");
    }
    for name in ["", ".", "a.", "*.example.com", "a_b.example", "1.2.3.4", "example.com:443", "-a.example"] {
        assert!(!is_host_name(name), "{name}");
    }
}
