//! The clients attached to a call: the token that it runs under, and what they can do for it.
//!
//! Keeps true: only the principal of the call attaches; the token presented last counts; several clients may be
//! attached, each with its own abilities, and the departure of one does not end the others; a client that left to
//! answer counts as present until another one comes with the same abilities; while none is present, a call may ask for
//! what its first client could answer, because a returning client can.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_edge::{Caller, LEEWAY_SECONDS};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use super::abilities::ABILITIES;
use super::{Call, ClientAbilities, watched};
use crate::clock::unix_ms;

/// Presence of clients at a call.
#[derive(Clone)]
struct Attendance {
    caller: Arc<Caller>,
    /// Whether the request that started the call waits for the answer and has not attached yet.
    awaited: bool,
    /// Number of returned clients that have not attached yet.
    arriving: usize,
    /// Number of open attachments, one per open request: in all, and by ability.
    open: usize,
    able: [usize; ABILITIES],
    /// Abilities of the clients that left to answer a question.
    away: ClientAbilities,
    /// Time at which the last of them left, in Unix milliseconds; 0 for none.
    away_ms: u64,
    /// Abilities of all clients that have attached.
    attached: ClientAbilities,
    /// Time at which the last client attached, in Unix milliseconds; 0 for none.
    attached_ms: u64,
    /// Whether the call continues without followers: its client knows that it can return.
    kept: bool,
    /// Whether the last client has left and none has come since, while the consequence for the call is undecided.
    abandoned: bool,
}

/// The clients that followed a call at a gateway that does not run it, reported once the last one has left.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Departure {
    /// Abilities of all of them.
    attached: ClientAbilities,
    /// Time at which the last of them attached, in Unix milliseconds; 0 if their gateway does not report it.
    #[serde(default)]
    attached_ms: u64,
    /// Abilities of those that left to answer a question.
    away: ClientAbilities,
    /// Time at which the last of those left, in Unix milliseconds; 0 if their gateway does not report it.
    #[serde(default)]
    away_ms: u64,
    /// Whether they know that the call continues without them.
    kept: bool,
}

impl Attendance {
    fn is_attended(&self) -> bool {
        self.awaited || self.arriving > 0 || self.open > 0
    }

    fn will_be_back(&self) -> bool {
        self.kept || self.away != ClientAbilities::default()
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned && !self.is_attended() && !self.will_be_back()
    }

    /// Adds or removes a client in the counts by ability.
    fn count(&mut self, abilities: ClientAbilities, with: fn(usize, usize) -> usize) {
        for (able, flag) in self.able.iter_mut().zip(abilities.flags()) {
            *able = with(*able, usize::from(flag));
        }
    }
}

/// Observable presence at one call.
pub struct Authority {
    attendance: watch::Sender<Attendance>,
    /// Abilities of the client that started the call.
    begun_with: ClientAbilities,
    /// Whether clients of other gateways may follow the call.
    is_shared: AtomicBool,
}

impl Authority {
    /// `awaited`: a client waits for the answer from the start.
    pub(crate) fn new(caller: Arc<Caller>, awaited: bool, begun_with: ClientAbilities) -> Authority {
        let none = ClientAbilities::default();
        let attendance = Attendance {
            caller,
            awaited,
            arriving: 0,
            open: 0,
            able: [0; ABILITIES],
            away: none,
            away_ms: 0,
            attached: none,
            attached_ms: 0,
            kept: false,
            abandoned: false,
        };
        Authority {
            attendance: watch::Sender::new(attendance),
            begun_with,
            is_shared: AtomicBool::new(false),
        }
    }

    /// Returns the principal that the call runs for, with the token presented last.
    pub fn caller(&self) -> Arc<Caller> {
        self.attendance.borrow().caller.clone()
    }

    pub fn begun_with(&self) -> ClientAbilities {
        self.begun_with
    }

    /// Returns the abilities of all clients that are attached or will return.
    pub fn abilities(&self) -> ClientAbilities {
        let attendance = self.attendance.borrow();
        match attendance.open {
            0 => self.begun_with,
            _ => {
                let there = ClientAbilities::of_flags(attendance.able.map(|clients| clients > 0));
                ClientAbilities { tasks: self.begun_with.tasks, ..there.or(attendance.away) }
            }
        }
    }

    /// Notes that the same principal is back, perhaps with a fresh token.
    pub fn present(&self, caller: &Arc<Caller>) {
        watched::change(&self.attendance, |attendance| {
            attendance.caller = caller.clone();
            // It attaches next.
            attendance.awaited = true;
            attendance.abandoned = false;
            true
        });
    }

    /// Notes that no client waits for the answer here.
    pub fn leave(&self) {
        self.change(|attendance| attendance.awaited = false);
    }

    /// Keeps the call when its last client leaves: it ends by itself, or when cancelled.
    pub fn keep(&self) {
        self.change(|attendance| attendance.kept = true);
    }

    fn begin_arrival(&self) {
        self.change(|attendance| attendance.arriving += 1);
    }

    /// Returns true if no client is attached any more and none will return.
    fn end_arrival(&self) -> bool {
        let mut is_last = false;
        self.change(|attendance| {
            attendance.arriving = attendance.arriving.saturating_sub(1);
            is_last = !attendance.is_attended() && !attendance.will_be_back();
        });
        is_last
    }

    fn attach(&self, abilities: ClientAbilities) {
        self.change(|attendance| {
            attendance.awaited = false;
            attendance.abandoned = false;
            attendance.attached = attendance.attached.or(abilities);
            attendance.attached_ms = unix_ms();
            attendance.open += 1;
            attendance.count(abilities, usize::saturating_add);
            attendance.away = attendance.away.without(abilities);
        });
    }

    /// Returns true if no client is attached any more and none will return.
    fn detach(&self, abilities: ClientAbilities, will_be_back: bool) -> bool {
        let mut is_last = false;
        self.change(|attendance| {
            if will_be_back {
                attendance.away = attendance.away.or(abilities);
                attendance.away_ms = unix_ms();
            }
            attendance.open = attendance.open.saturating_sub(1);
            attendance.count(abilities, usize::saturating_sub);
            is_last = !attendance.is_attended() && !attendance.will_be_back();
        });
        is_last
    }

    /// Notes that clients of other gateways may follow the call from now on.
    pub fn share(&self) {
        self.is_shared.store(true, Ordering::Release);
    }

    /// Notes that the last client has left; true if that ends the call. False if clients of other gateways may follow
    /// it: whether one does is found out first ([`Authority::abandoned`]).
    pub fn abandon(&self) -> bool {
        if !self.is_shared.load(Ordering::Acquire) {
            return true;
        }
        self.attendance.send_modify(|attendance| attendance.abandoned = true);
        false
    }

    /// Whether the last client has left, none has come since, and none will return.
    pub fn is_abandoned(&self) -> bool {
        self.attendance.borrow().is_abandoned()
    }

    /// Resolves when the call is abandoned, as [`Authority::is_abandoned`] defines it.
    pub(crate) async fn abandoned(&self) {
        let mut attendance = self.attendance.subscribe();
        // The sender lives in `self`.
        let _ = attendance.wait_for(Attendance::is_abandoned).await;
    }

    /// Resolves at the next change of the presence after this function was called.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> {
        let mut attendance = self.attendance.subscribe();
        async move {
            // The sender lives in `self`.
            let _ = attendance.changed().await;
        }
    }

    /// Whether the call continues without followers because its clients will return.
    pub fn will_be_back(&self) -> bool {
        self.attendance.borrow().will_be_back()
    }

    /// Whether a client is attached or about to attach.
    pub fn is_attended(&self) -> bool {
        self.attendance.borrow().is_attended()
    }

    /// Takes the report about clients that no longer follow the call here, for the call's own gateway. `None` if there
    /// is nothing to report: in protocols whose clients return to a call, the end of a stream does not end the call.
    pub fn take_departure(&self) -> Option<Departure> {
        let mut departure = None;
        self.attendance.send_modify(|attendance| {
            let none = ClientAbilities::default();
            let Attendance { attached, attached_ms, away, away_ms, kept, .. } = *attendance;
            if attendance.abandoned || away != none || (kept && attached != none) {
                departure = Some(Departure { attached, attached_ms, away, away_ms, kept });
            }
            (attendance.attached, attendance.away, attendance.abandoned) = (none, none, false);
        });
        departure
    }

    /// Applies a report that no client follows the call at another gateway any more. A client that left to answer after
    /// the last one attached there is not part of it and still counts as present.
    pub(crate) fn apply_remote_departure(&self, departure: Departure) {
        let Departure { attached, attached_ms, away, away_ms, kept } = departure;
        self.attendance.send_modify(|attendance| {
            if attached_ms >= attendance.away_ms {
                attendance.away = attendance.away.without(attached);
            }
            attendance.away = attendance.away.or(away);
            attendance.away_ms = attendance.away_ms.max(away_ms);
            attendance.kept |= kept;
            attendance.abandoned |= !attendance.is_attended();
        });
    }

    /// Wakes tasks that wait for the token's expiry only if the call became attended or unattended.
    fn change(&self, change: impl FnOnce(&mut Attendance)) {
        watched::change(&self.attendance, |attendance| {
            let before = attendance.is_attended();
            change(attendance);
            before != attendance.is_attended()
        });
    }

    /// Whether the token has expired while a client is attached.
    pub fn has_expired(&self) -> bool {
        let attendance = self.attendance.borrow();
        attendance.is_attended() && ends_at(&attendance.caller).is_some_and(|end| end <= Instant::now())
    }

    /// Resolves when the token has expired while a client is attached.
    pub async fn expired(&self, deadline: Instant) {
        let mut attendance = self.attendance.subscribe();
        loop {
            let now = attendance.borrow_and_update().clone();
            let end = ends_at(&now.caller);
            let due = async {
                match end.filter(|end| now.is_attended() && *end < deadline) {
                    Some(end) => tokio::time::sleep_until(end).await,
                    // The call's own deadline comes first, or no client is attached.
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => return,
                // The sender lives in `self`.
                _ = attendance.changed() => {}
            }
        }
    }
}

impl Call {
    /// Handles the departure of the last client here before the outcome, when none will return. Cancels the call,
    /// unless clients may follow it at other gateways: then it ends once none does.
    pub fn abandon(&self) {
        if self.authority.abandon() {
            self.cancel();
        }
    }
}

/// A client's attachment to a call, closed on drop.
pub struct Attachment {
    call: Arc<Call>,
    abilities: ClientAbilities,
    open: bool,
}

impl Attachment {
    /// Attaches a client with these abilities.
    pub fn to(call: Arc<Call>, abilities: ClientAbilities) -> Attachment {
        call.authority.attach(abilities);
        Attachment { call, abilities, open: true }
    }

    pub fn call(&self) -> &Arc<Call> {
        &self.call
    }

    /// Abilities of the client.
    pub fn abilities(&self) -> ClientAbilities {
        self.abilities
    }

    /// Closes it; true if it was open, no other client is attached and none will return.
    pub fn close(&mut self) -> bool {
        std::mem::take(&mut self.open) && self.call.authority.detach(self.abilities, false)
    }

    /// Closes it because its client leaves to answer and returns, perhaps with a fresh token.
    pub fn leave_to_answer(&mut self) {
        if std::mem::take(&mut self.open) {
            self.call.authority.detach(self.abilities, true);
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.close();
    }
}

/// A client that has returned to a call. It counts as attached until it attaches or this is dropped.
pub struct Arrival {
    call: Arc<Call>,
    open: bool,
}

impl Arrival {
    pub fn at(call: Arc<Call>) -> Arrival {
        call.authority.begin_arrival();
        Arrival { call, open: true }
    }

    pub fn call(&self) -> &Arc<Call> {
        &self.call
    }

    /// Closes it; true if it was open, no client is attached and none will return.
    pub fn close(&mut self) -> bool {
        std::mem::take(&mut self.open) && self.call.authority.end_arrival()
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.close();
    }
}

/// Time from which every gateway refuses the caller's token; `None` beyond every deadline.
pub fn ends_at(caller: &Caller) -> Option<Instant> {
    let ends = caller.expires_at.checked_add(LEEWAY_SECONDS)?.checked_mul(1000)?;
    Instant::now().checked_add(Duration::from_millis(ends.saturating_sub(unix_ms())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::testkit::caller;

    #[test]
    fn clients_that_leave_elsewhere_are_none_of_those_that_went_away_to_answer_after_them() {
        let none = ClientAbilities::default();
        let can = ClientAbilities { elicitation: true, ..none };
        for came_back_there in [false, true] {
            let authority = Authority::new(Arc::new(caller("alice")), false, can);
            authority.share();
            authority.attach(can);
            assert!(!authority.detach(can, true), "its client will be back");
            let away_ms = authority.attendance.borrow().away_ms;
            let attached_ms = if came_back_there { away_ms + 1 } else { away_ms - 1 };
            let departure = Departure { attached: can, attached_ms, away: none, away_ms: 0, kept: false };
            authority.apply_remote_departure(departure);
            assert_eq!(authority.is_abandoned(), came_back_there);
        }
    }
}
