//! Exact limits across all gateways: token buckets in Redis, drawn from by one script.
//!
//! Keeps true: the buckets of one draw are in one slot of a Cluster; the time is Redis's own, and never goes back; a
//! bucket is forgotten once it is full, not before.

use async_trait::async_trait;
use redis::Script;
use sha2::{Digest, Sha256};

use super::Redis;
use crate::counter::{Bucket, CounterError, Counters, DrawOutcome};
use crate::hex::hex;

/// Bytes of a tenant's hash; tenants with the same hash share only a slot.
const TENANT: usize = 8;
/// Bytes of a bucket's hash; collisions are practically impossible.
const BUCKET: usize = 16;

/// Counters in Redis.
pub struct RedisCounters {
    redis: Redis,
    take: Script,
}

impl RedisCounters {
    pub fn new(redis: Redis) -> RedisCounters {
        RedisCounters { redis, take: Script::new(include_str!("take.lua")) }
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
            let key = format!("{place}:{}", hashed::<BUCKET>(&bucket.key));
            take.key(key).arg(bucket.capacity).arg(bucket.refill_per_second);
        }
        let said: Result<(usize, u64), _> = self.redis.run(&place, &take).await;
        match said.map_err(|fault| CounterError(fault.to_string()))? {
            (0, remaining) => Ok(DrawOutcome::Granted { remaining }),
            (empty, retry_after_ms) => Ok(DrawOutcome::Denied { index: empty - 1, retry_after_ms }),
        }
    }
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
