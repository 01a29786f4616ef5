//! Versions of primitives as far as callers distinguish them: a breaking change has a new major version (Semantic
//! Versioning 2.0.0, rule 8).

use std::cmp::Ordering;

use semver::Version;

/// Returns the major version, 0 if the version is invalid.
pub fn major(version: &str) -> u64 {
    Version::parse(version).map_or(0, |version| version.major)
}

/// Whether it is a semantic version.
pub fn is_valid(version: &str) -> bool {
    Version::parse(version).is_ok()
}

/// Compares two versions (Semantic Versioning 2.0.0, rule 11); an invalid one is less than every other.
pub fn compare(one: &str, other: &str) -> Ordering {
    Version::parse(one).ok().cmp(&Version::parse(other).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_three_numbers() {
        assert!(is_valid("1.0.0-rc.1") && !is_valid("1.0") && !is_valid("2024-01"));
    }

    #[test]
    fn versions_are_numbers_and_not_texts() {
        assert_eq!(compare("10.0.0", "9.2.0"), Ordering::Greater);
        assert_eq!(compare("1.0.0-rc.1", "1.0.0"), Ordering::Less);
        assert_eq!(compare("one", "0.0.1"), Ordering::Less);
        assert_eq!(compare("1.2.3", "1.2.3"), Ordering::Equal);
    }
}
