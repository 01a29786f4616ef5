//! Coarse limits: a bucket per limit and org in each Envoy worker, to stop gross abuse only.
//!
//! Owns a table of fixed size, in which `governor` keeps one time stamp per bucket (ADR 20). Each worker grants its
//! share of the rate. When a set of the table is full, the bucket nearest to empty is evicted, so a flood of keys can
//! only make a limit laxer, never stricter: the exact limits are the gateway's.

use std::cell::Cell;
use std::hash::{BuildHasher, Hash, RandomState};
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use asp_proto::snapshot::CoarseLimit;
use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::{Quota, RateLimiter};

use crate::machine::covers_issuer;
use crate::names;
use crate::pattern::{Pattern, exact_or_any};

/// Number of sets in the table; 16,384 buckets in all, 256 KiB.
const SETS: usize = 4096;
const WAYS: usize = 4;
const NANOS: f64 = 1_000_000_000.0;
const NANOS_PER_MS: u64 = 1_000_000;
/// Longest time in which an empty bucket fills, in nanoseconds: a century. A slower limit is raised to it, because time
/// stamps are nanoseconds since 1970 in 64 bits, which `governor` adds without a check.
const LONGEST_REFILL: u64 = 100 * 365 * 24 * 3600 * 1_000_000_000;

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
    /// Rate and burst of one worker.
    quota: Quota,
}

impl CoarseLimits {
    /// Indexes the limits of a snapshot. Limits whose rate is not a positive number are left out: one invalid limit
    /// must not reject a snapshot with its revocations, and the gateway's exact limit still applies.
    pub(crate) fn index(messages: &[CoarseLimit], workers: u32) -> CoarseLimits {
        let workers = workers.max(1);
        let mut rules = Vec::new();
        for limit in messages {
            let rate = limit.rate_per_second / f64::from(workers);
            let Some(quota) = quota(rate, limit.burst.div_ceil(workers)) else { continue };
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
                quota,
            });
        }
        CoarseLimits { rules }
    }
}

/// Returns a quota of `rate` requests per second; `None` if that is not a positive number.
pub(crate) fn quota(rate: f64, burst: u32) -> Option<Quota> {
    if !rate.is_finite() || rate <= 0.0 {
        return None;
    }
    let burst = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
    // The cast truncates, which is laxer, and saturates.
    let interval = ((NANOS / rate) as u64).clamp(1, LONGEST_REFILL / u64::from(burst.get()));
    Some(Quota::with_period(Duration::from_nanos(interval))?.allow_burst(burst))
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

/// Buckets of one worker. Only tests share those of coarse limits between threads.
#[derive(Default)]
pub(crate) struct Buckets {
    state: RandomState,
    sets: Mutex<Vec<[Bucket; WAYS]>>,
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    /// Zero for a free slot.
    key: u64,
    /// Theoretical arrival time, since 1970.
    arrival: Nanos,
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
        self.take_all(covers.map(|rule| (self.key(rule.bucket_of(subject)), rule.quota)), now_ms)
    }

    /// Takes one request from a bucket; the error is the number of seconds to wait, at least 1.
    pub(crate) fn take_draw(&self, draw: Draw, now_ms: u64) -> Result<(), u64> {
        self.take_all(std::iter::once(draw), now_ms)
    }

    /// Takes one request from each bucket, or from none of them.
    fn take_all(&self, draws: impl Iterator<Item = Draw>, now_ms: u64) -> Result<(), u64> {
        let mut taken = Vec::new();
        let mut wait = None;
        for draw in draws {
            match self.take_one(draw, now_ms) {
                Ok(()) => taken.push(draw),
                Err(longer) => wait = wait.max(Some(longer)),
            }
        }
        let Some(wait) = wait else { return Ok(()) };
        taken.into_iter().for_each(|draw| self.give_back(draw));
        Err(wait.as_secs() + u64::from(wait.subsec_nanos() > 0))
    }

    /// Takes one request from a bucket; the error is the time to wait.
    fn take_one(&self, (key, quota): Draw, now_ms: u64) -> Result<(), Duration> {
        let now = Nanos::from(now_ms.saturating_mul(NANOS_PER_MS));
        let clock = RequestClock::default();
        let limiter = RateLimiter::<_, _, _, NoOpMiddleware<Nanos>>::new(quota, self, clock);
        limiter.clock().0.set(now);
        limiter.check_key(&key).map_err(|refusal| refusal.wait_time_from(now))
    }

    /// Gives back one request that was taken from a bucket.
    pub(crate) fn give_back(&self, (key, quota): Draw) {
        if let Some(bucket) = slot(&mut self.sets(), key).filter(|bucket| bucket.key == key) {
            bucket.arrival = bucket.arrival.saturating_sub(quota.replenish_interval().into());
        }
    }

    /// Returns the key of a bucket. It differs between processes, so that nobody can choose two that are equal.
    pub(crate) fn key(&self, of: impl Hash) -> u64 {
        self.state.hash_one(of).max(1)
    }

    fn sets(&self) -> MutexGuard<'_, Vec<[Bucket; WAYS]>> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StateStore for &Buckets {
    type Key = u64;

    fn measure_and_replace<T, F, E>(&self, key: &u64, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut sets = self.sets();
        // Allocates with the first request only: most processes have tables that they never use.
        sets.resize(SETS, [Bucket::default(); WAYS]);
        let slot = slot(&mut sets, *key);
        let known = slot.as_deref().filter(|bucket| bucket.key == *key);
        let (outcome, arrival) = decide(known.map(|bucket| bucket.arrival))?;
        if let Some(slot) = slot {
            *slot = Bucket { key: *key, arrival };
        }
        Ok(outcome)
    }
}

/// Returns the bucket of `key`, or the one of its set that is nearest to empty.
fn slot(sets: &mut [[Bucket; WAYS]], key: u64) -> Option<&mut Bucket> {
    let set = sets.get_mut(usize::try_from(key % SETS as u64).unwrap_or_default())?;
    set.iter_mut().min_by_key(|bucket| (bucket.key != key, bucket.arrival))
}

/// Time of one request. A limiter counts from the time of its creation. That is zero here, so that all limiters count
/// from 1970 and a limit keeps its bucket when its rate changes.
#[derive(Default)]
struct RequestClock(Cell<Nanos>);

impl Clock for RequestClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.0.get()
    }
}

/// One request to take from the bucket of this key.
pub(crate) type Draw = (u64, Quota);

/// Rate limiter for keys such as a peer's address or a client's id, in memory of fixed size. As with coarse limits, a
/// flood of keys makes it laxer, never stricter.
pub struct Budget {
    buckets: Buckets,
    quota: Quota,
}

impl Budget {
    /// Allows each key `burst` requests at once, then `per_second`.
    pub fn new(per_second: u32, burst: u32) -> Budget {
        let [rate, burst] =
            [per_second, burst].map(|number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN));
        Budget { buckets: Buckets::default(), quota: Quota::per_second(rate).allow_burst(burst) }
    }

    /// Takes one request of `key` at `now_ms` (milliseconds since any fixed time); the error is the number of seconds to
    /// wait, at least 1.
    pub fn take(&self, key: impl Hash, now_ms: u64) -> Result<(), u64> {
        self.buckets.take_draw((self.buckets.key(key), self.quota), now_ms)
    }

    /// Gives back one request of `key` that turned out not to count.
    pub fn give_back(&self, key: impl Hash) {
        self.buckets.give_back((self.buckets.key(key), self.quota));
    }
}

#[cfg(test)]
mod tests;
