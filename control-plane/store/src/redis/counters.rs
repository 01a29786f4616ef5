//! Exact limits across all gateways: buckets in Redis, drawn from by one script.
//!
//! Keeps true: the buckets of one draw are in one slot of a Cluster; the time is Redis's own, and never goes back; a
//! bucket is forgotten once it is full, not before.

use std::time::Duration;

use async_trait::async_trait;
use redis::{Script, ScriptInvocation};
use sha2::{Digest, Sha256};

use super::Redis;
use crate::clock::milliseconds;
use crate::counter::{
    Bucket, BucketKind, CounterError, Counters, DrawOutcome, GatewayShare, Membership, UNCOUNTED,
};
use crate::hex::hex;

/// Bytes of a tenant's hash; tenants with the same hash share only a slot.
const TENANT: usize = 8;
/// Bytes of a bucket's hash; collisions are practically impossible.
const BUCKET: usize = 16;

/// Answer of the script if no bucket counts the remaining draws.
const MOST: u64 = 9_007_199_254_740_991;
/// Set of the gateways that share the counters.
const GATEWAYS: &str = "asp:limit:{gateways}";

/// Counters in Redis.
pub struct RedisCounters {
    redis: Redis,
    take: Script,
    take_many: Script,
    give_back: Script,
    renew: Script,
    gateways: Script,
}

impl RedisCounters {
    pub fn new(redis: Redis) -> RedisCounters {
        RedisCounters {
            redis,
            take: Script::new(include_str!("take.lua")),
            take_many: Script::new(include_str!("take_many.lua")),
            give_back: Script::new(include_str!("give_back.lua")),
            renew: Script::new(include_str!("renew.lua")),
            gateways: Script::new(include_str!("gateways.lua")),
        }
    }

    /// Runs a script whose answer says nothing.
    async fn tell(&self, place: &str, invocation: &ScriptInvocation<'_>) -> Result<(), CounterError> {
        let said: Result<u64, _> = self.redis.run(place, invocation).await;
        said.map(drop).map_err(|fault| CounterError(fault.to_string()))
    }
}

#[async_trait]
impl Counters for RedisCounters {
    fn shard(&self, tenant: &str) -> u64 {
        self.redis.shard(&place(tenant))
    }

    async fn take(&self, tenant: &str, buckets: &[Bucket]) -> Result<DrawOutcome, CounterError> {
        let place = place(tenant);
        let mut take = self.take.prepare_invoke();
        for bucket in buckets {
            take.key(key(&place, bucket));
            describe(&mut take, bucket);
        }
        let said: Result<(usize, u64), _> = self.redis.run(&place, &take).await;
        match said.map_err(|fault| CounterError(fault.to_string()))? {
            (0, MOST) => Ok(DrawOutcome::Granted { remaining: UNCOUNTED }),
            (0, remaining) => Ok(DrawOutcome::Granted { remaining }),
            (empty, retry_after_ms) => Ok(DrawOutcome::Denied { index: empty - 1, retry_after_ms }),
        }
    }

    async fn give_back(&self, tenant: &str, buckets: &[Bucket], drawn_ms: u64) -> Result<(), CounterError> {
        let place = place(tenant);
        let mut give_back = self.give_back.prepare_invoke();
        for bucket in buckets {
            let window = bucket.window_of(drawn_ms).and_then(|window| i64::try_from(window).ok());
            give_back.key(key(&place, bucket)).arg(bucket.capacity).arg(bucket.refill_per_second);
            give_back.arg(letter(bucket)).arg(window.unwrap_or(-1)).arg(holder(bucket));
        }
        self.tell(&place, &give_back).await
    }

    async fn renew(&self, tenant: &str, buckets: &[Bucket]) -> Result<(), CounterError> {
        let place = place(tenant);
        let mut renew = self.renew.prepare_invoke();
        for bucket in buckets {
            let BucketKind::Slots { holder, lease_ms } = &bucket.kind else { continue };
            renew.key(key(&place, bucket)).arg(*lease_ms).arg(holder);
        }
        self.tell(&place, &renew).await
    }

    async fn take_many(&self, tenant: &str, bucket: &Bucket, count: u64) -> Result<u64, CounterError> {
        let place = place(tenant);
        let mut take = self.take_many.prepare_invoke();
        take.key(key(&place, bucket)).arg(bucket.capacity).arg(bucket.refill_per_second);
        take.arg(letter(bucket)).arg(number(bucket)).arg(count);
        let said: Result<u64, _> = self.redis.run(&place, &take).await;
        said.map_err(|fault| CounterError(fault.to_string()))
    }
}

#[async_trait]
impl Membership for RedisCounters {
    async fn enter(&self, gateway: &str, lease: Duration) -> Result<GatewayShare, CounterError> {
        let mut enter = self.gateways.prepare_invoke();
        enter.key(GATEWAYS).arg(gateway).arg(milliseconds(lease));
        let said: Result<(u64, u64), _> = self.redis.run(GATEWAYS, &enter).await;
        let (gateways, rank) = said.map_err(|fault| CounterError(fault.to_string()))?;
        Ok(GatewayShare { gateways, rank })
    }
}

/// Adds what the script must know of a bucket.
fn describe(invocation: &mut ScriptInvocation<'_>, bucket: &Bucket) {
    invocation.arg(bucket.capacity).arg(bucket.refill_per_second);
    invocation.arg(letter(bucket)).arg(number(bucket)).arg(holder(bucket));
}

/// Returns the kind of a bucket as the scripts have it.
fn letter(bucket: &Bucket) -> &'static str {
    match bucket.kind {
        BucketKind::Tokens => "t",
        BucketKind::Fixed { .. } => "f",
        BucketKind::Sliding { .. } => "s",
        BucketKind::Slots { .. } => "c",
    }
}

/// Returns the length of a window in seconds, or of a lease in milliseconds.
fn number(bucket: &Bucket) -> u64 {
    match bucket.kind {
        BucketKind::Tokens => 0,
        BucketKind::Fixed { seconds } | BucketKind::Sliding { seconds } => seconds.max(1),
        BucketKind::Slots { lease_ms, .. } => lease_ms,
    }
}

fn holder(bucket: &Bucket) -> &str {
    match &bucket.kind {
        BucketKind::Slots { holder, .. } => holder,
        _ => "",
    }
}

fn key(place: &str, bucket: &Bucket) -> String {
    format!("{place}:{}", hashed::<BUCKET>(&bucket.key))
}

/// Returns the prefix of the keys of a tenant's buckets, `asp:limit:{tenant}`. Tenant and bucket are hashed, because
/// names may be long and contain characters with a meaning in keys.
fn place(tenant: &str) -> String {
    format!("asp:limit:{{{}}}", hashed::<TENANT>(tenant))
}

/// Returns the first bytes of a hash in hex.
fn hashed<const BYTES: usize>(text: &str) -> String {
    hex(Sha256::digest(text).get(..BYTES).unwrap_or_default())
}
