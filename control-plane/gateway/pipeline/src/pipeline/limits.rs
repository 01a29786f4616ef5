//! Stage 4: exact rate limits, most specific first, and concurrent invocations (ADR 10).
//!
//! Owns: the choice of buckets and the table of running calls per (org, primitive). Keeps true: no level admits too
//! much; a concurrency permit is given back when its guard is dropped, however the call ends.

use std::sync::Arc;

use asp_call::call::outcome::Refusal;
use asp_edge::Caller;
use asp_platform::quota::{Counts, QuotaPermit};
use asp_proto::snapshot::{Limit, Primitive};
use asp_snapshot::limits::{self, LimitedCall};
use asp_snapshot::{ListedPrimitive, Snapshot, VirtualServer};
use asp_store::counter::{Bucket, Counters, DrawOutcome};
use parking_lot::Mutex;

/// The levels of the hierarchy, most specific first; also the closed set of metric labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Primitive,
    User,
    Tenant,
    Server,
}

impl Level {
    pub const fn as_str(self) -> &'static str {
        match self {
            Level::Primitive => "primitive",
            Level::User => "user",
            Level::Tenant => "tenant",
            Level::Server => "server",
        }
    }
}

/// Enforces the limits of one gateway.
pub struct Limiter {
    counters: Arc<dyn Counters>,
    running: Arc<Mutex<Counts<String>>>,
}

/// Guard of a granted call, held until it ends.
pub struct Grant {
    /// Tokens left in the tightest bucket; `None` if no limit applies. Passed to the plugin as its budget.
    pub remaining: Option<u64>,
    /// Levels of the observed limits that would have refused the call.
    pub would_refuse: Vec<Level>,
    _slot: Option<QuotaPermit<String>>,
}

impl Grant {
    /// Returns the grant of a call that drew from the limits at another gateway.
    pub(super) fn from_record(remaining: Option<u64>) -> Grant {
        Grant { remaining, would_refuse: Vec::new(), _slot: None }
    }
}

impl Limiter {
    pub fn new(counters: Arc<dyn Counters>) -> Limiter {
        Limiter { counters, running: Arc::default() }
    }

    /// Draws from every bucket that applies, and takes a concurrency permit; or does neither.
    pub async fn admit(
        &self,
        snapshot: &Snapshot,
        server: &VirtualServer,
        caller: &Caller,
        entry: &ListedPrimitive,
    ) -> Result<Grant, Refusal> {
        let slot = self.slot(caller, &entry.primitive)?;
        let limits = snapshot.limits(&caller.org).iter();
        self.take(caller, buckets(limits, server, caller, &entry.primitive), slot).await
    }

    /// Draws from every bucket that applies to a call, for a request about one.
    pub async fn charge(
        &self,
        snapshot: &Snapshot,
        server: &VirtualServer,
        caller: &Caller,
        primitive: &Primitive,
    ) -> Result<(), Refusal> {
        let limits = snapshot.limits(&caller.org).iter();
        self.take(caller, buckets(limits, server, caller, primitive), None).await.map(drop)
    }

    async fn take(
        &self,
        caller: &Caller,
        drawn: CallBuckets,
        slot: Option<QuotaPermit<String>>,
    ) -> Result<Grant, Refusal> {
        let remaining = self.draw(caller, &drawn).await?;
        let would_refuse = self.observe(caller, drawn.observed).await;
        Ok(Grant { remaining, would_refuse, _slot: slot })
    }

    /// Draws from every enforced bucket, or from none; returns the tokens left in the tightest.
    async fn draw(
        &self,
        caller: &Caller,
        CallBuckets { levels, buckets, .. }: &CallBuckets,
    ) -> Result<Option<u64>, Refusal> {
        if buckets.is_empty() {
            return Ok(None);
        }
        match self.counters.take(&caller.org, buckets).await {
            Ok(DrawOutcome::Granted { remaining }) => Ok(Some(remaining)),
            Ok(DrawOutcome::Denied { index, retry_after_ms }) => {
                let level = levels.get(index).copied().unwrap_or(Level::Tenant);
                Err(Refusal::Limited { limit: level.as_str(), retry_after_ms })
            }
            // A limit that cannot be checked must not admit.
            Err(error) => Err(Refusal::Internal(error.to_string())),
        }
    }

    /// Draws from each observed bucket by itself; returns the levels of the empty ones.
    async fn observe(&self, caller: &Caller, observed: Vec<(Level, Bucket)>) -> Vec<Level> {
        let mut empty = Vec::new();
        for (level, bucket) in observed {
            let drawn = self.counters.take(&caller.org, &[bucket]).await;
            if matches!(drawn, Ok(DrawOutcome::Denied { .. })) {
                empty.push(level);
            }
        }
        empty
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
        let slot = self.slot(caller, &delegate.primitive)?;
        let own = snapshot.limits(&caller.org).iter().filter(|limit| level(limit) == Level::Primitive);
        self.take(caller, buckets(own, server, caller, &delegate.primitive), slot).await
    }

    fn slot(&self, caller: &Caller, primitive: &Primitive) -> Result<Option<QuotaPermit<String>>, Refusal> {
        let most = primitive.limit.map_or(0, |limit| limit.concurrent_invocations);
        if most == 0 {
            return Ok(None);
        }
        let key = format!("{}\u{0}{}", caller.org, primitive.id);
        let permit = QuotaPermit::take(&self.running, key, most as usize);
        permit.map(Some).ok_or(Refusal::Limited { limit: "concurrency", retry_after_ms: 1000 })
    }
}

/// Buckets that a call draws from.
struct CallBuckets {
    /// Levels of `buckets`, most specific first.
    levels: Vec<Level>,
    buckets: Vec<Bucket>,
    /// Buckets of observed limits.
    observed: Vec<(Level, Bucket)>,
}

/// Returns the buckets of a call: those of the org's `limits` that it draws from, and the spec's own limit, one bucket
/// per (org, primitive).
fn buckets<'l>(
    limits: impl Iterator<Item = &'l Limit>,
    server: &VirtualServer,
    caller: &Caller,
    primitive: &Primitive,
) -> CallBuckets {
    let mut found: Vec<(Level, Bucket)> = Vec::new();
    if let Some(limit) =
        primitive.limit.filter(|limit| limit.invocation_count > 0 && limit.window_seconds > 0)
    {
        let bucket = Bucket {
            key: format!("{}\u{0}spec\u{0}{}", caller.org, primitive.id),
            capacity: u64::from(limit.invocation_count),
            refill_per_second: f64::from(limit.invocation_count) / f64::from(limit.window_seconds),
        };
        found.push((Level::Primitive, bucket));
    }
    let call = LimitedCall {
        server: &server.message.name,
        primitive: &primitive.id,
        user: &caller.user,
        wcit: &caller.wcit,
        issuer: &caller.issuer,
    };
    let mut observed = Vec::new();
    for limit in limits::matching(limits, call) {
        let kind = if limit.observe { &mut observed } else { &mut found };
        kind.push((level(limit), bucket(limit, call)));
    }
    found.sort_by_key(|(level, _)| *level);
    let (levels, buckets) = found.into_iter().unzip();
    CallBuckets { levels, buckets, observed }
}

fn level(limit: &Limit) -> Level {
    if limit.primitive != "*" {
        Level::Primitive
    } else if limit.user != "*" || limit.wcit != "*" {
        Level::User
    } else if limit.server == "*" {
        Level::Tenant
    } else {
        Level::Server
    }
}

fn bucket(limit: &Limit, call: LimitedCall<'_>) -> Bucket {
    let key = limits::bucket_key(limit, call);
    Bucket { key, capacity: limit.capacity.max(1), refill_per_second: limit.refill_per_second }
}
