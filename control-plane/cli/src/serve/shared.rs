//! What gateways share beside the database, and may lose: it is in the operator's Redis, or each gateway's own.

use std::sync::Arc;

use asp_platform::secret::Secret;
use asp_store::counter::{Counters, MemoryCounters};

/// What is left of limits.
pub(super) fn counters(redis: Option<&Secret>) -> anyhow::Result<Arc<dyn Counters>> {
    match redis {
        None => Ok(Arc::new(MemoryCounters::default())),
        Some(url) => in_redis(url),
    }
}

#[cfg(feature = "cluster")]
fn in_redis(url: &Secret) -> anyhow::Result<Arc<dyn Counters>> {
    use anyhow::Context;
    use asp_store::counter::WithFallback;
    use asp_store::redis::{Redis, RedisCounters};

    let redis = Redis::open(url.expose()).context("open the Redis that ASP_REDIS_URL names")?;
    Ok(Arc::new(WithFallback::new(Arc::new(RedisCounters::new(redis)))))
}

#[cfg(not(feature = "cluster"))]
fn in_redis(_url: &Secret) -> anyhow::Result<Arc<dyn Counters>> {
    anyhow::bail!("ASP_REDIS_URL is for programs that were built with the feature `cluster`")
}
