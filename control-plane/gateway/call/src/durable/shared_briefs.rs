//! Ends of calls that only read, sealed in a store that all gateways share outside of the database.
//!
//! Owns: the content of such a record. Keeps true: a record opens only for the principal of its call, at its server; the
//! first one of a call stays, so that a call that ran at two gateways has one end; whatever the store does not accept is for
//! the database.

use std::sync::Arc;
use std::time::Duration;

use asp_edge::Caller;
use asp_store::briefs::{BriefError, BriefList, BriefRecord, BriefRecords};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::ended_call::{EndedCall, EndedEvents};
use super::record::Record;
use super::stored_outcome::StoredOutcome;
use crate::call::Call;
use crate::call::event::Event;
use crate::call::event::log::{FoldedLog, LoggedEvent};
use crate::call::outcome::Outcome;
use crate::call::principal::principal;
use crate::call::remote::{CallCursor, CallPage, ListedCall};
use crate::call::terms::retention;
use crate::clock::unix_ms;
use crate::digest;
use crate::outage_log::OutageLog;
use crate::seal::{Purpose, Sealer};

/// Time for which an end is kept: as long as the answer of a call that only reads.
const KEEP: Duration = Duration::from_secs(600);
/// Maximum size of a record in bytes; the database has larger ends.
const MAX_BYTES: usize = 64 * 1024;

/// Ends of calls that only read.
pub struct SharedBriefs {
    store: Arc<dyn BriefRecords>,
    sealer: Arc<Sealer>,
    outage: OutageLog,
}

/// Result of storing a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PutResult {
    Stored,
    /// The call has one.
    Exists,
    /// Record that is too large, or no answer from the store.
    Refused,
}

/// Result of looking for a record.
pub enum BriefLookup {
    Ended(Box<EndedCall>),
    /// No gateway has noted the call.
    Absent,
    /// The database has the call, or may have it.
    InDatabase,
}

#[derive(Serialize, Deserialize)]
struct BriefEnd {
    record: Record,
    outcome: StoredOutcome,
    ended_ms: u64,
    /// Name of the call's log.
    log: u32,
    /// Number, time and content of the events that still matter.
    events: Vec<(u64, u64, Event)>,
    /// Number of the next event.
    next: u64,
}

impl BriefEnd {
    fn of(call: &Call, outcome: &Outcome) -> BriefEnd {
        let FoldedLog { events, next, .. } = call.events.folded();
        BriefEnd {
            record: Record::of(call, &Value::Null.into(), None, true),
            outcome: StoredOutcome::of(call, outcome),
            ended_ms: call.changed_ms(),
            log: call.events.stream(),
            events: events.into_iter().map(|logged| (logged.number, logged.at_ms, logged.event)).collect(),
            next,
        }
    }

    fn into_ended(self) -> EndedCall {
        let until_ms = self.ended_ms.saturating_add(u64::try_from(KEEP.as_millis()).unwrap_or(u64::MAX));
        // No gateway takes such a call over.
        let logged = |(number, at_ms, event)| LoggedEvent::first(number, at_ms, event);
        let events = self.events.into_iter().map(logged).collect();
        EndedCall {
            record: self.record,
            kept: Some(self.outcome),
            ended_ms: self.ended_ms,
            generation: 0,
            left: Duration::from_millis(until_ms.saturating_sub(unix_ms())),
            events: Some(EndedEvents { log: self.log, events, next: self.next }),
        }
    }

    fn to_listed(&self) -> Option<ListedCall> {
        let put = self.record.put()?;
        let created_ms = put.chosen.began_ms;
        Some(ListedCall { put, state: self.outcome.state(), created_ms, updated_ms: self.ended_ms })
    }
}

impl SharedBriefs {
    pub fn new(store: Arc<dyn BriefRecords>, sealer: Arc<Sealer>) -> SharedBriefs {
        SharedBriefs { store, sealer, outage: OutageLog::default() }
    }

    /// Stores the end of a call.
    pub(super) async fn put(&self, call: &Call, outcome: &Outcome) -> PutResult {
        let Ok(plain) = serde_json::to_vec(&BriefEnd::of(call, outcome)) else { return PutResult::Refused };
        if plain.len() > MAX_BYTES {
            return PutResult::Refused;
        }
        let context = context(call.id, &call.caller, &call.server.message.name);
        match self.sealer.seal_bytes(Purpose::Brief, &context, &plain) {
            Ok(sealed) => self.write(call, sealed.into(), KEEP, false).await,
            Err(_) => PutResult::Refused,
        }
    }

    /// Notes that the database has a call, or is about to have it. `replaces`: instead of the record that the call has.
    pub(super) async fn mark(&self, call: &Call, replaces: bool) -> PutResult {
        self.write(call, Bytes::new(), retention(&call.entry.primitive), replaces).await
    }

    async fn write(&self, call: &Call, sealed: Bytes, keep: Duration, replaces: bool) -> PutResult {
        let ended_ms = i64::try_from(call.changed_ms()).unwrap_or(i64::MAX);
        let record = BriefRecord { call: call.id.into_bytes(), ended_ms, sealed };
        let list = list(&call.caller, &call.server.message.name);
        match self.noted(self.store.put(list, record, keep, replaces).await) {
            Some(true) => PutResult::Stored,
            Some(false) => PutResult::Exists,
            None => PutResult::Refused,
        }
    }

    /// Looks for the call with this id of `caller` at `server`.
    pub(super) async fn find(&self, id: Uuid, caller: &Caller, server: &str) -> BriefLookup {
        let found = self.store.find(digest::short(&caller.org), id.into_bytes()).await;
        match self.noted(found) {
            Some(Some(sealed)) if sealed.is_empty() => BriefLookup::InDatabase,
            Some(Some(sealed)) => match self.open(id, caller, server, &sealed) {
                Some(end) => BriefLookup::Ended(Box::new(end.into_ended())),
                None => BriefLookup::InDatabase,
            },
            Some(None) => BriefLookup::Absent,
            None => BriefLookup::InDatabase,
        }
    }

    /// Returns a page of at most `rows` calls of `caller` at `server`, those that ended last first.
    pub(super) async fn page(
        &self,
        caller: &Caller,
        server: &str,
        before: Option<CallCursor>,
        rows: u32,
    ) -> CallPage {
        let found = self.store.list(list(caller, server), before, rows).await;
        let found = self.noted(found).unwrap_or_default();
        let is_last = found.len() < usize::try_from(rows).unwrap_or(usize::MAX);
        let next = found.last().filter(|_| !is_last).map(|record| (record.ended_ms, record.call));
        let listed = |record: &BriefRecord| {
            self.open(Uuid::from_bytes(record.call), caller, server, &record.sealed)?.to_listed()
        };
        CallPage { calls: found.iter().filter_map(listed).collect(), next }
    }

    fn open(&self, id: Uuid, caller: &Caller, server: &str, sealed: &[u8]) -> Option<BriefEnd> {
        let plain = self.sealer.open_bytes(Purpose::Brief, &context(id, caller, server), sealed)?;
        serde_json::from_slice(&plain).ok()
    }

    fn noted<T>(&self, answer: Result<T, BriefError>) -> Option<T> {
        self.outage.noted(answer, |error| {
            tracing::warn!(%error, "records of calls that only read are unavailable; the database gets these calls");
        })
    }
}

/// Returns the context of a seal, which opens only for its call, its principal and its server.
fn context(id: Uuid, caller: &Caller, server: &str) -> Vec<u8> {
    [id.as_bytes().as_slice(), &principal(caller), server.as_bytes()].concat()
}

fn list(caller: &Caller, server: &str) -> BriefList {
    let list = digest::shortened(&[principal(caller).as_slice(), server.as_bytes()]);
    BriefList { org: digest::short(&caller.org), list }
}
