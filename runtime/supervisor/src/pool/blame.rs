//! Attribution of crashes to tenants: which tenants are isolated, and which are quarantined.
//!
//! A pure state machine with a given clock. A crash is *certain* to be a tenant's when no other tenant ever had a call
//! in that worker; for any other crash, the tenants whose calls ran are only suspects. Keeps true: a suspect's calls
//! share a worker with no other tenant for `SUSPECTED`, so that its next crash is certain and costs no other tenant's
//! calls; a tenant that certainly crashed `CRASHES` workers within `WINDOW` is refused for a period that doubles, and
//! no other tenant is.
//! Bound: `MAX_TENANTS` suspects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::pool::backoff::Backoff;

const CRASHES: usize = 3;
const WINDOW: Duration = Duration::from_secs(60);
/// Time after the last crash for which a tenant stays a suspect.
const SUSPECTED: Duration = Duration::from_secs(600);
const FIRST_REST: Duration = Duration::from_secs(30);
const LONGEST_REST: Duration = Duration::from_secs(300);
/// Maximum number of suspects; the workers of one plugin never have calls of more tenants at once.
const MAX_TENANTS: usize = 1024;

/// The suspects of one plugin version.
#[derive(Debug, Default)]
pub struct Blame {
    suspects: BTreeMap<String, Suspect>,
}

#[derive(Debug)]
struct Suspect {
    until: Instant,
    /// Times of certain crashes, oldest first; at most `CRASHES`.
    crashes: VecDeque<Instant>,
    off_until: Option<Instant>,
    /// Duration of the next quarantine.
    rest: Duration,
    backoff: Backoff,
}

/// The tenants that ever had a call in a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Users {
    #[default]
    Nobody,
    One(String),
    Several,
}

impl Users {
    /// Records a tenant's call.
    pub fn add(&mut self, tenant: &str) {
        *self = match std::mem::take(self) {
            Users::Nobody => Users::One(tenant.to_owned()),
            Users::One(known) if known == tenant => Users::One(known),
            Users::One(_) | Users::Several => Users::Several,
        };
    }
}

impl Blame {
    /// Records a crash that is certain to be of `tenant`. Returns the duration of its quarantine if this starts one.
    pub fn record_certain(&mut self, tenant: &str, chance: f64, now: Instant) -> Option<Duration> {
        let suspect = self.suspect(tenant, now);
        suspect.backoff.failed(chance, now);
        suspect.crashes.push_back(now);
        while suspect.crashes.len() > CRASHES {
            suspect.crashes.pop_front();
        }
        let first = suspect.crashes.front().filter(|_| suspect.crashes.len() == CRASHES);
        let flaps = first.is_some_and(|first| now.duration_since(*first) <= WINDOW);
        // A single crash soon after a quarantine starts the next one.
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

    /// Records a crash during calls of these tenants, any of which may have caused it.
    pub fn record_suspects(&mut self, tenants: &BTreeSet<String>, now: Instant) {
        for tenant in tenants {
            self.suspect(tenant, now);
        }
    }

    /// Returns the remaining quarantine of `tenant`.
    pub fn rest(&self, tenant: &str, now: Instant) -> Option<Duration> {
        let until = self.suspects.get(tenant)?.off_until?;
        until.checked_duration_since(now).filter(|rest| !rest.is_zero())
    }

    /// Whether the calls of `tenant` are isolated.
    pub fn is_suspect(&self, tenant: &str, now: Instant) -> bool {
        self.suspects.get(tenant).is_some_and(|suspect| now < suspect.until)
    }

    /// Returns the time from which the next call of `tenant` may have a worker; `None`: now.
    pub fn waits_until(&self, tenant: &str, now: Instant) -> Option<Instant> {
        self.suspects.get(tenant)?.backoff.until(now)
    }

    /// Whether there are no suspects.
    pub fn is_empty(&self) -> bool {
        self.suspects.is_empty()
    }

    /// Returns the number of tenants that certainly crashed a worker recently.
    pub fn culprits(&self, now: Instant) -> usize {
        let sure = |suspect: &&Suspect| {
            now < suspect.until && (suspect.off_until.is_some() || !suspect.crashes.is_empty())
        };
        self.suspects.values().filter(sure).count()
    }

    /// Returns the number of suspects, and how many of them are quarantined.
    pub fn counts(&self, now: Instant) -> (usize, usize) {
        let off = |suspect: &&Suspect| suspect.off_until.is_some_and(|until| now < until);
        let suspects = self.suspects.values().filter(|suspect| now < suspect.until);
        (suspects.clone().count(), suspects.filter(off).count())
    }

    fn suspect(&mut self, tenant: &str, now: Instant) -> &mut Suspect {
        self.suspects.retain(|_, suspect| now < suspect.until);
        if self.suspects.len() >= MAX_TENANTS && !self.suspects.contains_key(tenant) {
            // The suspect whose time ends first is removed.
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
            backoff: Backoff::default(),
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
        let rests = (0..CRASHES).filter_map(|_| blame.record_certain(tenant, 0.5, now));
        rests.last().unwrap()
    }

    #[test]
    fn three_sure_crashes_in_a_minute_put_their_tenant_off_and_nobody_else() {
        let mut blame = Blame::default();
        let start = Instant::now();
        assert_eq!(blame.record_certain("a", 0.5, start), None);
        assert_eq!(blame.record_certain("a", 0.5, start + seconds(30)), None);
        assert_eq!(blame.record_certain("a", 0.5, start + seconds(60)), Some(FIRST_REST));
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
            rest = blame.record_certain("a", 0.5, now).unwrap();
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
        assert_eq!(blame.record_certain("a", 0.5, trusted), None, "all is forgotten");
        assert_eq!(blame.waits_until("a", trusted), Some(trusted + Duration::from_millis(250)));
    }

    #[test]
    fn suspects_are_served_apart_and_never_put_off_for_what_another_may_have_done() {
        let mut blame = Blame::default();
        let now = Instant::now();
        let both = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        for _ in 0..10 {
            blame.record_suspects(&both, now);
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
            blame.record_suspects(&BTreeSet::from([number.to_string()]), now);
        }
        assert_eq!(blame.counts(now), (MAX_TENANTS, 1), "who is put off stays so");
    }
}
