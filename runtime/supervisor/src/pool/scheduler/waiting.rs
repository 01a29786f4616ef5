//! Waiting calls and subscriptions: refusals and cancellations while they wait for a worker.

use tokio::time::Instant;

use super::slot::Phase;
use super::{Action, Scheduler, TicketId, WaitingCall};
use crate::refusal::Refusal;

impl Scheduler {
    /// Removes a waiting call; returns false if it no longer waits.
    pub fn cancel(&mut self, ticket: TicketId, now: Instant) -> bool {
        !self.take_waiting(now, |waiting| waiting.ticket == ticket).is_empty()
    }

    /// Refuses everything that waits: there will be no more workers.
    pub fn refuse_waiting(&mut self, now: Instant) -> Vec<Action> {
        self.refuse_all(now, &Refusal::Draining)
    }

    /// Refuses calls that have waited too long or can no longer be served.
    pub(super) fn refuse(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let is_draining = self.draining;
        let late = self.take_waiting(now, |waiting| {
            // A drain lets calls finish; a subscription would not.
            waiting.deadline <= now || waiting.subscription && is_draining
        });
        for waiting in late {
            let reason = if is_draining && waiting.subscription { Refusal::Draining } else { Refusal::Late };
            actions.push(Action::Refuse { ticket: waiting.ticket, reason });
        }
        self.refuse_for_host_trouble(now, actions);
        if let Some(reason) = self.quarantine.refusal(now) {
            actions.extend(self.refuse_all(now, &reason));
        }
    }

    /// Refuses the waiting calls with the reason of a failed start, so that they may retry at once; if other workers
    /// serve or are about to, the calls wait for those.
    fn refuse_for_host_trouble(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(why) = self.host.unreported.take() else { return };
        if self.workers.values().any(|slot| !matches!(slot.phase, Phase::Leaving)) {
            return;
        }
        actions.extend(self.refuse_all(now, &Refusal::HostTrouble(why)));
    }

    /// Refuses everything that waits with this reason.
    fn refuse_all(&mut self, now: Instant, reason: &Refusal) -> Vec<Action> {
        let waiting = self.take_waiting(now, |_| true).into_iter();
        waiting.map(|waiting| Action::Refuse { ticket: waiting.ticket, reason: reason.clone() }).collect()
    }

    /// Iterates over everything that waits for a worker, in no particular order.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &WaitingCall> {
        self.queue.iter().chain(&self.subscriptions)
    }

    /// Removes and ends everything that waits and for which `wanted` holds.
    fn take_waiting(&mut self, now: Instant, wanted: impl Fn(&WaitingCall) -> bool) -> Vec<WaitingCall> {
        let mut taken = self.queue.remove(&wanted);
        taken.extend(self.subscriptions.extract_if(.., |waiting| wanted(waiting)));
        // The breaker does not count subscriptions.
        for waiting in taken.iter().filter(|waiting| !waiting.subscription) {
            self.end_unrun(waiting.ticket, now);
        }
        taken
    }
}
