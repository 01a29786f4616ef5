//! Policy patterns: an exact name, `prefix*` or `*`. Exact names follow the rule for names in tokens.

use asp_edge::names;
pub use asp_edge::names::matches;

/// Whether the text is a pattern: a name, `prefix*` or `*`.
pub fn valid(pattern: &str) -> bool {
    names::pattern_fault(pattern).is_none()
}

/// Whether the text is an exact name or `*`, as the edge compares orgs, servers and users.
pub fn valid_exact_or_any(text: &str) -> bool {
    text == "*" || names::is_name(text)
}

/// Whether the text may be the name of an issuer; the name of the machines' issuer may not.
pub fn is_issuer(text: &str) -> bool {
    names::is_name(text) && !text.contains(['*', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_exact_a_prefix_or_everything() {
        assert!(matches("cc.search", "cc.search") && !matches("cc.search", "cc.search2"));
        assert!(matches("cc.*", "cc.search") && !matches("cc.*", "meetings.search"));
        assert!(matches("*", "anything"));
        for bad in ["", "a*b", "**", "a ", "a\n", &"x".repeat(600)] {
            assert!(!valid(bad), "{bad}");
        }
        assert!(valid("Domain Admins") && valid("Domain *") && valid("urn:acme/eu"));
        assert!(valid_exact_or_any("*") && valid_exact_or_any("cc") && !valid_exact_or_any("c*"));
        assert!(valid_exact_or_any("Domain Admins"));
    }
}
