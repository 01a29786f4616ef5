//! Waiting calls and subscriptions: refusals and cancellations while they wait for a worker.

use tokio::time::Instant;

use super::slot::Phase;
use super::{Action, Scheduler, TicketId, WaitingCall};
use crate::refusal::Refusal;

impl Scheduler {
    /// Removes a waiting call; returns false if it no longer waits.
    pub fn cancel(&mut self, ticket: TicketId, now: Instant) -> bool {
        let removed = self.take_waiting(|waiting| waiting.ticket == ticket);
        for waiting in &removed {
            self.end_waiting(waiting, now);
        }
        !removed.is_empty()
    }

    /// Refuses everything that waits: there will be no more workers.
    pub fn refuse_waiting(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        for waiting in self.take_waiting(|_| true) {
            self.end_waiting(&waiting, now);
            actions.push(Action::Refuse { ticket: waiting.ticket, reason: Refusal::Draining });
        }
        actions
    }

    /// Refuses calls that have waited too long or can no longer be served.
    pub(super) fn refuse(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let is_draining = self.draining;
        let late = self.take_waiting(|waiting| {
            // A drain lets calls finish; a subscription would not.
            waiting.deadline <= now || waiting.subscription && is_draining
        });
        for waiting in late {
            self.end_waiting(&waiting, now);
            let reason = if is_draining && waiting.subscription { Refusal::Draining } else { Refusal::Late };
            actions.push(Action::Refuse { ticket: waiting.ticket, reason });
        }
        self.refuse_for_host_trouble(now, actions);
        let Some(rest) = self.quarantine.remaining(now) else { return };
        for waiting in self.take_waiting(|_| true) {
            self.end_waiting(&waiting, now);
            actions.push(Action::Refuse { ticket: waiting.ticket, reason: Refusal::Quarantined { rest } });
        }
    }

    /// Refuses the waiting calls with the reason of a failed start, so that they may retry at once; if other workers
    /// serve or are about to, the calls wait for those.
    fn refuse_for_host_trouble(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(why) = self.host.unreported.take() else { return };
        if self.workers.values().any(|slot| !matches!(slot.phase, Phase::Leaving)) {
            return;
        }
        for waiting in self.take_waiting(|_| true) {
            self.end_waiting(&waiting, now);
            let reason = Refusal::HostTrouble(why.clone());
            actions.push(Action::Refuse { ticket: waiting.ticket, reason });
        }
    }

    /// Iterates over everything that waits for a worker, in no particular order.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &WaitingCall> {
        self.queue.iter().chain(&self.subscriptions)
    }

    /// Removes everything that waits and for which `wanted` holds.
    fn take_waiting(&mut self, wanted: impl Fn(&WaitingCall) -> bool) -> Vec<WaitingCall> {
        let mut taken = self.queue.remove(&wanted);
        taken.extend(self.subscriptions.extract_if(.., |waiting| wanted(waiting)));
        taken
    }

    /// Ends a call that has not run, which is no evidence about the plugin.
    fn end_waiting(&mut self, waiting: &WaitingCall, now: Instant) {
        // The breaker does not count subscriptions.
        if !waiting.subscription {
            self.end_unrun(waiting.ticket, now);
        }
    }
}
