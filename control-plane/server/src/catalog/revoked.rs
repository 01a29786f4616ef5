//! The live revocations, divided into an older list and a recent one.
//!
//! The older list is long and changes once an hour; the recent one is short and changes with each revocation. Keeps
//! true: the boundary follows from the stored revocations and the hour alone, so that several control planes on one
//! database publish the same. The lists overlap, so that a receiver that has the current or the previous version of
//! each misses no revocation.

use std::collections::{BTreeMap, HashMap, HashSet};

use asp_proto::snapshot::{RecentRevocations, RevokedBefore, RevokedToken};
use asp_store::control::{ChangedRevocations, RevocationRecord};

use super::usage::revocation_bytes;
use crate::policy::{self, RevocationEntries};

const HOUR: u64 = 60 * 60 * 1_000;
/// Maximum number of recent entries, unless more were revoked within one millisecond.
const MAX_RECENT: usize = 1_000;
/// Number of entries that are in both lists.
const OVERLAP: usize = 250;
/// Number of entries by which the end of the older list advances.
const STEP: usize = 250;
/// Bytes of an entry in `EdgeSnapshot.revoked`.
const ENTRY: usize = 16;
/// Time at which no revocation has expired. The store deletes those that have, by the clock of the database; the clock
/// of one control plane may be ahead.
const ALL: u64 = 0;

/// Boundaries of the two lists, in Unix milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    /// Start of the recent list, inclusive.
    pub(super) since: u64,
    /// End of the older list, exclusive.
    pub(super) through: u64,
}

/// One of the two lists, in the form that edges and gateways search.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct EncodedRevocations {
    /// Entries in the form of `EdgeSnapshot.revoked`.
    pub(super) revoked: Vec<u8>,
    pub(super) before: Vec<RevokedBefore>,
    /// Details of the entries; none of the older list, which edges hold as a whole.
    pub(super) details: Vec<RevokedToken>,
    /// Ids of records whose kind this version does not know.
    pub(super) unknown: Vec<String>,
}

#[derive(Default)]
pub(super) struct LiveRevocations {
    /// Records by time of revocation and id.
    records: BTreeMap<(u64, String), RevocationRecord>,
    moments: HashMap<String, u64>,
    /// Encoded bytes by org.
    bytes: HashMap<String, usize>,
    issuers: Vec<String>,
    cut: Cut,
    older: EncodedRevocations,
    older_is_stale: bool,
    /// Number of times that `older` was built.
    made: u64,
}

/// Both lists of revocations.
pub(super) struct RevocationSplit<'a> {
    pub(super) cut: Cut,
    pub(super) older: &'a EncodedRevocations,
    /// Changes whenever `older` may have changed.
    pub(super) made: u64,
    pub(super) recent: EncodedRevocations,
}

impl LiveRevocations {
    /// Applies the changes that were read from the store.
    pub(super) fn take(&mut self, changed: ChangedRevocations) {
        match changed {
            ChangedRevocations::All(all) => {
                let there: HashSet<&str> = all.iter().map(|record| record.id.as_str()).collect();
                let gone: Vec<String> =
                    self.moments.keys().filter(|id| !there.contains(id.as_str())).cloned().collect();
                gone.iter().for_each(|id| self.remove(id));
                all.into_iter().for_each(|record| self.replace(record));
            }
            ChangedRevocations::These(these) => {
                for (id, record) in these {
                    match record {
                        Some(record) => self.replace(record),
                        None => self.remove(&id),
                    }
                }
            }
        }
    }

    /// An unchanged record stays, so that the older list is not rebuilt.
    fn replace(&mut self, record: RevocationRecord) {
        let known = self.moments.get(&record.id).map(|moment| (*moment, record.id.clone()));
        if known.and_then(|key| self.records.get(&key)) == Some(&record) {
            return;
        }
        self.remove(&record.id);
        self.add(record);
    }

    fn add(&mut self, record: RevocationRecord) {
        *self.bytes.entry(record.org.clone()).or_default() += revocation_bytes(&record, &self.issuers);
        self.older_is_stale |= record.created_at < self.cut.through;
        self.moments.insert(record.id.clone(), record.created_at);
        self.records.insert((record.created_at, record.id.clone()), record);
    }

    fn remove(&mut self, id: &str) {
        let Some(moment) = self.moments.remove(id) else { return };
        self.older_is_stale |= moment < self.cut.through;
        let Some(record) = self.records.remove(&(moment, id.to_owned())) else { return };
        let bytes = revocation_bytes(&record, &self.issuers);
        if let Some(of_org) = self.bytes.get_mut(&record.org) {
            *of_org = of_org.saturating_sub(bytes);
        }
    }

    /// Returns the snapshot bytes of each org's revocations.
    pub(super) fn bytes(&self) -> impl Iterator<Item = (&String, usize)> {
        self.bytes.iter().map(|(org, bytes)| (org, *bytes))
    }

    /// Returns both lists at `now` (Unix milliseconds); a token id without an issuer counts for each of `issuers`.
    pub(super) fn lists(&mut self, issuers: &[String], now: u64) -> RevocationSplit<'_> {
        let hour = now - now % HOUR;
        if self.issuers != issuers {
            self.issuers = issuers.to_vec();
            self.older_is_stale = true;
            self.bytes.clear();
            for record in self.records.values() {
                *self.bytes.entry(record.org.clone()).or_default() += revocation_bytes(record, issuers);
            }
        }
        let cut = self.cut_at(hour);
        if self.older_is_stale || cut != self.cut {
            let older = self.records.range(..(cut.through, String::new()));
            self.older = list(older.map(|(_, record)| record), issuers);
            (self.cut, self.older_is_stale) = (cut, false);
            self.made += 1;
        }
        let recent = self.records.range((cut.since, String::new())..);
        let details = policy::token_details(recent.clone().map(|(_, record)| record), issuers);
        let recent = EncodedRevocations {
            details: asp_registry::earliest(details),
            ..list(recent.map(|(_, record)| record), issuers)
        };
        RevocationSplit { cut, older: &self.older, made: self.made, recent }
    }

    fn cut_at(&self, hour: u64) -> Cut {
        let since = hour.saturating_sub(HOUR);
        let window = self.records.range((since, String::new())..);
        // One for each entry: a token id without an issuer has an entry for each issuer.
        let entries = |record: &RevocationRecord| revocation_bytes(record, &self.issuers).div_ceil(ENTRY);
        let moments: Vec<u64> =
            window.flat_map(|((moment, _), record)| std::iter::repeat_n(*moment, entries(record))).collect();
        let end = moments.len().saturating_sub(MAX_RECENT / 2) / STEP * STEP;
        let at = |place: usize| moments.get(place).copied().unwrap_or(hour);
        match end {
            0 => Cut { since, through: hour },
            // A receiver of the previous list has everything that was revoked before it.
            OVERLAP => Cut { since, through: at(end) },
            _ => Cut { since: at(end.saturating_sub(OVERLAP)), through: at(end) },
        }
    }
}

/// Adds records to recent revocations, at another revision and `until`; `None` if nothing changes.
pub fn with(
    recent: &RecentRevocations,
    records: &[RevocationRecord],
    issuers: &[String],
    (revision, until): (u64, u64),
) -> Option<RecentRevocations> {
    let RevocationEntries { mut tokens, mut before, .. } = policy::revoked(records, issuers, ALL);
    let mut details = policy::token_details(records, issuers);
    details.extend(recent.tokens.iter().cloned());
    tokens.extend(recent.revoked.as_chunks::<16>().0);
    before.extend(recent.revoked_before.iter().cloned());
    let with = RecentRevocations {
        revision,
        since: recent.since,
        until,
        revoked: asp_registry::sorted_set(tokens),
        revoked_before: asp_registry::latest(before),
        tokens: asp_registry::earliest(details),
    };
    let is_same = with.revoked == recent.revoked && with.revoked_before == recent.revoked_before;
    (!is_same).then_some(with)
}

/// Whether a list has all entries of another one.
pub fn includes(list: &RecentRevocations, other: &RecentRevocations) -> bool {
    let tokens = [list, other].into_iter().flat_map(|each| each.revoked.as_chunks::<ENTRY>().0);
    let before = [list, other].into_iter().flat_map(|each| &each.revoked_before);
    asp_registry::sorted_set(tokens.copied().collect()) == list.revoked
        && asp_registry::latest(before.cloned().collect()) == list.revoked_before
}

fn list<'a>(records: impl Iterator<Item = &'a RevocationRecord>, issuers: &[String]) -> EncodedRevocations {
    let RevocationEntries { tokens, before, unknown } = policy::revoked(records, issuers, ALL);
    EncodedRevocations {
        revoked: asp_registry::sorted_set(tokens),
        before: asp_registry::latest(before),
        details: Vec::new(),
        unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000 * HOUR + HOUR / 2;
    const THIS_HOUR: u64 = 1_000 * HOUR;

    fn record(id: usize, created_at: u64) -> RevocationRecord {
        RevocationRecord {
            id: format!("{id:05}"),
            kind: "token_hash".into(),
            org: "acme".into(),
            target: format!("{id:064x}"),
            issuer: String::new(),
            reason: String::new(),
            created_at,
            until: NOW + 24 * HOUR,
            by_platform: false,
        }
    }

    fn these(records: impl IntoIterator<Item = RevocationRecord>) -> ChangedRevocations {
        ChangedRevocations::These(
            records.into_iter().map(|record| (record.id.clone(), Some(record))).collect(),
        )
    }

    fn count(list: &EncodedRevocations) -> usize {
        list.revoked.len() / 16
    }

    #[test]
    fn what_was_revoked_lately_leaves_the_others_as_they_are_until_the_hour_is_over() {
        let mut all = LiveRevocations::default();
        all.take(these([record(1, THIS_HOUR - 5 * HOUR), record(2, THIS_HOUR - 1)]));
        let RevocationSplit { cut, older, recent, .. } = all.lists(&[], NOW);
        assert_eq!(cut, Cut { since: THIS_HOUR - HOUR, through: THIS_HOUR });
        assert_eq!((count(older), count(&recent)), (2, 1));
        let before = older.clone();
        all.take(these([record(3, NOW)]));
        let RevocationSplit { older, recent, .. } = all.lists(&[], NOW);
        assert_eq!((older, count(&recent)), (&before, 2));
        let RevocationSplit { cut, older, recent, .. } = all.lists(&[], NOW + HOUR);
        assert_eq!((cut.through, count(older), count(&recent)), (THIS_HOUR + HOUR, 3, 1));
    }

    #[test]
    fn what_is_lifted_or_comes_late_changes_the_list_that_it_belongs_to() {
        let mut all = LiveRevocations::default();
        all.take(these([record(1, 1), record(2, NOW)]));
        all.lists(&[], NOW);
        all.take(ChangedRevocations::These(vec![(record(1, 1).id, None)]));
        assert_eq!(count(all.lists(&[], NOW).older), 0);
        // Written by a control plane whose clock is behind.
        all.take(these([record(3, THIS_HOUR - 1)]));
        let RevocationSplit { older, recent, .. } = all.lists(&[], NOW);
        assert_eq!((count(older), count(&recent)), (1, 2));
        // All of them are read again: what is the same changes nothing.
        let made = all.lists(&[], NOW).made;
        all.take(ChangedRevocations::All(vec![record(2, NOW), record(3, THIS_HOUR - 1)]));
        assert_eq!(all.lists(&[], NOW).made, made);
        all.take(ChangedRevocations::All(Vec::new()));
        let RevocationSplit { older, recent, .. } = all.lists(&[], NOW);
        assert_eq!((count(older), count(&recent)), (0, 0));
        assert_eq!(all.bytes().map(|(_, bytes)| bytes).sum::<usize>(), 0);
    }

    #[test]
    fn what_is_added_to_the_recent_ones_takes_none_of_them_away() {
        let user = |created_at| RevocationRecord { kind: "user".into(), ..record(7, created_at) };
        let recent =
            with(&RecentRevocations::default(), &[record(1, NOW), user(NOW)], &[], (5, NOW)).unwrap();
        assert_eq!((recent.revoked.len(), recent.revoked_before.len()), (16, 1));
        let later = NOW + 60_000;
        let more = with(&recent, &[record(2, later), record(1, NOW), user(later)], &[], (6, later)).unwrap();
        assert_eq!((more.revision, more.until, more.revoked.len()), (6, later, 32));
        assert!(more.revoked_before[0].not_after_iat > recent.revoked_before[0].not_after_iat);
        let mut both = LiveRevocations::default();
        both.take(these([record(1, NOW), record(2, later)]));
        let built = both.lists(&[], later).recent;
        assert_eq!(built.revoked, more.revoked, "as the builder says it");
        assert_eq!((&built.details, more.tokens.len()), (&more.tokens, 2));
        assert_eq!(more.tokens.iter().map(|token| token.since_ms).max(), Some(later));
        assert_eq!(with(&more, &[record(2, later)], &[], (7, later)), None);
        assert!(includes(&more, &recent) && includes(&more, &more) && !includes(&recent, &more));
        let only_token = RecentRevocations { revoked_before: recent.revoked_before.clone(), ..more.clone() };
        assert!(!includes(&only_token, &more), "the user is revoked through an earlier moment");
    }

    #[test]
    fn a_clock_that_is_ahead_takes_no_revocation_from_the_lists() {
        let ahead = NOW + 48 * HOUR;
        let mut all = LiveRevocations::default();
        all.take(these([record(1, THIS_HOUR - 5 * HOUR), record(2, NOW)]));
        assert!(record(2, NOW).until < ahead);
        assert_eq!(count(all.lists(&[], ahead).older), 2);
        let recent = with(&RecentRevocations::default(), &[record(2, NOW)], &[], (5, ahead)).unwrap();
        assert_eq!(recent.revoked.len(), ENTRY);
    }

    #[test]
    fn many_at_once_stay_few_recent_ones_and_none_is_in_neither_list() {
        let mut all = LiveRevocations::default();
        let mut moves = 0;
        let mut before = Cut::default();
        for id in 0..3_000_usize {
            all.take(these([record(id, THIS_HOUR + id as u64)]));
            // No burst between two looks is longer than the lists overlap.
            if id % 50 != 0 {
                continue;
            }
            let RevocationSplit { cut, older, recent, .. } = all.lists(&[], NOW);
            assert!(count(&recent) <= MAX_RECENT, "{} after {id}", count(&recent));
            assert!(cut.since <= cut.through && count(older) + count(&recent) > id, "one is in neither");
            assert!(
                cut.since <= before.through || before == Cut::default(),
                "who has the list before misses one"
            );
            moves += usize::from(cut != before);
            before = cut;
        }
        assert!(moves <= 3_000 / STEP, "the long list changed {moves} times");
    }
}
