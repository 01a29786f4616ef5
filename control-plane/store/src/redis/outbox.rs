//! The outbox in Redis: a hash and a list per call, in one slot of a Cluster, and a script per operation.
//!
//! Keeps true: the data of a call expires by itself.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::{Script, ScriptInvocation};

use super::{Redis, RedisFault, lifetime};
use crate::hex::hex;
use crate::outbox::{
    AppendOutcome, Batch, LogId, MAX_BYTES, MAX_ENTRIES, MAX_NUMBER, MAX_PINNED, Outbox, OutboxError, Result,
    StoredEvents, count,
};
use crate::records::{CallId, OwnerId};

/// Reply of the scripts about a call: its log, the next number, the last entries before that, and the number and entry
/// of each open one before those.
type Reply = Option<(LogId, u64, Vec<Bytes>, Vec<Bytes>)>;

/// An outbox in Redis.
pub struct RedisOutbox {
    redis: Redis,
    append: Script,
    take: Script,
    read: Script,
}

impl RedisOutbox {
    pub fn new(redis: Redis) -> RedisOutbox {
        RedisOutbox {
            redis,
            append: Script::new(include_str!("outbox/append.lua")),
            take: Script::new(include_str!("outbox/take.lua")),
            read: Script::new(include_str!("outbox/read.lua")),
        }
    }

    async fn read_events(&self, key: &str, script: &ScriptInvocation<'_>) -> Result<Option<StoredEvents>> {
        let told: Reply = self.redis.run(key, script).await?;
        let Some((log, next, entries, pinned)) = told else { return Ok(None) };
        let first = next.checked_sub(count(entries.len())).ok_or_else(unreadable)?;
        Ok(Some(StoredEvents { log, first, entries, pinned: numbered(&pinned)? }))
    }
}

#[async_trait]
impl Outbox for RedisOutbox {
    async fn append(
        &self,
        call: CallId,
        owner: OwnerId,
        batch: Batch<'_>,
        keep: Duration,
    ) -> Result<AppendOutcome> {
        batch.check()?;
        let (key, mut append) = on(&self.append, call);
        append.arg(lifetime(keep)).arg(MAX_ENTRIES).arg(MAX_BYTES).arg(hex(&owner.0));
        append.arg(batch.log).arg(batch.first).arg(u8::from(batch.reset)).arg(MAX_PINNED);
        append.arg(batch.open.len()).arg(batch.pinned.len());
        for number in batch.open {
            append.arg(*number);
        }
        for (number, entry) in batch.pinned {
            append.arg(*number).arg(entry.as_ref());
        }
        for entry in batch.entries {
            append.arg(entry.as_ref());
        }
        let bytes = batch.bytes();
        let said: String = self.redis.run_large(&key, &append, bytes).await?;
        match said.as_str() {
            "stored" => Ok(AppendOutcome::Stored),
            "not owner" => Ok(AppendOutcome::NotOwner),
            "missing" => Ok(AppendOutcome::Missing),
            _ => Err(unreadable()),
        }
    }

    async fn take(&self, call: CallId, owner: OwnerId, keep: Duration) -> Result<Option<StoredEvents>> {
        let (key, mut take) = on(&self.take, call);
        take.arg(lifetime(keep)).arg(hex(&owner.0));
        self.read_events(&key, &take).await
    }

    async fn read(&self, call: CallId, from: u64) -> Result<Option<StoredEvents>> {
        let (key, mut read) = on(&self.read, call);
        // No entry has a higher number.
        read.arg(from.min(MAX_NUMBER));
        self.read_events(&key, &read).await
    }
}

from_failure!(RedisFault => OutboxError::Unavailable);

fn unreadable() -> OutboxError {
    OutboxError::Unavailable("Redis holds something else where the events of a call are kept".into())
}

/// Parses a list of alternating numbers and open entries; returns them by number.
fn numbered(pinned: &[Bytes]) -> Result<Vec<(u64, Bytes)>> {
    let pair = |pair: &[Bytes]| {
        let [number, entry] = pair else { return None };
        Some((std::str::from_utf8(number).ok()?.parse::<u64>().ok()?, entry.clone()))
    };
    let numbered: Option<Vec<(u64, Bytes)>> = pinned.chunks(2).map(pair).collect();
    let mut numbered = numbered.ok_or_else(unreadable)?;
    numbered.sort_by_key(|(number, _)| *number);
    Ok(numbered)
}

/// Prepares a script on the two keys of a call, and returns the first of them too.
fn on(script: &Script, call: CallId) -> (String, ScriptInvocation<'_>) {
    let key = format!("asp:outbox:{{{}}}", hex(&call));
    let mut invocation = script.prepare_invoke();
    invocation.key(&key).key(format!("{key}:events"));
    (key, invocation)
}
