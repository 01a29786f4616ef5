//! Policy patterns: exact, `prefix*` or `*`.

/// Longest pattern or name, in bytes.
pub const MAX_LENGTH: usize = 256;

/// Whether `pattern` matches `name`.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

/// Whether the text is a pattern: not empty, visible, a star at the end only.
pub fn valid(pattern: &str) -> bool {
    let body = pattern.strip_suffix('*').unwrap_or(pattern);
    !pattern.is_empty()
        && pattern.len() <= MAX_LENGTH
        && !body.contains('*')
        && !body.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// Whether the text is an exact name or `*`, as the edge compares orgs, servers and users.
pub fn valid_exact_or_any(text: &str) -> bool {
    text == "*" || (valid(text) && !text.contains('*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_exact_a_prefix_or_everything() {
        assert!(matches("cc.search", "cc.search") && !matches("cc.search", "cc.search2"));
        assert!(matches("cc.*", "cc.search") && !matches("cc.*", "meetings.search"));
        assert!(matches("*", "anything"));
        for bad in ["", "a*b", "**", "a b", "a\n", &"x".repeat(300)] {
            assert!(!valid(bad), "{bad}");
        }
        assert!(valid_exact_or_any("*") && valid_exact_or_any("cc") && !valid_exact_or_any("c*"));
    }
}
