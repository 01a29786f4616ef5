//! What the scheduler knows of one worker.

use tokio::time::Instant;

#[derive(Debug)]
pub(super) enum Phase {
    Starting,
    Ready {
        idle_since: Instant,
    },
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
    /// Whether it does nothing without a call; not known while it has one.
    pub(super) proof: Proof,
}

/// What is known of a worker's calls that have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// Nothing is left of them.
    Clean,
    /// They ended by themselves; it takes calls.
    Open,
    /// One was stopped; it takes no calls.
    Suspect,
}

impl Slot {
    pub(super) fn new() -> Slot {
        Slot { phase: Phase::Starting, active: 0, served: 0, single: false, proof: Proof::Clean }
    }

    /// It has no call, and may get one.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Ready { .. }) && self.active == 0 && !self.single
    }

    /// It must prove that it does nothing, and cannot while it has calls.
    pub(super) fn is_held_up(&self) -> bool {
        self.proof == Proof::Suspect && self.active > 0
    }
}
