//! Method and tool that the path of a REST request addresses (docs/rest.md).

use crate::headers::Headers;
use crate::path::{PathKind, RequestTarget};

/// JSON-RPC method that stands for creating, reading and answering a call.
pub(crate) const CALL: &str = "tools/call";

/// Returns method and tool of a request for the calls of a tool, `/<server>/rest/tools/<tool>/…`; `None` for other
/// requests.
pub(crate) fn method_and_tool<'a>(
    target: &RequestTarget<'_>,
    headers: &Headers<'a>,
) -> (Option<&'static str>, Option<&'a str>) {
    let tool = match target.path_kind {
        PathKind::Rest => tool(headers.path),
        _ => None,
    };
    (tool.map(|_| CALL), tool)
}

fn tool(path: &[u8]) -> Option<&str> {
    let path = path.split(|byte| *byte == b'?').next()?;
    let mut segments = path.split(|byte| *byte == b'/').skip(2);
    let is_tool = segments.next() == Some(b"rest") && segments.next() == Some(b"tools");
    is_tool.then(|| segments.next()).flatten().and_then(|tool| std::str::from_utf8(tool).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tool_of_a_call_is_in_its_path_and_nowhere_else() {
        for path in
            ["/demo/rest/tools/echo/calls/7", "/demo/rest/tools/echo/calls?limit=2", "/demo/rest/tools/echo"]
        {
            assert_eq!(tool(path.as_bytes()), Some("echo"), "{path}");
        }
        for path in ["/demo/rest/openapi.json", "/demo/rest/tools", "/demo/mcp", "/demo/rest/x/echo/calls"] {
            assert_eq!(tool(path.as_bytes()), None, "{path}");
        }
    }
}
