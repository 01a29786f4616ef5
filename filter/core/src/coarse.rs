//! Coarse limits: a bucket per limit and org in each Envoy worker, to stop gross abuse only.
//!
//! Owns the generic cell rate algorithm (GCRA: one time stamp per bucket) and a table of fixed size. Each
//! worker grants its share of the rate. When a set of the table is full the bucket nearest to empty goes, so a
//! flood of keys can only make a limit laxer, never stricter: the exact limits are the gateway's.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, PoisonError};

use asp_proto::snapshot::CoarseLimit;

use crate::machine::covers_issuer;
use crate::names;
use crate::pattern::{Pattern, exact_or_any};

/// Sets of the table; 16,384 buckets in all, 256 KiB.
const SETS: usize = 4096;
const WAYS: usize = 4;
const MICROS: f64 = 1_000_000.0;
/// Slower rates count as this one: the time stamps of a bucket stay exact.
const MIN_RATE: f64 = 0.000_01;

/// What a limit is matched against.
pub(crate) struct Subject<'a> {
    pub(crate) server: &'a str,
    pub(crate) org: &'a str,
    /// Tells users of one name apart.
    pub(crate) issuer: &'a str,
    pub(crate) user: &'a str,
    pub(crate) wcit: &'a str,
    pub(crate) primitive: Option<&'a str>,
}

/// Which of the limits to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Limits over every primitive: known from the headers.
    Every,
    /// Limits over named primitives.
    Named,
}

/// The limits of a snapshot.
#[derive(Default)]
pub(crate) struct Limits {
    rules: Vec<Rule>,
}

struct Rule {
    /// Tells buckets of different limits apart, across snapshots.
    identity: String,
    server: Pattern,
    org: Pattern,
    user: Pattern,
    /// A bucket for each user.
    each_user: bool,
    /// Whether it names a user, or each.
    names_user: bool,
    /// Empty: every issuer.
    issuer: String,
    wcit: Pattern,
    /// A bucket for each token.
    each_wcit: bool,
    primitive: Pattern,
    /// Microseconds between two requests at the full rate of one worker.
    interval: f64,
    /// Microseconds a bucket may run ahead: burst minus one intervals.
    tolerance: f64,
}

impl Limits {
    /// Limits whose rate is no positive number are left out: one limit that means nothing here must not refuse a
    /// snapshot, its revocations among it, and the gateway's exact limit holds anyway.
    pub(crate) fn index(messages: &[CoarseLimit], workers: u32) -> Limits {
        let workers = f64::from(workers.max(1));
        let mut rules = Vec::new();
        for limit in messages {
            let rate = limit.rate_per_second;
            if !rate.is_finite() || rate <= 0.0 {
                continue;
            }
            let interval = MICROS * workers / rate.max(MIN_RATE);
            let burst = (f64::from(limit.burst) / workers).ceil().max(1.0);
            rules.push(Rule {
                identity: identity(limit),
                server: exact_or_any(&limit.server),
                org: exact_or_any(&limit.org),
                user: one_or_each(&limit.user),
                each_user: limit.user == names::EACH,
                names_user: limit.user != "*",
                issuer: limit.issuer.clone(),
                wcit: one_or_each(&limit.wcit),
                each_wcit: limit.wcit == names::EACH,
                primitive: Pattern::new(&limit.primitive),
                interval,
                tolerance: interval * (burst - 1.0),
            });
        }
        Limits { rules }
    }
}

/// Exact, or whoever it is: `*` and `each` cover the same callers and count them in other buckets.
fn one_or_each(text: &str) -> Pattern {
    if text == names::EACH { Pattern::Any } else { exact_or_any(text) }
}

fn identity(limit: &CoarseLimit) -> String {
    let CoarseLimit { server, org, user, wcit, primitive, issuer, .. } = limit;
    [server, org, user, wcit, primitive, issuer].map(String::as_str).join("\0")
}

impl Rule {
    /// Names the bucket that a request takes from.
    fn bucket_of<'a>(&'a self, subject: &Subject<'a>) -> impl Hash + use<'a> {
        // The same user or token of two issuers is two.
        let names_caller = self.names_user || self.each_wcit || self.wcit != Pattern::Any;
        let issuer = names_caller.then_some(subject.issuer);
        let user = self.each_user.then_some(subject.user);
        let wcit = self.each_wcit.then_some(subject.wcit);
        (&self.identity, subject.org, issuer, user, wcit)
    }

    fn covers(&self, subject: &Subject<'_>, stage: Stage) -> bool {
        let every = self.primitive == Pattern::Any;
        every == (stage == Stage::Every)
            && self.server.covers(Some(subject.server))
            && self.org.covers(Some(subject.org))
            && covers_issuer(&self.issuer, self.names_user, subject.issuer)
            && self.user.covers(Some(subject.user))
            && self.wcit.covers(Some(subject.wcit))
            && self.primitive.covers(subject.primitive)
    }
}

/// The buckets of one worker. Shared by threads in tests only.
pub(crate) struct Buckets {
    state: RandomState,
    sets: Mutex<Vec<[Bucket; WAYS]>>,
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    /// 0: free.
    key: u64,
    /// Theoretical arrival time, Unix microseconds.
    arrival: f64,
}

impl Default for Buckets {
    fn default() -> Buckets {
        Buckets { state: RandomState::new(), sets: Mutex::new(Vec::new()) }
    }
}

impl Buckets {
    /// Takes one request from every limit that covers `subject`, or from none of them; then says in how many
    /// seconds to come back (at least 1). `now_ms` is Unix milliseconds.
    pub(crate) fn take(
        &self,
        limits: &Limits,
        subject: &Subject<'_>,
        stage: Stage,
        now_ms: u64,
    ) -> Result<(), u64> {
        let covers = limits.rules.iter().filter(|rule| rule.covers(subject, stage));
        let taken: Vec<Draw> = covers
            .map(|rule| Draw {
                key: self.key(rule.bucket_of(subject)),
                interval: rule.interval,
                tolerance: rule.tolerance,
            })
            .collect();
        self.take_all(&taken, now_ms)
    }

    /// Takes one request from each bucket, or from none of them.
    fn take_all(&self, taken: &[Draw], now_ms: u64) -> Result<(), u64> {
        if taken.is_empty() {
            return Ok(());
        }
        // Exact up to 2^53 microseconds, two centuries from now.
        let now = now_ms as f64 * 1000.0;
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        if sets.is_empty() {
            sets.resize(SETS, [Bucket::default(); WAYS]);
        }
        let mut wait: f64 = 0.0;
        for Draw { key, tolerance, .. } in taken {
            let arrival = bucket(&mut sets, *key, now).map_or(now, |bucket| bucket.arrival);
            wait = wait.max(arrival - now - tolerance);
        }
        if wait > 0.0 {
            return Err((wait / MICROS).ceil().max(1.0) as u64);
        }
        for Draw { key, interval, .. } in taken {
            if let Some(bucket) = bucket(&mut sets, *key, now) {
                bucket.arrival = bucket.arrival.max(now) + interval;
            }
        }
        Ok(())
    }

    fn key(&self, of: impl Hash) -> u64 {
        let mut hasher = self.state.build_hasher();
        of.hash(&mut hasher);
        std::hash::Hasher::finish(&hasher).max(1)
    }
}

/// One request's share of one bucket.
struct Draw {
    key: u64,
    /// Microseconds between two requests at the full rate.
    interval: f64,
    /// Microseconds the bucket may run ahead.
    tolerance: f64,
}

/// Rate for each key (a peer's address, a client's id) in memory of fixed size. As with coarse limits, a flood of keys
/// makes it laxer, never stricter.
pub struct Budget {
    buckets: Buckets,
    interval: f64,
    tolerance: f64,
}

impl Budget {
    /// `burst` requests at once, then `per_second` of each key.
    pub fn new(per_second: u32, burst: u32) -> Budget {
        let interval = MICROS / f64::from(per_second.max(1));
        Budget {
            buckets: Buckets::default(),
            interval,
            tolerance: interval * (f64::from(burst.max(1)) - 1.0),
        }
    }

    /// Takes one request of `key` at `now_ms` (Unix milliseconds); the error is the number of seconds to wait, at least 1.
    pub fn take(&self, key: &[u8], now_ms: u64) -> Result<(), u64> {
        let Budget { buckets, interval, tolerance } = self;
        let taken = Draw { key: buckets.key(key), interval: *interval, tolerance: *tolerance };
        buckets.take_all(&[taken], now_ms)
    }

    /// Gives one request of `key` back, which turned out not to count.
    pub fn give_back(&self, key: &[u8]) {
        let key = self.buckets.key(key);
        let mut sets = self.buckets.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let set = usize::try_from(key % SETS as u64).ok().and_then(|at| sets.get_mut(at));
        if let Some(bucket) = set.and_then(|set| set.iter_mut().find(|bucket| bucket.key == key)) {
            bucket.arrival -= self.interval;
        }
    }
}

/// The bucket of `key`; a new one takes the place of the bucket of its set that is nearest to empty.
fn bucket(sets: &mut [[Bucket; WAYS]], key: u64, now: f64) -> Option<&mut Bucket> {
    let set = sets.get_mut(usize::try_from(key % SETS as u64).unwrap_or_default())?;
    let position = match set.iter().position(|bucket| bucket.key == key) {
        Some(position) => position,
        None => {
            let (position, slot) =
                set.iter_mut().enumerate().min_by(|(_, a), (_, b)| a.arrival.total_cmp(&b.arrival))?;
            *slot = Bucket { key, arrival: now };
            position
        }
    };
    set.get_mut(position)
}

#[cfg(test)]
mod tests;
