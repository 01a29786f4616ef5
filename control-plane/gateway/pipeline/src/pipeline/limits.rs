//! Stage 4: exact rate limits, most specific first, and concurrent invocations (ADR 10).
//!
//! Owns: the choice of buckets. Keeps true: no level admits too much; a call draws from all of its buckets or from none; a slot is
//! given back when its call ends, however it does; a call that the platform refused for its own reasons before a backend was asked has
//! drawn nothing.

mod draws;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use asp_call::call::outcome::Refusal;
use asp_edge::Caller;
use asp_platform::clock::now_ms;
use asp_proto::snapshot::{Limit, Primitive};
pub use asp_snapshot::limits::Level;
use asp_snapshot::limits::{self, LimitedCall, level};
use asp_snapshot::{ListedPrimitive, Snapshot, VirtualServer};
use asp_store::counter::{Bucket, BucketKind, CounterError, Counters, DrawOutcome, Slices, UNCOUNTED};
use uuid::Uuid;

use self::draws::{Draws, LEASE};

/// Enforces the limits of one gateway.
pub struct Limiter {
    counters: Arc<dyn Counters>,
    /// Limits of all orgs.
    slices: Arc<Slices>,
}

/// Guard of a granted call, held until it ends.
pub struct Grant {
    /// Draws left in the tightest bucket; `None` if no limit applies. Passed to the plugin as its budget.
    pub remaining: Option<u64>,
    /// Levels of the observed limits that would have refused the call.
    pub would_refuse: Vec<Level>,
    /// Whether a backend was asked.
    is_used: AtomicBool,
    draws: Option<Draws>,
}

impl Grant {
    /// Returns the grant of a call that drew from the limits at another gateway.
    pub(super) fn from_record(remaining: Option<u64>) -> Grant {
        Grant { remaining, would_refuse: Vec::new(), is_used: AtomicBool::new(true), draws: None }
    }

    /// Records that a backend is asked.
    pub(super) fn set_used(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// Ends the grant before the call's answer. What was drawn is given back if the platform refused the call for its own reasons
    /// before a backend was asked.
    pub(super) async fn end(self, refusal: Option<&Refusal>) {
        let Some(draws) = self.draws else { return };
        let is_own = refusal.is_some_and(is_of_platform);
        if is_own && !self.is_used.load(Ordering::Relaxed) {
            draws.refund().await;
        } else {
            draws.release().await;
        }
    }
}

/// Whether the platform refused a call for reasons that its caller has no part in.
fn is_of_platform(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Upstream(_) | Refusal::Internal(_) | Refusal::Limited { .. })
}

/// Kind of a request, which decides the limits that it draws from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    /// A call: every limit, and slots.
    Call,
    /// A request about a call, which does not run: every limit without slots.
    Request,
    /// A call by another call, which has drawn from the other limits: those that name the primitive.
    Delegation,
}

impl Limiter {
    pub fn new(counters: Arc<dyn Counters>) -> Limiter {
        let slices = Arc::new(Slices::new(Arc::clone(&counters)));
        Limiter { counters, slices }
    }

    /// Draws from every bucket that applies, with slots; or from none.
    pub async fn admit(
        &self,
        snapshot: &Snapshot,
        server: &VirtualServer,
        caller: &Caller,
        entry: &ListedPrimitive,
    ) -> Result<Grant, Refusal> {
        self.take(caller, buckets(snapshot, server, caller, &entry.primitive, RequestKind::Call)).await
    }

    /// Draws from every bucket that applies to a call, for a request about one.
    pub async fn charge(
        &self,
        snapshot: &Snapshot,
        server: &VirtualServer,
        caller: &Caller,
        primitive: &Primitive,
    ) -> Result<(), Refusal> {
        self.take(caller, buckets(snapshot, server, caller, primitive, RequestKind::Request)).await.map(drop)
    }

    /// Draws from the limits on a delegate: the spec's own, and those that name it. The outer call has drawn from the
    /// others.
    pub async fn admit_delegation(
        &self,
        snapshot: &Snapshot,
        server: &VirtualServer,
        caller: &Caller,
        delegate: &ListedPrimitive,
    ) -> Result<Grant, Refusal> {
        self.take(caller, buckets(snapshot, server, caller, &delegate.primitive, RequestKind::Delegation))
            .await
    }

    async fn take(&self, caller: &Caller, drawn: CallBuckets) -> Result<Grant, Refusal> {
        let drawn_ms = now_ms();
        let remaining = self.draw(caller, &drawn, drawn_ms).await?;
        let CallBuckets { of_org, of_every_org, observed } = drawn;
        let would_refuse = self.observe(observed).await;
        let counters = (Arc::clone(&self.counters), Arc::clone(&self.slices));
        let drawn = (of_org.buckets, of_every_org.buckets);
        let has_drawn = !(drawn.0.is_empty() && drawn.1.is_empty());
        let draws = has_drawn.then(|| Draws::new(counters, &caller.org, drawn_ms, drawn));
        // Slots, and slices of limits of all orgs, are no number of calls to come.
        let remaining = remaining.filter(|left| *left != UNCOUNTED);
        Ok(Grant { remaining, would_refuse, is_used: AtomicBool::new(false), draws })
    }

    /// Draws from every enforced bucket, or from none; returns the draws left in the tightest.
    async fn draw(
        &self,
        caller: &Caller,
        CallBuckets { of_org, of_every_org, .. }: &CallBuckets,
        drawn_ms: u64,
    ) -> Result<Option<u64>, Refusal> {
        // First what needs no trip to the shared counters as a rule.
        let of_all = match of_every_org.buckets.is_empty() {
            true => None,
            false => match self.slices.take(&of_every_org.buckets).await.map_err(unavailable)? {
                DrawOutcome::Granted { remaining } => Some(remaining),
                DrawOutcome::Denied { index, retry_after_ms } => {
                    let refused = of_every_org.refusal(index, retry_after_ms);
                    return Err(self.longest(caller, of_org, (refused, retry_after_ms), drawn_ms).await);
                }
            },
        };
        if of_org.buckets.is_empty() {
            return Ok(of_all);
        }
        let refusal = match self.counters.take(&caller.org, &of_org.buckets).await {
            Ok(DrawOutcome::Granted { remaining }) => {
                return Ok(Some(of_all.map_or(remaining, |of_all| of_all.min(remaining))));
            }
            Ok(DrawOutcome::Denied { index, retry_after_ms }) => of_org.refusal(index, retry_after_ms),
            // A limit that cannot be checked must not admit.
            Err(error) => unavailable(error),
        };
        if !of_every_org.buckets.is_empty() {
            // Without an answer the tokens come back by themselves.
            let _ = self.slices.give_back(&of_every_org.buckets, drawn_ms).await;
        }
        Err(refusal)
    }

    /// Returns the refusal by a limit of all orgs, or by one of the org that takes longer: a caller that waits so long is refused
    /// by neither.
    async fn longest(
        &self,
        caller: &Caller,
        of_org: &LevelBuckets,
        (refusal, wait_ms): (Refusal, u64),
        drawn_ms: u64,
    ) -> Refusal {
        if of_org.buckets.is_empty() {
            return refusal;
        }
        match self.counters.take(&caller.org, &of_org.buckets).await {
            Ok(DrawOutcome::Denied { index, retry_after_ms }) if retry_after_ms > wait_ms => {
                of_org.refusal(index, retry_after_ms)
            }
            Ok(DrawOutcome::Granted { .. }) => {
                let _ = self.counters.give_back(&caller.org, &of_org.buckets, drawn_ms).await;
                refusal
            }
            _ => refusal,
        }
    }

    /// Draws from each observed bucket by itself; returns the levels of the empty ones.
    async fn observe(&self, observed: Vec<(Level, Bucket, String)>) -> Vec<Level> {
        let mut empty = Vec::new();
        for (level, bucket, tenant) in observed {
            let drawn = self.counters.take(&tenant, &[bucket]).await;
            if matches!(drawn, Ok(DrawOutcome::Denied { .. })) {
                empty.push(level);
            }
        }
        empty
    }
}

fn unavailable(error: CounterError) -> Refusal {
    Refusal::Internal(error.to_string())
}

/// Buckets that are stored together, most specific first.
#[derive(Default)]
struct LevelBuckets {
    levels: Vec<Level>,
    buckets: Vec<Bucket>,
}

impl LevelBuckets {
    fn of(mut found: Vec<(Level, Bucket)>) -> LevelBuckets {
        found.sort_by_key(|(level, _)| *level);
        let (levels, buckets) = found.into_iter().unzip();
        LevelBuckets { levels, buckets }
    }

    fn refusal(&self, index: usize, retry_after_ms: u64) -> Refusal {
        let level = self.levels.get(index).copied().unwrap_or(Level::Tenant);
        Refusal::Limited { limit: level.as_str(), retry_after_ms }
    }
}

/// Buckets that a call draws from.
struct CallBuckets {
    of_org: LevelBuckets,
    of_every_org: LevelBuckets,
    /// Buckets of observed limits, with their tenants.
    observed: Vec<(Level, Bucket, String)>,
}

/// Returns the buckets of a call: those of the limits of its org and of all orgs that it draws from, and the spec's own limits, one
/// bucket per (org, primitive).
fn buckets(
    snapshot: &Snapshot,
    server: &VirtualServer,
    caller: &Caller,
    primitive: &Primitive,
    request: RequestKind,
) -> CallBuckets {
    let call = LimitedCall {
        server: &server.message.name,
        primitive: &primitive.id,
        user: &caller.user,
        wcit: &caller.wcit,
        issuer: &caller.issuer,
        groups: &caller.groups,
    };
    let mut found = of_spec(caller, primitive, request);
    let mut of_every_org = Vec::new();
    let mut observed = Vec::new();
    for (org, kept) in [(caller.org.as_str(), &mut found), (limits::EVERY_ORG, &mut of_every_org)] {
        let is_charged = |limit: &&Limit| match request {
            RequestKind::Call => true,
            RequestKind::Request => !limit.concurrent,
            RequestKind::Delegation => level(limit) == Level::Primitive,
        };
        let drawn = limits::matching(snapshot.limits(org).iter().filter(is_charged), call);
        for limit in drawn {
            let level = level(limit);
            let bucket = bucket(limit, call);
            match limit.observe {
                true => observed.push((level, bucket, org.to_owned())),
                false => kept.push((level, bucket)),
            }
        }
    }
    CallBuckets { of_org: LevelBuckets::of(found), of_every_org: LevelBuckets::of(of_every_org), observed }
}

/// Returns the buckets of the limits in the spec.
fn of_spec(caller: &Caller, primitive: &Primitive, request: RequestKind) -> Vec<(Level, Bucket)> {
    let mut found = Vec::new();
    let Some(limit) = primitive.limit else { return found };
    if limit.invocation_count > 0 && limit.window_seconds > 0 {
        let bucket = Bucket {
            key: format!("{}\u{0}spec\u{0}{}", caller.org, primitive.id),
            capacity: u64::from(limit.invocation_count),
            refill_per_second: f64::from(limit.invocation_count) / f64::from(limit.window_seconds),
            kind: BucketKind::Tokens,
        };
        found.push((Level::Primitive, bucket));
    }
    if limit.concurrent_invocations > 0 && request != RequestKind::Request {
        let bucket = Bucket {
            key: format!("{}\u{0}running\u{0}{}", caller.org, primitive.id),
            capacity: u64::from(limit.concurrent_invocations),
            kind: slot(),
            ..Bucket::default()
        };
        found.push((Level::Concurrency, bucket));
    }
    found
}

fn bucket(limit: &Limit, call: LimitedCall<'_>) -> Bucket {
    let fixed = limit.fixed_window_seconds;
    let sliding = limit.sliding_window_seconds;
    let kind = match (limit.concurrent, fixed, sliding) {
        (true, ..) => slot(),
        (_, 1.., _) => BucketKind::Fixed { seconds: fixed.into() },
        (_, _, 1..) => BucketKind::Sliding { seconds: sliding.into() },
        _ => BucketKind::Tokens,
    };
    let key = limits::bucket_key(limit, call);
    Bucket { key, capacity: limit.capacity.max(1), refill_per_second: limit.refill_per_second, kind }
}

/// Returns a slot of a new holder.
fn slot() -> BucketKind {
    let lease_ms = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
    BucketKind::Slots { holder: Uuid::now_v7().to_string(), lease_ms }
}
