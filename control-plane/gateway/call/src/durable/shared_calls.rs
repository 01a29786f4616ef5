//! The data of running calls that several gateways share.

use std::sync::Arc;

use super::inbox::Inboxes;
use super::shared_briefs::SharedBriefs;
use super::shared_events::{Rows, SharedEvents};
use super::shared_followers::SharedFollowers;
use crate::call::Call;

/// The events, inputs and followers of calls, and the ends of those that only read, for all gateways.
pub struct SharedCalls {
    pub events: Arc<SharedEvents>,
    pub inboxes: Arc<Inboxes>,
    pub followers: Arc<SharedFollowers>,
    pub briefs: Arc<SharedBriefs>,
}

impl SharedCalls {
    /// Starts sharing a call that runs here: clients of other gateways may follow it from now on.
    pub(super) fn begin(&self, call: &Arc<Call>, rows: Arc<dyn Rows>) {
        self.events.begin(call, rows.clone());
        self.inboxes.begin(call, rows);
        self.followers.begin(call);
    }
}
