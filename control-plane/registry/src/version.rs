//! Versions of primitives, as far as callers tell them apart: what breaks them has another major one (Semantic Versioning
//! 2.0.0, rule 8).

use std::cmp::Ordering;

use semver::Version;

/// The major version; 0 of what is no version.
pub fn major(version: &str) -> u64 {
    Version::parse(version).map_or(0, |version| version.major)
}

/// Which of two versions is the later one (Semantic Versioning 2.0.0, rule 11); what is no version is before every one.
pub fn compare(one: &str, other: &str) -> Ordering {
    Version::parse(one).ok().cmp(&Version::parse(other).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_and_not_texts() {
        assert_eq!(compare("10.0.0", "9.2.0"), Ordering::Greater);
        assert_eq!(compare("1.0.0-rc.1", "1.0.0"), Ordering::Less);
        assert_eq!(compare("one", "0.0.1"), Ordering::Less);
        assert_eq!(compare("1.2.3", "1.2.3"), Ordering::Equal);
    }
}
