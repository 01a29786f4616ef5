//! Which tokens are dead although they have not expired.
//!
//! Owns the base, which comes with the snapshot, and the recent revocations, which may come apart from it and are
//! replaced alone; and the rule that holds the two together: where they come apart, no token is accepted unless the
//! recent ones begin no later than the base ends. Entries are read in place: a snapshot may hold a hundred thousand.

use std::sync::Arc;

use asp_proto::snapshot::{EdgeSnapshot, RecentRevocations, RevokedPart};

use crate::caller::{Caller, Mark};
use crate::error::SnapshotError;

mod listed;
mod recent;

use listed::Listed;
pub use recent::Recent;

/// The revocations of a snapshot. Clones share the lists.
#[derive(Clone, Default)]
pub(crate) struct Revocations {
    base: Arc<Listed>,
    /// Unix milliseconds: what was revoked before is in the base. `None`: the base has not come.
    through: Option<u64>,
    recent: Option<Arc<Recent>>,
    /// Whether no token may be accepted without the recent ones.
    apart: bool,
}

impl Revocations {
    /// Takes the entries out of the message, so that they are held once.
    pub(crate) fn take(message: &mut EdgeSnapshot) -> Result<Revocations, SnapshotError> {
        let base = Listed::new(std::mem::take(&mut message.revoked), &message.revoked_before)?;
        Ok(Revocations {
            base: Arc::new(base),
            through: Some(message.revoked_through),
            recent: None,
            apart: message.revocations_apart,
        })
    }

    /// The same, come apart, with what of them is new.
    pub(crate) fn changed(
        &self,
        base: Option<RevokedPart>,
        recent: Option<RecentRevocations>,
    ) -> Result<Revocations, SnapshotError> {
        let mut changed = Revocations { apart: true, ..self.clone() };
        if let Some(part) = base {
            changed.base = Arc::new(Listed::new(part.revoked, &part.revoked_before)?);
            changed.through = Some(part.through);
        }
        let recent = recent.map(Recent::from_message).transpose()?;
        Ok(recent.map(|recent| changed.with_recent(&Arc::new(recent))).unwrap_or(changed))
    }

    /// The same with a newer list of recent revocations, or with the one held where `new` is older.
    pub(crate) fn with_recent(&self, new: &Arc<Recent>) -> Revocations {
        let recent = match &self.recent {
            Some(held) if new.revision() < held.revision() => Arc::clone(held),
            Some(held) => self.bridged(held, new).unwrap_or_else(|| Arc::clone(new)),
            None => Arc::clone(new),
        };
        Revocations { recent: Some(recent), ..self.clone() }
    }

    /// A new list may leave out what its base holds, and come before it: until the base is there, the list held bridges
    /// the two.
    fn bridged(&self, held: &Recent, new: &Recent) -> Option<Arc<Recent>> {
        let through = self.through?;
        let needed = new.since() > through && held.since() <= through;
        needed.then(|| held.joined(new)).flatten().map(Arc::new)
    }

    pub(crate) fn recent(&self) -> Option<&Arc<Recent>> {
        self.recent.as_ref()
    }

    /// Whether everything that was revoked is known here, so that a token that is not listed is good.
    pub(crate) fn complete(&self) -> bool {
        let meet = |recent: &Arc<Recent>| self.through.is_some_and(|through| recent.since() <= through);
        !self.apart || self.recent.as_ref().is_some_and(meet)
    }

    /// Whether a caller's token is dead: one of its `marks` is listed, or it was issued too early. Marks take four
    /// hashes: nobody needs those of a token while nothing is listed.
    pub(crate) fn hit<M: AsRef<[Mark]>>(&self, marks: impl FnOnce() -> M, caller: &Caller) -> bool {
        let lists =
            || [Some(&*self.base), self.recent.as_ref().map(|recent| recent.listed())].into_iter().flatten();
        if lists().any(|listed| listed.before(&caller.org, &caller.user, caller.issued_at)) {
            return true;
        }
        if lists().all(Listed::has_no_marks) {
            return false;
        }
        let marks = marks();
        lists().any(|listed| marks.as_ref().iter().any(|mark| listed.has_mark(mark)))
    }

    #[cfg(test)]
    pub(crate) fn shares_base(&self, other: &Revocations) -> bool {
        Arc::ptr_eq(&self.base, &other.base)
    }
}

#[cfg(test)]
mod tests;
