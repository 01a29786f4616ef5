//! The upstream sessions of one gateway: which one a call uses, and how long each is kept.
//!
//! Keeps true: a session belongs to one principal, one downstream session and one set of abilities, and a call
//! without a session has one exclusively while it runs; the quota of a user and of an org in the table is bounded, so
//! that nobody displaces everybody else's sessions; a session that was idle for 10 minutes is ended at its server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::principal::owner;
use asp_call::digest;
use asp_call::quota_table::{Quota, QuotaTable, Quotas};
use asp_mcp_client::client::session::Session;
use parking_lot::Mutex;

const BOUNDS: Quotas = Quotas { whole: Quota::of(10_000), of_org: Quota::of(2_500), of_user: Quota::of(256) };
/// Idle time after which a session is ended.
const IDLE: Duration = Duration::from_secs(600);
/// Interval between two searches for idle sessions.
const BETWEEN: Duration = Duration::from_secs(60);
/// Maximum number of one principal's calls without a session that keep their upstream session for the next call.
const LANES: u8 = 32;

/// Locked while one call opens the session, so that concurrent calls do not open it twice.
pub(super) type Slot = Arc<tokio::sync::Mutex<Option<Arc<Session>>>>;

/// A slot, and the client session that it belongs to, if any.
struct SessionSlot {
    slot: Slot,
    session: String,
}

/// Table of sessions.
pub(super) struct Sessions {
    slots: Mutex<QuotaTable<SessionSlot>>,
    /// Whether a task looks for idle sessions.
    is_swept: AtomicBool,
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions { slots: Mutex::new(QuotaTable::new(BOUNDS)), is_swept: AtomicBool::new(false) }
    }
}

impl Sessions {
    /// Returns the slot of the call's session at `url`, declared with these capabilities.
    pub(super) fn slot(self: &Arc<Self>, url: &str, call: &Call, capabilities: &str) -> Slot {
        let caller = &call.caller;
        let id = |lane: &str| {
            let client = &caller.client;
            digest::shortened(&[
                url,
                &caller.issuer,
                &caller.org,
                &caller.user,
                client,
                &call.session,
                capabilities,
                lane,
            ])
        };
        let mut slots = self.slots.lock();
        let mut found = None;
        for lane in 0..LANES {
            let id = id(&lane.to_string());
            match slots.touch(&id) {
                // In a session, the client distinguishes calls; without a session they could be confused.
                Some(SessionSlot { slot, .. })
                    if !call.session.is_empty() || Arc::strong_count(slot) == 1 =>
                {
                    return slot.clone();
                }
                Some(_) => {}
                None => {
                    found = Some(id);
                    break;
                }
            }
        }
        let slot = Slot::default();
        if let Some(id) = found {
            slots.replace(
                id,
                owner(caller),
                SessionSlot { slot: slot.clone(), session: call.session.clone() },
            );
            drop(slots);
            self.sweep();
        }
        slot
    }

    /// Returns the upstream sessions of a client's session.
    pub(super) fn of(&self, session: &str) -> Vec<Slot> {
        let slots = self.slots.lock();
        let theirs = slots.values().filter(|kept| kept.session == session);
        theirs.map(|kept| kept.slot.clone()).collect()
    }

    /// Forgets the upstream sessions of a client's session; those that no call uses are ended.
    pub(super) fn end(&self, session: &str) {
        let ended = self.of(session);
        self.slots.lock().retain(|kept| kept.session != session);
        // Not under the lock: each session sends a closing request.
        drop(ended);
    }

    /// Forgets every session; those that no call uses are ended.
    pub(super) fn clear(&self) {
        let all = std::mem::replace(&mut *self.slots.lock(), QuotaTable::new(BOUNDS));
        drop(all);
    }

    fn sweep(self: &Arc<Self>) {
        if self.is_swept.swap(true, Ordering::AcqRel) {
            return;
        }
        let table = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(BETWEEN).await;
                let Some(table) = table.upgrade() else { return };
                let mut slots = table.slots.lock();
                slots.forget_idle(IDLE);
                if slots.is_empty() {
                    // Under the lock: the next addition starts another task.
                    table.is_swept.store(false, Ordering::Release);
                    return;
                }
            }
        });
    }
}
