//! Tokens that are revoked before they expire.
//!
//! Owns the base list, which is part of the snapshot, and the recent revocations, which may arrive separately and are
//! replaced on their own. Keeps true: if they arrive separately, no token is accepted unless the recent list begins no
//! later than the base ends. Entries are read in place: a snapshot may hold a hundred thousand.

use std::sync::Arc;

use asp_proto::snapshot::{EdgeSnapshot, RecentRevocations, RevokedPart};

use crate::caller::{Caller, Mark};
use crate::error::SnapshotError;

mod list;
mod notice;
mod recent;

use list::RevocationList;
pub use notice::RevocationNotice;
pub use recent::RecentList;

/// Revocations of a snapshot. Clones share the lists.
#[derive(Clone, Default)]
pub(crate) struct Revocations {
    base: Arc<RevocationList>,
    /// End of the base in Unix milliseconds: everything revoked earlier is in it. `None` until the base arrives.
    through: Option<u64>,
    recent: Option<Arc<RecentList>>,
    /// Whether the recent list arrives separately, so that no token may be accepted without it.
    apart: bool,
}

impl Revocations {
    /// Moves the entries out of the message, so that they are held only once.
    pub(crate) fn take(message: &mut EdgeSnapshot) -> Result<Revocations, SnapshotError> {
        let base = RevocationList::new(std::mem::take(&mut message.revoked), &message.revoked_before)?;
        Ok(Revocations {
            base: Arc::new(base),
            through: Some(message.revoked_through),
            recent: None,
            apart: message.revocations_apart,
        })
    }

    /// Returns a copy for separate arrival, with those lists replaced that are new.
    pub(crate) fn changed(
        &self,
        base: Option<RevokedPart>,
        recent: Option<RecentRevocations>,
    ) -> Result<Revocations, SnapshotError> {
        let mut changed = Revocations { apart: true, ..self.clone() };
        if let Some(part) = base {
            changed.base = Arc::new(RevocationList::new(part.revoked, &part.revoked_before)?);
            changed.through = Some(part.through);
        }
        let recent = recent.map(RecentList::from_message).transpose()?;
        Ok(recent.map(|recent| changed.with_recent(&Arc::new(recent))).unwrap_or(changed))
    }

    /// Returns a copy with a newer list of recent revocations; keeps the current one if `new` is older.
    pub(crate) fn with_recent(&self, new: &Arc<RecentList>) -> Revocations {
        let recent = match &self.recent {
            Some(held) if new.revision() < held.revision() => Arc::clone(held),
            Some(held) => self.merge_early(held, new).unwrap_or_else(|| Arc::clone(new)),
            None => Arc::clone(new),
        };
        Revocations { recent: Some(recent), ..self.clone() }
    }

    /// Merges the current list with a new one that arrived before its base. The new list may omit entries of that base;
    /// until the base arrives, the current list fills the gap.
    fn merge_early(&self, held: &RecentList, new: &RecentList) -> Option<Arc<RecentList>> {
        let through = self.through?;
        let needed = new.since() > through && held.since() <= through;
        needed.then(|| held.merge(new)).flatten().map(Arc::new)
    }

    pub(crate) fn recent(&self) -> Option<&Arc<RecentList>> {
        self.recent.as_ref()
    }

    /// Whether all revocations are known here, so that a token that is not listed may be accepted.
    pub(crate) fn complete(&self) -> bool {
        let meet = |recent: &Arc<RecentList>| self.through.is_some_and(|through| recent.since() <= through);
        !self.apart || self.recent.as_ref().is_some_and(meet)
    }

    /// Returns how a caller's token is revoked: its user or org is blocked, it was issued too early, or one of its `marks`
    /// is listed. Marks cost four hashes, so they are not computed while nothing is listed.
    pub(crate) fn find<M: AsRef<[Mark]>>(
        &self,
        marks: impl FnOnce() -> M,
        caller: &Caller,
    ) -> Option<RevocationNotice> {
        let before = self.find_before(&caller.org, &caller.user, caller.issued_at);
        if before.is_some() {
            return before;
        }
        let lists = [Some(&*self.base), self.recent.as_ref().map(|recent| recent.entries())];
        if lists.iter().flatten().all(|listed| listed.has_no_marks()) {
            return None;
        }
        let marks = marks();
        let has_mark = |mark: &&Mark| lists.iter().flatten().any(|listed| listed.has_mark(mark));
        let mark = marks.as_ref().iter().find(has_mark)?;
        Some(self.recent.as_ref().and_then(|recent| recent.detail(mark)).cloned().unwrap_or_default())
    }

    /// Returns how a user's tokens issued at that Unix second are revoked, or how the user or org is blocked.
    pub(crate) fn find_before(&self, org: &str, user: &str, issued_at: u64) -> Option<RevocationNotice> {
        let lists = [Some(&*self.base), self.recent.as_ref().map(|recent| recent.entries())];
        let before = lists.into_iter().flatten().filter_map(|listed| listed.before(org, user, issued_at));
        let before: Vec<&RevocationNotice> = before.collect();
        before.iter().find(|notice| notice.is_block).or(before.first()).map(|notice| (*notice).clone())
    }

    /// Returns the time of the newest recent revocation, in Unix milliseconds; 0 if none is known.
    pub(crate) fn newest_ms(&self) -> u64 {
        self.recent.as_ref().map_or(0, |recent| recent.newest_ms())
    }

    #[cfg(test)]
    pub(crate) fn shares_base(&self, other: &Revocations) -> bool {
        Arc::ptr_eq(&self.base, &other.base)
    }
}

#[cfg(test)]
mod tests;
