//! The versions of resources: the revision of the store that a version names, and the revision that it covers.

/// Separator in the version of revocations that were published ahead of other changes; the revision up to which
/// everything is published follows it.
pub(crate) const OVERTAKEN: char = '~';

/// Returns the revision at the start of a snapshot's version; 0 if there is none.
pub(crate) fn revision_in(version: &str) -> u64 {
    version.split_once('-').and_then(|(revision, _)| revision.parse().ok()).unwrap_or(0)
}

/// Returns the revision up to which everything is in force with a version, as far as the version limits it.
pub(crate) fn covered_by_version(version: &str) -> u64 {
    version.rsplit_once(OVERTAKEN).and_then(|(_, covers)| covers.parse().ok()).unwrap_or(u64::MAX)
}

/// Returns the revision of a version, and the revision up to which everything is in force with it. The second is lower
/// if only revocations have the first.
pub(crate) fn reach(version: &str) -> (u64, u64) {
    let revision = revision_in(version);
    (revision, revision.min(covered_by_version(version)))
}
