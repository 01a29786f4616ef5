//! Which tokens are dead although they have not expired.
//!
//! Owns the lookup in the snapshot's sorted entries and in the "issued at or before" table. Reads the entries
//! in place: a snapshot may hold a hundred thousand of them.

use std::cmp::Ordering;
use std::collections::HashMap;

use asp_proto::snapshot::EdgeSnapshot;

use crate::caller::{Caller, Mark};
use crate::error::SnapshotError;

const ENTRY_BYTES: usize = 16;

/// The revocations of a snapshot.
#[derive(Default)]
pub(crate) struct Revocations {
    /// Sorted 16-byte entries.
    marks: Vec<u8>,
    /// (org, user or "" for the whole org) → the last dead `iat`.
    before: HashMap<(String, String), u64>,
}

impl Revocations {
    /// Takes the entries out of the message, so that they are held once.
    pub(crate) fn take(message: &mut EdgeSnapshot) -> Result<Revocations, SnapshotError> {
        let marks = std::mem::take(&mut message.revoked);
        if !marks.len().is_multiple_of(ENTRY_BYTES) {
            return Err(SnapshotError::invalid("revoked".to_owned(), "is not a multiple of 16 bytes long"));
        }
        if !marks.chunks_exact(ENTRY_BYTES).is_sorted() {
            return Err(SnapshotError::invalid("revoked".to_owned(), "is not sorted"));
        }
        let mut before = HashMap::new();
        for entry in &message.revoked_before {
            let last = before.entry((entry.org.clone(), entry.user.clone())).or_insert(0);
            *last = entry.not_after_iat.max(*last);
        }
        Ok(Revocations { marks, before })
    }

    /// Whether a caller's token is dead: one of its `marks` is listed, or it was issued too early. Marks take four
    /// hashes: nobody needs those of a token while nothing is listed.
    pub(crate) fn hit<M: AsRef<[Mark]>>(&self, marks: impl FnOnce() -> M, caller: &Caller) -> bool {
        let listed = !self.marks.is_empty() && marks().as_ref().iter().any(|mark| self.has_mark(mark));
        listed || self.before(&caller.org, &caller.user, caller.issued_at)
    }

    /// Whether the entry `mark` is listed; binary search.
    fn has_mark(&self, mark: &[u8; ENTRY_BYTES]) -> bool {
        let mut low = 0;
        let mut high = self.marks.len() / ENTRY_BYTES;
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.marks.get(middle * ENTRY_BYTES..(middle + 1) * ENTRY_BYTES).unwrap_or_default();
            match entry.cmp(mark) {
                Ordering::Equal => return true,
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        false
    }

    /// Whether a token of this org and user, issued at that Unix second, is dead.
    fn before(&self, org: &str, user: &str, issued_at: u64) -> bool {
        if self.before.is_empty() {
            return false;
        }
        let dead = |user: &str| {
            let last = self.before.get(&(org.to_owned(), user.to_owned()));
            last.is_some_and(|last| issued_at <= *last)
        };
        dead("") || dead(user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asp_proto::snapshot::RevokedBefore;

    #[test]
    fn a_listed_mark_is_found_and_its_neighbours_are_not() {
        let marks: Vec<[u8; 16]> = (0..1000u128).map(|number| (number * 2 + 1).to_be_bytes()).collect();
        let mut message = EdgeSnapshot { revoked: marks.concat(), ..EdgeSnapshot::default() };
        let revocations = Revocations::take(&mut message).unwrap();
        for number in 0..1000u128 {
            assert!(revocations.has_mark(&(number * 2 + 1).to_be_bytes()));
            assert!(!revocations.has_mark(&(number * 2).to_be_bytes()));
        }
        assert!(!revocations.has_mark(&[0xff; 16]));
        assert!(!Revocations::default().has_mark(&[0; 16]));
    }

    #[test]
    fn entries_out_of_order_or_cut_short_are_refused() {
        for revoked in [[[2; 16], [1; 16]].concat(), vec![1; 17]] {
            let mut message = EdgeSnapshot { revoked, ..EdgeSnapshot::default() };
            assert!(Revocations::take(&mut message).is_err());
        }
    }

    #[test]
    fn the_latest_moment_counts_for_the_user_and_for_the_whole_org() {
        let entry = |org: &str, user: &str, not_after_iat| RevokedBefore {
            org: org.into(),
            user: user.into(),
            not_after_iat,
        };
        let revoked_before = vec![entry("a", "u", 100), entry("a", "u", 50), entry("b", "", 10)];
        let mut message = EdgeSnapshot { revoked_before, ..EdgeSnapshot::default() };
        let revocations = Revocations::take(&mut message).unwrap();
        assert!(revocations.before("a", "u", 100) && !revocations.before("a", "u", 101));
        assert!(!revocations.before("a", "v", 1) && !revocations.before("c", "u", 1));
        assert!(revocations.before("b", "anyone", 10) && !revocations.before("b", "anyone", 11));
    }
}
