//! Who crashed a worker, and the service of suspects in workers of their own.

use std::collections::{BTreeMap, BTreeSet};

use asp_platform::breaker::Outcome;
use tokio::time::Instant;

use super::slot::{Phase, Slot};
use super::{Action, Scheduler, SetAside, TicketId};
use crate::pool::blame::Users;
use crate::worker::WorkerId;

/// Fewer tenants than this whose calls crash it say nothing about the plugin.
const TENANTS: usize = 3;

impl Scheduler {
    /// Puts a crash down to whom it is sure to be of, or on those who may have done it: the `culprit`, where one of those
    /// present is known to be.
    pub(super) fn blame_for(
        &mut self,
        worker: WorkerId,
        culprit: Option<String>,
        chance: f64,
        now: Instant,
    ) -> SetAside {
        let Some(slot) = self.workers.get(&worker) else { return SetAside::Nobody };
        match slot.users.clone() {
            Users::Nobody => {
                self.backoff.failed(chance, now);
                if self.quarantine.crashed(None, now) {
                    return SetAside::Plugin;
                }
            }
            Users::One(tenant) => {
                let rest = self.blame.sure(&tenant, chance, now);
                if self.quarantine.crashed(Some(&tenant), now) {
                    return SetAside::Plugin;
                }
                if let Some(rest) = rest {
                    return SetAside::Tenant { tenant, rest };
                }
            }
            Users::Several => {
                // Not sure: something that an earlier call left may hold up the culprit's.
                let suspects: BTreeSet<String> = match culprit {
                    Some(culprit) => [culprit].into(),
                    None => slot.tenants.keys().cloned().collect(),
                };
                self.blame.suspected(&suspects, now);
            }
        }
        SetAside::Nobody
    }

    /// What a call's end says of the plugin: nothing, as long as it fails for so few tenants.
    pub(super) fn of_plugin(&self, outcome: Outcome, now: Instant) -> Outcome {
        match outcome {
            Outcome::Failure if self.blame.culprits(now) < TENANTS => Outcome::Abandoned,
            outcome => outcome,
        }
    }

    /// The suspects that wait for a worker of their own, longest first.
    pub(super) fn waiting_apart(&self, now: Instant) -> Vec<String> {
        if self.blame.is_empty() {
            return Vec::new();
        }
        let apart = self.waiting().filter(|waiting| {
            !waiting.fresh
                && self.blame.is_suspect(&waiting.tenant, now)
                && self.blame.waits_until(&waiting.tenant, now).is_none()
        });
        let mut first: BTreeMap<&str, TicketId> = BTreeMap::new();
        for waiting in apart {
            let ticket = first.entry(&waiting.tenant).or_insert(waiting.ticket);
            *ticket = waiting.ticket.min(*ticket);
        }
        let mut tenants: Vec<(TicketId, &str)> =
            first.into_iter().map(|(name, ticket)| (ticket, name)).collect();
        tenants.sort_unstable();
        tenants.into_iter().map(|(_, tenant)| tenant.to_owned()).collect()
    }

    /// Starts a worker for each suspect who waits and has none; with as many such workers as the pool has others,
    /// the one that has served longest makes room when its calls are done.
    pub(super) fn start_apart(
        &mut self,
        now: Instant,
        may_start: &mut dyn FnMut() -> bool,
        actions: &mut Vec<Action>,
    ) {
        if self.starts_again_at(now).is_some() || self.quarantine.remaining(now).is_some() {
            return;
        }
        for tenant in self.waiting_apart(now) {
            let apart = |slot: &&Slot| !matches!(slot.phase, Phase::Leaving) && slot.apart.is_some();
            let own = |slot: &Slot| slot.apart.as_ref() == Some(&tenant) && !slot.single;
            if self.workers.values().filter(apart).any(own) {
                continue;
            }
            let crowded = self.workers.values().filter(apart).count() >= self.policy.max;
            if crowded {
                self.release_apart();
            }
            if crowded || self.workers.len() >= self.policy.max * 2 || !may_start() {
                return;
            }
            let worker = self.next_worker;
            self.next_worker += 1;
            self.workers.insert(worker, Slot::new(Some(tenant)));
            actions.push(Action::Start { worker });
        }
    }

    /// Lets one worker of a suspect take no more calls, unless one is about to go.
    fn release_apart(&mut self) {
        let apart = |slot: &&mut Slot| matches!(slot.phase, Phase::Ready { .. }) && slot.apart.is_some();
        let mut serving: Vec<&mut Slot> = self.workers.values_mut().filter(apart).collect();
        if serving.iter().any(|slot| slot.single) {
            return;
        }
        serving.sort_by_key(|slot| slot.served);
        if let Some(slot) = serving.pop() {
            slot.single = true;
        }
    }
}
