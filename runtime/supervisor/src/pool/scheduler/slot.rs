//! The scheduler's record of one worker.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::pool::blame::Users;

#[derive(Debug, Default)]
pub(super) enum Phase {
    #[default]
    Starting,
    Ready {
        idle_since: Instant,
    },
    /// The connection is lost: the worker takes no more calls, and the cause of its end is not known yet.
    Lost,
    /// The worker takes no more calls.
    Leaving,
}

#[derive(Debug, Default)]
pub(super) struct WorkerSlot {
    pub(super) phase: Phase,
    pub(super) active: usize,
    pub(super) served: u64,
    /// Whether it serves a single call and then stops.
    pub(super) single: bool,
    /// The only tenant that it serves, a suspect.
    pub(super) apart: Option<String>,
    /// Tenants with calls in it, now or when it crashed, and the number of calls.
    pub(super) tenants: BTreeMap<String, usize>,
    /// Tenants of the subscriptions among the calls.
    pub(super) subscriptions: Vec<String>,
    /// Tenants that ever had a call in it.
    pub(super) users: Users,
    /// Whether its ended calls may have left something running.
    pub(super) history: History,
}

/// State of a worker's ended calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum History {
    /// Checked: nothing is left of them.
    #[default]
    Clean,
    /// Unchecked, all ended by themselves; the worker takes calls.
    Open,
    /// Unchecked, one was stopped; the worker takes no calls.
    Suspect,
}

impl WorkerSlot {
    /// Creates the record of a starting worker. `apart`: the only tenant that it serves.
    pub(super) fn new(apart: Option<String>) -> WorkerSlot {
        WorkerSlot { apart, ..WorkerSlot::default() }
    }

    /// Adds a call.
    pub(super) fn assign(&mut self, tenant: &str, alone: bool) {
        self.active += 1;
        self.served += 1;
        self.single = alone;
        *self.tenants.entry(tenant.to_owned()).or_default() += 1;
        self.users.add(tenant);
    }

    /// Adds a subscription.
    pub(super) fn subscribe(&mut self, tenant: &str, alone: bool) {
        self.assign(tenant, alone);
        self.subscriptions.push(tenant.to_owned());
    }

    /// Removes a subscription.
    pub(super) fn unsubscribe(&mut self, tenant: &str) {
        if let Some(at) = self.subscriptions.iter().position(|of| of == tenant) {
            self.subscriptions.swap_remove(at);
        }
    }

    /// Whether it has no calls other than subscriptions.
    pub(super) fn is_idle_but_for_subscriptions(&self) -> bool {
        self.active == self.subscriptions.len()
    }

    /// Removes a call. One that ended with its worker stays counted, because the worker's end may be reported later.
    pub(super) fn leave(&mut self, tenant: &str, crashed: bool) {
        self.active = self.active.saturating_sub(1);
        if crashed {
            return;
        }
        if let Some(calls) = self.tenants.get_mut(tenant) {
            *calls = calls.saturating_sub(1);
            if *calls == 0 {
                self.tenants.remove(tenant);
            }
        }
    }

    /// Whether it has no call, and may get one.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Ready { .. }) && self.active == 0 && !self.single
    }

    /// Whether it must pass a quiescence check, and cannot while it has calls.
    pub(super) fn is_held_up(&self) -> bool {
        self.history == History::Suspect && self.active > 0
    }
}
