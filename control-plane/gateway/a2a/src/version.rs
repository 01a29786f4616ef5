//! Versions of A2A, and the headers by which a client names a version and extensions.
//!
//! Keeps true: what a request names (its method, path or service) decides its version; the header can only contradict it. A
//! missing or empty header contradicts nothing: it means 0.3 (A2A 1.0, section 3.6.2), but clients of 1.0 that send none exist,
//! and their methods have names that 0.3 does not have.

use std::fmt;

use crate::bounds::{MAX_LISTED, MAX_URL};
use crate::error::{A2aError, A2aFailure};

/// Header, and name of the query parameter, with the version that a client speaks.
pub const VERSION_HEADER: &str = "a2a-version";
/// Header with the URIs of the extensions that a client wants.
pub const EXTENSIONS_HEADER: &str = "a2a-extensions";
/// The same header in 0.3.
pub const EXTENSIONS_HEADER_V03: &str = "x-a2a-extensions";

/// Version of A2A, major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Generation {
    V03,
    V10,
}

impl Generation {
    /// Returns the version as the header and cards write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Generation::V03 => "0.3",
            Generation::V10 => "1.0",
        }
    }

    /// Parses a version; its patch number is ignored, and a missing minor number is 0.
    pub fn parse(text: &str) -> Option<Generation> {
        let mut numbers = text.trim().splitn(3, '.');
        let major = numbers.next()?.parse::<u32>().ok()?;
        let minor = numbers.next().map_or(Some(0), |minor| minor.parse::<u32>().ok())?;
        match (major, minor) {
            (0, 3) => Some(Generation::V03),
            (1, 0) => Some(Generation::V10),
            _ => None,
        }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Checks the version that a client names in the header, or else in the query, against the version of what it requests.
pub fn check_version(
    requested: Generation,
    header: Option<&str>,
    query: Option<&str>,
) -> Result<(), A2aFailure> {
    let stated =
        |value: Option<&str>| value.map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned);
    let Some(stated) = stated(header).or_else(|| stated(query)) else { return Ok(()) };
    if Generation::parse(&stated) == Some(requested) {
        return Ok(());
    }
    let message = match Generation::parse(&stated) {
        Some(other) => format!("the request is of A2A {requested}, its A2A-Version header says {other}"),
        None => "this version of A2A is not supported; supported are 1.0 and 0.3".to_owned(),
    };
    Err(A2aFailure::new(A2aError::VersionNotSupported, message))
}

/// Returns the URIs in the values of an extensions header, each once and in order: separated by commas or in several headers.
/// Those beyond the bounds are left out.
pub fn extensions<'h>(values: impl IntoIterator<Item = &'h str>) -> Vec<&'h str> {
    let mut found: Vec<&'h str> = Vec::new();
    for uri in values.into_iter().flat_map(|value| value.split(',')).map(str::trim) {
        if found.len() < MAX_LISTED && (1..=MAX_URL).contains(&uri.len()) && !found.contains(&uri) {
            found.push(uri);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_by_major_and_minor_number() {
        for text in ["1.0", "1", "1.0.1", "1.0.7-rc", " 1.0 "] {
            assert_eq!(Generation::parse(text), Some(Generation::V10), "{text}");
        }
        for text in ["0.3", "0.3.0", "0.3.26"] {
            assert_eq!(Generation::parse(text), Some(Generation::V03), "{text}");
        }
        for text in ["", "0", "0.2", "1.7", "2.0", "99.0", "v1.0", "1.x", "-1.0"] {
            assert_eq!(Generation::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_header_may_be_missing_but_not_contradict_the_request() {
        // Interop bug 4: no header is no 1.0, and 1.0 names without it are no error.
        for generation in [Generation::V03, Generation::V10] {
            for absent in [None, Some(""), Some(" ")] {
                assert_eq!(check_version(generation, absent, absent), Ok(()));
            }
            assert_eq!(check_version(generation, Some(generation.as_str()), None), Ok(()));
            assert_eq!(check_version(generation, None, Some(generation.as_str())), Ok(()));
            assert_eq!(check_version(generation, Some(generation.as_str()), Some("9.9")), Ok(()));
        }
        for (generation, stated) in [
            (Generation::V10, "0.3"),
            (Generation::V03, "1.0"),
            (Generation::V10, "99.0"),
            (Generation::V10, "x"),
        ] {
            let failure = check_version(generation, Some(stated), None).unwrap_err();
            assert_eq!(failure.error, A2aError::VersionNotSupported);
            assert!(!failure.message.contains("99"), "{}", failure.message);
        }
    }

    #[test]
    fn extensions_come_in_one_header_or_several() {
        assert_eq!(
            extensions(["https://a, https://b,", "https://a", " https://c "]),
            ["https://a", "https://b", "https://c"]
        );
        assert_eq!(extensions([]), Vec::<&str>::new());
        let many: Vec<String> = (0..200).map(|n| format!("u:{n}")).collect();
        assert_eq!(extensions(many.iter().map(String::as_str)).len(), MAX_LISTED);
    }
}
