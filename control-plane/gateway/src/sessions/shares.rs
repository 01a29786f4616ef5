//! A bounded table in which everybody has a share: who uses more than theirs pushes out their own oldest entry.
//!
//! Keeps true: every operation takes logarithmic time, so that a full table costs no more than an empty one under its
//! lock; at the bound of the whole the entry goes that was used least lately, whoever owns it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

type Id = [u8; 16];
type Owner = [u8; 16];
/// The number of a use; later ones are higher.
type Turn = u64;

/// The table.
pub(super) struct Shares<V> {
    /// Entries in all, and of one owner, at most.
    most: usize,
    share: usize,
    entries: HashMap<Id, Entry<V>>,
    by_turn: BTreeMap<Turn, Id>,
    by_owner: HashMap<Owner, BTreeSet<Turn>>,
    next: Turn,
}

struct Entry<V> {
    value: V,
    owner: Owner,
    turn: Turn,
    used: Instant,
}

impl<V> Shares<V> {
    pub(super) fn new(most: usize, share: usize) -> Shares<V> {
        Shares {
            most,
            share,
            entries: HashMap::new(),
            by_turn: BTreeMap::new(),
            by_owner: HashMap::new(),
            next: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn contains(&self, id: &Id) -> bool {
        self.entries.contains_key(id)
    }

    /// The entry, which counts as used now.
    pub(super) fn touch(&mut self, id: &Id) -> Option<&V> {
        let turn = self.take_turn();
        let entry = self.entries.get_mut(id)?;
        let turns = self.by_owner.entry(entry.owner).or_default();
        turns.remove(&entry.turn);
        turns.insert(turn);
        self.by_turn.remove(&entry.turn);
        self.by_turn.insert(turn, *id);
        entry.turn = turn;
        entry.used = Instant::now();
        Some(&entry.value)
    }

    /// Puts an entry in; another one makes room where the table or the owner's share is full.
    pub(super) fn insert(&mut self, id: Id, owner: Owner, value: V) {
        self.remove(&id);
        let own = self.by_owner.get(&owner);
        let oldest = match own.filter(|turns| turns.len() >= self.share).and_then(BTreeSet::first) {
            Some(turn) => self.by_turn.get(turn).copied(),
            None if self.entries.len() >= self.most => self.oldest(),
            None => None,
        };
        if let Some(oldest) = oldest {
            self.remove(&oldest);
        }
        let turn = self.take_turn();
        self.by_turn.insert(turn, id);
        self.by_owner.entry(owner).or_default().insert(turn);
        self.entries.insert(id, Entry { value, owner, turn, used: Instant::now() });
    }

    pub(super) fn remove(&mut self, id: &Id) -> Option<V> {
        let entry = self.entries.remove(id)?;
        self.by_turn.remove(&entry.turn);
        if let Some(turns) = self.by_owner.get_mut(&entry.owner) {
            turns.remove(&entry.turn);
            if turns.is_empty() {
                self.by_owner.remove(&entry.owner);
            }
        }
        Some(entry.value)
    }

    /// Removes what was not used for this long; costs what it removes.
    pub(super) fn forget_idle(&mut self, idle: Duration) {
        let now = Instant::now();
        while let Some(id) = self.oldest() {
            let fresh = |entry: &Entry<V>| now.saturating_duration_since(entry.used) < idle;
            if self.entries.get(&id).is_none_or(fresh) {
                return;
            }
            self.remove(&id);
        }
    }

    fn oldest(&self) -> Option<Id> {
        self.by_turn.first_key_value().map(|(_, id)| *id)
    }

    fn take_turn(&mut self) -> Turn {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> Id {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_be_bytes());
        id
    }

    #[test]
    fn one_owner_pushes_out_only_their_own() {
        let mut shares = Shares::new(100, 10);
        for number in 0..50 {
            shares.insert(id(number), id(number % 10 + 1000), ());
        }
        for number in 1_000_000..1_010_000 {
            shares.insert(id(number), id(7), ());
        }
        assert!((0..50).all(|number| shares.contains(&id(number))));
        assert_eq!(shares.len(), 60);
        assert!((1_009_990..1_010_000).all(|number| shares.contains(&id(number))), "the newest of their own");
    }

    #[test]
    fn in_a_full_table_the_least_lately_used_goes() {
        let mut shares = Shares::new(3, 3);
        for number in 0..3 {
            shares.insert(id(number), id(number), number);
        }
        assert_eq!(shares.touch(&id(0)), Some(&0));
        shares.insert(id(3), id(3), 3);
        assert!(shares.contains(&id(0)) && !shares.contains(&id(1)));
        shares.insert(id(3), id(4), 4);
        assert_eq!((shares.len(), shares.touch(&id(3))), (3, Some(&4)), "given twice, kept once");
        assert_eq!(shares.remove(&id(3)), Some(4));
        assert_eq!(shares.by_owner.len(), 2, "an owner without entries is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_used_is_forgotten() {
        let mut shares = Shares::new(10, 10);
        shares.insert(id(1), id(1), ());
        tokio::time::advance(Duration::from_secs(5)).await;
        shares.insert(id(2), id(1), ());
        shares.touch(&id(1));
        tokio::time::advance(Duration::from_secs(5)).await;
        shares.insert(id(3), id(1), ());
        shares.forget_idle(Duration::from_secs(5));
        assert!(shares.contains(&id(3)) && shares.len() == 1);
    }
}
