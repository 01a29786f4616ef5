//! Writes that must fit beside what else is stored: evaluated anew where that changes meanwhile.
//!
//! Keeps true: what is stored was evaluated beside what is stored with it, however many control planes write
//! ([`Change::evaluated_at`]).

use asp_store::control::{Change, StoreError, Written};

use super::AdminState;
use super::problem::Problem;

/// How often a write is evaluated: each time another one that it must fit beside was stored in the few milliseconds before.
pub(super) const MAX_TRIES: u32 = 5;

/// A write that is evaluated and stored, again and again until nothing that it must fit beside changes meanwhile.
pub(super) struct Trial {
    change: Change,
    tries: u32,
}

impl Trial {
    pub(super) fn of(change: Change) -> Trial {
        Trial { change, tries: 0 }
    }

    /// The change under which to store what is evaluated from now on.
    pub(super) async fn begin(&mut self, state: &AdminState) -> Result<&Change, Problem> {
        self.tries += 1;
        // First: what is read after it may only be newer.
        self.change.evaluated_at = Some(state.store.revision().await?);
        Ok(&self.change)
    }

    /// Tells of what was stored; `None`: evaluate it anew.
    pub(super) fn end(
        &self,
        state: &AdminState,
        written: Result<Written, StoreError>,
    ) -> Result<Option<Written>, Problem> {
        match written {
            Err(StoreError::Moved) if self.tries < MAX_TRIES => Ok(None),
            written => Ok(Some(state.published(written?))),
        }
    }
}
