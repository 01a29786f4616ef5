//! The last events of calls whose gateway was killed: `call.finish` with the outcome `unknown`, once for each call.
//!
//! Owns the choice of these calls. Refuses: calls that another gateway continues, and calls of which nobody has for less
//! than two scans, because a taker's last event may be under way. Keeps true:
//! events are appended by one gateway only ([`AuditLog::finish_writer`]); a call with a last event gets no other one.

use std::collections::{HashMap, HashSet};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use asp_store::audit::search::{AuditPage, AuditSearch, EventPosition, MemberFilter, SearchOrder};
use asp_store::audit::{AuditError, AuditLog, CallEvent, LostWriter, StoredEvent};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Audit, event_now};

/// Time without a renewal after which a gateway is lost: several renewals, so that a slow log loses nobody.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(15);
/// Maximum number of calls of one gateway that one scan finishes; the next scan continues.
const AT_A_TIME: usize = 500;
/// Maximum number of gateways whose calls are found in one reading of the log.
const GATEWAYS: usize = 16;
/// Maximum number of calls of these gateways that one scan follows.
const MAX_FOLLOWED: usize = 20_000;
/// Maximum number of pages of one scan.
const MAX_PAGES: usize = 200;
/// Clocks of gateways differ by less than this.
const CLOCKS: i64 = 60_000;
/// Number of events in a page.
const PAGE: u32 = 1_000;

/// Part of a call's life that an event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Start or takeover.
    Begun,
    Ended,
}

/// Returns the phase and the call of an event; `None` for other events.
pub(super) fn read_phase(event: &str) -> Option<(Phase, Uuid)> {
    let phase = if event.contains("\"event\":\"call.finish\"") {
        Phase::Ended
    } else if event.contains("\"event\":\"call.start\"") || event.contains("\"event\":\"call.resume\"") {
        Phase::Begun
    } else {
        return None;
    };
    let call = event.split_once("\"call\":\"")?.1.split('"').next()?;
    Some((phase, Uuid::parse_str(call).ok()?))
}

/// A call without a last event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostCall {
    /// The call's id.
    pub id: Uuid,
    org: String,
    /// Its event of the lost gateway: the start, or the takeover.
    begun: String,
    begun_ms: i64,
}

/// Calls of lost gateways that earlier scans found without an end.
#[derive(Default)]
pub struct LostCalls {
    seen: Mutex<HashSet<Uuid>>,
}

/// A lost gateway, and its calls without a last event.
pub struct LostGateway {
    writer: LostWriter,
    /// Calls that it began and that nobody has ended or taken over.
    pub calls: Vec<LostCall>,
    /// Whether these are all.
    is_complete: bool,
}

impl LostCalls {
    /// Returns the calls that nobody continues by now, and did not at an earlier scan; remembers the others.
    fn settled(&self, calls: &[LostCall], continued: &HashSet<Uuid>) -> Vec<LostCall> {
        let mut seen = self.seen.lock();
        let left = calls.iter().filter(|call| !continued.contains(&call.id));
        left.filter(|call| !seen.insert(call.id)).cloned().collect()
    }

    /// Forgets the calls that no lost gateway has any more.
    pub fn retain(&self, gateways: &[LostGateway]) {
        let current: HashSet<Uuid> =
            gateways.iter().flat_map(|gateway| gateway.calls.iter().map(|call| call.id)).collect();
        self.seen.lock().retain(|id| current.contains(id));
    }
}

impl Audit {
    /// Returns the gateways that are lost, each with its calls without a last event.
    pub async fn lost_gateways(&self) -> Result<Vec<LostGateway>, AuditError> {
        let mut writers = self.log.lost_writers(LOST_AFTER).await?;
        // Its own record: it could not renew it, and still runs its calls.
        writers.retain(|writer| writer.id != self.id);
        let mut gateways = Vec::new();
        for some in writers.chunks(GATEWAYS) {
            let found = calls_without_end(&self.log, some).await?;
            if some.len() == 1 || found.iter().all(|gateway| gateway.is_complete) {
                gateways.extend(found);
                continue;
            }
            // One with long calls must not keep the others from their end.
            for writer in some {
                gateways.extend(calls_without_end(&self.log, slice::from_ref(writer)).await?);
            }
        }
        Ok(gateways)
    }

    /// Writes the last events of calls of a lost gateway, without those that others have `continued`; returns their number.
    pub async fn finish_lost(
        &self,
        lost: &LostCalls,
        gateway: &LostGateway,
        continued: &HashSet<Uuid>,
    ) -> Result<usize, AuditError> {
        let mut settled = lost.settled(&gateway.calls, continued);
        settled.truncate(AT_A_TIME);
        let is_last = gateway.is_complete && settled.len() == gateway.calls.len();
        if settled.is_empty() && !is_last {
            return Ok(0);
        }
        let events: Vec<CallEvent> = settled.iter().map(|call| self.unknown(call)).collect();
        let has_appended = self.log.finish_writer(&gateway.writer, &events, is_last).await?;
        Ok(if has_appended { events.len() } else { 0 })
    }

    /// Returns the last event of a call of which nobody knows how it ended.
    fn unknown(&self, call: &LostCall) -> CallEvent {
        let mut event = serde_json::from_str::<Map<String, Value>>(&call.begun).unwrap_or_default();
        for (name, value) in [
            ("event", Value::from("call.finish")),
            ("outcome", Value::from("unknown")),
            ("reason", Value::from("gateway_lost")),
            ("error", Value::from(true)),
            ("rateLimitHit", Value::from(false)),
            ("replay", Value::from(false)),
            ("bytesOut", Value::from(0)),
            ("latencyUs", Value::from(0)),
            ("by", Value::from(self.id.as_str())),
        ] {
            event.insert(name.to_owned(), value);
        }
        event_now(&call.org, &event)
    }
}

/// Returns lost gateways, each with the calls that it began and nobody has ended or taken over. Reads the log twice for all of
/// them.
async fn calls_without_end(
    log: &Arc<dyn AuditLog>,
    writers: &[LostWriter],
) -> Result<Vec<LostGateway>, AuditError> {
    let names: Vec<String> = writers.iter().map(|writer| format!("\"gateway\":\"{}\"", writer.id)).collect();
    let place_of = |event: &str| names.iter().position(|name| event.contains(name));
    // The call, and the place of its gateway.
    let mut open: HashMap<Uuid, (usize, LostCall)> = HashMap::new();
    let own = writers.iter().map(|writer| MemberFilter::is("gateway", &writer.id));
    let own: Vec<MemberFilter> = own.reduce(MemberFilter::or).into_iter().collect();
    let mut are_complete = each(log, writers, own, |stored| {
        let event = &stored.event.event;
        match (read_phase(event), place_of(event)) {
            // The events of a call are read in the order of its gateway's clock.
            (Some((Phase::Ended, id)), _) => drop(open.remove(&id)),
            (Some((Phase::Begun, id)), Some(place)) if open.len() < MAX_FOLLOWED => {
                let CallEvent { at_ms, org, event } = stored.event.clone();
                open.insert(id, (place, LostCall { id, org, begun: event, begun_ms: at_ms }));
            }
            (Some((Phase::Begun, _)) | None, _) => {}
        }
    })
    .await?;
    are_complete &= open.len() < MAX_FOLLOWED;
    if !open.is_empty() {
        let ends =
            vec![MemberFilter::is("event", "call.finish").or(MemberFilter::is("event", "call.resume"))];
        are_complete &= each(log, writers, ends, |stored| {
            let event = &stored.event.event;
            let Some((phase, id)) = read_phase(event) else { return };
            let is_over = open.get(&id).is_some_and(|(place, call)| {
                // Another gateway ended it, or took it over since and ends it.
                place_of(event) != Some(*place)
                    && (phase == Phase::Ended || call.begun_ms <= stored.event.at_ms)
            });
            if is_over {
                open.remove(&id);
            }
        })
        .await?;
    }
    let mut calls: Vec<Vec<LostCall>> = writers.iter().map(|_| Vec::new()).collect();
    for (place, call) in open.into_values() {
        if let Some(calls) = calls.get_mut(place) {
            calls.push(call);
        }
    }
    let gateways = writers.iter().zip(calls).map(|(writer, mut calls)| {
        calls.sort_by_key(|call| call.id);
        LostGateway { writer: writer.clone(), calls, is_complete: are_complete }
    });
    Ok(gateways.collect())
}

/// Passes on the events since the oldest call of the gateways that pass the filters; returns whether it read all.
async fn each(
    log: &Arc<dyn AuditLog>,
    writers: &[LostWriter],
    members: Vec<MemberFilter>,
    mut pass: impl FnMut(&StoredEvent) + Send,
) -> Result<bool, AuditError> {
    let oldest_ms = writers.iter().map(|writer| writer.oldest_ms).min();
    let from_ms = oldest_ms.map(|oldest| oldest.saturating_sub(CLOCKS));
    let mut after: Option<EventPosition> = None;
    for _ in 0..MAX_PAGES {
        let search = AuditSearch {
            from_ms,
            members: members.clone(),
            order: SearchOrder::Oldest,
            after,
            limit: PAGE,
            ..AuditSearch::default()
        };
        let AuditPage { events, next } = log.search(&search).await?;
        events.iter().for_each(&mut pass);
        after = next;
        if after.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
