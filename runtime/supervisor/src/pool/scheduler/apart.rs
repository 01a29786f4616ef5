//! Attribution of a worker's crash, and isolation of suspects in workers of their own.

use std::collections::{BTreeMap, BTreeSet};

use asp_platform::breaker::Outcome;
use tokio::time::Instant;

use super::slot::{Phase, WorkerSlot};
use super::{Action, QuarantineScope, Scheduler, TicketId, WorkerEnd};
use crate::pool::blame::Users;
use crate::worker::WorkerId;

/// Minimum number of tenants whose calls crash the plugin for that to be evidence about the plugin.
const TENANTS: usize = 3;

impl Scheduler {
    /// Attributes a crash to the tenant that certainly caused it, or to suspects: all tenants with a running call, or
    /// only the one known to be it. In development no crash is attributed, and a failed start is not repeated.
    pub(super) fn blame_for(
        &mut self,
        worker: WorkerId,
        end: WorkerEnd,
        chance: f64,
        now: Instant,
    ) -> QuarantineScope {
        let Some(slot) = self.workers.get(&worker) else { return QuarantineScope::Nobody };
        let users = slot.users.clone();
        if self.policy.development {
            if end == WorkerEnd::FailedStart {
                self.quarantine.record_failed_start(now);
            } else if users == Users::Nobody {
                // A spare worker would start again and again.
                self.backoff.failed(chance, now);
            }
            return QuarantineScope::Nobody;
        }
        match users {
            Users::Nobody => {
                self.backoff.failed(chance, now);
                if self.quarantine.record_crash(None, now) {
                    return QuarantineScope::Plugin;
                }
            }
            Users::One(tenant) => {
                let rest = self.blame.record_certain(&tenant, chance, now);
                if self.quarantine.record_crash(Some(&tenant), now) {
                    return QuarantineScope::Plugin;
                }
                if let Some(rest) = rest {
                    return QuarantineScope::Tenant { tenant, rest };
                }
            }
            Users::Several => {
                // Not certain: residual work of an earlier call may block the culprit's.
                let suspects: BTreeSet<String> = match end {
                    WorkerEnd::Overrun(culprit) => [culprit].into(),
                    _ => slot.tenants.keys().cloned().collect(),
                };
                self.blame.record_suspects(&suspects, now);
            }
        }
        QuarantineScope::Nobody
    }

    /// Returns what a call's end counts for the plugin: nothing as long as its calls fail for few tenants.
    pub(super) fn of_plugin(&self, outcome: Outcome, now: Instant) -> Outcome {
        match outcome {
            Outcome::Failure if self.blame.culprits(now) < TENANTS => Outcome::Abandoned,
            outcome => outcome,
        }
    }

    /// Returns the suspects that wait for a worker of their own, those that wait longest first.
    pub(super) fn waiting_suspects(&self, now: Instant) -> Vec<String> {
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

    /// Starts a worker for each suspect that waits and has none. If there are as many such workers as the pool's `max`,
    /// the one that has served most calls stops when its calls are done.
    pub(super) fn start_isolated(
        &mut self,
        now: Instant,
        may_start: &mut dyn FnMut() -> bool,
        actions: &mut Vec<Action>,
    ) {
        if self.starts_again_at(now).is_some() || self.quarantine.remaining(now).is_some() {
            return;
        }
        for tenant in self.waiting_suspects(now) {
            let apart = |slot: &&WorkerSlot| !matches!(slot.phase, Phase::Leaving) && slot.apart.is_some();
            let own = |slot: &WorkerSlot| slot.apart.as_ref() == Some(&tenant) && !slot.single;
            if self.workers.values().filter(apart).any(own) {
                continue;
            }
            let crowded = self.workers.values().filter(apart).count() >= self.policy.max;
            if crowded {
                self.release_isolated();
            }
            if crowded || self.workers.len() >= self.policy.max * 2 || !may_start() {
                return;
            }
            actions.push(self.start_one(Some(tenant)));
        }
    }

    /// Lets one suspect's worker take no more calls, unless another is already about to stop.
    fn release_isolated(&mut self) {
        let apart =
            |slot: &&mut WorkerSlot| matches!(slot.phase, Phase::Ready { .. }) && slot.apart.is_some();
        let mut serving: Vec<&mut WorkerSlot> = self.workers.values_mut().filter(apart).collect();
        if serving.iter().any(|slot| slot.single) {
            return;
        }
        serving.sort_by_key(|slot| slot.served);
        if let Some(slot) = serving.pop() {
            slot.single = true;
        }
    }
}
