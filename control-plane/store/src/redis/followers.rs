//! Followers of calls in Redis: a sorted set per call, of gateways by the expiry of their entries.
//!
//! Keeps true: all data of a call expires with its last entry, by Redis's clock.

use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, Script};

use super::{Redis, RedisFault, lifetime};
use crate::followers::{Followers, FollowersError};
use crate::hex::hex;
use crate::records::{CallId, OwnerId};

/// Followers in Redis.
pub struct RedisFollowers {
    redis: Redis,
    enter: Script,
    any: Script,
}

impl RedisFollowers {
    pub fn new(redis: Redis) -> RedisFollowers {
        RedisFollowers {
            redis,
            enter: Script::new(include_str!("followers/enter.lua")),
            any: Script::new(include_str!("followers/any.lua")),
        }
    }
}

#[async_trait]
impl Followers for RedisFollowers {
    async fn enter(&self, call: CallId, gateway: OwnerId, keep: Duration) -> Result<(), FollowersError> {
        let key = key(call);
        let mut enter = self.enter.prepare_invoke();
        enter.key(&key).arg(hex(&gateway.0)).arg(lifetime(keep));
        self.redis.run::<u64>(&key, &enter).await?;
        Ok(())
    }

    async fn leave(&self, call: CallId, gateway: OwnerId) -> Result<(), FollowersError> {
        let key = key(call);
        self.redis.ask::<u64>(&key, &Cmd::zrem(&key, hex(&gateway.0))).await?;
        Ok(())
    }

    async fn any(&self, call: CallId) -> Result<bool, FollowersError> {
        let key = key(call);
        let mut any = self.any.prepare_invoke();
        any.key(&key);
        Ok(self.redis.run::<u64>(&key, &any).await? > 0)
    }
}

from_failure!(RedisFault => FollowersError);

fn key(call: CallId) -> String {
    format!("asp:followers:{{{}}}", hex(&call))
}
