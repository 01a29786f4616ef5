//! Optimistic concurrency for writes that depend on other records: a write is evaluated again if these change.
//!
//! Keeps true: a stored write was evaluated against the records that are stored with it, however many control planes
//! write ([`Change::based_on`]).

use asp_store::control::{Change, Commit, StoreError};

use super::AdminState;
use super::problem::Result;

/// Maximum number of evaluations of a write. Each repetition means that a record it depends on was written within the
/// few milliseconds of the evaluation.
pub(super) const MAX_TRIES: u32 = 5;

/// A write that is evaluated and stored, and repeated until no record that it depends on changes in between.
pub(super) struct OptimisticWrite {
    change: Change,
    tries: u32,
}

impl OptimisticWrite {
    pub(super) fn of(change: Change) -> OptimisticWrite {
        OptimisticWrite { change, tries: 0 }
    }

    /// Starts an evaluation; returns the change with which to store its result.
    pub(super) async fn begin(&mut self, state: &AdminState) -> Result<&Change> {
        self.tries += 1;
        // Read first: everything read later can only be newer.
        self.change.based_on = Some(state.store.revision().await?);
        Ok(&self.change)
    }

    /// Ends an attempt; `None` means that the write must be evaluated again.
    pub(super) fn end(
        &self,
        state: &AdminState,
        written: Result<Commit, StoreError>,
    ) -> Result<Option<Commit>> {
        match written {
            Err(StoreError::Stale) if self.tries < MAX_TRIES => Ok(None),
            written => Ok(Some(state.notify_publisher(written?))),
        }
    }
}
