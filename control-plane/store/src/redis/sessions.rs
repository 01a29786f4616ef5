//! The directory of sessions in Redis: a hash per session, changed by one script.
//!
//! Keeps true: the data of a session expires when its id can no longer be used.

use std::time::Duration;

use async_trait::async_trait;
use redis::Script;

use super::{Redis, RedisFault, lifetime};
use crate::hex::hex;
use crate::records::OwnerId;
use crate::sessions::{
    DirectoryError, MAX_GATEWAYS, OpenSession, Result, SessionDirectory, SessionEntry, SessionId,
};

/// A directory in Redis.
pub struct RedisDirectory {
    redis: Redis,
    enter: Script,
    end: Script,
}

impl RedisDirectory {
    pub fn new(redis: Redis) -> RedisDirectory {
        let enter = Script::new(include_str!("enter.lua"));
        RedisDirectory { redis, enter, end: Script::new(include_str!("end.lua")) }
    }

    async fn change(
        &self,
        session: SessionId,
        left: Duration,
        (gateway, level): (String, String),
    ) -> Result<SessionEntry> {
        let key = key(session);
        let mut enter = self.enter.prepare_invoke();
        enter.key(&key).arg(lifetime(left)).arg(MAX_GATEWAYS).arg(gateway).arg(level);
        let said: Vec<String> = self.redis.run(&key, &enter).await?;
        let [level, gateways @ ..] = said.as_slice() else { return Ok(SessionEntry::Ended) };
        let log_level = match level.as_str() {
            "" => None,
            level => Some(level.parse().map_err(|_| unreadable())?),
        };
        Ok(SessionEntry::Open(OpenSession { log_level, gateways: owners(gateways)? }))
    }
}

#[async_trait]
impl SessionDirectory for RedisDirectory {
    async fn enter(&self, session: SessionId, gateway: OwnerId, left: Duration) -> Result<SessionEntry> {
        self.change(session, left, (hex(&gateway.0), String::new())).await
    }

    async fn set_log_level(&self, session: SessionId, level: u8, left: Duration) -> Result<()> {
        self.change(session, left, (String::new(), level.to_string())).await.map(drop)
    }

    async fn end(&self, session: SessionId, left: Duration) -> Result<Vec<OwnerId>> {
        let key = key(session);
        let mut end = self.end.prepare_invoke();
        end.key(&key).arg(lifetime(left));
        let said: Vec<String> = self.redis.run(&key, &end).await?;
        owners(&said)
    }
}

from_failure!(RedisFault => DirectoryError);

fn unreadable() -> DirectoryError {
    DirectoryError("Redis holds something else where a session is kept".into())
}

fn key(session: SessionId) -> String {
    format!("asp:session:{}", hex(&session))
}

fn owners(named: &[String]) -> Result<Vec<OwnerId>> {
    let owner = |name: &String| u128::from_str_radix(name, 16).map(|id| OwnerId(id.to_be_bytes()));
    named.iter().map(owner).collect::<Result<_, _>>().map_err(|_| unreadable())
}
