//! Answers in Redis: one value for each, and the usage of an org, in one slot of a Cluster.
//!
//! Keeps true: all keys of an org expire with its last answer.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::{Cmd, Script};

use super::{Redis, RedisFault, lifetime};
use crate::answers::{Answers, AnswersError, BUDGET, StoredAnswer};
use crate::hex::hex;
use crate::ledger::{Budget, LedgerKey};

/// Bytes of the hash of a request, with which a value begins.
const HASH: usize = 32;

/// Answers in Redis.
pub struct RedisAnswers {
    redis: Redis,
    keep: Script,
    budget: Budget,
}

impl RedisAnswers {
    pub fn new(redis: Redis) -> RedisAnswers {
        RedisAnswers::with_budget(redis, BUDGET)
    }

    /// Creates a store with another budget for each org.
    pub fn with_budget(redis: Redis, budget: Budget) -> RedisAnswers {
        RedisAnswers { redis, keep: Script::new(include_str!("answers/keep.lua")), budget }
    }
}

#[async_trait]
impl Answers for RedisAnswers {
    fn shard(&self, org: [u8; 16]) -> u64 {
        self.redis.shard(&place(org, ""))
    }

    async fn find(&self, org: [u8; 16], key: LedgerKey) -> Result<Option<StoredAnswer>, AnswersError> {
        let place = place(org, &name(key));
        let kept: Option<Bytes> = self.redis.ask(&place, &Cmd::get(&place)).await?;
        let Some(mut kept) = kept else { return Ok(None) };
        if kept.len() < HASH {
            return Err(unreadable());
        }
        let hash = kept.split_to(HASH);
        Ok(Some(StoredAnswer { hash: hash.as_ref().try_into().map_err(|_| unreadable())?, answer: kept }))
    }

    async fn keep(
        &self,
        org: [u8; 16],
        key: LedgerKey,
        answered: StoredAnswer,
        keep: Duration,
    ) -> Result<bool, AnswersError> {
        let name = name(key);
        let place_of_answer = place(org, &name);
        let mut script = self.keep.prepare_invoke();
        script.key(&place_of_answer).key(place(org, "ends")).key(place(org, "bytes"));
        script.arg(name).arg(lifetime(keep)).arg(self.budget.keys).arg(self.budget.bytes);
        script.arg(&answered.hash[..]).arg(answered.answer.as_ref());
        let kept: u8 = self.redis.run_large(&place_of_answer, &script, answered.answer.len()).await?;
        Ok(kept == 1)
    }
}

from_failure!(RedisFault => AnswersError);

fn unreadable() -> AnswersError {
    AnswersError("Redis holds something else where an answer is kept".into())
}

/// The org is the hash tag that determines the slot.
fn place(org: [u8; 16], what: &str) -> String {
    format!("asp:answer:{{{}}}:{what}", hex(&org))
}

fn name(key: LedgerKey) -> String {
    hex(&key.0)
}
