//! One list of revocations: sorted entries of tokens, and the "issued at or before" table of orgs and users.

use std::collections::HashMap;

use asp_proto::snapshot::RevokedBefore;

use crate::caller::Mark;
use crate::error::SnapshotError;

const ENTRY_BYTES: usize = 16;

#[derive(Default)]
pub(super) struct Listed {
    /// Sorted 16-byte entries.
    marks: Vec<u8>,
    /// Org → user, or "" for the whole org → the last dead `iat`.
    before: HashMap<String, HashMap<String, u64>>,
}

impl Listed {
    /// Takes the entries as they are in a message.
    pub(super) fn new(marks: Vec<u8>, before: &[RevokedBefore]) -> Result<Listed, SnapshotError> {
        if !marks.len().is_multiple_of(ENTRY_BYTES) {
            return Err(SnapshotError::invalid("revoked".to_owned(), "is not a multiple of 16 bytes long"));
        }
        if !marks.chunks_exact(ENTRY_BYTES).is_sorted() {
            return Err(SnapshotError::invalid("revoked".to_owned(), "is not sorted"));
        }
        let mut listed = Listed { marks, before: HashMap::new() };
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

    /// What either lists.
    pub(super) fn union(&self, other: &Listed) -> Listed {
        let mut marks: Vec<&[u8]> = self.marks.chunks_exact(ENTRY_BYTES).collect();
        marks.extend(other.marks.chunks_exact(ENTRY_BYTES));
        marks.sort_unstable();
        marks.dedup();
        let mut union = Listed { marks: marks.concat(), before: self.before.clone() };
        for (org, users) in &other.before {
            for (user, last) in users {
                union.put_before(org, user, *last);
            }
        }
        union
    }

    /// How many entries of both kinds there are.
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

    /// Whether a token of this org and user, issued at that Unix second, is dead.
    pub(super) fn before(&self, org: &str, user: &str, issued_at: u64) -> bool {
        let Some(users) = self.before.get(org) else { return false };
        ["", user].iter().any(|user| users.get(*user).is_some_and(|last| issued_at <= *last))
    }
}
