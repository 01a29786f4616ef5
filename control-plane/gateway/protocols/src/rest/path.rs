//! Parsing of paths below `/{server}/rest/`.
//!
//! Refuses: every name and id outside its alphabet. The edge has already rejected percent-encoding and empty segments
//! (ADR 4), so each has a single spelling. Uses nothing else of this crate, so that it can be fuzzed alone.

/// Longest tool name, the same limit as in specs.
const MAX_TOOL: usize = 128;
/// Longest id of a call.
pub const MAX_ID: usize = 128;

/// A resource of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// `openapi.json`
    OpenApi,
    /// `tools`
    Tools,
    /// `tools/{tool}`
    Tool { tool: &'a str },
    /// `tools/{tool}/calls`
    Calls { tool: &'a str },
    /// `tools/{tool}/calls/{id}` and the paths below it.
    Call { tool: &'a str, id: &'a str, part: CallPart },
}

/// A part of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPart {
    Whole,
    /// `advance`
    Advance,
    /// `cancel`
    Cancel,
    /// `events`
    Events,
}

/// Parses the path of a request, without its query.
pub fn parse(path: &str) -> Option<Resource<'_>> {
    let mut segments = path.strip_prefix('/')?.split('/').skip(1);
    if segments.next() != Some("rest") {
        return None;
    }
    match segments.next()? {
        "openapi.json" if segments.next().is_none() => return Some(Resource::OpenApi),
        "tools" => {}
        _ => return None,
    }
    let Some(tool) = segments.next() else { return Some(Resource::Tools) };
    if !is_tool(tool) {
        return None;
    }
    match segments.next() {
        None => return Some(Resource::Tool { tool }),
        Some("calls") => {}
        Some(_) => return None,
    }
    let Some(id) = segments.next() else { return Some(Resource::Calls { tool }) };
    let part = match segments.next() {
        None => CallPart::Whole,
        Some("advance") => CallPart::Advance,
        Some("cancel") => CallPart::Cancel,
        Some("events") => CallPart::Events,
        Some(_) => return None,
    };
    (is_id(id) && segments.next().is_none()).then_some(Resource::Call { tool, id, part })
}

fn is_tool(name: &str) -> bool {
    is_of(name, MAX_TOOL, b"_.-")
}

/// Whether the id has only the unreserved characters of RFC 3986, section 2.3, which are never percent-encoded.
fn is_id(id: &str) -> bool {
    is_of(id, MAX_ID, b"_.-~")
}

fn is_of(text: &str, most: usize, more: &[u8]) -> bool {
    (1..=most).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_resource_has_one_path() {
        let call = |part| Some(Resource::Call { tool: "a.b", id: "x~1", part });
        assert_eq!(parse("/demo/rest/openapi.json"), Some(Resource::OpenApi));
        assert_eq!(parse("/demo/rest/tools"), Some(Resource::Tools));
        assert_eq!(parse("/demo/rest/tools/a.b"), Some(Resource::Tool { tool: "a.b" }));
        assert_eq!(parse("/demo/rest/tools/a.b/calls"), Some(Resource::Calls { tool: "a.b" }));
        for (path, part) in [
            ("", CallPart::Whole),
            ("/advance", CallPart::Advance),
            ("/cancel", CallPart::Cancel),
            ("/events", CallPart::Events),
        ] {
            assert_eq!(parse(&format!("/demo/rest/tools/a.b/calls/x~1{path}")), call(part));
        }
    }

    #[test]
    fn everything_else_is_nothing() {
        let long = format!("/demo/rest/tools/a/calls/{}", "x".repeat(MAX_ID + 1));
        for path in [
            "",
            "/",
            "/demo/rest",
            "/demo/mcp/tools/a/calls/1",
            "/demo/rest/openapi.json/x",
            "/demo/rest/openapi",
            "/demo/rest/tools/",
            "/demo/rest/tools/a:b",
            "/demo/rest/tools/a/call",
            "/demo/rest/tools/a/call/1",
            "/demo/rest/tools/a:b/calls/1",
            "/demo/rest/tools//calls/1",
            "/demo/rest/tools/a/calls/",
            "/demo/rest/tools/a/calls/1/",
            "/demo/rest/tools/a/calls/1/advance/2",
            "/demo/rest/tools/a/calls/1/delete",
            "/demo/rest/tools/a/calls/a:b",
            "/demo/rest/tools/a/calls/ü",
            long.as_str(),
        ] {
            assert_eq!(parse(path), None, "{path}");
        }
    }
}
