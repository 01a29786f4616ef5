//! One list of revocations: sorted entries of tokens, and the "issued at or before" table of orgs and users.

use std::collections::HashMap;

use asp_proto::snapshot::RevokedBefore;

use crate::caller::Mark;
use crate::error::SnapshotError;

const ENTRY_BYTES: usize = 16;

#[derive(Default)]
pub(super) struct RevocationList {
    /// Sorted 16-byte entries.
    marks: Vec<u8>,
    /// Latest revoked `iat` by org, then by user, with an empty user for the whole org.
    before: HashMap<String, HashMap<String, u64>>,
}

impl RevocationList {
    /// Checks and takes the entries as they are in a message.
    pub(super) fn new(marks: Vec<u8>, before: &[RevokedBefore]) -> Result<RevocationList, SnapshotError> {
        if !marks.len().is_multiple_of(ENTRY_BYTES) {
            return Err(SnapshotError::invalid("revoked".to_owned(), "is not a multiple of 16 bytes long"));
        }
        if !marks.chunks_exact(ENTRY_BYTES).is_sorted() {
            return Err(SnapshotError::invalid("revoked".to_owned(), "is not sorted"));
        }
        let mut listed = RevocationList { marks, before: HashMap::new() };
        for entry in before {
            listed.put_before(&entry.org, &entry.user, entry.not_after_iat);
        }
        Ok(listed)
    }

    fn put_before(&mut self, org: &str, user: &str, not_after_iat: u64) {
        let users = self.before.entry(org.to_owned()).or_default();
        let last = users.entry(user.to_owned()).or_insert(0);
        *last = not_after_iat.max(*last);
    }

    /// Returns the entries of both lists.
    pub(super) fn union(&self, other: &RevocationList) -> RevocationList {
        let mut marks: Vec<&[u8]> = self.marks.chunks_exact(ENTRY_BYTES).collect();
        marks.extend(other.marks.chunks_exact(ENTRY_BYTES));
        marks.sort_unstable();
        marks.dedup();
        let mut union = RevocationList { marks: marks.concat(), before: self.before.clone() };
        for (org, users) in &other.before {
            for (user, last) in users {
                union.put_before(org, user, *last);
            }
        }
        union
    }

    /// Returns the number of entries of both kinds.
    pub(super) fn len(&self) -> usize {
        self.marks.len() / ENTRY_BYTES + self.before.values().map(HashMap::len).sum::<usize>()
    }

    pub(super) fn has_no_marks(&self) -> bool {
        self.marks.is_empty()
    }

    /// Whether the entry `mark` is listed; binary search.
    pub(super) fn has_mark(&self, mark: &Mark) -> bool {
        let (entries, _) = self.marks.as_chunks::<ENTRY_BYTES>();
        entries.binary_search(mark).is_ok()
    }

    /// Whether a token of this org and user, issued at that Unix second, is revoked.
    pub(super) fn before(&self, org: &str, user: &str, issued_at: u64) -> bool {
        let Some(users) = self.before.get(org) else { return false };
        ["", user].iter().any(|user| users.get(*user).is_some_and(|last| issued_at <= *last))
    }
}
