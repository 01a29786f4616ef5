//! State that gateways share outside of the database and may lose: in the operator's Redis, or local to each gateway.

use std::sync::Arc;

use asp_gateway::gateway::Shared;
use asp_store::counter::{Counters, MemoryCounters};

use crate::settings::gateway::SharedRedis;

/// Opens the counters of limits and, with Redis, the channel through which gateways tell each other about sessions.
pub(super) fn open(redis: Option<&SharedRedis>) -> anyhow::Result<(Arc<dyn Counters>, Option<Shared>)> {
    match redis {
        None => Ok((Arc::new(MemoryCounters::default()), None)),
        Some(redis) => in_redis(redis),
    }
}

#[cfg(feature = "cluster")]
fn in_redis(redis: &SharedRedis) -> anyhow::Result<(Arc<dyn Counters>, Option<Shared>)> {
    use anyhow::Context;
    use asp_store::counter::WithFallback;
    use asp_store::redis::{
        Lanes, RedisAnswers, RedisBus, RedisCounters, RedisDirectory, RedisFollowers, RedisInbox, RedisOutbox,
    };

    let Lanes { limits, directory, events } =
        Lanes::open(redis.url.expose()).context("open the Redis that ASP_REDIS_URL names")?;
    let counters = WithFallback::new(Arc::new(RedisCounters::new(limits)));
    let shared = Shared {
        directory: Arc::new(RedisDirectory::new(directory.clone())),
        bus: Arc::new(RedisBus::new(directory.clone())),
        inbox: Arc::new(RedisInbox::new(directory.clone())),
        followers: Arc::new(RedisFollowers::new(directory)),
        outbox: Arc::new(RedisOutbox::new(events.clone())),
        event_bytes: redis.event_bytes,
        answers: Arc::new(RedisAnswers::new(events)),
    };
    Ok((Arc::new(counters), Some(shared)))
}

#[cfg(not(feature = "cluster"))]
fn in_redis(_redis: &SharedRedis) -> anyhow::Result<(Arc<dyn Counters>, Option<Shared>)> {
    anyhow::bail!("ASP_REDIS_URL is for programs that were built with the feature `cluster`")
}
