//! Calls that only read and end within their request: the database does not get them.
//!
//! Their ends are in the store that gateways share outside of the database, if there is one; otherwise only in this process,
//! as long as no other gateway could be asked for them.
//!
//! Owns: where such an end is, and whether this gateway is the only one of its database. Keeps true: a call is brief only
//! while every gateway finds it; once another gateway appears, when this one stops, and when more than its end is stored of a
//! call, the database gets what it has not; what a lost process or store loses only read, and can be repeated (I-13).

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use asp_edge::Caller;
use asp_proto::snapshot::{Mutation, Primitive};
use futures::StreamExt;
use tokio::time::timeout;
use uuid::Uuid;

use super::{ActiveFault, ActiveTable, end_attempt, in_time};
use crate::call::Call;
use crate::call::chosen::Put;
use crate::call::remote::{CallCursor, CallPage, ListedCall};
use crate::durable::shared_briefs::{BriefLookup, PutResult, SharedBriefs};

/// Number of brief calls that are stored at the same time.
const AT_ONCE: usize = 8;

/// Location of the end of a brief call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BriefPlace {
    /// Every gateway finds it.
    Kept,
    /// Another gateway ran the call first, and has its end.
    Elsewhere,
    /// Nowhere: the database gets it.
    Nowhere,
}

impl ActiveTable {
    fn briefs(&self) -> Option<&SharedBriefs> {
        self.shared.as_ref().map(|shared| &*shared.briefs)
    }

    /// Whether the calls of a primitive may be brief now.
    pub fn keeps_briefly(&self, primitive: &Primitive) -> bool {
        primitive.mutation() == Mutation::ReadOnly && self.is_found_briefly() && !self.is_away()
    }

    /// Whether every gateway finds brief calls.
    fn is_found_briefly(&self) -> bool {
        self.shared.is_some() || self.is_alone()
    }

    /// Whether this gateway knows to be the only one of its database; always false with a shared store.
    pub fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Acquire)
    }

    /// Whether every gateway finds the end of a call without the database.
    pub fn has_briefly(&self, call: &Call) -> bool {
        let is_kept = match self.shared {
            Some(_) => call.ownership.is_shared_brief(),
            None => self.is_alone(),
        };
        is_kept && call.ownership.is_brief()
    }

    /// Keeps the end of a call that was made brief.
    pub async fn keep_brief(&self, call: &Call) -> BriefPlace {
        let Some(outcome) = call.outcome().filter(|_| call.ownership.is_brief()) else {
            return BriefPlace::Nowhere;
        };
        let Some(briefs) = self.briefs() else {
            return if self.has_briefly(call) { BriefPlace::Kept } else { BriefPlace::Nowhere };
        };
        match briefs.put(call, &outcome).await {
            PutResult::Stored => {
                call.ownership.share_brief();
                BriefPlace::Kept
            }
            PutResult::Exists if self.has_another_end(call).await => {
                call.ownership.passed_on.set();
                call.ownership.continued.set();
                BriefPlace::Elsewhere
            }
            PutResult::Exists | PutResult::Refused => BriefPlace::Nowhere,
        }
    }

    /// Notes for other gateways that the database gets the call. Returns false if another one ran the call first: the attempt
    /// here ends.
    pub async fn mark(&self, call: &Call) -> bool {
        let Some(briefs) = self.briefs() else { return true };
        if briefs.mark(call, false).await != PutResult::Exists {
            return true;
        }
        let found = briefs.find(call.id, &call.caller, &call.server.message.name).await;
        // Of two that are marked, the database has the first.
        let has_ended = matches!(found, BriefLookup::Ended(_));
        if has_ended {
            end_attempt(call);
            if call.outcome().is_some() {
                call.ownership.continued.set();
            }
        }
        !has_ended
    }

    /// Whether the call has another end or a record. The gateway that marked it may be lost.
    async fn has_another_end(&self, call: &Call) -> bool {
        let caller = &call.caller;
        let server = call.server.message.name.as_str();
        match self.find_brief(call.id, caller, server).await {
            BriefLookup::Ended(_) => true,
            BriefLookup::Absent => false,
            BriefLookup::InDatabase => {
                self.status(call.id, caller, server).await.is_ok_and(|status| status.is_some())
            }
        }
    }

    /// Looks for a brief call that is not at this gateway.
    pub async fn find_brief(&self, id: Uuid, caller: &Caller, server: &str) -> BriefLookup {
        match self.briefs() {
            Some(briefs) => briefs.find(id, caller, server).await,
            None if self.is_found_briefly() => BriefLookup::Absent,
            None => BriefLookup::InDatabase,
        }
    }

    /// Asks the database whether other gateways use it. If one appears, the database gets the brief calls. Gateways that start
    /// together see each other before one of them counts as alone.
    pub async fn look_for_others(self: &Arc<Self>) {
        if self.shared.is_some() {
            return;
        }
        // While the database does not answer, no gateway finds a call of another one.
        let Ok(is_alone) = in_time(self.store.is_alone(self.owner)).await else { return };
        let is_alone = is_alone && self.is_steady() && !self.retired.load(Ordering::Acquire);
        if self.alone.swap(is_alone, Ordering::AcqRel) && !is_alone {
            let table = self.clone();
            tokio::spawn(async move { table.store_brief_calls().await });
        }
    }

    /// Stores the brief calls that only this process has, as a step of a shutdown, for at most `longest`: the next process of
    /// the database is asked for them.
    pub async fn end_brief_calls(self: &Arc<Self>, longest: Duration) {
        self.alone.store(false, Ordering::Release);
        let is_idle = self.registry.brief().is_empty();
        if !is_idle && (self.is_away() || timeout(longest, self.store_brief_calls()).await.is_err()) {
            tracing::warn!(
                "ends of calls that only read could not all be stored in time; their clients have to call again: check the store"
            );
        }
    }

    async fn store_brief_calls(self: &Arc<Self>) {
        let calls = futures::stream::iter(self.registry.brief());
        calls.for_each_concurrent(AT_ONCE, |call| store(self.clone(), call)).await;
    }

    /// Stores a brief call in the database. Returns once that has it, also if it was not brief any more.
    pub async fn store_brief(self: &Arc<Self>, call: &Arc<Call>) -> Result<(), ActiveFault> {
        let was_brief = call.ownership.is_brief();
        if was_brief {
            // From here on its end is stored, too.
            call.ownership.note_store_attempt();
        }
        match call.outcome() {
            Some(_) => self.tell_end(call).await?,
            None if was_brief => self.announce(call).await?,
            None => {}
        }
        if was_brief && let Some(briefs) = self.briefs() {
            // Until then it is in a list twice.
            briefs.mark(call, true).await;
        }
        Ok(())
    }

    /// Returns a page of at most `rows` brief calls of `caller` at `server`, those that changed last first.
    pub(super) async fn brief_page(
        &self,
        caller: &Caller,
        server: &str,
        (before, rows): (Option<CallCursor>, u32),
    ) -> CallPage {
        if let Some(briefs) = self.briefs() {
            return briefs.page(caller, server, before, rows).await;
        }
        let calls = self.registry.brief_of(caller, server);
        let is_of_page = |listed: &ListedCall| before.is_none_or(|before| place(listed) < before);
        CallPage {
            calls: calls.iter().filter_map(|call| to_listed(call)).filter(is_of_page).collect(),
            next: None,
        }
    }
}

async fn store(table: Arc<ActiveTable>, call: Arc<Call>) {
    if let Err(error) = table.store_brief(&call).await {
        tracing::debug!(call = %call.id, trace = %call.trace, %error, "call that only reads could not be stored; other gateways do not see it");
    }
}

/// Merges pages that begin at the same place into one of at most `rows` calls, those that changed last first.
pub(super) fn merged(stored: CallPage, brief: CallPage, rows: u32) -> CallPage {
    if brief.calls.is_empty() && brief.next.is_none() {
        return stored;
    }
    // What follows the end of either page may be preceded by more of that list.
    let mut next = stored.next.max(brief.next);
    let CallPage { mut calls, .. } = stored;
    // An earlier process may have left a record under the same id.
    calls.retain(|listed| brief.calls.iter().all(|other| other.put.chosen.id() != listed.put.chosen.id()));
    calls.extend(brief.calls);
    calls.retain(|listed| next.is_none_or(|last| place(listed) >= last));
    calls.sort_by_key(|listed| Reverse(place(listed)));
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    if calls.len() > rows {
        calls.truncate(rows);
        next = calls.last().map(place);
    }
    CallPage { calls, next }
}

/// Returns a brief call as an element of a list; `None` for one that was rejected before it started.
fn to_listed(call: &Call) -> Option<ListedCall> {
    if call.void().is_some() {
        return None;
    }
    let created_ms = call.began_ms();
    let updated_ms = call.changed_ms();
    Some(ListedCall { put: Put::of(call)?, state: call.state(), created_ms, updated_ms })
}

/// Returns the place of a call in a list.
fn place(listed: &ListedCall) -> CallCursor {
    (i64::try_from(listed.updated_ms).unwrap_or(i64::MAX), listed.put.chosen.id().into_bytes())
}

#[cfg(test)]
mod tests {
    use asp_proto::snapshot::Protocol;
    use serde_json::json;

    use super::*;
    use crate::call::State;
    use crate::call::chosen::ChosenId;
    use crate::call::testkit::caller;

    fn listed(name: &str, updated_ms: u64) -> ListedCall {
        let chosen = ChosenId::of(&caller("alice"), ("demo", name), "1.0.0", &json!({}).into());
        let name = name.to_owned();
        let primitive = "echo".to_owned();
        let put = Put { protocol: Protocol::A2a, name, context: String::new(), primitive, key: None, chosen };
        ListedCall { put, state: State::Completed, created_ms: 0, updated_ms }
    }

    fn page(calls: &[(&str, u64)], next: Option<u64>) -> CallPage {
        let calls: Vec<ListedCall> = calls.iter().map(|(name, at)| listed(name, *at)).collect();
        let next = next.and_then(|at| calls.iter().find(|listed| listed.updated_ms == at)).map(place);
        CallPage { calls, next }
    }

    fn names(page: &CallPage) -> Vec<&str> {
        page.calls.iter().map(|listed| listed.put.name.as_str()).collect()
    }

    #[test]
    fn pages_are_merged_by_time_up_to_the_end_of_the_first_that_goes_on() {
        let all = merged(page(&[("a", 9), ("c", 5)], None), page(&[("b", 7), ("d", 3)], None), 9);
        assert_eq!((names(&all), all.next), (vec!["a", "b", "c", "d"], None));
        let more = merged(page(&[("a", 9), ("c", 5)], Some(5)), page(&[("b", 7), ("d", 3)], None), 9);
        assert_eq!((names(&more), more.next.map(|(at, _)| at)), (vec!["a", "b", "c"], Some(5)));
        let more = merged(page(&[("a", 9), ("c", 5)], None), page(&[("b", 7), ("x", 6)], Some(6)), 9);
        assert_eq!((names(&more), more.next.map(|(at, _)| at)), (vec!["a", "b", "x"], Some(6)));
        let cut = merged(page(&[("a", 9), ("c", 5)], None), page(&[("b", 7), ("d", 3)], None), 3);
        assert_eq!((names(&cut), cut.next.map(|(at, _)| at)), (vec!["a", "b", "c"], Some(5)));
        let twice = merged(page(&[("a", 9), ("b", 8)], None), page(&[("b", 7)], None), 9);
        assert_eq!(names(&twice), ["a", "b"]);
        assert_eq!(twice.calls[1].updated_ms, 7);
    }
}
