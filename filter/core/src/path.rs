//! Request paths and the part of the platform that each belongs to (ADR 4).
//!
//! Owns the exact path rules; refuses every path that could be spelled in another way: percent-encoding, dot segments,
//! empty segments, backslashes, control bytes and everything outside ASCII. An accepted path means the same to every
//! component behind the edge, because there is nothing left to normalise. The only exception is the names in the MCP
//! registry API, whose slash and plus are escaped.

use crate::names;

/// Part of the platform that a path belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    Mcp,
    A2a,
    Rest,
    /// Public, without a token: `/<server>/.well-known/…`, `/<server>/oauth/…`, `/.well-known/*` and the MCP registry
    /// API `/v0.1/*`.
    Public,
    /// `/healthz`
    Health,
}

/// Parsed path that follows the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestTarget<'a> {
    pub(crate) path_kind: PathKind,
    /// Empty for root paths.
    pub(crate) server: &'a str,
    /// Whether the path is exactly `/<server>/mcp` or `/<server>/a2a`, the JSON-RPC endpoints.
    pub(crate) jsonrpc: bool,
}

/// Parses a `:path` value; the query is allowed and ignored.
pub(crate) fn parse(path: &[u8]) -> Option<RequestTarget<'_>> {
    let path = without_query(path);
    if let Some(path) = path.strip_prefix(b"/v0.1/") {
        return is_of_registry(path).then_some(RequestTarget {
            path_kind: PathKind::Public,
            server: "",
            jsonrpc: false,
        });
    }
    if !path.iter().copied().all(is_plain) {
        return None;
    }
    let path = std::str::from_utf8(path).ok()?.strip_prefix('/')?;
    if path == "healthz" {
        return Some(RequestTarget { path_kind: PathKind::Health, server: "", jsonrpc: false });
    }
    let mut segments = path.split('/');
    if segments.clone().any(|segment| matches!(segment, "" | "." | "..")) {
        return None;
    }
    let first = segments.next()?;
    let second = segments.next()?;
    let more = segments.next().is_some();
    if first == ".well-known" {
        return Some(RequestTarget { path_kind: PathKind::Public, server: "", jsonrpc: false });
    }
    if !names::is_label(first) {
        return None;
    }
    let (path_kind, jsonrpc) = match (second, more) {
        ("mcp", false) => (PathKind::Mcp, true),
        ("a2a", false) => (PathKind::A2a, true),
        ("a2a", true) => (PathKind::A2a, false),
        ("rest", true) => (PathKind::Rest, false),
        (".well-known" | "oauth", true) => (PathKind::Public, false),
        _ => return None,
    };
    Some(RequestTarget { path_kind, server: first, jsonrpc })
}

/// Whether a path that may break every rule still looks like a JSON-RPC endpoint, so that a mistyped server
/// name is answered in the caller's own protocol (I-11).
pub(crate) fn looks_like_jsonrpc(path: &[u8]) -> bool {
    let mut segments = without_query(path).rsplit(|byte| *byte == b'/');
    let last = segments.next().unwrap_or_default();
    last == b"mcp" || last == b"a2a" || segments.any(|segment| segment == b"a2a")
}

fn without_query(path: &[u8]) -> &[u8] {
    path.split(|byte| *byte == b'?').next().unwrap_or_default()
}

/// Whether the path after `/v0.1/` consists of plain segments, in which `/` and `+` may be escaped.
fn is_of_registry(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').all(|segment| {
        let mut pieces = segment.split(|byte| *byte == b'%');
        let is_plain = |piece: &[u8]| piece.iter().copied().all(is_plain);
        !matches!(segment, b"" | b"." | b"..")
            && pieces.next().is_some_and(is_plain)
            && pieces.all(|piece| {
                let rest = [b"2F", b"2f", b"2B", b"2b"].iter().find_map(|known| piece.strip_prefix(*known));
                rest.is_some_and(is_plain)
            })
    })
}

/// Whether `byte` is a slash or may stand unescaped in a path segment (RFC 3986 section 3.3).
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_kind(path: &str) -> Option<(PathKind, &str, bool)> {
        parse(path.as_bytes()).map(|target| (target.path_kind, target.server, target.jsonrpc))
    }

    #[test]
    fn every_kind_has_its_path() {
        assert_eq!(path_kind("/demo/mcp"), Some((PathKind::Mcp, "demo", true)));
        assert_eq!(path_kind("/demo/mcp?x=%2e%2e/"), Some((PathKind::Mcp, "demo", true)));
        assert_eq!(path_kind("/d-3/a2a"), Some((PathKind::A2a, "d-3", true)));
        assert_eq!(path_kind("/demo/a2a/tasks/T1:cancel"), Some((PathKind::A2a, "demo", false)));
        assert_eq!(path_kind("/demo/rest/echo"), Some((PathKind::Rest, "demo", false)));
        assert_eq!(path_kind("/demo/.well-known/agent-card.json"), Some((PathKind::Public, "demo", false)));
        assert_eq!(path_kind("/demo/oauth/token"), Some((PathKind::Public, "demo", false)));
        assert_eq!(
            path_kind("/.well-known/oauth-protected-resource/demo/mcp"),
            Some((PathKind::Public, "", false))
        );
        assert_eq!(path_kind("/healthz"), Some((PathKind::Health, "", false)));
    }

    #[test]
    fn the_registry_has_the_escapes_of_its_names_and_no_others() {
        let registry = Some((PathKind::Public, "", false));
        for path in [
            "/v0.1/servers",
            "/v0.1/servers?cursor=%00&search=../x",
            "/v0.1/servers/com.example%2Fdemo/versions/latest",
            "/v0.1/servers/com.example%2fdemo/versions/1.0.0%2Bbuild",
        ] {
            assert_eq!(path_kind(path), registry, "{path:?}");
        }
        for path in [
            "/v0.1",
            "/v0.1/",
            "/v0.1//servers",
            "/v0.1/servers/",
            "/v0.1/../demo/mcp",
            "/v0.1/./servers",
            "/v0.1/%2e%2e/demo/mcp",
            "/v0.1/servers/a%5Cb",
            "/v0.1/servers/a%2",
            "/v0.1/servers/a%",
            "/v0.1/servers/%%2F2F",
            "/v0.1/servers/a%00",
            "/v0.1/servers/a b",
            "/v0.1/servers/\u{435}",
            "/v0.2/servers",
        ] {
            assert_eq!(path_kind(path), None, "{path:?}");
        }
    }

    #[test]
    fn a_path_spelled_any_other_way_is_unknown() {
        let long = format!("/{}/mcp", "a".repeat(64));
        let bad = [
            "",
            "/",
            "demo/mcp",
            "/demo",
            "/demo/",
            "/demo/mcp/",
            "/demo/mcp/x",
            "/demo/rest",
            "/demo/rest/",
            "/demo/oauth",
            "/demo/oauth/",
            "//demo/mcp",
            "/demo//mcp",
            "/Demo/mcp",
            "/demo/MCP",
            "/demo/other",
            "/demo%2fmcp",
            "/%64emo/mcp",
            "/demo/%6dcp",
            "/demo/../demo/mcp",
            "/./demo/mcp",
            "/demo/rest/../mcp",
            "/demo/rest/a%2e%2e",
            "/demo\\mcp",
            "/demo/mcp#x",
            "/demo/mcp\0",
            "/demo/mcp ",
            "/d\u{435}mo/mcp",
            "/demo.x/mcp",
            "/demo_x/mcp",
            "/.well-known",
            "/.well-known/",
            "/.well-known/../demo/mcp",
            "/healthz/",
            "/healthz/x",
            "/mcp",
            long.as_str(),
        ];
        for path in bad {
            assert_eq!(path_kind(path), None, "{path:?}");
        }
        assert_eq!(parse(b"/demo/mcp\xff"), None);
    }

    #[test]
    fn a_bad_path_is_answered_in_the_protocol_it_aims_at() {
        assert!(looks_like_jsonrpc(b"/Demo/mcp?x"));
        assert!(looks_like_jsonrpc(b"/../a2a/tasks"));
        assert!(!looks_like_jsonrpc(b"/demo/rest/mcp-tools"));
        assert!(!looks_like_jsonrpc(b""));
    }
}
