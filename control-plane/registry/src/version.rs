//! Versions of primitives, as far as callers tell them apart: what breaks them has another major one (Semantic Versioning
//! 2.0.0, rule 8).

use semver::Version;

/// The major version; 0 of what is no version.
pub fn major(version: &str) -> u64 {
    Version::parse(version).map_or(0, |version| version.major)
}
