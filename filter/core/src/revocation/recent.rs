//! Recent revocations: a list that arrives on its own, separately from the snapshot.

use std::collections::HashMap;

use asp_proto::snapshot::{RecentRevocations, RevokedToken};

use super::list::RevocationList;
use super::notice::RevocationNotice;
use crate::caller::Mark;
use crate::error::SnapshotError;

/// Maximum number of entries of an accepted list: more than recent revocations of both kinds can be.
const MAX_ENTRIES: usize = 262_144;
/// Maximum number of entries of two merged lists: a merged list bridges a short time and must not grow with every list
/// that arrives before its base.
const MAX_JOINED: usize = 20_000;

/// Checked list of recent revocations, immutable.
pub struct RecentList {
    revision: u64,
    since: u64,
    until: u64,
    listed: RevocationList,
    /// Details of revoked tokens; not of all that are listed.
    details: HashMap<Mark, RevocationNotice>,
}

impl RecentList {
    /// Decodes and checks an encoded `RecentRevocations`. Fails if it is not such a message, or if
    /// [`RecentList::from_message`] rejects it. Also rejects empty bytes, which would decode as a list that says that
    /// nothing was ever revoked.
    pub fn decode(bytes: &[u8]) -> Result<RecentList, SnapshotError> {
        if bytes.is_empty() {
            return Err(SnapshotError::Decode("the list of revocations is empty".to_owned()));
        }
        let message = prost::Message::decode(bytes).map_err(|e| SnapshotError::Decode(e.to_string()))?;
        RecentList::from_message(message)
    }

    /// Checks a decoded list. Rejects truncated or unsorted entries, and more than 262,144 of them.
    pub fn from_message(message: RecentRevocations) -> Result<RecentList, SnapshotError> {
        let listed = RevocationList::new(message.revoked, &message.revoked_before)?;
        if listed.len().max(message.revoked_before.len()).max(message.tokens.len()) > MAX_ENTRIES {
            return Err(SnapshotError::invalid("revoked".to_owned(), "has more than 262144 entries"));
        }
        Ok(RecentList {
            revision: message.revision,
            since: message.since,
            until: message.until,
            listed,
            details: message.tokens.iter().filter_map(detail).collect(),
        })
    }

    /// Returns the details of a revoked token, if this list has them.
    pub(super) fn detail(&self, mark: &Mark) -> Option<&RevocationNotice> {
        self.details.get(mark)
    }

    /// Returns the time of the newest revocation here, in Unix milliseconds; 0 if none has a time.
    pub(super) fn newest_ms(&self) -> u64 {
        let of_tokens = self.details.values().map(|notice| notice.since_ms);
        of_tokens.chain(self.listed.since_ms()).max().unwrap_or(0)
    }

    /// Returns the revision, assigned by SQL; a list with a lower one is older.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the beginning in Unix milliseconds: everything revoked from then on, and before `until`, is listed.
    pub(super) fn since(&self) -> u64 {
        self.since
    }

    pub(super) fn entries(&self) -> &RevocationList {
        &self.listed
    }

    /// Merges this list with a newer one; `None` if there is a gap in time between them, or if they have too many
    /// entries.
    pub(super) fn merge(&self, newer: &RecentList) -> Option<RecentList> {
        if newer.since > self.until {
            return None;
        }
        let listed = self.listed.union(&newer.listed);
        let both = [self, newer].into_iter().flat_map(|list| &list.details);
        let details = both.map(|(mark, notice)| (*mark, notice.clone())).collect();
        (listed.len() <= MAX_JOINED).then_some(RecentList {
            revision: newer.revision,
            since: self.since,
            until: newer.until.max(self.until),
            listed,
            details,
        })
    }
}

/// Reads the details of a token; leaves out those of no entry, which tell a caller nothing.
fn detail(token: &RevokedToken) -> Option<(Mark, RevocationNotice)> {
    let mark = Mark::try_from(token.entry.as_slice()).ok()?;
    Some((mark, RevocationNotice::new(token.since_ms, &token.reason, false)))
}
