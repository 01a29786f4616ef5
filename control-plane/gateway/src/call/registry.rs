//! The calls of one gateway by id: those that run, and those that have ended and somebody may come back for.
//!
//! Owns: the one table in which a call is found; everything else refers to calls by their id or weakly. Keeps true: who
//! attaches to a call is its principal, at the server it was begun at, and for anybody else there is no such call; a
//! call that ended stays for as long as it was promised, and no longer; what has ended is bounded in number and in
//! bytes, for the whole, each org and each user, and what runs is bounded by whoever admits it (I-4).

use std::collections::{HashMap, hash_map};
use std::sync::Arc;

use asp_edge::Caller;
use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::outcome::Outcome;
use super::{Call, principal};
use crate::digest;
use crate::shares::{Bounds, Owner, Share, Shares};

const MIB: usize = 1 << 20;
/// Most ended calls, and bytes of what they hold.
const BOUNDS: Bounds = Bounds {
    whole: Share { entries: 10_000, bytes: 256 * MIB },
    of_org: Share { entries: 4_000, bytes: 128 * MIB },
    of_user: Share { entries: 1_000, bytes: 64 * MIB },
};

/// The calls of one gateway.
pub struct CallRegistry {
    table: Mutex<Table>,
}

struct Table {
    running: HashMap<Uuid, Entry>,
    ended: Shares<Entry>,
}

struct Entry {
    call: Arc<Call>,
    /// Until when somebody may come back for it; `None` where nobody was told of it.
    promised: Option<Instant>,
}

impl Default for CallRegistry {
    fn default() -> CallRegistry {
        CallRegistry { table: Mutex::new(Table { running: HashMap::new(), ended: Shares::new(BOUNDS) }) }
    }
}

impl CallRegistry {
    /// A call begins, or goes on here.
    pub fn enter(&self, call: &Arc<Call>) {
        let mut table = self.table.lock();
        // One whose client chose its id was entered as it was made.
        if table.running.get(&call.id).is_some_and(|entry| Arc::ptr_eq(&entry.call, call)) {
            return;
        }
        table.ended.remove(call.id.as_bytes());
        table.running.insert(call.id, Entry { call: call.clone(), promised: None });
    }

    /// A call begins under an id that its client chose, and is promised until then, so that one which ends at once has
    /// the id too; `Err` is the call that has it.
    pub fn enter_new(&self, call: &Arc<Call>, until: Instant) -> Result<(), Arc<Call>> {
        let mut table = self.table.lock();
        if let Some(known) = table.find(call.id) {
            return Err(known.call.clone());
        }
        table.running.insert(call.id, Entry { call: call.clone(), promised: Some(until) });
        Ok(())
    }

    /// The call can be found until `until` at least, also when it has ended by then.
    pub fn promise(&self, call: &Arc<Call>, until: Instant) {
        if self.table.lock().prolongs(call, until) {
            return;
        }
        // Not under the lock: an output may be large.
        let bytes = held_bytes(call);
        let mut table = self.table.lock();
        // It may have gone on here meanwhile.
        if !table.prolongs(call, until) {
            table.keep(Entry { call: call.clone(), promised: Some(until) }, bytes);
        }
    }

    /// The call has its outcome.
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

    /// Most calls: nobody was told of it, so that nobody can come back. Else the call.
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

    /// The call with this id for `caller` at `server`; a foreign one is as unknown as none.
    pub fn attach(&self, id: Uuid, caller: &Caller, server: &str) -> Option<Arc<Call>> {
        let table = self.table.lock();
        let call = &table.find(id)?.call;
        let is_theirs = principal::is_same(&call.caller, caller) && call.server.message.name == server;
        is_theirs.then(|| call.clone())
    }

    /// A call that runs, for whom it was looked whose it is.
    pub(crate) fn find_running(&self, id: Uuid) -> Option<Arc<Call>> {
        self.table.lock().running.get(&id).map(|entry| entry.call.clone())
    }

    /// The calls that run.
    pub fn running(&self) -> Vec<Arc<Call>> {
        self.table.lock().running.values().map(|entry| entry.call.clone()).collect()
    }

    /// How many calls run.
    pub fn len(&self) -> usize {
        self.table.lock().running.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets the ended calls nobody can come back for; run from time to time.
    pub fn sweep(&self) {
        let now = Instant::now();
        self.table.lock().ended.retain(|entry| entry.promised.is_some_and(|until| now < until));
    }
}

impl Table {
    /// The entry of a call that has its id. A client may have been told that a call is void before its entry is gone.
    fn find(&self, id: Uuid) -> Option<&Entry> {
        let entry = self.running.get(&id).or_else(|| self.ended.get(id.as_bytes()))?;
        entry.call.void().is_none().then_some(entry)
    }

    /// The entry of this run of the call. Another one may have come here since: of a call that this gateway had lost.
    fn entered(&mut self, call: &Call) -> Option<hash_map::OccupiedEntry<'_, Uuid, Entry>> {
        match self.running.entry(call.id) {
            hash_map::Entry::Occupied(entry) if std::ptr::eq(entry.get().call.as_ref(), call) => Some(entry),
            _ => None,
        }
    }

    /// False where the call does not run.
    fn prolongs(&mut self, call: &Call, until: Instant) -> bool {
        let Some(entry) = self.running.get_mut(&call.id) else { return false };
        entry.promised = entry.promised.max(Some(until));
        true
    }

    /// Keeps an ended call for whom it was promised. What another gateway goes on with has its outcome there.
    fn keep(&mut self, entry: Entry, bytes: usize) {
        let call = entry.call.clone();
        let is_late = entry.promised.is_none_or(|until| until <= Instant::now());
        if is_late || call.ownership.is_passed_on() || call.void().is_some() {
            return;
        }
        let caller = &call.caller;
        let owner = Owner { user: principal::user(caller), org: digest::shortened(&[&caller.org]) };
        if !self.ended.replace_sized(call.id.into_bytes(), owner, entry, bytes) {
            tracing::debug!(call = %call.id, trace = %call.trace, bytes, "what an ended call holds is too large to be kept for a retry");
        }
    }
}

/// What an ended call holds in bytes: itself, its log, what it was answered, and its outcome.
fn held_bytes(call: &Call) -> usize {
    let outcome = match call.outcome().as_deref() {
        Some(Outcome::Done { output, .. }) => output.held_bytes(),
        Some(Outcome::Refused(refusal)) => refusal.to_string().len(),
        None => 0,
    };
    size_of::<Call>() + call.events.held_bytes() + call.questions.held_bytes() + outcome
}
