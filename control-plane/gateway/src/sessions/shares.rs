//! A bounded table in which every user and every org has a share.
//!
//! Keeps true: what does not fit is refused ([`Shares::add`]) or pushes out the entry of the same user or org that was
//! used least lately ([`Shares::replace`]), and only at the bound of the whole somebody else's; every operation takes
//! logarithmic time, so that a full table costs no more than an empty one under its lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

type Id = [u8; 16];
type Holder = [u8; 16];
/// The number of a use; later ones are higher.
type Turn = u64;

/// Whose an entry is: a user's and their org's.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    pub user: Holder,
    pub org: Holder,
}

/// Most entries in all, of one org and of one user.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub whole: usize,
    pub of_org: usize,
    pub of_user: usize,
}

/// The table.
pub(super) struct Shares<V> {
    bounds: Bounds,
    entries: HashMap<Id, Entry<V>>,
    by_turn: BTreeMap<Turn, Id>,
    /// Users and orgs alike.
    by_holder: HashMap<Holder, BTreeSet<Turn>>,
    next: Turn,
}

struct Entry<V> {
    value: V,
    owner: Owner,
    turn: Turn,
    used: Instant,
}

impl<V> Shares<V> {
    pub(super) fn new(bounds: Bounds) -> Shares<V> {
        Shares {
            bounds,
            entries: HashMap::new(),
            by_turn: BTreeMap::new(),
            by_holder: HashMap::new(),
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
        for holder in entry.owner.holders() {
            let turns = self.by_holder.entry(holder).or_default();
            turns.remove(&entry.turn);
            turns.insert(turn);
        }
        self.by_turn.remove(&entry.turn);
        self.by_turn.insert(turn, *id);
        entry.turn = turn;
        entry.used = Instant::now();
        Some(&entry.value)
    }

    /// Puts an entry in; another one makes room where the table or a share is full.
    pub(super) fn replace(&mut self, id: Id, owner: Owner, value: V) {
        self.remove(&id);
        if let Some(oldest) = self.in_the_way(owner) {
            self.remove(&oldest);
        }
        self.put(id, owner, value);
    }

    /// Puts an entry in; false where the table or a share is full.
    pub(super) fn add(&mut self, id: Id, owner: Owner, value: V) -> bool {
        self.remove(&id);
        let fits = self.in_the_way(owner).is_none();
        if fits {
            self.put(id, owner, value);
        }
        fits
    }

    /// What has to go before `owner` can have another entry. One is enough: a user's counts for the org and the whole.
    fn in_the_way(&self, owner: Owner) -> Option<Id> {
        for (holder, share) in owner.holders().into_iter().zip([self.bounds.of_user, self.bounds.of_org]) {
            let full = self.by_holder.get(&holder).filter(|turns| turns.len() >= share);
            if let Some(turn) = full.and_then(BTreeSet::first) {
                return self.by_turn.get(turn).copied();
            }
        }
        if self.entries.len() >= self.bounds.whole { self.oldest() } else { None }
    }

    fn put(&mut self, id: Id, owner: Owner, value: V) {
        let turn = self.take_turn();
        self.by_turn.insert(turn, id);
        for holder in owner.holders() {
            self.by_holder.entry(holder).or_default().insert(turn);
        }
        self.entries.insert(id, Entry { value, owner, turn, used: Instant::now() });
    }

    pub(super) fn remove(&mut self, id: &Id) -> Option<V> {
        let entry = self.entries.remove(id)?;
        self.by_turn.remove(&entry.turn);
        for holder in entry.owner.holders() {
            if let Some(turns) = self.by_holder.get_mut(&holder) {
                turns.remove(&entry.turn);
                if turns.is_empty() {
                    self.by_holder.remove(&holder);
                }
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

impl Owner {
    fn holders(self) -> [Holder; 2] {
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

    /// A user of an org of their own, or of another one.
    fn owner(user: u64, org: u64) -> Owner {
        Owner { user: id(user), org: id(org + 1_000_000_000) }
    }

    fn shares<V>(whole: usize, of_org: usize, of_user: usize) -> Shares<V> {
        Shares::new(Bounds { whole, of_org, of_user })
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
