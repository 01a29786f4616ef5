//! State that gateways share outside of the database and may lose: in the operator's Redis, or local to each gateway.

use std::sync::Arc;

use asp_gateway::gateway::Shared;
use asp_platform::secret::Secret;
use asp_store::counter::{Counters, MemoryCounters};

use crate::settings::gateway::GatewaySection;

/// Opens the counters of limits and, with Redis, the channel through which gateways tell each other about sessions.
pub(super) fn open(settings: &GatewaySection) -> anyhow::Result<(Arc<dyn Counters>, Option<Shared>)> {
    match &settings.redis_url {
        None => Ok((Arc::new(MemoryCounters::default()), None)),
        Some(url) => redis_counters(url, settings.redis_event_bytes),
    }
}

#[cfg(feature = "cluster")]
fn redis_counters(url: &Secret, event_bytes: u64) -> anyhow::Result<(Arc<dyn Counters>, Option<Shared>)> {
    use anyhow::Context;
    use asp_store::counter::WithFallback;
    use asp_store::redis::{
        Lanes, RedisAnswers, RedisBriefs, RedisBus, RedisCounters, RedisDirectory, RedisFollowers,
        RedisInbox, RedisOutbox,
    };

    let Lanes { limits, directory, events } =
        Lanes::open(url.expose()).context("open the Redis that ASP_REDIS_URL names")?;
    let limits = Arc::new(RedisCounters::new(limits));
    let counters = Arc::new(WithFallback::new(limits.clone()));
    counters.join(limits, uuid::Uuid::now_v7().to_string());
    let shared = Shared {
        directory: Arc::new(RedisDirectory::new(directory.clone())),
        bus: Arc::new(RedisBus::new(directory.clone())),
        inbox: Arc::new(RedisInbox::new(directory.clone())),
        followers: Arc::new(RedisFollowers::new(directory)),
        outbox: Arc::new(RedisOutbox::new(events.clone())),
        event_bytes,
        answers: Arc::new(RedisAnswers::new(events.clone())),
        briefs: Arc::new(RedisBriefs::new(events)),
    };
    let counters: Arc<dyn Counters> = counters;
    Ok((counters, Some(shared)))
}

#[cfg(not(feature = "cluster"))]
fn redis_counters(_url: &Secret, _event_bytes: u64) -> anyhow::Result<(Arc<dyn Counters>, Option<Shared>)> {
    anyhow::bail!("ASP_REDIS_URL requires a program that was built with the feature `cluster`")
}
