//! Status of publication: what is published, the faults of what is not, and failed reads of the store.
//!
//! Keeps true: a fault is logged once, not at every poll.

use std::time::Duration;

use tokio::time::Instant;

use super::{POLL, Publisher};
use crate::catalog::fault::Fault;

/// Maximum backoff before the store is read again for a revision that it could not read. The first retry is immediate,
/// for a broken connection; repeated failures may be costly reads.
const READ_AGAIN: Duration = Duration::from_secs(4);

/// Status of publication: the published state compared to the stored one.
#[derive(Clone, Debug, Default)]
pub struct PublicationStatus {
    /// Store revision that is published, or that did not change the snapshot.
    pub covers: u64,
    /// Newest revision that was tried.
    pub tried: u64,
    /// Reason why nothing newer is published; `None` if it is.
    pub fault: Option<String>,
    /// Parts that are not published as stored.
    pub parts: Vec<Fault>,
}

impl PublicationStatus {
    /// Whether it tells the outcome of `revision`; a fault of an earlier revision does not.
    pub fn is_of(&self, revision: u64) -> bool {
        self.covers >= revision || (self.fault.is_some() && self.tried >= revision)
    }
}

impl Publisher {
    /// Stores the standing faults, and logs each new one once.
    pub(super) fn stand(&self, covers: u64, parts: Vec<Fault>) {
        for fault in parts.iter().filter(|fault| !self.standing.borrow().parts.contains(fault)) {
            tracing::error!(
                part = fault.part.as_str(),
                name = %fault.name,
                fault = %fault.fault,
                in_force = fault.in_force,
                remedy = fault.remedy,
                "a part of the stored state is not published as stored; everything else is published"
            );
        }
        self.standing.send_modify(|standing| {
            standing.covers = covers;
            standing.parts = parts;
        });
    }

    /// Clears the publication fault.
    pub(super) fn recovered(&self) {
        if self.standing.send_if_modified(|standing| standing.fault.take().is_some()) {
            tracing::info!("snapshots are published again");
        }
    }

    /// Stores a publication fault, and logs it once, not at every poll.
    pub(super) fn report(&self, error: &anyhow::Error) {
        let text = format!("{error:#}");
        let tried = self.tried.as_ref().map_or(0, |tried| tried.revision);
        let mut news = false;
        self.standing.send_if_modified(|standing| {
            news = standing.fault.as_deref() != Some(text.as_str());
            if news {
                standing.fault = Some(text.clone());
            }
            let moved = std::mem::replace(&mut standing.tried, tried) != tried;
            news || moved
        });
        if news {
            tracing::error!(error = %text, "no new snapshot is published; the last good one stays, plus new revocations if they can be read");
        }
    }
}

/// A failed read of a revision.
#[derive(Clone, Copy)]
pub(super) struct ReadFailure {
    revision: u64,
    pause: Duration,
    again_at: Instant,
}

impl ReadFailure {
    /// Returns the failure that follows `last`, for `revision`.
    pub(super) fn after(last: Option<ReadFailure>, revision: u64) -> ReadFailure {
        let last = last.filter(|last| last.revision == revision);
        let pause = last.map_or(Duration::ZERO, |last| (last.pause * 2).max(POLL).min(READ_AGAIN));
        ReadFailure { revision, pause, again_at: Instant::now() + pause }
    }

    pub(super) fn waits(&self, revision: u64) -> bool {
        self.revision == revision && Instant::now() < self.again_at
    }
}
