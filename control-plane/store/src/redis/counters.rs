//! Exact limits for all gateways together: token buckets in Redis, taken by one script.
//!
//! Keeps true: the buckets of one take are in one slot of a Cluster; the time is Redis's own, and never goes back; a bucket is
//! forgotten when it is full again, not before.

use async_trait::async_trait;
use redis::Script;
use sha2::{Digest, Sha256};

use super::Redis;
use crate::counter::{Bucket, CounterError, Counters, Taken};
use crate::hex::hex;

/// Bytes of the hash of a tenant: two in one slot share nothing but the slot.
const TENANT: usize = 8;
/// Bytes of the hash of a bucket: no two buckets ever have the same.
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
    async fn take(&self, tenant: &str, buckets: &[Bucket]) -> Result<Taken, CounterError> {
        let place = place(tenant);
        let mut take = self.take.prepare_invoke();
        for bucket in buckets {
            let key = format!("{place}:{}", hashed::<BUCKET>(&bucket.key));
            take.key(key).arg(bucket.capacity).arg(bucket.refill_per_second);
        }
        let said: Result<(usize, u64), _> = self.redis.run(&take).await;
        match said.map_err(|fault| CounterError(fault.to_string()))? {
            (0, remaining) => Ok(Taken::Granted { remaining }),
            (empty, retry_after_ms) => Ok(Taken::Denied { index: empty - 1, retry_after_ms }),
        }
    }
}

/// What the keys of a tenant's buckets begin with, `asp:limit:{tenant}`. Tenant and bucket are hashes: names may be long,
/// and hold what has a meaning in a key.
fn place(tenant: &str) -> String {
    format!("asp:limit:{{{}}}", hashed::<TENANT>(tenant))
}

/// The first bytes of a hash, as hex digits.
fn hashed<const BYTES: usize>(text: &str) -> String {
    hex(Sha256::digest(text).get(..BYTES).unwrap_or_default())
}
