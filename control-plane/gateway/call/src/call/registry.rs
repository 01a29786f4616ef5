//! The calls of one gateway by id: running ones, and ended ones that a client may return for.
//!
//! Owns: the one table in which a call is found; all other code refers to calls by id or weakly. Keeps true: only the
//! principal of a call attaches to it, at the server where it was started; for anyone else the call does not exist; an
//! ended call stays for the promised time, and no longer; ended calls are bounded in number and in bytes, in all, per
//! org and per user, while admission bounds running ones (I-4).

use std::collections::{HashMap, hash_map};
use std::sync::Arc;

use asp_edge::Caller;
use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::outcome::Outcome;
use super::{Call, principal};
use crate::quota_table::{Quota, QuotaTable, Quotas};

const MIB: usize = 1 << 20;
/// Maximum number of ended calls, and their maximum size in bytes.
const BOUNDS: Quotas = Quotas {
    whole: Quota { entries: 10_000, bytes: 256 * MIB },
    of_org: Quota { entries: 4_000, bytes: 128 * MIB },
    of_user: Quota { entries: 1_000, bytes: 64 * MIB },
};

/// The calls of one gateway.
pub struct CallRegistry {
    table: Mutex<CallTable>,
}

struct CallTable {
    running: HashMap<Uuid, CallEntry>,
    ended: QuotaTable<CallEntry>,
}

struct CallEntry {
    call: Arc<Call>,
    /// Time until which a client may return for it; `None` if no client knows of it.
    promised: Option<Instant>,
}

impl Default for CallRegistry {
    fn default() -> CallRegistry {
        CallRegistry {
            table: Mutex::new(CallTable { running: HashMap::new(), ended: QuotaTable::new(BOUNDS) }),
        }
    }
}

impl CallRegistry {
    /// Adds a call that starts or continues here.
    pub fn enter(&self, call: &Arc<Call>) {
        let mut table = self.table.lock();
        // A call whose client chose its id was entered when it was created.
        if table.running.get(&call.id).is_some_and(|entry| Arc::ptr_eq(&entry.call, call)) {
            return;
        }
        table.ended.remove(call.id.as_bytes());
        table.running.insert(call.id, CallEntry { call: call.clone(), promised: None });
    }

    /// Adds a call that starts under an id chosen by its client. It is promised until `until`, so that it keeps the id
    /// even if it ends at once; the error is the call that has the id.
    pub fn enter_new(&self, call: &Arc<Call>, until: Instant) -> Result<(), Arc<Call>> {
        let mut table = self.table.lock();
        if let Some(known) = table.find(call.id) {
            return Err(known.call.clone());
        }
        table.running.insert(call.id, CallEntry { call: call.clone(), promised: Some(until) });
        Ok(())
    }

    /// Keeps the call findable until `until` at least, even if it has ended by then.
    pub fn promise(&self, call: &Arc<Call>, until: Instant) {
        if self.table.lock().prolongs(call, until) {
            return;
        }
        // Not under the lock: an output may be large.
        let bytes = held_bytes(call);
        let mut table = self.table.lock();
        // It may have continued here since.
        if !table.prolongs(call, until) {
            table.keep(CallEntry { call: call.clone(), promised: Some(until) }, bytes);
        }
    }

    /// Handles the end of a call; the outcome is set.
    pub fn end(&self, call: &Call) {
        if let Some(kept) = self.end_unpromised(call) {
            // Not under the lock: an output may be large.
            let bytes = held_bytes(&kept);
            let mut table = self.table.lock();
            if let Some(entry) = table.entered(call).map(hash_map::OccupiedEntry::remove) {
                table.keep(entry, bytes);
            }
        }
    }

    /// Removes a finished call that no client can return to, which is the usual case; returns any other one.
    fn end_unpromised(&self, call: &Call) -> Option<Arc<Call>> {
        let mut table = self.table.lock();
        let entry = table.entered(call)?;
        match entry.get().promised {
            Some(_) if call.void().is_none() => Some(entry.get().call.clone()),
            _ => {
                entry.remove();
                None
            }
        }
    }

    /// Returns the call with this id for `caller` at `server`; `None` also for a call of another principal.
    pub fn attach(&self, id: Uuid, caller: &Caller, server: &str) -> Option<Arc<Call>> {
        let table = self.table.lock();
        let call = &table.find(id)?.call;
        let is_theirs = principal::is_same(&call.caller, caller) && call.server.message.name == server;
        is_theirs.then(|| call.clone())
    }

    /// Returns a running call, for callers that have checked the right to it.
    pub fn find_running(&self, id: Uuid) -> Option<Arc<Call>> {
        self.table.lock().running.get(&id).map(|entry| entry.call.clone())
    }

    /// Returns the running calls.
    pub fn running(&self) -> Vec<Arc<Call>> {
        self.table.lock().running.values().map(|entry| entry.call.clone()).collect()
    }

    /// Returns the calls that only this process has although a client may return for them, running and ended.
    pub(crate) fn brief(&self) -> Vec<Arc<Call>> {
        let table = self.table.lock();
        let calls = table.running.values().chain(table.ended.values()).map(|entry| &entry.call);
        calls.filter(|call| is_brief(call)).cloned().collect()
    }

    /// Returns those of `caller` at `server`.
    pub(crate) fn brief_of(&self, caller: &Caller, server: &str) -> Vec<Arc<Call>> {
        let table = self.table.lock();
        let ended = table.ended.values_of(principal::owner(caller));
        let calls = table.running.values().chain(ended).map(|entry| &entry.call);
        let is_theirs = |call: &&Arc<Call>| {
            is_brief(call) && principal::is_same(&call.caller, caller) && call.server.message.name == server
        };
        calls.filter(is_theirs).cloned().collect()
    }

    /// Returns the number of running calls.
    pub fn len(&self) -> usize {
        self.table.lock().running.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the ended calls that no client can return for; called periodically.
    pub fn sweep(&self) {
        let now = Instant::now();
        self.table.lock().ended.retain(|entry| entry.promised.is_some_and(|until| now < until));
    }
}

impl CallTable {
    /// Returns the entry that holds the id. A client may learn that a call is void before its entry is removed.
    fn find(&self, id: Uuid) -> Option<&CallEntry> {
        let entry = self.running.get(&id).or_else(|| self.ended.get(id.as_bytes()))?;
        entry.call.void().is_none().then_some(entry)
    }

    /// Returns the entry of this run of the call. Another run may be registered by now, if this gateway had lost the call.
    fn entered(&mut self, call: &Call) -> Option<hash_map::OccupiedEntry<'_, Uuid, CallEntry>> {
        match self.running.entry(call.id) {
            hash_map::Entry::Occupied(entry) if std::ptr::eq(entry.get().call.as_ref(), call) => Some(entry),
            _ => None,
        }
    }

    /// Extends the promise of a running call; false if the call does not run.
    fn prolongs(&mut self, call: &Call, until: Instant) -> bool {
        let Some(entry) = self.running.get_mut(&call.id) else { return false };
        entry.promised = entry.promised.max(Some(until));
        true
    }

    /// Keeps an ended call for its client. A call that another gateway continues has its outcome there.
    fn keep(&mut self, entry: CallEntry, bytes: usize) {
        let call = entry.call.clone();
        let is_late = entry.promised.is_none_or(|until| until <= Instant::now());
        if is_late || call.ownership.passed_on.is_set() || call.void().is_some() {
            return;
        }
        let owner = principal::owner(&call.caller);
        if !self.ended.replace_sized(call.id.into_bytes(), owner, entry, bytes) {
            tracing::debug!(call = %call.id, trace = %call.trace, bytes, "ended call is too large to be kept for a retry");
        }
    }
}

/// Whether only this process has a call.
fn is_brief(call: &Call) -> bool {
    call.ownership.is_brief() && !call.ownership.is_shared_brief()
}

/// Returns the size of an ended call in bytes: itself, its log, its history and its outcome.
fn held_bytes(call: &Call) -> usize {
    let outcome = match call.outcome().as_deref() {
        Some(Outcome::Done { output, .. }) => output.held_bytes(),
        Some(Outcome::Refused(refusal)) => refusal.to_string().len(),
        None => 0,
    };
    let opening = call.opening.as_ref().map_or(0, asp_json::held::of_json);
    size_of::<Call>() + call.events.held_bytes() + call.questions.held_bytes() + opening + outcome
}
