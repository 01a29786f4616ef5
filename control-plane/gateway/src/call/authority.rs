//! Who is attached to a call: under whose token it runs, and what their clients can do for it.
//!
//! Keeps true: whoever attaches is the same principal; the token that was presented last counts; several may be attached,
//! each with what its own client can do, and the end of one ends none of the others; whoever goes away to answer counts as
//! there until somebody comes who can do the same; while nobody is, a call may ask what the client could answer with which
//! it began, because whoever comes back can.

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

/// Who is attached by now.
#[derive(Clone)]
struct Standing {
    caller: Arc<Caller>,
    /// Somebody waits for the answer who has not attached yet: the request that began the call.
    awaited: bool,
    /// Clients that are back and have not attached yet.
    arriving: usize,
    /// Open attachments, as many as requests are open: in all, and of clients with each ability.
    open: usize,
    able: [usize; ABILITIES],
    /// What those can do who went away to answer a question.
    away: ClientAbilities,
    /// When the last client went away so, in Unix milliseconds; 0 for none.
    away_ms: u64,
    /// The abilities of all clients that have attached.
    attached: ClientAbilities,
    /// When the last of them attached, in Unix milliseconds; 0 for none.
    attached_ms: u64,
    /// The call goes on though nobody follows it: its client was told that it can come back.
    kept: bool,
    /// The last one has left, and nobody has come since; it is not decided yet what that means for the call.
    abandoned: bool,
}

/// The clients that followed a call at a gateway that does not run it, once none does any more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Departure {
    /// Their abilities, all together.
    attached: ClientAbilities,
    /// When the last of them attached, in Unix milliseconds; 0 if their gateway does not say so.
    #[serde(default)]
    attached_ms: u64,
    /// The abilities of those that went away to answer a question.
    away: ClientAbilities,
    /// When the last of those went away, in Unix milliseconds; 0 if their gateway does not say so.
    #[serde(default)]
    away_ms: u64,
    /// They were told that the call goes on without them.
    kept: bool,
}

impl Standing {
    fn is_attended(&self) -> bool {
        self.awaited || self.arriving > 0 || self.open > 0
    }

    fn will_be_back(&self) -> bool {
        self.kept || self.away != ClientAbilities::default()
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned && !self.is_attended() && !self.will_be_back()
    }

    /// Counts a client in or out.
    fn count(&mut self, abilities: ClientAbilities, with: fn(usize, usize) -> usize) {
        for (able, flag) in self.able.iter_mut().zip(abilities.flags()) {
            *able = with(*able, usize::from(flag));
        }
    }
}

/// The standing of one call, which changes when somebody leaves and comes back.
pub struct Authority {
    standing: watch::Sender<Standing>,
    /// What the client could do with which the call began.
    begun_with: ClientAbilities,
    /// Clients of other gateways may follow the call.
    is_shared: AtomicBool,
}

impl Authority {
    /// `awaited`: somebody waits for the call's answer from the start.
    pub(crate) fn new(caller: Arc<Caller>, awaited: bool, begun_with: ClientAbilities) -> Authority {
        let none = ClientAbilities::default();
        let standing = Standing {
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
        Authority { standing: watch::Sender::new(standing), begun_with, is_shared: AtomicBool::new(false) }
    }

    /// Who the call runs for, with the token that was presented last.
    pub fn caller(&self) -> Arc<Caller> {
        self.standing.borrow().caller.clone()
    }

    pub fn begun_with(&self) -> ClientAbilities {
        self.begun_with
    }

    /// What the clients can do that are attached or will be back, all together.
    pub fn abilities(&self) -> ClientAbilities {
        let standing = self.standing.borrow();
        match standing.open {
            0 => self.begun_with,
            _ => {
                let there = ClientAbilities::of_flags(standing.able.map(|clients| clients > 0));
                ClientAbilities { tasks: self.begun_with.tasks, ..there.or(standing.away) }
            }
        }
    }

    /// The same principal is back, perhaps with a fresh token.
    pub fn present(&self, caller: &Arc<Caller>) {
        watched::change(&self.standing, |standing| {
            standing.caller = caller.clone();
            // It attaches next.
            standing.awaited = true;
            standing.abandoned = false;
            true
        });
    }

    /// Nobody waits for the call's answer here.
    pub fn leave(&self) {
        self.change(|standing| standing.awaited = false);
    }

    /// From now on nobody who detaches is the last: the call ends by itself, or because it is asked to.
    pub fn keep(&self) {
        self.change(|standing| standing.kept = true);
    }

    fn begin_arrival(&self) {
        self.change(|standing| standing.arriving += 1);
    }

    /// True where nobody is attached any more, nor will be back.
    fn end_arrival(&self) -> bool {
        let mut is_last = false;
        self.change(|standing| {
            standing.arriving = standing.arriving.saturating_sub(1);
            is_last = !standing.is_attended() && !standing.will_be_back();
        });
        is_last
    }

    fn attach(&self, abilities: ClientAbilities) {
        self.change(|standing| {
            standing.awaited = false;
            standing.abandoned = false;
            standing.attached = standing.attached.or(abilities);
            standing.attached_ms = unix_ms();
            standing.open += 1;
            standing.count(abilities, usize::saturating_add);
            standing.away = standing.away.without(abilities);
        });
    }

    /// True where nobody is attached any more, nor will be back.
    fn detach(&self, abilities: ClientAbilities, will_be_back: bool) -> bool {
        let mut is_last = false;
        self.change(|standing| {
            if will_be_back {
                standing.away = standing.away.or(abilities);
                standing.away_ms = unix_ms();
            }
            standing.open = standing.open.saturating_sub(1);
            standing.count(abilities, usize::saturating_sub);
            is_last = !standing.is_attended() && !standing.will_be_back();
        });
        is_last
    }

    /// Notes that clients of other gateways may follow the call from now on.
    pub(crate) fn share(&self) {
        self.is_shared.store(true, Ordering::Release);
    }

    /// The last client has left, and the call is to end with it. False where clients of other gateways may follow it: then it is
    /// decided who does ([`Authority::abandoned`]).
    pub(crate) fn abandon(&self) -> bool {
        if !self.is_shared.load(Ordering::Acquire) {
            return true;
        }
        self.standing.send_modify(|standing| standing.abandoned = true);
        false
    }

    /// Whether the last client has left, and nobody has come back since, nor will.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.standing.borrow().is_abandoned()
    }

    /// Resolves when that is so.
    pub(crate) async fn abandoned(&self) {
        let mut standing = self.standing.subscribe();
        // The sender lives in `self`.
        let _ = standing.wait_for(Standing::is_abandoned).await;
    }

    /// Resolves at the next change of this kind after the call of this function.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> {
        let mut standing = self.standing.subscribe();
        async move {
            // The sender lives in `self`.
            let _ = standing.changed().await;
        }
    }

    /// Whether the call goes on though nobody follows it: its clients will be back.
    pub(crate) fn will_be_back(&self) -> bool {
        self.standing.borrow().will_be_back()
    }

    /// Whether somebody is attached, or about to be.
    pub(crate) fn is_attended(&self) -> bool {
        self.standing.borrow().is_attended()
    }

    /// Takes what the call's own gateway has to know of those who followed the call here and do no more; `None` where that is nothing:
    /// the end of a stream is none of the call where a client of its era comes back to it.
    pub(crate) fn take_departure(&self) -> Option<Departure> {
        let mut departure = None;
        self.standing.send_modify(|standing| {
            let none = ClientAbilities::default();
            let Standing { attached, attached_ms, away, away_ms, kept, .. } = *standing;
            if standing.abandoned || away != none || (kept && attached != none) {
                departure = Some(Departure { attached, attached_ms, away, away_ms, kept });
            }
            (standing.attached, standing.away, standing.abandoned) = (none, none, false);
        });
        departure
    }

    /// Nobody follows the call at another gateway any more. A client that went away to answer after the last one had attached there
    /// is none of those: it still counts as there.
    pub(crate) fn depart_elsewhere(&self, departure: Departure) {
        let Departure { attached, attached_ms, away, away_ms, kept } = departure;
        self.standing.send_modify(|standing| {
            if attached_ms >= standing.away_ms {
                standing.away = standing.away.without(attached);
            }
            standing.away = standing.away.or(away);
            standing.away_ms = standing.away_ms.max(away_ms);
            standing.kept |= kept;
            standing.abandoned |= !standing.is_attended();
        });
    }

    /// Wakes whoever waits for the token's end only where that counts anew, or no more.
    fn change(&self, change: impl FnOnce(&mut Standing)) {
        watched::change(&self.standing, |standing| {
            let before = standing.is_attended();
            change(standing);
            before != standing.is_attended()
        });
    }

    /// Whether the token has expired while somebody is attached.
    pub(crate) fn has_expired(&self) -> bool {
        let standing = self.standing.borrow();
        standing.is_attended() && ends_at(&standing.caller).is_some_and(|end| end <= Instant::now())
    }

    /// Resolves when the token has expired while somebody is attached.
    pub(crate) async fn expired(&self, deadline: Instant) {
        let mut standing = self.standing.subscribe();
        loop {
            let now = standing.borrow_and_update().clone();
            let end = ends_at(&now.caller);
            let due = async {
                match end.filter(|end| now.is_attended() && *end < deadline) {
                    Some(end) => tokio::time::sleep_until(end).await,
                    // The call's own deadline comes first, or nobody is attached.
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => return,
                // The sender lives in `self`.
                _ = standing.changed() => {}
            }
        }
    }
}

impl Call {
    /// The last client that followed the call here has left before its outcome, and nobody will be back. Cancels the call, unless
    /// clients may follow it at other gateways: then it ends once none does.
    pub fn abandon(&self) {
        if self.authority.abandon() {
            self.cancel();
        }
    }
}

/// Somebody who follows a call, until this is dropped.
pub struct Attachment {
    call: Arc<Call>,
    abilities: ClientAbilities,
    open: bool,
}

impl Attachment {
    /// Attaches a client that can do this.
    pub fn to(call: Arc<Call>, abilities: ClientAbilities) -> Attachment {
        call.authority.attach(abilities);
        Attachment { call, abilities, open: true }
    }

    pub fn call(&self) -> &Arc<Call> {
        &self.call
    }

    /// What its client can do.
    pub fn abilities(&self) -> ClientAbilities {
        self.abilities
    }

    /// Ends it; true where it was open and nobody else is attached, or will be back.
    pub fn close(&mut self) -> bool {
        std::mem::take(&mut self.open) && self.call.authority.detach(self.abilities, false)
    }

    /// Ends it, because its client goes away to answer, perhaps with a fresh token.
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

/// A client that is back at a call and counts as attached until it is, or until this is dropped.
pub(crate) struct Arrival {
    call: Arc<Call>,
    open: bool,
}

impl Arrival {
    pub(crate) fn at(call: Arc<Call>) -> Arrival {
        call.authority.begin_arrival();
        Arrival { call, open: true }
    }

    pub(crate) fn call(&self) -> &Arc<Call> {
        &self.call
    }

    /// Ends it; true where it was open and nobody is attached, or will be back.
    pub(crate) fn close(&mut self) -> bool {
        std::mem::take(&mut self.open) && self.call.authority.end_arrival()
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.close();
    }
}

/// When the caller's token is refused everywhere; `None` beyond every deadline.
pub(crate) fn ends_at(caller: &Caller) -> Option<Instant> {
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
            let away_ms = authority.standing.borrow().away_ms;
            let attached_ms = if came_back_there { away_ms + 1 } else { away_ms - 1 };
            let departure = Departure { attached: can, attached_ms, away: none, away_ms: 0, kept: false };
            authority.depart_elsewhere(departure);
            assert_eq!(authority.is_abandoned(), came_back_there);
        }
    }
}
