//! Inboxes in Redis: a hash per call, and the usage of its org, in one slot of a Cluster, so that the script that adds
//! an entry counts its bytes.
//!
//! Keeps true: all data of an org expires with its last entry.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::{Script, ScriptInvocation};

use super::{Redis, RedisFault, lifetime};
use crate::hex::hex;
use crate::inbox::{
    EntryName, Inbox, InboxError, InboxId, MAX_BYTES, MAX_ENTRIES, MAX_ORG_BYTES, Put, Result, check,
};

/// Inboxes in Redis.
pub struct RedisInbox {
    redis: Redis,
    put: Script,
    remove: Script,
    org_bytes: usize,
}

impl RedisInbox {
    pub fn new(redis: Redis) -> RedisInbox {
        RedisInbox::with_org_bytes(redis, MAX_ORG_BYTES)
    }

    /// Creates inboxes with another limit for each org.
    pub fn with_org_bytes(redis: Redis, org_bytes: usize) -> RedisInbox {
        RedisInbox {
            redis,
            put: Script::new(include_str!("inbox/put.lua")),
            remove: Script::new(include_str!("inbox/remove.lua")),
            org_bytes,
        }
    }
}

#[async_trait]
impl Inbox for RedisInbox {
    async fn put(&self, inbox: InboxId, name: EntryName, entry: Bytes, keep: Duration) -> Result<Put> {
        check(&entry)?;
        let (place, mut put) = on(&self.put, inbox);
        put.arg(hex(&name)).arg(entry.as_ref()).arg(lifetime(keep));
        put.arg(MAX_ENTRIES).arg(MAX_BYTES).arg(self.org_bytes);
        let stored: u8 = self.redis.run_large(&place, &put, entry.len()).await?;
        Ok(match stored {
            1 => Put::Stored,
            2 => Put::Exists,
            _ => Put::Full,
        })
    }

    async fn read(&self, inbox: InboxId) -> Result<Vec<(EntryName, Bytes)>> {
        let place = place(inbox);
        let mut read = redis::cmd("HGETALL");
        read.arg(&place);
        let entries: HashMap<String, Bytes> = self.redis.ask(&place, &read).await?;
        let named = |(name, entry): (String, Bytes)| -> Result<_> {
            let name = u128::from_str_radix(&name, 16).map_err(|_| unreadable())?;
            Ok((name.to_be_bytes(), entry))
        };
        entries.into_iter().map(named).collect()
    }

    async fn remove(&self, inbox: InboxId, names: &[EntryName]) -> Result<()> {
        let (place, mut remove) = on(&self.remove, inbox);
        for name in names {
            remove.arg(hex(name));
        }
        self.redis.run::<u64>(&place, &remove).await?;
        Ok(())
    }
}

from_failure!(RedisFault => InboxError::Unavailable);

fn unreadable() -> InboxError {
    InboxError::Unavailable("Redis holds something else where the inbox of a call is kept".into())
}

/// Prepares a script on an inbox, whose key it returns too, and the usage of its org; its first argument is the call.
fn on(script: &Script, inbox: InboxId) -> (String, ScriptInvocation<'_>) {
    let org = format!("asp:inbox:{{{}}}", hex(&inbox.org));
    let place = place(inbox);
    let mut invocation = script.prepare_invoke();
    invocation.key(&place).key(format!("{org}:ends")).key(format!("{org}:bytes"));
    invocation.arg(hex(&inbox.call));
    (place, invocation)
}

/// The org is the hash tag that determines the slot.
fn place(inbox: InboxId) -> String {
    format!("asp:inbox:{{{}}}:{}", hex(&inbox.org), hex(&inbox.call))
}
