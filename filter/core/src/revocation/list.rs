//! One list of revocations: sorted entries of tokens, and the "issued at or before" table of orgs and users, in which a
//! block is an entry that no issue time is after.

use std::collections::HashMap;

use asp_proto::snapshot::RevokedBefore;

use crate::caller::Mark;
use crate::error::SnapshotError;
use crate::revocation::notice::RevocationNotice;

const ENTRY_BYTES: usize = 16;

#[derive(Default)]
pub(super) struct RevocationList {
    /// Sorted 16-byte entries.
    marks: Vec<u8>,
    /// Latest revoked `iat` by org, then by user, with an empty user for the whole org.
    before: HashMap<String, HashMap<String, BeforeEntry>>,
}

/// Revocation of the tokens of a user or an org.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BeforeEntry {
    /// Unix seconds.
    not_after_iat: u64,
    notice: RevocationNotice,
}

impl BeforeEntry {
    fn of(entry: &RevokedBefore) -> BeforeEntry {
        let notice = RevocationNotice::new(entry.since_ms, &entry.reason, entry.block);
        BeforeEntry { not_after_iat: entry.not_after_iat, notice }
    }

    /// Whether a token issued at that Unix second is revoked; a block revokes each.
    fn hits(&self, issued_at: u64) -> bool {
        self.notice.is_block || issued_at <= self.not_after_iat
    }

    /// Whether this entry revokes more than `other`.
    fn exceeds(&self, other: &BeforeEntry) -> bool {
        (self.notice.is_block, self.not_after_iat) > (other.notice.is_block, other.not_after_iat)
    }
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
            listed.put_before(&entry.org, &entry.user, BeforeEntry::of(entry));
        }
        Ok(listed)
    }

    fn put_before(&mut self, org: &str, user: &str, new: BeforeEntry) {
        let users = self.before.entry(org.to_owned()).or_default();
        if users.get(user).is_none_or(|known| new.exceeds(known)) {
            users.insert(user.to_owned(), new);
        }
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
                union.put_before(org, user, last.clone());
            }
        }
        union
    }

    /// Returns the number of entries of both kinds.
    pub(super) fn len(&self) -> usize {
        self.marks.len() / ENTRY_BYTES + self.before.values().map(HashMap::len).sum::<usize>()
    }

    /// Returns the times of the revocations of users and orgs, in Unix milliseconds.
    pub(super) fn since_ms(&self) -> impl Iterator<Item = u64> {
        self.before.values().flat_map(HashMap::values).map(|entry| entry.notice.since_ms)
    }

    pub(super) fn has_no_marks(&self) -> bool {
        self.marks.is_empty()
    }

    /// Whether the entry `mark` is listed; binary search.
    pub(super) fn has_mark(&self, mark: &Mark) -> bool {
        let (entries, _) = self.marks.as_chunks::<ENTRY_BYTES>();
        entries.binary_search(mark).is_ok()
    }

    /// Returns the entry by which a token of this org and user, issued at that Unix second, is revoked; a block before a
    /// revocation, and one of the org before one of the user.
    pub(super) fn before(&self, org: &str, user: &str, issued_at: u64) -> Option<&RevocationNotice> {
        let users = self.before.get(org)?;
        let hits = ["", user].map(|user| users.get(user).filter(|entry| entry.hits(issued_at)));
        let mut notices = hits.into_iter().flatten().map(|entry| &entry.notice);
        let first = notices.next()?;
        if first.is_block { Some(first) } else { notices.find(|notice| notice.is_block).or(Some(first)) }
    }
}
