//! Costs of a decision about one call: the policy of an org with many bindings, the limits of an org with many limits, and
//! draws from counters in memory and in a real Redis.
//!
//! Everything runs in this process, without HTTP; the counters in Redis are asked over one connection, as a gateway does.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use asp_e2e::spread::percentile;
use asp_e2e::stores::Redis as Server;
use asp_e2e::wait;
use asp_edge::Caller;
use asp_proto::snapshot::{Binding, Limit, Primitive, Protocol, TargetKind};
use asp_snapshot::limits::{self, LimitedCall};
use asp_snapshot::policy::Policy;
use asp_store::counter::{Bucket, Counters, DrawOutcome, MemoryCounters};
use asp_store::redis::{Redis, RedisCounters};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::goal::Goal;
use crate::plan::Plan;
use crate::progress::say;

/// Bindings of the org, and limits that it has.
const BINDINGS: usize = 10_000;
const LIMITS: usize = 50;
/// Decisions in one figure of what takes less than a clock can tell.
const BATCH: u32 = 100;
/// Clients that ask Redis at once.
const CLIENTS: usize = 64;
/// Goal of a decision without Redis, in microseconds.
const GOAL_US: f64 = 5.0;
const MICROS: f64 = 1_000_000.0;

/// Figures of one kind of decision.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Decision {
    pub name: &'static str,
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Figures of every kind.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Decisions {
    pub rows: Vec<Decision>,
}

/// Measures every kind.
pub(crate) async fn measure(plan: &Plan) -> Result<Decisions> {
    let figures = if plan.quick { 20 } else { 2_000 };
    let mut rows = Vec::new();
    for (name, bindings) in [("policy, 10 bindings", 10), ("policy, 10,000 bindings", BINDINGS)] {
        say(name);
        let policy = policy(bindings)?;
        let caller = caller();
        let primitive = primitive("tool-5");
        rows.push(repeated(name, figures, || {
            std::hint::black_box(policy.rule(&caller, &primitive, Protocol::Mcp));
        })?);
    }
    let limits = limits_of(LIMITS);
    say("limits of a call");
    rows.push(repeated("limits of a call, of 50 of its org", figures, || {
        std::hint::black_box(drawn(&limits));
    })?);
    let buckets = drawn(&limits);
    ensure!(buckets.len() == limits::MAX_DRAWN, "a call draws from {} limits", buckets.len());
    say("counters in memory");
    let memory: Arc<dyn Counters> = Arc::new(MemoryCounters::default());
    rows.push(draws("draws in memory, 8 limits, one client", memory, &buckets, 1, figures * 20).await?);
    let server = Server::start().await?;
    // An answer that is later than a gateway waits counts as it is.
    let redis = Redis::open_within(&server.url(), wait::START)?;
    let redis: Arc<dyn Counters> = Arc::new(RedisCounters::new(redis));
    for (name, count, clients) in [
        ("draws in Redis, 1 limit, one client", 1, 1),
        ("draws in Redis, 8 limits, one client", 8, 1),
        ("draws in Redis, 8 limits, 64 clients", 8, CLIENTS),
    ] {
        say(name);
        let some = buckets.get(..count).unwrap_or_default();
        rows.push(draws(name, redis.clone(), some, clients, figures * 5).await?);
    }
    Ok(Decisions { rows })
}

/// Runs so many batches of what takes less than a clock can tell.
fn repeated(name: &'static str, figures: u32, decide: impl Fn()) -> Result<Decision> {
    for _ in 0..BATCH * 10 {
        decide();
    }
    let mut micros = Vec::new();
    for _ in 0..figures {
        let begun = Instant::now();
        for _ in 0..BATCH {
            decide();
        }
        micros.push(begun.elapsed().as_secs_f64() * MICROS / f64::from(BATCH));
    }
    let mean = micros.iter().sum::<f64>() / f64::from(figures.max(1));
    decision(name, &micros, MICROS / mean)
}

/// Draws so often, by clients that ask again at once.
async fn draws(
    name: &'static str,
    counters: Arc<dyn Counters>,
    buckets: &[Bucket],
    clients: usize,
    count: u32,
) -> Result<Decision> {
    let each = count / u32::try_from(clients)?.max(1);
    let begun = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..clients {
        let counters = counters.clone();
        let buckets = buckets.to_vec();
        running.spawn(async move {
            let mut micros = Vec::new();
            for _ in 0..each {
                let asked = Instant::now();
                let drawn = counters.take("acme", &buckets).await?;
                micros.push(asked.elapsed().as_secs_f64() * MICROS);
                ensure!(matches!(drawn, DrawOutcome::Granted { .. }), "a bucket is empty: {drawn:?}");
            }
            anyhow::Ok(micros)
        });
    }
    let mut all = Vec::new();
    while let Some(micros) = running.join_next().await {
        all.extend(micros??);
    }
    decision(name, &all, f64::from(u32::try_from(all.len())?) / begun.elapsed().as_secs_f64())
}

fn decision(name: &'static str, micros: &[f64], per_second: f64) -> Result<Decision> {
    let (Some(p50_us), Some(p99_us)) = (percentile(micros, 0.5), percentile(micros, 0.99)) else {
        anyhow::bail!("{name}: nothing was measured");
    };
    Ok(Decision { name, per_second, p50_us, p99_us })
}

fn caller() -> Caller {
    Caller {
        org: "acme".into(),
        user: "user-7".into(),
        groups: vec!["finance".into()],
        scopes: Vec::new(),
        client: String::new(),
        wcit: "token".into(),
        digest: [0; 32],
        issuer: "login".into(),
        issued_at: 0,
        expires_at: u64::MAX,
    }
}

fn primitive(id: &str) -> Primitive {
    Primitive { id: id.into(), ..Primitive::default() }
}

/// Bindings of many users and tools, and one of everybody.
fn policy(bindings: usize) -> Result<Policy> {
    let binding = |number: usize| Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: format!("user-{}", number % 1_000),
        primitive: format!("tool-{}", number / 1_000),
        allowed: number.is_multiple_of(2),
        issuer: "login".into(),
        ..Binding::default()
    };
    Policy::new((0..bindings).map(binding).collect(), Vec::new()).map_err(anyhow::Error::msg)
}

/// Limits of an org, of which a call draws from as many as it may.
fn limits_of(count: usize) -> Vec<Limit> {
    let limit = |number: usize| {
        let (server, primitive, user) = match number {
            0..8 => ("*", format!("{}*", "shop.pay".get(..number).unwrap_or_default()), "each".to_owned()),
            _ => ("*", "*".to_owned(), format!("other-{number}")),
        };
        Limit {
            org: "acme".into(),
            server: server.into(),
            primitive,
            user,
            wcit: "*".into(),
            capacity: 1_000_000_000,
            refill_per_second: 1_000_000.0,
            ..Limit::default()
        }
    };
    (0..count).map(limit).collect()
}

/// Returns the buckets that a call draws from.
fn drawn(of: &[Limit]) -> Vec<Bucket> {
    let call = LimitedCall {
        server: "shop",
        primitive: "shop.pay",
        user: "alice",
        wcit: "token",
        issuer: "login",
        groups: &[],
    };
    let bucket = |limit: &Limit| Bucket {
        key: limits::bucket_key(limit, call),
        capacity: limit.capacity,
        refill_per_second: limit.refill_per_second,
        ..Bucket::default()
    };
    limits::matching(of, call).into_iter().map(bucket).collect()
}

impl Decisions {
    /// The section.
    pub(crate) fn render(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n## Decisions about a call\n")?;
        writeln!(text, "In one process, without HTTP. Redis runs on the same machine.\n")?;
        writeln!(text, "| decision | per second | p50 us | p99 us |\n|---|---|---|---|")?;
        for Decision { name, per_second, p50_us, p99_us } in &self.rows {
            writeln!(text, "| {name} | {per_second:.0} | {p50_us:.2} | {p99_us:.2} |")?;
        }
        Ok(())
    }

    /// Goals of what needs no Redis.
    pub(crate) fn judge(&self) -> Vec<Goal> {
        let without = self.rows.iter().filter(|row| !row.name.contains("Redis"));
        let goal = |row: &Decision| Goal {
            goal: format!("{} within {GOAL_US} us (p50)", row.name),
            met: row.p50_us <= GOAL_US,
            figures: format!("p50 {:.2} us, p99 {:.2} us", row.p50_us, row.p99_us),
        };
        without.map(goal).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_draws_from_as_many_of_fifty_limits_as_it_may() {
        assert_eq!(drawn(&limits_of(LIMITS)).len(), limits::MAX_DRAWN);
    }

    #[test]
    fn every_row_is_shown() {
        let row = Decision { name: "one", per_second: 1_000.0, p50_us: 1.0, p99_us: 2.5 };
        let mut text = String::new();
        Decisions { rows: vec![row] }.render(&mut text).unwrap();
        assert!(text.contains("| one | 1000 | 1.00 | 2.50 |"), "{text}");
    }
}
