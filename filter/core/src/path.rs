//! Request paths and the part of the platform that each belongs to (ADR 4).
//!
//! Owns the exact path rules; refuses every path that could be spelled in another way: percent-encoding, dot segments,
//! empty segments, backslashes, control bytes and everything outside ASCII. An accepted path means the same to every
//! component behind the edge, because there is nothing left to normalise. The only exceptions are the names in the MCP
//! registry API, whose slash and plus are escaped, and the ids of A2A, which select neither a server nor a protocol.

use crate::names;

/// Part of the platform that a path belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// `/<server>/mcp`, with or without a slash at its end.
    Mcp,
    /// JSON-RPC of A2A: `/<server>/a2a`, with or without a slash at its end.
    A2a,
    /// REST of A2A 1.0: below `/<server>/a2a/`.
    A2aRest,
    /// REST of A2A 0.3: below `/<server>/a2a/v1`.
    A2aRestV03,
    /// gRPC of A2A: `/lf.a2a.v1.A2AService/…` (1.0) and `/a2a.v1.A2AService/…` (0.3). Host names the server.
    A2aGrpc,
    Rest,
    /// Public, without a token: `/<server>/.well-known/…`, `/<server>/oauth/…`, `/.well-known/*`, the MCP registry
    /// API `/v0.1/*`, the pages `/`, `/<server>` and `/account`, `/account/<page>` and `/approvals/<address>`.
    Public,
    /// `/healthz`
    Health,
}

/// First segment of the pages on which persons approve calls.
const APPROVALS: &str = "approvals";
/// Paths at which a gateway reports about itself to its operator, before it evaluates a request. No server of such a name
/// has a page.
const OPERATOR_PATHS: [&str; 2] = ["metrics", "readyz"];
/// gRPC services of A2A 1.0 and 0.3.
const GRPC_SERVICES: [&str; 2] = ["lf.a2a.v1.A2AService", "a2a.v1.A2AService"];

/// Parsed path that follows the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestTarget<'a> {
    pub(crate) path_kind: PathKind,
    /// Empty for root paths and for [`PathKind::A2aGrpc`].
    pub(crate) server: &'a str,
}

impl PathKind {
    /// Whether a POST to the path carries a JSON-RPC message.
    pub(crate) fn is_jsonrpc(self) -> bool {
        matches!(self, PathKind::Mcp | PathKind::A2a)
    }

    /// Whether the path belongs to a binding of A2A.
    pub(crate) fn is_a2a(self) -> bool {
        matches!(self, PathKind::A2a | PathKind::A2aRest | PathKind::A2aRestV03 | PathKind::A2aGrpc)
    }
}

/// Returns the version of A2A's REST binding by the first segment below it.
fn a2a_rest(segment: &[u8]) -> PathKind {
    if segment == b"v1" { PathKind::A2aRestV03 } else { PathKind::A2aRest }
}

/// Parses a `:path` value; the query is allowed and ignored.
pub(crate) fn parse(path: &[u8]) -> Option<RequestTarget<'_>> {
    let path = without_query(path);
    if let Some(path) = path.strip_prefix(b"/v0.1/") {
        return is_of_registry(path).then_some(RequestTarget { path_kind: PathKind::Public, server: "" });
    }
    if !has_one_spelling(path) {
        return None;
    }
    let path = std::str::from_utf8(path).ok()?.strip_prefix('/')?;
    if path.is_empty() {
        return Some(RequestTarget { path_kind: PathKind::Public, server: "" });
    }
    if path == "healthz" {
        return Some(RequestTarget { path_kind: PathKind::Health, server: "" });
    }
    // Some clients end the path of a protocol with a slash.
    let path = path.strip_suffix('/').filter(|whole| may_end_in_slash(whole)).unwrap_or(path);
    let mut segments = path.split('/');
    if segments.clone().any(|segment| matches!(segment, "" | "." | "..")) {
        return None;
    }
    let first = segments.next()?;
    let Some(second) = segments.next() else {
        // Paths that aim at a protocol are answered in it.
        let is_page =
            names::is_label(first) && guess(path.as_bytes()).is_none() && !OPERATOR_PATHS.contains(&first);
        let server = if first == names::ACCOUNT { "" } else { first };
        return is_page.then_some(RequestTarget { path_kind: PathKind::Public, server });
    };
    let third = segments.next();
    let more = third.is_some();
    if first == ".well-known" {
        return Some(RequestTarget { path_kind: PathKind::Public, server: "" });
    }
    if GRPC_SERVICES.contains(&first) && !more {
        return Some(RequestTarget { path_kind: PathKind::A2aGrpc, server: "" });
    }
    if !names::is_label(first) {
        return None;
    }
    let path_kind = match (second, more) {
        ("mcp", false) => PathKind::Mcp,
        ("a2a", false) => PathKind::A2a,
        ("a2a", true) => a2a_rest(third.unwrap_or_default().as_bytes()),
        ("rest", true) => PathKind::Rest,
        (".well-known" | "oauth", true) => PathKind::Public,
        // A server of such a name keeps its own paths.
        (_, false) if (first == APPROVALS || first == names::ACCOUNT) && second != "rest" => {
            return Some(RequestTarget { path_kind: PathKind::Public, server: "" });
        }
        _ => return None,
    };
    Some(RequestTarget { path_kind, server: first })
}

/// Returns the protocol that a path aims at which may break every rule, so that a mistyped server name is answered in
/// the caller's own protocol (I-11); `None` if it aims at none that has errors of its own. As in a valid path, the first
/// segment that names a part of the platform decides, whatever follows it.
pub(crate) fn guess(path: &[u8]) -> Option<PathKind> {
    let path = without_query(path);
    let segments = path.strip_prefix(b"/").unwrap_or(path).split(|byte| *byte == b'/');
    // A server may have the name of a part.
    let is_server = segments.clone().nth(1).is_some_and(is_part);
    let mut segments = segments.skip(usize::from(is_server));
    let part = segments.find(|segment| is_part(segment))?;
    let below = (segments.next(), segments.next());
    match (part, below) {
        (b"mcp", (None, _) | (Some(b""), None)) => Some(PathKind::Mcp),
        (b"a2a", (None, _) | (Some(b""), None)) => Some(PathKind::A2a),
        (b"a2a", (Some(segment), _)) => Some(a2a_rest(segment)),
        _ => None,
    }
}

/// Whether a segment names a part of the platform, which it does after that of the server.
fn is_part(segment: &[u8]) -> bool {
    matches!(segment, b"mcp" | b"a2a" | b"rest" | b"oauth" | b".well-known")
}

/// Whether the path, which has no slash at its ends, is one of A2A or that of MCP.
fn may_end_in_slash(path: &str) -> bool {
    let mut segments = path.split('/').skip(1);
    match segments.next() {
        Some("a2a") => true,
        Some("mcp") => segments.next().is_none(),
        Some(_) | None => false,
    }
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

/// Whether every byte is plain, or escaped in an id of A2A: below `/<server>/a2a/`.
fn has_one_spelling(path: &[u8]) -> bool {
    let segments = path.split(|byte| *byte == b'/');
    let is_of_a2a = segments.clone().nth(2) == Some(b"a2a".as_slice());
    segments.enumerate().all(|(at, segment)| {
        let mut pieces = segment.split(|byte| *byte == b'%');
        pieces.next().is_some_and(|piece| piece.iter().copied().all(is_plain))
            && pieces.all(|piece| is_of_a2a && at > 2 && is_escape_in_id(piece))
    })
}

/// Whether the text after a `%` is the number of a byte that a path segment may contain, and then plain bytes.
fn is_escape_in_id(piece: &[u8]) -> bool {
    let Some((digits, rest)) = piece.split_first_chunk::<2>() else { return false };
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let [Some(high), Some(low)] = digits.map(digit) else { return false };
    // No dot segment, no slash, no control byte.
    !matches!(high * 16 + low, 0..0x20 | 0x2e | 0x2f | 0x5c | 0x7f) && rest.iter().copied().all(is_plain)
}

/// Whether `byte` is a slash or may stand unescaped in a path segment (RFC 3986 section 3.3).
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_kind(path: &str) -> Option<(PathKind, &str)> {
        parse(path.as_bytes()).map(|target| (target.path_kind, target.server))
    }

    #[test]
    fn every_kind_has_its_path() {
        assert_eq!(path_kind("/demo/mcp"), Some((PathKind::Mcp, "demo")));
        assert_eq!(path_kind("/demo/mcp?x=%2e%2e/"), Some((PathKind::Mcp, "demo")));
        assert_eq!(path_kind("/demo/mcp/"), Some((PathKind::Mcp, "demo")));
        assert_eq!(path_kind("/demo/mcp/?x"), Some((PathKind::Mcp, "demo")));
        assert_eq!(path_kind("/d-3/a2a"), Some((PathKind::A2a, "d-3")));
        assert_eq!(path_kind("/d-3/a2a/?A2A-Version=1.0"), Some((PathKind::A2a, "d-3")));
        assert_eq!(path_kind("/demo/rest/echo"), Some((PathKind::Rest, "demo")));
        assert_eq!(path_kind("/demo/.well-known/agent-card.json"), Some((PathKind::Public, "demo")));
        assert_eq!(path_kind("/demo/oauth/token"), Some((PathKind::Public, "demo")));
        assert_eq!(path_kind("/.well-known/oauth-protected-resource/demo/mcp"), Some((PathKind::Public, "")));
        assert_eq!(path_kind("/.well-known/agent-card.json"), Some((PathKind::Public, "")));
        assert_eq!(path_kind("/healthz"), Some((PathKind::Health, "")));
        assert_eq!(path_kind("/"), Some((PathKind::Public, "")));
        assert_eq!(path_kind("/?x"), Some((PathKind::Public, "")));
        assert_eq!(path_kind("/demo"), Some((PathKind::Public, "demo")));
        assert_eq!(path_kind("/metrics/mcp"), Some((PathKind::Mcp, "metrics")));
        assert_eq!(path_kind("/account"), Some((PathKind::Public, "")));
        assert_eq!(path_kind("/account/callback?code=x"), Some((PathKind::Public, "")));
        assert_eq!(path_kind("/account/mcp"), Some((PathKind::Mcp, "account")), "a server of that name");
        assert_eq!(path_kind("/account/oauth/token"), Some((PathKind::Public, "account")));
        assert_eq!(path_kind("/account/a/b"), None);
    }

    #[test]
    fn the_pages_of_approvals_leave_a_server_of_that_name_its_paths() {
        assert_eq!(path_kind("/approvals/Ab-_1?x=1"), Some((PathKind::Public, "")));
        assert_eq!(path_kind("/approvals/mcp"), Some((PathKind::Mcp, "approvals")));
        assert_eq!(path_kind("/approvals/a2a"), Some((PathKind::A2a, "approvals")));
        assert_eq!(path_kind("/approvals/rest/echo"), Some((PathKind::Rest, "approvals")));
        assert_eq!(path_kind("/approvals/oauth/token"), Some((PathKind::Public, "approvals")));
        for path in ["/approvals/", "/approvals/a/b", "/approvals/a%2Fb", "/approvals/..", "/approvals/rest"]
        {
            assert_eq!(path_kind(path), None, "{path}");
        }
    }

    #[test]
    fn each_binding_of_a2a_has_its_paths() {
        for path in [
            "message:send",
            "message:stream",
            "tasks",
            "tasks?pageSize=1",
            "tasks/",
            "tasks/T1",
            "tasks/T1:cancel",
            "tasks/T1:subscribe",
            "tasks/T1/pushNotificationConfigs",
            "tasks/T1/pushNotificationConfigs/",
            "tasks/T1/pushNotificationConfigs/C1",
            "extendedAgentCard",
            "v1x/tasks",
            "tasks/v1",
        ] {
            let path = format!("/demo/a2a/{path}");
            assert_eq!(path_kind(&path), Some((PathKind::A2aRest, "demo")), "{path}");
        }
        for path in
            ["v1", "v1/", "v1/message:send", "v1/tasks/T1:subscribe", "v1/tasks/%54?x", "v1?x", "v1/a2a/x"]
        {
            let path = format!("/demo/a2a/{path}");
            assert_eq!(path_kind(&path), Some((PathKind::A2aRestV03, "demo")), "{path}");
        }
        for path in ["/lf.a2a.v1.A2AService/SendMessage", "/a2a.v1.A2AService/TaskSubscription"] {
            assert_eq!(path_kind(path), Some((PathKind::A2aGrpc, "")), "{path}");
        }
    }

    #[test]
    fn an_id_of_a2a_may_be_escaped_and_nothing_else() {
        for path in ["tasks/a%3Ab", "tasks/a%3ab:cancel", "tasks/%54", "tasks/%2541", "tasks/%C3%A4%20"] {
            let path = format!("/demo/a2a/{path}");
            assert_eq!(path_kind(&path), Some((PathKind::A2aRest, "demo")), "{path}");
        }
        for path in [
            "/demo/a2a/tasks/%2e%2e",
            "/demo/a2a/tasks/a%2Fb",
            "/demo/a2a/tasks/a%5Cb",
            "/demo/a2a/tasks/%00",
            "/demo/a2a/tasks/%7F",
            "/demo/a2a/tasks/%",
            "/demo/a2a/tasks/%5",
            "/demo/a2a/tasks/%+5",
            "/demo/a2a/tasks/%%3A3A",
            "/demo/a2a%3A",
            "/demo/%61%32%61/tasks",
            "/%64emo/a2a/tasks",
            "/demo/rest/a2a/a%3A",
        ] {
            assert_eq!(path_kind(path), None, "{path}");
        }
    }

    #[test]
    fn the_registry_has_the_escapes_of_its_names_and_no_others() {
        let registry = Some((PathKind::Public, ""));
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
            "//",
            "demo/mcp",
            "/Demo",
            "/demo/",
            "/demo/mcp//",
            "/demo/mcp/x",
            "/demo/mcp/x/",
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
            "/metrics",
            "/metrics?x",
            "/readyz",
            "/mcp",
            "/mcp/",
            "/demo/a2a//",
            "//a2a/",
            "/demo/a2a/tasks//",
            "/demo/rest/echo/",
            "/lf.a2a.v1.A2AService",
            "/lf.a2a.v1.A2AService/",
            "/lf.a2a.v1.A2AService/SendMessage/x",
            "/lf.a2a.v2.A2AService/SendMessage",
            "/grpc.health.v1.Health/Check",
            long.as_str(),
        ];
        for path in bad {
            assert_eq!(path_kind(path), None, "{path:?}");
        }
        assert_eq!(parse(b"/demo/mcp\xff"), None);
    }

    #[test]
    fn a_bad_path_is_answered_in_the_protocol_it_aims_at() {
        assert_eq!(guess(b"/Demo/mcp?x"), Some(PathKind::Mcp));
        assert_eq!(guess(b"/Demo/mcp/"), Some(PathKind::Mcp));
        assert_eq!(guess(b"/Demo/mcp//"), None);
        assert_eq!(guess(b"/Demo/a2a"), Some(PathKind::A2a));
        assert_eq!(guess(b"/../a2a/tasks"), Some(PathKind::A2aRest));
        assert_eq!(guess(b"/Demo/a2a/"), Some(PathKind::A2a));
        assert_eq!(guess(b"/Demo/a2a//"), Some(PathKind::A2aRest));
        for path in
            ["/Demo/a2a/v1", "/Demo/a2a/v1/", "/demo/a2a/v1/tasks/a%2Fb", "//a2a/v1/card?x=/a2a/tasks"]
        {
            assert_eq!(guess(path.as_bytes()), Some(PathKind::A2aRestV03), "{path}");
        }
        assert_eq!(guess(b"/demo/a2a/v1x/tasks/v1"), Some(PathKind::A2aRest));
        // What follows the part may have any name.
        for path in ["/Demo/a2a/tasks/mcp", "/Demo/a2a/tasks/a2a", "/Demo/a2a/a2a/v1", "/demo/a2a/%2F/mcp/"] {
            assert_eq!(guess(path.as_bytes()), Some(PathKind::A2aRest), "{path}");
        }
        assert_eq!(guess(b"/Demo/a2a/v1/tasks/a2a/x"), Some(PathKind::A2aRestV03));
        for path in [
            "/Demo/rest/tools/a2a/calls",
            "/Demo/rest/tools/mcp",
            "/Demo/oauth/mcp",
            "/.well-known/oauth-protected-resource/demo/mcp/",
            "/Demo/mcp/a2a",
        ] {
            assert_eq!(guess(path.as_bytes()), None, "{path}");
        }
        for (path, path_kind) in [
            ("/a2a/mcp?", PathKind::Mcp),
            ("/rest/a2a/v1/x", PathKind::A2aRestV03),
            ("/mcp/", PathKind::Mcp),
            ("/a2a/tasks", PathKind::A2aRest),
            ("/gateway/Demo/mcp", PathKind::Mcp),
        ] {
            assert_eq!(guess(path.as_bytes()), Some(path_kind), "{path}");
        }
        assert_eq!(guess(b"/demo/rest/mcp-tools"), None);
        assert_eq!(guess(b""), None);
    }
}
