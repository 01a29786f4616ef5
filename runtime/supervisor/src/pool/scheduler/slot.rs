//! What the scheduler knows of one worker.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::pool::blame::Users;

#[derive(Debug)]
pub(super) enum Phase {
    Starting,
    Ready {
        idle_since: Instant,
    },
    /// Its stream is gone: it takes no more calls, and how it ended is not known yet.
    Lost,
    /// It takes no more calls.
    Leaving,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) phase: Phase,
    pub(super) active: usize,
    pub(super) served: u64,
    /// For one call alone, then it goes.
    pub(super) single: bool,
    /// The only tenant it serves, a suspect.
    pub(super) apart: Option<String>,
    /// Who has calls in it, or had them when it crashed, and how many.
    pub(super) tenants: BTreeMap<String, usize>,
    /// Whose subscriptions are among the calls.
    pub(super) subscriptions: Vec<String>,
    /// Who ever had a call in it.
    pub(super) users: Users,
    /// Whether it does nothing without a call; not known while it has one.
    pub(super) history: History,
}

/// What is known of a worker's calls that have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum History {
    /// Nothing is left of them.
    Clean,
    /// They ended by themselves; it takes calls.
    Open,
    /// One was stopped; it takes no calls.
    Suspect,
}

impl Slot {
    /// `apart`: the only tenant it is for.
    pub(super) fn new(apart: Option<String>) -> Slot {
        Slot {
            phase: Phase::Starting,
            active: 0,
            served: 0,
            single: false,
            apart,
            tenants: BTreeMap::new(),
            subscriptions: Vec::new(),
            users: Users::Nobody,
            history: History::Clean,
        }
    }

    /// Takes a call.
    pub(super) fn assign(&mut self, tenant: &str, alone: bool) {
        self.active += 1;
        self.served += 1;
        self.single = alone;
        *self.tenants.entry(tenant.to_owned()).or_default() += 1;
        self.users.add(tenant);
    }

    /// Takes a subscription.
    pub(super) fn subscribe(&mut self, tenant: &str, alone: bool) {
        self.assign(tenant, alone);
        self.subscriptions.push(tenant.to_owned());
    }

    /// A subscription has ended.
    pub(super) fn unsubscribe(&mut self, tenant: &str) {
        if let Some(at) = self.subscriptions.iter().position(|of| of == tenant) {
            self.subscriptions.swap_remove(at);
        }
    }

    /// It has no call but what stays.
    pub(super) fn is_idle_but_for_subscriptions(&self) -> bool {
        self.active == self.subscriptions.len()
    }

    /// A call has ended. One that ended with its worker stays counted: the worker's end may be told later.
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

    /// It has no call, and may get one.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Ready { .. }) && self.active == 0 && !self.single
    }

    /// It must be checked for quiescence, and cannot be while it has calls.
    pub(super) fn is_held_up(&self) -> bool {
        self.history == History::Suspect && self.active > 0
    }
}
