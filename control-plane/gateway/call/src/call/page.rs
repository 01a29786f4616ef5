//! Pages that a user is sent to (MCP 2025-11-25 and 2026-07-28, elicitation mode `url`).
//!
//! Owns: which address may be shown. Refuses: addresses that are not below the page that the primitive's spec names, so
//! that code cannot send a user anywhere else.

use reqwest::Url;
use serde::{Deserialize, Serialize};

/// Maximum length of an address in bytes.
const MAX_URL: usize = 2048;

/// A page that a user has to visit before a call can be done, as reported by its service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visit {
    /// Id that the service gives the visit.
    pub id: String,
    /// One line, safe to show.
    pub message: String,
    /// Address below a page that the primitive's spec names.
    pub url: String,
}

/// Describes the visits to a model, or to a user whose client cannot show pages.
pub fn described(visits: &[Visit]) -> String {
    let each: Vec<String> =
        visits.iter().map(|visit| format!("{} {}", visit.message, visit.url).trim().to_owned()).collect();
    each.join("; ")
}

/// Returns the address to show: `asked` if it is below `declared`, or `declared` if there is none.
pub fn address(declared: &str, asked: &str) -> Option<String> {
    if asked.is_empty() {
        return Some(declared.to_owned());
    }
    if asked.len() > MAX_URL {
        return None;
    }
    let base = Url::parse(declared).ok()?;
    let url = Url::parse(asked).ok()?;
    let is_plain = url.username().is_empty() && url.password().is_none();
    let same_origin = base.origin() == url.origin() && base.scheme() == url.scheme();
    let folder = base.path().trim_end_matches('/');
    let below = url
        .path()
        .strip_prefix(folder)
        .is_some_and(|rest| (rest.is_empty() || rest.starts_with('/')) && !is_ambiguous(rest));
    (is_plain && same_origin && below).then(|| url.into())
}

/// Whether a server may resolve `path` to another folder than it spells: slashes that are encoded, even twice, and
/// segments that some read as the parent folder (`..;x`).
fn is_ambiguous(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    ["%2f", "%5c", "%25"].iter().any(|encoded| path.contains(encoded))
        || path.replace("%2e", ".").split('/').any(|segment| segment.starts_with(".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_below_the_declared_one_are_shown() {
        let base = "https://pay.example.com/cards";
        for good in [
            "https://pay.example.com/cards/7?state=x",
            "https://pay.example.com:443/cards#a",
            "https://pay.example.com/cards/a..b?next=%2Fx",
            "",
        ] {
            assert!(address(base, good).is_some(), "{good}");
        }
        let long = format!("{base}/{}", "x".repeat(MAX_URL));
        for bad in [
            "http://pay.example.com/cards",
            "https://pay.example.com.evil.test/cards",
            "https://pay.example.com/cardsharp",
            "https://pay.example.com/cards/../admin",
            "https://pay.example.com/cards/%2e%2e/admin",
            "https://pay.example.com/cards/..%2Fadmin",
            "https://pay.example.com/cards/x%2f..%2fadmin",
            "https://pay.example.com/cards/..%5Cadmin",
            "https://pay.example.com/cards/%252e%252e/admin",
            "https://pay.example.com/cards/..;/admin",
            "https://pay.example.com/cards/%2E%2e;x=1/admin",
            "https://user@pay.example.com/cards",
            "https://pay.example.com:8443/cards",
            "javascript:alert(1)",
            "/cards",
            &long,
        ] {
            assert_eq!(address(base, bad), None, "{bad}");
        }
        assert_eq!(
            address("https://a.example/", "https://a.example/b").as_deref(),
            Some("https://a.example/b")
        );
        assert_eq!(address(base, "").as_deref(), Some(base));
    }
}
