//! The part of running calls that several gateways share.

use std::sync::Arc;

use super::inbox::Inboxes;
use super::shared_events::{Rows, SharedEvents};
use super::shared_followers::SharedFollowers;
use crate::call::Call;

/// The events of calls, the input for them, and who follows them, for all gateways.
pub struct SharedCalls {
    pub events: Arc<SharedEvents>,
    pub inboxes: Arc<Inboxes>,
    pub followers: Arc<SharedFollowers>,
}

impl SharedCalls {
    /// Other gateways may come to follow a call that runs here.
    pub(super) fn begin(&self, call: &Arc<Call>, rows: Arc<dyn Rows>) {
        self.events.begin(call, rows.clone());
        self.inboxes.begin(call, rows);
        self.followers.begin(call);
    }
}
