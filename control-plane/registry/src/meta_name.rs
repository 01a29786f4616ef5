//! Reserved names of `_meta` members (MCP 2025-11-25 and 2026-07-28, `_meta`).
//!
//! Keeps true: only the protocol and the platform use these names.

/// Prefix of the platform's own names.
pub(crate) const OWN: &str = "asp/";

/// Whether `name` is reserved for the platform or MCP: its prefix is ours, or the prefix's second label is
/// `modelcontextprotocol` or `mcp`, in any letter case.
pub fn is_reserved_meta(name: &str) -> bool {
    let Some((prefix, _)) = name.split_once('/') else { return false };
    let is = |label: &str, word: &str| label.eq_ignore_ascii_case(word);
    is(prefix, OWN.trim_end_matches('/'))
        || prefix.split('.').nth(1).is_some_and(|label| is(label, "modelcontextprotocol") || is(label, "mcp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_protocol_and_the_platform_are_reserved() {
        for reserved in [
            "io.modelcontextprotocol/related-task",
            "dev.mcp/",
            "org.modelcontextprotocol.api/x",
            "com.mcp.tools/x",
            "IO.ModelContextProtocol/x",
            "asp/x",
            "ASP/x",
        ] {
            assert!(is_reserved_meta(reserved), "{reserved}");
        }
        for free in ["", "mcp", "ui", "ui/resourceUri", "com.example.mcp/x", "com.example/mcp.mcp", "aspen/x"]
        {
            assert!(!is_reserved_meta(free), "{free}");
        }
    }
}
