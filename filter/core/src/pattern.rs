//! Patterns over names: exact, `prefix*` or `*` (ADR 10).

use crate::names;

/// A compiled pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pattern {
    Any,
    Prefix(String),
    Exact(String),
}

impl Pattern {
    /// Compiles a pattern. An empty text counts as `*`, because a protocol buffer cannot distinguish it from an absent
    /// one.
    pub(crate) fn new(text: &str) -> Pattern {
        match names::Pattern::read(text) {
            names::Pattern::Exact("") | names::Pattern::Prefix("") => Pattern::Any,
            names::Pattern::Prefix(prefix) => Pattern::Prefix(prefix.to_owned()),
            names::Pattern::Exact(name) => Pattern::Exact(name.to_owned()),
        }
    }

    /// Whether the pattern covers `name`; only `*` covers a request without a name.
    pub(crate) fn covers(&self, name: Option<&str>) -> bool {
        match (self, name) {
            (Pattern::Any, _) => true,
            (Pattern::Prefix(prefix), Some(name)) => name.starts_with(prefix.as_str()),
            (Pattern::Exact(exact), Some(name)) => name == exact,
            (_, None) => false,
        }
    }
}

/// Compiles an exact name or `*`; a star elsewhere is an ordinary character.
pub(crate) fn exact_or_any(text: &str) -> Pattern {
    match text {
        "" | "*" => Pattern::Any,
        exact => Pattern::Exact(exact.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_exact_a_prefix_or_anything() {
        assert!(Pattern::new("a.b").covers(Some("a.b")) && !Pattern::new("a.b").covers(Some("a.bc")));
        assert!(Pattern::new("a.*").covers(Some("a.bc")) && !Pattern::new("a.*").covers(Some("b.a.")));
        assert!(Pattern::new("*").covers(None) && Pattern::new("").covers(Some("x")));
        assert!(!Pattern::new("a*").covers(None) && !exact_or_any("a*").covers(Some("ab")));
    }
}
