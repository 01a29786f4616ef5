//! Valid names of orgs, users, groups and token ids: one rule for tokens and for policy.
//!
//! Refuses names that policy, limits, revocations or a path of the admin API could not write exactly: a caller with
//! such a name could not be bound, limited or revoked. Names are compared byte by byte; nothing is folded or
//! normalized.

/// Maximum length of a name in bytes.
pub const MAX_BYTES: usize = 512;

/// Selector of a limit that has one bucket for each user or token, where `*` has one for all of them.
pub const EACH: &str = "each";

/// First segment of the pages where users see their linked accounts. A server of this name keeps its other paths.
pub const ACCOUNT: &str = "account";

/// Name of the platform's own server, at which callers reach the tools of all others. No team's server may have it.
pub const ALL_SERVERS: &str = "all";

/// Returns what is wrong with a name; `None` if it is valid.
///
/// A name has 1 to [`MAX_BYTES`] bytes of any script; spaces inside it are allowed. It has no control characters or
/// line breaks, no `*` (a pattern in policy), no white space at its ends (which readers of configuration trim), and is
/// neither `.` nor `..` (which URLs resolve, RFC 3986 section 5.2.4).
pub fn fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("is empty");
    }
    if name.trim() != name {
        return Some("begins or ends with white space");
    }
    if matches!(name, "." | "..") {
        return Some("is a dot segment");
    }
    body_fault(name)
}

/// Maximum length of a label in bytes.
const MAX_LABEL: usize = 63;

/// Whether `text` may name a server, a gateway pool or a region, which appear in paths and header values:
/// `[a-z0-9-]{1,63}`.
pub fn is_label(text: &str) -> bool {
    (1..=MAX_LABEL).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Whether `name` is valid.
pub fn is_name(name: &str) -> bool {
    fault(name).is_none()
}

/// Parsed pattern (ADR 10); the only place that interprets the star.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern<'a> {
    Exact(&'a str),
    /// Text before the star; empty for `*`.
    Prefix(&'a str),
}

impl<'a> Pattern<'a> {
    pub fn read(pattern: &'a str) -> Pattern<'a> {
        pattern.strip_suffix('*').map_or(Pattern::Exact(pattern), Pattern::Prefix)
    }

    /// Whether this pattern matches every name that `other` matches.
    pub fn covers(self, other: Pattern<'_>) -> bool {
        match (self, other) {
            (Pattern::Exact(one), Pattern::Exact(other)) => one == other,
            (Pattern::Exact(_), Pattern::Prefix(_)) => false,
            (Pattern::Prefix(prefix), Pattern::Exact(other) | Pattern::Prefix(other)) => {
                other.starts_with(prefix)
            }
        }
    }
}

/// Returns what is wrong with a pattern; `None` if it is a name, `prefix*` or `*`.
pub fn pattern_fault(pattern: &str) -> Option<&'static str> {
    match Pattern::read(pattern) {
        Pattern::Prefix(prefix) => body_fault(prefix),
        Pattern::Exact(name) => fault(name),
    }
}

/// Returns how specifically a pattern (a name, `prefix*` or `*`) matches a name; `None` if it does not match. A longer
/// prefix is more specific than a shorter one, and an exact name more than any prefix (ADR 10).
pub fn specificity(pattern: &str, name: &str) -> Option<usize> {
    let pattern = Pattern::read(pattern);
    pattern.covers(Pattern::Exact(name)).then_some(match pattern {
        Pattern::Exact(_) => usize::MAX,
        Pattern::Prefix(prefix) => prefix.len(),
    })
}

/// Whether a pattern matches a name.
pub fn matches(pattern: &str, name: &str) -> bool {
    specificity(pattern, name).is_some()
}

fn body_fault(text: &str) -> Option<&'static str> {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if text.len() > MAX_BYTES {
        Some("is longer than 512 bytes")
    } else if text.contains('*') {
        Some("holds `*`")
    } else if text.chars().any(breaks) {
        Some("contains a control character or a line break")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_whatever_policy_can_write_exactly() {
        let longest = "x".repeat(MAX_BYTES);
        for good in ["acme", "urn:acme", "Domain Admins", "a/b", "CN=x,DC=y", "日本", "50%", "...", &longest]
        {
            assert_eq!(fault(good), None, "{good}");
            assert_eq!(pattern_fault(good), None, "{good}");
        }
        let long = "x".repeat(MAX_BYTES + 1);
        for bad in
            ["", " a", "a ", "\u{a0}a", ".", "..", "*", "a*", "a*b", "a\nb", "a\u{0}", "a\u{2028}b", &long]
        {
            assert!(fault(bad).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn a_pattern_covers_another_where_it_names_all_of_it() {
        let covers = |wide, pattern| Pattern::read(wide).covers(Pattern::read(pattern));
        assert!(covers("*", "*") && covers("*", "a") && covers("a*", "a*") && covers("a*", "ab*"));
        assert!(covers("a*", "a") && covers("ab", "ab"));
        assert!(!covers("ab*", "a*") && !covers("ab", "ab*") && !covers("ab", "a") && !covers("a*", "*"));
    }

    #[test]
    fn a_pattern_has_its_star_at_the_end_or_nowhere() {
        for good in ["*", "a*", "Domain *", "urn:acme:*"] {
            assert_eq!(pattern_fault(good), None, "{good}");
        }
        for bad in ["", "**", "a*b", "*a", "a\n*", " a"] {
            assert!(pattern_fault(bad).is_some(), "{bad:?}");
        }
    }
}
