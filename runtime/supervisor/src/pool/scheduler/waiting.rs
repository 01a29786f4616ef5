//! What waits for a worker, calls and subscriptions alike: who is refused meanwhile, and who leaves.

use tokio::time::Instant;

use super::slot::Phase;
use super::{Action, Scheduler, TicketId, Waiting};
use crate::refusal::Refusal;

impl Scheduler {
    /// Takes a waiting call out; false when it does not wait any more.
    pub fn cancel(&mut self, ticket: TicketId, now: Instant) -> bool {
        let removed = self.take_waiting(|waiting| waiting.ticket == ticket);
        for waiting in &removed {
            self.given_up(waiting, now);
        }
        !removed.is_empty()
    }

    /// Refuses everybody who waits: there will be no more workers.
    pub fn refuse_waiting(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        for waiting in self.take_waiting(|_| true) {
            self.given_up(&waiting, now);
            actions.push(Action::Refuse { ticket: waiting.ticket, reason: Refusal::Draining });
        }
        actions
    }

    /// Refuses who has waited too long, or for nothing.
    pub(super) fn refuse(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let is_draining = self.draining;
        let late = self.take_waiting(|waiting| {
            // A drain lets calls finish; a subscription would not.
            waiting.deadline <= now || waiting.subscription && is_draining
        });
        for waiting in late {
            self.given_up(&waiting, now);
            let reason = if is_draining && waiting.subscription { Refusal::Draining } else { Refusal::Late };
            actions.push(Action::Refuse { ticket: waiting.ticket, reason });
        }
        self.tell_host_trouble(now, actions);
        let Some(rest) = self.quarantine.remaining(now) else { return };
        for waiting in self.take_waiting(|_| true) {
            self.given_up(&waiting, now);
            actions.push(Action::Refuse { ticket: waiting.ticket, reason: Refusal::Quarantined { rest } });
        }
    }

    /// Who waits for a start that failed is told why at once, and may come again; where other workers serve or are
    /// about to, he waits for those.
    fn tell_host_trouble(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(why) = self.host.untold.take() else { return };
        if self.workers.values().any(|slot| !matches!(slot.phase, Phase::Leaving)) {
            return;
        }
        for waiting in self.take_waiting(|_| true) {
            self.given_up(&waiting, now);
            let reason = Refusal::HostTrouble(why.clone());
            actions.push(Action::Refuse { ticket: waiting.ticket, reason });
        }
    }

    /// All that waits for a worker, in no order that means anything.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.queue.iter().chain(&self.subscriptions)
    }

    /// Takes out all that waits for which `wanted` holds.
    fn take_waiting(&mut self, wanted: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let mut taken = self.queue.remove(&wanted);
        taken.extend(self.subscriptions.extract_if(.., |waiting| wanted(waiting)));
        taken
    }

    /// It ends without having run, which says nothing of the plugin.
    fn given_up(&mut self, waiting: &Waiting, now: Instant) {
        // The breaker does not count subscriptions.
        if !waiting.subscription {
            self.abandoned(waiting.ticket, now);
        }
    }
}
