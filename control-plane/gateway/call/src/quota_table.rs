//! A bounded table in which every user and every org has a quota of entries and of their bytes.
//!
//! Keeps true: an entry that does not fit is refused ([`QuotaTable::add`]) or evicts the least recently used entries of
//! the same user or org ([`QuotaTable::replace`]), and those of others only at the bound of the whole table; every operation
//! takes logarithmic time, so that a full table costs no more than an empty one under its lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

type Id = [u8; 16];
type HolderKey = [u8; 16];
/// Number of a use; later ones are higher.
type UseNumber = u64;

/// The owner of an entry: a user and their org.
#[derive(Clone, Copy)]
pub struct Owner {
    pub user: HolderKey,
    pub org: HolderKey,
}

/// Quota of one owner, or of the whole table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub entries: usize,
    pub bytes: usize,
}

impl Quota {
    /// Returns a quota for entries of equal size.
    pub const fn of(entries: usize) -> Quota {
        Quota { entries, bytes: usize::MAX }
    }
}

/// Quotas of the whole table, of one org and of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    pub whole: Quota,
    pub of_org: Quota,
    pub of_user: Quota,
}

/// The table.
pub struct QuotaTable<V> {
    bounds: Quotas,
    entries: HashMap<Id, TableEntry<V>>,
    by_turn: BTreeMap<UseNumber, Id>,
    /// Size of all entries.
    bytes: usize,
    /// Usage of users and orgs alike.
    by_holder: HashMap<HolderKey, HolderUsage>,
    next: UseNumber,
}

/// Usage of one user or one org.
#[derive(Default)]
struct HolderUsage {
    turns: BTreeSet<UseNumber>,
    bytes: usize,
}

struct TableEntry<V> {
    value: V,
    bytes: usize,
    owner: Owner,
    turn: UseNumber,
    used: Instant,
}

impl<V> QuotaTable<V> {
    pub fn new(bounds: Quotas) -> QuotaTable<V> {
        QuotaTable {
            bounds,
            entries: HashMap::new(),
            by_turn: BTreeMap::new(),
            bytes: 0,
            by_holder: HashMap::new(),
            next: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn contains(&self, id: &Id) -> bool {
        self.entries.contains_key(id)
    }

    /// Returns the entry, and counts that as a use.
    pub fn touch(&mut self, id: &Id) -> Option<&V> {
        let turn = self.take_turn();
        let entry = self.entries.get_mut(id)?;
        for holder in entry.owner.holders() {
            let held = self.by_holder.entry(holder).or_default();
            held.turns.remove(&entry.turn);
            held.turns.insert(turn);
        }
        self.by_turn.remove(&entry.turn);
        self.by_turn.insert(turn, *id);
        entry.turn = turn;
        entry.used = Instant::now();
        Some(&entry.value)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|entry| &entry.value)
    }

    /// Returns the entries of one user.
    pub fn values_of(&self, owner: Owner) -> impl Iterator<Item = &V> {
        let turns = self.by_holder.get(&owner.user).into_iter().flat_map(|held| &held.turns);
        turns.filter_map(|turn| self.entries.get(self.by_turn.get(turn)?)).map(|entry| &entry.value)
    }

    /// Returns the entry, without counting that as a use.
    pub fn get(&self, id: &Id) -> Option<&V> {
        self.entries.get(id).map(|entry| &entry.value)
    }

    /// Puts an entry of negligible size; evicts another one if the table or a quota is full.
    pub fn replace(&mut self, id: Id, owner: Owner, value: V) {
        self.replace_sized(id, owner, value, 0);
    }

    /// Puts an entry of `bytes`; evicts others if the table or a quota is full. False if it is larger than a quota.
    pub fn replace_sized(&mut self, id: Id, owner: Owner, value: V, bytes: usize) -> bool {
        self.remove(&id);
        let shares = [self.bounds.of_user, self.bounds.of_org, self.bounds.whole];
        if shares.iter().any(|share| bytes > share.bytes) {
            return false;
        }
        while let Some(oldest) = self.in_the_way(owner, 1, bytes) {
            self.remove(&oldest);
        }
        self.put(id, owner, value, bytes);
        true
    }

    /// Puts an entry; false if the table or a quota is full.
    pub fn add(&mut self, id: Id, owner: Owner, value: V) -> bool {
        self.remove(&id);
        let fits = self.in_the_way(owner, 1, 0).is_none();
        if fits {
            self.put(id, owner, value, 0);
        }
        fits
    }

    /// Changes the size of an entry; a caller that lets it grow has made room.
    pub fn resize(&mut self, id: &Id, bytes: usize) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let before = std::mem::replace(&mut entry.bytes, bytes);
        self.bytes = self.bytes - before + bytes;
        for holder in entry.owner.holders() {
            if let Some(held) = self.by_holder.get_mut(&holder) {
                held.bytes = held.bytes - before + bytes;
            }
        }
    }

    /// Returns the entry to evict first before `owner` can have so much more: their own entries also count for the org
    /// and the whole table.
    pub fn in_the_way(&self, owner: Owner, entries: usize, bytes: usize) -> Option<Id> {
        let is_full = |share: Quota, has: usize, held: usize| {
            has.saturating_add(entries) > share.entries || held.saturating_add(bytes) > share.bytes
        };
        for (holder, share) in owner.holders().into_iter().zip([self.bounds.of_user, self.bounds.of_org]) {
            let held = self.by_holder.get(&holder);
            let full = held.filter(|held| is_full(share, held.turns.len(), held.bytes));
            if let Some(turn) = full.and_then(|held| held.turns.first()) {
                return self.by_turn.get(turn).copied();
            }
        }
        if is_full(self.bounds.whole, self.entries.len(), self.bytes) { self.oldest() } else { None }
    }

    fn put(&mut self, id: Id, owner: Owner, value: V, bytes: usize) {
        let turn = self.take_turn();
        self.by_turn.insert(turn, id);
        self.bytes += bytes;
        for holder in owner.holders() {
            let held = self.by_holder.entry(holder).or_default();
            held.turns.insert(turn);
            held.bytes += bytes;
        }
        self.entries.insert(id, TableEntry { value, bytes, owner, turn, used: Instant::now() });
    }

    pub fn remove(&mut self, id: &Id) -> Option<V> {
        let entry = self.entries.remove(id)?;
        self.by_turn.remove(&entry.turn);
        self.bytes -= entry.bytes;
        for holder in entry.owner.holders() {
            if let Some(held) = self.by_holder.get_mut(&holder) {
                held.turns.remove(&entry.turn);
                held.bytes -= entry.bytes;
                if held.turns.is_empty() {
                    self.by_holder.remove(&holder);
                }
            }
        }
        Some(entry.value)
    }

    /// Removes the entries that `keep` rejects; visits all entries.
    pub fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        let gone: Vec<Id> =
            self.entries.iter().filter(|(_, entry)| !keep(&entry.value)).map(|(id, _)| *id).collect();
        for id in gone {
            self.remove(&id);
        }
    }

    /// Removes the entries that were not used for this long; visits only these.
    pub fn forget_idle(&mut self, idle: Duration) {
        let now = Instant::now();
        while let Some(id) = self.oldest() {
            let fresh = |entry: &TableEntry<V>| now.saturating_duration_since(entry.used) < idle;
            if self.entries.get(&id).is_none_or(fresh) {
                return;
            }
            self.remove(&id);
        }
    }

    fn oldest(&self) -> Option<Id> {
        self.by_turn.first_key_value().map(|(_, id)| *id)
    }

    fn take_turn(&mut self) -> UseNumber {
        self.next += 1;
        self.next
    }
}

impl Owner {
    fn holders(self) -> [HolderKey; 2] {
        [self.user, self.org]
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

    /// Returns a user of an org of their own, or of another one.
    fn owner(user: u64, org: u64) -> Owner {
        Owner { user: id(user), org: id(org + 1_000_000_000) }
    }

    fn shares<V>(whole: usize, of_org: usize, of_user: usize) -> QuotaTable<V> {
        QuotaTable::new(Quotas {
            whole: Quota::of(whole),
            of_org: Quota::of(of_org),
            of_user: Quota::of(of_user),
        })
    }

    #[test]
    fn one_owner_pushes_out_only_their_own() {
        let mut shares = shares(100, 100, 10);
        for number in 0..50 {
            shares.replace(id(number), owner(number % 10 + 1000, 1), ());
        }
        for number in 1_000_000..1_010_000 {
            shares.replace(id(number), owner(7, 1), ());
        }
        assert!((0..50).all(|number| shares.contains(&id(number))));
        assert_eq!(shares.len(), 60);
        assert!((1_009_990..1_010_000).all(|number| shares.contains(&id(number))), "the newest of their own");
    }

    #[test]
    fn one_org_of_many_users_pushes_out_only_its_own() {
        let mut shares = shares(100, 40, 10);
        for number in 0..30 {
            shares.replace(id(number), owner(number, 1), ());
        }
        for number in 1000..2000 {
            shares.replace(id(number), owner(number, 2), ());
        }
        assert!((0..30).all(|number| shares.contains(&id(number))));
        assert_eq!(shares.len(), 70);
        assert!((1960..2000).all(|number| shares.contains(&id(number))), "the newest of its own");
    }

    #[test]
    fn what_must_not_be_pushed_out_is_refused_beyond_a_share() {
        let mut shares = shares(6, 4, 2);
        assert!(shares.add(id(1), owner(1, 1), ()) && shares.add(id(2), owner(1, 1), ()));
        assert!(!shares.add(id(3), owner(1, 1), ()), "the user's share");
        assert!(shares.add(id(3), owner(2, 1), ()) && shares.add(id(4), owner(3, 1), ()));
        assert!(!shares.add(id(5), owner(4, 1), ()), "the org's share");
        assert!(shares.add(id(5), owner(5, 2), ()) && shares.add(id(6), owner(6, 2), ()));
        assert!(!shares.add(id(7), owner(7, 3), ()), "the whole");
        assert!((1..=6).all(|number| shares.contains(&id(number))) && shares.len() == 6);
        assert!(shares.add(id(6), owner(6, 2), ()), "what is there already fits");
    }

    #[test]
    fn in_a_full_table_the_least_lately_used_goes() {
        let mut shares = shares(3, 3, 3);
        for number in 0..3 {
            shares.replace(id(number), owner(number, number), number);
        }
        assert_eq!(shares.touch(&id(0)), Some(&0));
        shares.replace(id(3), owner(3, 3), 3);
        assert!(shares.contains(&id(0)) && !shares.contains(&id(1)));
        shares.replace(id(3), owner(4, 4), 4);
        assert_eq!((shares.len(), shares.touch(&id(3))), (3, Some(&4)), "given twice, kept once");
        assert_eq!(shares.remove(&id(3)), Some(4));
        assert_eq!(shares.by_holder.len(), 4, "owners without entries are forgotten");
    }

    #[test]
    fn what_is_large_pushes_out_as_many_as_it_needs_and_only_of_its_own_share() {
        let share = |bytes| Quota { entries: 100, bytes };
        let mut shares = QuotaTable::new(Quotas { whole: share(100), of_org: share(80), of_user: share(40) });
        let put = |shares: &mut QuotaTable<()>, number, user, bytes| {
            shares.replace_sized(id(number), owner(user, 1), (), bytes)
        };
        assert!(put(&mut shares, 1, 1, 30) && put(&mut shares, 2, 2, 20) && put(&mut shares, 3, 2, 20));
        assert!(!put(&mut shares, 4, 2, 41), "larger than a share");
        assert!(put(&mut shares, 4, 2, 40));
        let kept = |shares: &QuotaTable<()>| (1..=5).filter(|n| shares.contains(&id(*n))).collect::<Vec<_>>();
        assert_eq!(kept(&shares), [1, 4]);
        assert!(put(&mut shares, 5, 3, 20), "the org's bytes are used up: its oldest goes");
        assert_eq!((kept(&shares), shares.bytes), (vec![4, 5], 60));
        shares.retain(|()| false);
        assert_eq!((shares.bytes, shares.by_holder.len(), shares.by_turn.len()), (0, 0, 0));
    }

    #[test]
    fn the_entries_of_a_user_are_found_without_those_of_others() {
        let mut shares = shares(10, 10, 3);
        for number in 0..6 {
            shares.replace(id(number), owner(number % 2, 1), number);
        }
        shares.touch(&id(0));
        shares.replace(id(8), owner(0, 1), 8);
        let of = |user| shares.values_of(owner(user, 1)).copied().collect::<Vec<_>>();
        assert_eq!((of(0), of(1), of(2)), (vec![4, 0, 8], vec![1, 3, 5], vec![]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_used_is_forgotten() {
        let mut shares = shares(10, 10, 10);
        shares.replace(id(1), owner(1, 1), ());
        tokio::time::advance(Duration::from_secs(5)).await;
        shares.replace(id(2), owner(1, 1), ());
        shares.touch(&id(1));
        tokio::time::advance(Duration::from_secs(5)).await;
        shares.replace(id(3), owner(1, 1), ());
        shares.forget_idle(Duration::from_secs(5));
        assert!(shares.contains(&id(3)) && shares.len() == 1);
    }
}
