//! Differences of lists, which changes keep for their undo.
//!
//! Keeps true: an undo is only possible while the list has exactly what the change left of these entries.

use serde::{Deserialize, Serialize};

use super::{BindingRecord, ExposureRecord, LimitRecord, OfferRecord, RevocationRecord};

/// Maximum size of the entries that a change keeps for its undo, in bytes; a larger change cannot be undone.
pub const MAX_UNDO_BYTES: usize = 128 * 1024;
/// Number of changes of an org, the newest, that keep their entries.
pub const UNDOABLE_PER_ORG: usize = 1_000;

/// Entries of a list that a change removed and stored. An entry that it replaced is in both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListDifference<T> {
    pub before: Vec<T>,
    pub after: Vec<T>,
}

impl<T: Clone + PartialEq> ListDifference<T> {
    pub fn of(before: impl IntoIterator<Item = T>, after: impl IntoIterator<Item = T>) -> ListDifference<T> {
        ListDifference { before: before.into_iter().collect(), after: after.into_iter().collect() }
    }

    /// Returns the difference of two lists.
    pub fn between(before: &[T], after: &[T]) -> ListDifference<T> {
        let without = |list: &[T], other: &[T]| -> Vec<T> {
            list.iter().filter(|entry| !other.contains(entry)).cloned().collect()
        };
        ListDifference { before: without(before, after), after: without(after, before) }
    }

    fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }

    /// Returns the change that undoes this one.
    pub fn reversed(self) -> ListDifference<T> {
        ListDifference { before: self.after, after: self.before }
    }

    /// Returns the first entry that is no longer as the change left it.
    pub fn touched_since(&self, current: &[T], same_key: impl Fn(&T, &T) -> bool) -> Option<&T> {
        let is_gone = |entry: &&T| !current.contains(entry);
        let is_there = |entry: &&T| {
            let mut same = current.iter().filter(|now| same_key(now, entry));
            same.any(|now| !self.after.contains(now))
        };
        self.after.iter().find(is_gone).or_else(|| self.before.iter().find(is_there))
    }

    /// Returns the list after this change.
    pub fn applied(&self, current: &[T]) -> Vec<T> {
        let kept = current.iter().filter(|entry| !self.before.contains(entry));
        kept.chain(&self.after).cloned().collect()
    }
}

/// A change of one of the lists whose changes can be undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "list", rename_all = "lowercase")]
pub enum ListChange {
    Exposure(ListDifference<ExposureRecord>),
    Bindings(ListDifference<BindingRecord>),
    Limits(ListDifference<LimitRecord>),
    Offers(ListDifference<OfferRecord>),
    Revocations(ListDifference<RevocationRecord>),
}

impl ListChange {
    /// Returns the text to store; empty if there is nothing to undo, or too much.
    pub(super) fn to_store(&self) -> String {
        let is_empty = match self {
            ListChange::Exposure(change) => change.is_empty(),
            ListChange::Bindings(change) => change.is_empty(),
            ListChange::Limits(change) => change.is_empty(),
            ListChange::Offers(change) => change.is_empty(),
            ListChange::Revocations(change) => change.is_empty(),
        };
        let text = if is_empty { String::new() } else { serde_json::to_string(self).unwrap_or_default() };
        if text.len() <= MAX_UNDO_BYTES { text } else { String::new() }
    }

    /// Reads a stored text; `None` if there is none, or a newer version wrote it.
    pub(super) fn read(text: &str) -> Option<ListChange> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(org: &str) -> OfferRecord {
        OfferRecord { server: "demo".into(), org: org.into() }
    }

    fn exposure(server: &str, enabled: bool) -> ExposureRecord {
        ExposureRecord { org: "acme".into(), server: server.into(), protocol: "mcp".into(), enabled }
    }

    #[test]
    fn a_change_is_undone_only_while_what_it_left_is_there() {
        let hidden = ListDifference::of([exposure("a", true)], [exposure("a", false)]);
        let touched = |list: &[ExposureRecord]| {
            hidden.touched_since(list, ExposureRecord::same_key).map(|entry| entry.enabled)
        };
        assert_eq!(touched(&[exposure("b", true), exposure("a", false)]), None, "others do not count");
        assert_eq!(touched(&[]), Some(false), "it is gone");
        assert_eq!(touched(&[exposure("a", true)]), Some(false), "it is another one");
        let removed = ListDifference::of([exposure("a", true)], []);
        let touched =
            |list: &[ExposureRecord]| removed.touched_since(list, ExposureRecord::same_key).is_some();
        assert!(!touched(&[exposure("b", true)]) && touched(&[exposure("a", false)]), "stored again since");
    }

    #[test]
    fn a_list_with_a_change_and_its_undo_has_the_same_entries() {
        let before = [offer("a"), offer("b")];
        let after = [offer("b"), offer("c")];
        let change = ListDifference::between(&before, &after);
        assert_eq!(change, ListDifference::of([offer("a")], [offer("c")]));
        assert_eq!(change.applied(&before), after);
        let mut undone = change.reversed().applied(&after);
        undone.sort();
        assert_eq!(undone, before);
    }

    #[test]
    fn what_is_stored_is_bounded_and_read_again() {
        let change = ListChange::Offers(ListDifference::of([offer("a")], [offer("b")]));
        assert_eq!(ListChange::read(&change.to_store()), Some(change));
        assert_eq!(ListChange::Offers(ListDifference::of([], [])).to_store(), "", "an order of entries");
        let many =
            ListChange::Offers(ListDifference::of(std::iter::repeat_n(offer("a"), MAX_UNDO_BYTES / 8), []));
        assert_eq!(many.to_store(), "");
        assert_eq!(ListChange::read(r#"{"list": "later", "before": [], "after": []}"#), None);
    }
}
