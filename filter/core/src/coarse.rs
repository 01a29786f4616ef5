//! Coarse limits: a bucket per limit and org in each Envoy worker, to stop gross abuse only.
//!
//! Owns the generic cell rate algorithm (GCRA: one time stamp per bucket) and a table of fixed size. Each worker grants
//! its share of the rate. When a set of the table is full, the bucket nearest to empty is evicted, so a flood of keys
//! can only make a limit laxer, never stricter: the exact limits are the gateway's.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, PoisonError};

use asp_proto::snapshot::CoarseLimit;

use crate::machine::covers_issuer;
use crate::names;
use crate::pattern::{Pattern, exact_or_any};

/// Number of sets in the table; 16,384 buckets in all, 256 KiB.
const SETS: usize = 4096;
const WAYS: usize = 4;
const MICROS: f64 = 1_000_000.0;
/// Lowest rate, per second; slower limits are raised to it so that a bucket's time stamps stay exact.
const MIN_RATE: f64 = 0.000_01;

/// Attributes of a request that limits are matched against.
pub(crate) struct LimitSubject<'a> {
    pub(crate) server: &'a str,
    pub(crate) org: &'a str,
    /// Distinguishes users with the same name.
    pub(crate) issuer: &'a str,
    pub(crate) user: &'a str,
    pub(crate) wcit: &'a str,
    pub(crate) primitive: Option<&'a str>,
}

/// Stage of the evaluation, which decides the limits that apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Limits on every primitive: the headers are enough.
    Every,
    /// Limits on named primitives.
    Named,
}

/// The limits of a snapshot.
#[derive(Default)]
pub(crate) struct CoarseLimits {
    rules: Vec<CoarseRule>,
}

struct CoarseRule {
    /// Distinguishes buckets of different limits, across snapshots.
    identity: String,
    server: Pattern,
    org: Pattern,
    user: Pattern,
    /// Whether each user has a bucket of its own.
    each_user: bool,
    /// Whether the limit names a user, or `each`.
    names_user: bool,
    /// Name of the issuer; empty for every issuer.
    issuer: String,
    wcit: Pattern,
    /// Whether each token has a bucket of its own.
    each_wcit: bool,
    primitive: Pattern,
    /// Microseconds between two requests at the full rate of one worker.
    interval: f64,
    /// Microseconds that a bucket may run ahead: (burst − 1) intervals.
    tolerance: f64,
}

impl CoarseLimits {
    /// Indexes the limits of a snapshot. Limits whose rate is not a positive number are left out: one invalid limit
    /// must not reject a snapshot with its revocations, and the gateway's exact limit still applies.
    pub(crate) fn index(messages: &[CoarseLimit], workers: u32) -> CoarseLimits {
        let workers = f64::from(workers.max(1));
        let mut rules = Vec::new();
        for limit in messages {
            let rate = limit.rate_per_second;
            if !rate.is_finite() || rate <= 0.0 {
                continue;
            }
            let interval = MICROS * workers / rate.max(MIN_RATE);
            let burst = (f64::from(limit.burst) / workers).ceil().max(1.0);
            rules.push(CoarseRule {
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
        CoarseLimits { rules }
    }
}

/// Returns an exact pattern, or one that matches everybody: `*` and `each` cover the same callers but use different
/// buckets.
fn one_or_each(text: &str) -> Pattern {
    if text == names::EACH { Pattern::Any } else { exact_or_any(text) }
}

fn identity(limit: &CoarseLimit) -> String {
    let CoarseLimit { server, org, user, wcit, primitive, issuer, .. } = limit;
    [server, org, user, wcit, primitive, issuer].map(String::as_str).join("\0")
}

impl CoarseRule {
    /// Returns the key of the bucket that a request draws from.
    fn bucket_of<'a>(&'a self, subject: &LimitSubject<'a>) -> impl Hash + use<'a> {
        // The same user or token at two issuers counts as two.
        let names_caller = self.names_user || self.each_wcit || self.wcit != Pattern::Any;
        let issuer = names_caller.then_some(subject.issuer);
        let user = self.each_user.then_some(subject.user);
        let wcit = self.each_wcit.then_some(subject.wcit);
        (&self.identity, subject.org, issuer, user, wcit)
    }

    fn covers(&self, subject: &LimitSubject<'_>, stage: Stage) -> bool {
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

/// Buckets of one worker. Only tests share them between threads.
pub(crate) struct Buckets {
    state: RandomState,
    sets: Mutex<Vec<[Bucket; WAYS]>>,
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    /// Zero for a free slot.
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
    /// Takes one request from every limit that covers `subject`, or from none of them; the error is the number of
    /// seconds to wait, at least 1. `now_ms` is Unix milliseconds.
    pub(crate) fn take(
        &self,
        limits: &CoarseLimits,
        subject: &LimitSubject<'_>,
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

/// One request to take from one bucket.
struct Draw {
    key: u64,
    /// Microseconds between two requests at the full rate.
    interval: f64,
    /// Microseconds the bucket may run ahead.
    tolerance: f64,
}

/// Rate limiter for keys such as a peer's address or a client's id, in memory of fixed size. As with coarse limits, a
/// flood of keys makes it laxer, never stricter.
pub struct Budget {
    buckets: Buckets,
    interval: f64,
    tolerance: f64,
}

impl Budget {
    /// Allows each key `burst` requests at once, then `per_second`.
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

    /// Gives back one request of `key` that turned out not to count.
    pub fn give_back(&self, key: &[u8]) {
        let key = self.buckets.key(key);
        let mut sets = self.buckets.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let set = usize::try_from(key % SETS as u64).ok().and_then(|at| sets.get_mut(at));
        if let Some(bucket) = set.and_then(|set| set.iter_mut().find(|bucket| bucket.key == key)) {
            bucket.arrival -= self.interval;
        }
    }
}

/// Returns the bucket of `key`; a new one replaces the bucket of its set that is nearest to empty.
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
