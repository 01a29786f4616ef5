//! Whose calls crash a plugin's workers: who is served apart, and who is put off.
//!
//! A pure state machine with a given clock. A crash is *sure* to be of a tenant when nobody else ever had a call in that
//! worker; of any other crash the tenants whose calls ran are only suspects. Keeps true: a suspect's calls share a
//! worker with nobody for `SUSPECTED`, so that his next crash is sure and takes no other's calls; who is sure to have
//! crashed `CRASHES` workers within `WINDOW` is refused for a rest that doubles, and nobody else is.
//! Bound: `MAX_TENANTS` suspects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::pool::backoff::Backoff;

const CRASHES: usize = 3;
const WINDOW: Duration = Duration::from_secs(60);
/// Without a further crash.
const SUSPECTED: Duration = Duration::from_secs(600);
const FIRST_REST: Duration = Duration::from_secs(30);
const LONGEST_REST: Duration = Duration::from_secs(300);
/// More have no calls at once in all workers of one plugin.
const MAX_TENANTS: usize = 1024;

/// The suspects of one plugin version.
#[derive(Debug, Default)]
pub struct Blame {
    suspects: BTreeMap<String, Suspect>,
}

#[derive(Debug)]
struct Suspect {
    until: Instant,
    /// Sure crashes, oldest first; at most `CRASHES`.
    crashes: VecDeque<Instant>,
    off_until: Option<Instant>,
    /// What the next rest takes.
    rest: Duration,
    backoff: Backoff,
}

/// Who ever had a call in a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Users {
    #[default]
    Nobody,
    One(String),
    Several,
}

impl Users {
    /// Notes a tenant's call.
    pub fn add(&mut self, tenant: &str) {
        *self = match std::mem::take(self) {
            Users::Nobody => Users::One(tenant.to_owned()),
            Users::One(known) if known == tenant => Users::One(known),
            Users::One(_) | Users::Several => Users::Several,
        };
    }
}

impl Blame {
    /// A crash that is sure to be of `tenant`. Returns how long he is put off because of it.
    pub fn sure(&mut self, tenant: &str, chance: f64, now: Instant) -> Option<Duration> {
        let suspect = self.suspect(tenant, now);
        suspect.backoff.failed(chance, now);
        suspect.crashes.push_back(now);
        while suspect.crashes.len() > CRASHES {
            suspect.crashes.pop_front();
        }
        let first = suspect.crashes.front().filter(|_| suspect.crashes.len() == CRASHES);
        let flaps = first.is_some_and(|first| now.duration_since(*first) <= WINDOW);
        // The first crash after a rest is one too many.
        let relapsed = suspect.off_until.is_some_and(|end| now.duration_since(end) <= WINDOW);
        if !flaps && !relapsed {
            return None;
        }
        let rest = suspect.rest;
        suspect.rest = (rest * 2).min(LONGEST_REST);
        suspect.off_until = Some(now + rest);
        suspect.until = now + rest + SUSPECTED;
        suspect.crashes.clear();
        Some(rest)
    }

    /// A crash while calls of these tenants ran, of whom each may have done it.
    pub fn suspected(&mut self, tenants: &BTreeSet<String>, now: Instant) {
        for tenant in tenants {
            self.suspect(tenant, now);
        }
    }

    /// How long `tenant` stays put off.
    pub fn rest(&self, tenant: &str, now: Instant) -> Option<Duration> {
        let until = self.suspects.get(tenant)?.off_until?;
        until.checked_duration_since(now).filter(|rest| !rest.is_zero())
    }

    /// Whether the calls of `tenant` are served apart.
    pub fn is_suspect(&self, tenant: &str, now: Instant) -> bool {
        self.suspects.get(tenant).is_some_and(|suspect| now < suspect.until)
    }

    /// When the next call of `tenant` may have a worker; `None`: now.
    pub fn waits_until(&self, tenant: &str, now: Instant) -> Option<Instant> {
        self.suspects.get(tenant)?.backoff.until(now)
    }

    /// Whether nobody is suspected.
    pub fn is_empty(&self) -> bool {
        self.suspects.is_empty()
    }

    /// Tenants that are sure to have crashed a worker lately.
    pub fn culprits(&self, now: Instant) -> usize {
        let sure = |suspect: &&Suspect| {
            now < suspect.until && (suspect.off_until.is_some() || !suspect.crashes.is_empty())
        };
        self.suspects.values().filter(sure).count()
    }

    /// Suspects, and of those the ones that are put off.
    pub fn counts(&self, now: Instant) -> (usize, usize) {
        let off = |suspect: &&Suspect| suspect.off_until.is_some_and(|until| now < until);
        let suspects = self.suspects.values().filter(|suspect| now < suspect.until);
        (suspects.clone().count(), suspects.filter(off).count())
    }

    fn suspect(&mut self, tenant: &str, now: Instant) -> &mut Suspect {
        self.suspects.retain(|_, suspect| now < suspect.until);
        if self.suspects.len() >= MAX_TENANTS && !self.suspects.contains_key(tenant) {
            // Who is closest to be trusted again gives way.
            let first = self.suspects.iter().min_by_key(|(_, suspect)| suspect.until);
            if let Some(first) = first.map(|(tenant, _)| tenant.clone()) {
                self.suspects.remove(&first);
            }
        }
        let suspect = self.suspects.entry(tenant.to_owned()).or_insert_with(|| Suspect {
            until: now,
            crashes: VecDeque::with_capacity(CRASHES),
            off_until: None,
            rest: FIRST_REST,
            backoff: Backoff::new(),
        });
        suspect.until = suspect.until.max(now + SUSPECTED);
        suspect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn put_off(blame: &mut Blame, tenant: &str, now: Instant) -> Duration {
        let rests = (0..CRASHES).filter_map(|_| blame.sure(tenant, 0.5, now));
        rests.last().unwrap()
    }

    #[test]
    fn three_sure_crashes_in_a_minute_put_their_tenant_off_and_nobody_else() {
        let mut blame = Blame::default();
        let start = Instant::now();
        assert_eq!(blame.sure("a", 0.5, start), None);
        assert_eq!(blame.sure("a", 0.5, start + seconds(30)), None);
        assert_eq!(blame.sure("a", 0.5, start + seconds(60)), Some(FIRST_REST));
        let now = start + seconds(61);
        assert_eq!(blame.rest("a", now), Some(FIRST_REST - seconds(1)));
        assert_eq!(blame.rest("b", now), None);
        assert_eq!(blame.rest("a", now + FIRST_REST), None);
    }

    #[test]
    fn the_first_crash_after_a_rest_puts_off_for_twice_as_long() {
        let mut blame = Blame::default();
        let mut now = Instant::now();
        let mut rest = put_off(&mut blame, "a", now);
        for expected in [60, 120, 240, 300, 300] {
            now += rest + seconds(1);
            rest = blame.sure("a", 0.5, now).unwrap();
            assert_eq!(rest, seconds(expected));
        }
    }

    #[test]
    fn a_tenant_without_a_crash_is_trusted_again_after_ten_minutes() {
        let mut blame = Blame::default();
        let start = Instant::now();
        put_off(&mut blame, "a", start);
        let trusted = start + FIRST_REST + SUSPECTED;
        assert!(blame.is_suspect("a", trusted - seconds(1)) && !blame.is_suspect("a", trusted));
        assert_eq!(blame.sure("a", 0.5, trusted), None, "all is forgotten");
        assert_eq!(blame.waits_until("a", trusted), Some(trusted + Duration::from_millis(250)));
    }

    #[test]
    fn suspects_are_served_apart_and_never_put_off_for_what_another_may_have_done() {
        let mut blame = Blame::default();
        let now = Instant::now();
        let both = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        for _ in 0..10 {
            blame.suspected(&both, now);
        }
        assert!(blame.is_suspect("a", now) && blame.is_suspect("b", now) && !blame.is_suspect("c", now));
        assert_eq!(
            (blame.rest("a", now), blame.waits_until("a", now), blame.counts(now)),
            (None, None, (2, 0))
        );
    }

    #[test]
    fn suspects_are_bounded() {
        let mut blame = Blame::default();
        let now = Instant::now();
        put_off(&mut blame, "first", now);
        for number in 0..MAX_TENANTS * 2 {
            blame.suspected(&BTreeSet::from([number.to_string()]), now);
        }
        assert_eq!(blame.counts(now), (MAX_TENANTS, 1), "who is put off stays so");
    }
}
