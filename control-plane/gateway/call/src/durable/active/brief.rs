//! Calls of which the store has nothing, because they only read, end within their request, and no other gateway could be
//! asked for them.
//!
//! Owns: whether this gateway is the only one of its store. Keeps true: a call is brief only while it is; once another
//! gateway appears, when this one stops, and when more than its end is stored of a call, the store gets what it has not; a
//! lost process loses its brief calls, which only read and can be repeated (I-13).

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use asp_proto::snapshot::{Mutation, Primitive};
use futures::StreamExt;
use tokio::time::timeout;

use super::{ActiveFault, ActiveTable, in_time};
use crate::call::Call;
use crate::call::chosen::Put;
use crate::call::remote::{CallCursor, CallPage, ListOrder, ListedCall};

/// Number of brief calls that are stored at the same time.
const AT_ONCE: usize = 8;

impl ActiveTable {
    /// Whether the calls of a primitive may be brief now.
    pub fn keeps_briefly(&self, primitive: &Primitive) -> bool {
        let is_alone = self.alone.load(Ordering::Acquire) && !self.is_away();
        is_alone && primitive.mutation() == Mutation::ReadOnly
    }

    /// Whether only this process has the end of a call, and no other needs to.
    pub fn has_briefly(&self, call: &Call) -> bool {
        call.ownership.is_brief() && self.alone.load(Ordering::Acquire)
    }

    /// Asks the store whether other gateways use it. If one appears, the store gets the brief calls. Gateways that start
    /// together see each other before one of them counts as alone.
    pub async fn look_for_others(self: &Arc<Self>) {
        // While the store does not answer, no gateway finds a call of another one.
        let Ok(is_alone) = in_time(self.store.is_alone(self.owner)).await else { return };
        let is_alone = is_alone && self.is_steady() && !self.retired.load(Ordering::Acquire);
        if self.alone.swap(is_alone, Ordering::AcqRel) && !is_alone {
            let table = self.clone();
            tokio::spawn(async move { table.store_brief_calls().await });
        }
    }

    /// Stores the brief calls, as a step of a shutdown, for at most `longest`: the next process of the store is asked for
    /// them.
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

    /// Stores a brief call, so that other gateways see it. Returns once the store has it, also if it was not brief any more.
    pub async fn store_brief(self: &Arc<Self>, call: &Arc<Call>) -> Result<(), ActiveFault> {
        let was_brief = call.ownership.is_brief();
        if was_brief {
            // From here on its end is stored, too.
            call.ownership.note_store_attempt();
        }
        match call.outcome() {
            Some(_) => self.tell_end(call).await,
            None if was_brief => self.announce(call).await,
            None => Ok(()),
        }
    }
}

async fn store(table: Arc<ActiveTable>, call: Arc<Call>) {
    if let Err(error) = table.store_brief(&call).await {
        tracing::debug!(call = %call.id, trace = %call.trace, %error, "call that only reads could not be stored; other gateways do not see it");
    }
}

/// Adds brief calls of the same caller to a page that starts at `before` and has at most `rows` calls.
pub(super) fn with_brief(
    mut page: CallPage,
    calls: &[Arc<Call>],
    order: ListOrder,
    (before, rows): (Option<CallCursor>, u32),
) -> CallPage {
    if calls.is_empty() {
        return page;
    }
    // An earlier process may have left a record under the same id.
    page.calls.retain(|listed| calls.iter().all(|call| call.id != listed.put.chosen.id()));
    let last = page.next;
    let is_of_page = |listed: &ListedCall| {
        let at = place(listed, order);
        before.is_none_or(|before| at < before) && last.is_none_or(|last| at > last)
    };
    page.calls.extend(calls.iter().filter_map(|call| to_listed(call)).filter(is_of_page));
    page.calls.sort_by_key(|listed| Reverse(place(listed, order)));
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    if page.calls.len() > rows {
        page.calls.truncate(rows);
        page.next = page.calls.last().map(|listed| place(listed, order));
    }
    page
}

/// Returns a brief call as an element of a list; `None` for one that was rejected before it started.
fn to_listed(call: &Call) -> Option<ListedCall> {
    if call.void().is_some() {
        return None;
    }
    let (created_ms, updated_ms) = (call.began_ms(), call.changed_ms());
    Some(ListedCall { put: Put::of(call)?, state: call.state(), created_ms, updated_ms })
}

/// Returns the place of a call in a list.
fn place(listed: &ListedCall, order: ListOrder) -> CallCursor {
    let milliseconds = match order {
        ListOrder::Created => listed.created_ms,
        ListOrder::Updated => listed.updated_ms,
    };
    (i64::try_from(milliseconds).unwrap_or(i64::MAX), listed.put.chosen.id().into_bytes())
}
