//! What was revoked lately: a list that comes apart from the snapshot, and by itself.

use asp_proto::snapshot::RecentRevocations;

use super::listed::Listed;
use crate::error::SnapshotError;

/// Entries of a list that is accepted: more than there can be revocations of both kinds, all of them made lately.
const MAX_ENTRIES: usize = 262_144;
/// Entries of two lists joined: what bridges a moment must not grow with every list that comes before its base.
const MAX_JOINED: usize = 20_000;

/// A checked list of recent revocations, immutable.
pub struct Recent {
    revision: u64,
    since: u64,
    until: u64,
    listed: Listed,
}

impl Recent {
    /// Decodes and checks an encoded `RecentRevocations`; no bytes at all are refused, as they are a list that says that
    /// nothing was ever revoked.
    ///
    /// Refused: what is no such message, and what [`Recent::from_message`] refuses.
    pub fn decode(bytes: &[u8]) -> Result<Recent, SnapshotError> {
        if bytes.is_empty() {
            return Err(SnapshotError::Decode("a list of revocations is empty".to_owned()));
        }
        let message = prost::Message::decode(bytes).map_err(|e| SnapshotError::Decode(e.to_string()))?;
        Recent::from_message(message)
    }

    /// Checks a decoded list. Refused: entries cut short or out of order, and more than 262,144 of them.
    pub fn from_message(message: RecentRevocations) -> Result<Recent, SnapshotError> {
        let listed = Listed::new(message.revoked, &message.revoked_before)?;
        if listed.len().max(message.revoked_before.len()) > MAX_ENTRIES {
            return Err(SnapshotError::invalid("revoked".to_owned(), "has more than 262144 entries"));
        }
        Ok(Recent { revision: message.revision, since: message.since, until: message.until, listed })
    }

    /// From SQL; a list of a lower one is older.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Unix milliseconds: everything revoked at or after this moment, and before `until`, is here.
    pub(super) fn since(&self) -> u64 {
        self.since
    }

    pub(super) fn listed(&self) -> &Listed {
        &self.listed
    }

    /// One list of this and a newer one; `None` where time lies between them, or they are too many entries.
    pub(super) fn joined(&self, newer: &Recent) -> Option<Recent> {
        if newer.since > self.until {
            return None;
        }
        let listed = self.listed.union(&newer.listed);
        (listed.len() <= MAX_JOINED).then_some(Recent {
            revision: newer.revision,
            since: self.since,
            until: newer.until.max(self.until),
            listed,
        })
    }
}
