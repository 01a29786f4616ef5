//! Records of calls that only read in Redis: one value for each, the lists, and the usage of an org, in one slot of a Cluster.
//!
//! Keeps true: all keys of an org expire with its last record.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::{Cmd, Script};

use super::{Redis, RedisFault, lifetime};
use crate::briefs::{BriefError, BriefList, BriefQuotas, BriefRecord, BriefRecords, Result};
use crate::hex::hex;
use crate::records::CallId;

/// Records in Redis.
pub struct RedisBriefs {
    redis: Redis,
    put: Script,
    list: Script,
    quotas: BriefQuotas,
}

impl RedisBriefs {
    pub fn new(redis: Redis) -> RedisBriefs {
        RedisBriefs::with_quotas(redis, BriefQuotas::default())
    }

    /// Creates a store with other quotas.
    pub fn with_quotas(redis: Redis, quotas: BriefQuotas) -> RedisBriefs {
        RedisBriefs {
            redis,
            put: Script::new(include_str!("briefs/put.lua")),
            list: Script::new(include_str!("briefs/list.lua")),
            quotas,
        }
    }
}

#[async_trait]
impl BriefRecords for RedisBriefs {
    async fn put(
        &self,
        list: BriefList,
        record: BriefRecord,
        keep: Duration,
        replaces: bool,
    ) -> Result<bool> {
        let call = hex(&record.call);
        let name = hex(&list.list);
        let place_of_record = place(list.org, &call);
        let mut put = self.put.prepare_invoke();
        put.key(&place_of_record).key(place(list.org, "ends")).key(place(list.org, "bytes"));
        put.key(place_of_list(list));
        put.arg(call).arg(lifetime(keep)).arg(self.quotas.listed);
        put.arg(self.quotas.of_org.keys).arg(self.quotas.of_org.bytes);
        put.arg(record.sealed.as_ref()).arg(record.ended_ms).arg(name).arg(place(list.org, ""));
        put.arg(u8::from(replaces));
        let stored: u8 = self.redis.run_large(&place_of_record, &put, record.sealed.len()).await?;
        Ok(stored == 1)
    }

    async fn find(&self, org: [u8; 16], call: CallId) -> Result<Option<Bytes>> {
        let place = place(org, &hex(&call));
        Ok(self.redis.ask(&place, &Cmd::get(&place)).await?)
    }

    async fn list(
        &self,
        list: BriefList,
        before: Option<(i64, CallId)>,
        limit: u32,
    ) -> Result<Vec<BriefRecord>> {
        let place_of_list = place_of_list(list);
        let (ended, call) = match before {
            Some((ended_ms, call)) => (ended_ms.to_string(), hex(&call)),
            None => ("+inf".to_owned(), String::new()),
        };
        let mut read = self.list.prepare_invoke();
        read.key(&place_of_list).arg(ended).arg(call).arg(limit).arg(place(list.org, ""));
        let found: Vec<Bytes> = self.redis.run(&place_of_list, &read).await?;
        found.chunks(3).map(|parts| to_record(parts).ok_or_else(unreadable)).collect()
    }
}

from_failure!(RedisFault => BriefError);

fn unreadable() -> BriefError {
    BriefError("Redis holds something else where the records of calls are kept".into())
}

/// Reads call, time and record.
fn to_record(parts: &[Bytes]) -> Option<BriefRecord> {
    let [call, ended_ms, sealed] = parts else { return None };
    let call = u128::from_str_radix(std::str::from_utf8(call).ok()?, 16).ok()?;
    let ended_ms = std::str::from_utf8(ended_ms).ok()?.parse().ok()?;
    Some(BriefRecord { call: call.to_be_bytes(), ended_ms, sealed: sealed.clone() })
}

/// The org is the hash tag that determines the slot.
fn place(org: [u8; 16], what: &str) -> String {
    format!("asp:brief:{{{}}}:{what}", hex(&org))
}

fn place_of_list(list: BriefList) -> String {
    place(list.org, &format!("list:{}", hex(&list.list)))
}
