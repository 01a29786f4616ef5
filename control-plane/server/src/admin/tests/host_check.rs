//! Host and Origin on the admin port.

use super::*;

fn verdict(host: &str, origin: Option<&str>, dev: bool) -> Option<Code> {
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
    if let Some(origin) = origin {
        headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
    }
    check_host_headers(&headers, None, dev).err().map(|problem| problem.code())
}

#[test]
fn in_development_only_loopback_names_are_served() {
    for host in ["localhost:8081", "127.0.0.1:8081", "[::1]:8081", "LOCALHOST", "[::1]"] {
        assert_eq!(verdict(host, None, true), None, "{host}");
    }
    for host in ["evil.example:8081", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
        assert_eq!(verdict(host, None, true), Some(Code::HostDenied), "{host}");
    }
}

#[test]
fn an_origin_is_this_one_or_loopback_in_development() {
    assert_eq!(verdict("admin.example", Some("https://admin.example"), false), None);
    assert_eq!(verdict("admin.example", Some("https://evil.example"), false), Some(Code::OriginDenied));
    assert_eq!(verdict("admin.example", Some("null"), false), Some(Code::OriginDenied));
    assert_eq!(verdict("localhost:8081", Some("http://127.0.0.1:5173"), true), None);
    assert_eq!(verdict("localhost:8081", Some("http://evil.example"), true), Some(Code::OriginDenied));
}
