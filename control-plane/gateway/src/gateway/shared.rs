//! The stores that gateways share besides the database, and the parts of this gateway that use them.

use std::sync::Arc;

use asp_store::answers::Answers;
use asp_store::briefs::BriefRecords;
use asp_store::bus::Bus;
use asp_store::counter::Counters;
use asp_store::followers::Followers;
use asp_store::inbox::Inbox;
use asp_store::outbox::Outbox;
use asp_store::records::OwnerId;
use asp_store::sessions::SessionDirectory;

use asp_call::durable::inbox::Inboxes;
use asp_call::durable::shared_briefs::SharedBriefs;
use asp_call::durable::shared_calls::SharedCalls;
use asp_call::durable::shared_events::SharedEvents;
use asp_call::durable::shared_followers::SharedFollowers;
use asp_call::seal::Sealer;
use asp_pipeline::sessions::Replicas;

/// Default limit of the events of all orgs together, in bytes: six orgs that use up their own budgets fill the part
/// reserved for large ones.
pub const EVENT_BYTES: u64 = 1 << 30;

/// The stores of sessions and running calls that several gateways share.
#[derive(Clone)]
pub struct Shared {
    pub directory: Arc<dyn SessionDirectory>,
    pub bus: Arc<dyn Bus>,
    /// Answers and cancels for calls that another gateway runs.
    pub inbox: Arc<dyn Inbox>,
    /// Gateways that follow calls run by another one.
    pub followers: Arc<dyn Followers>,
    pub outbox: Arc<dyn Outbox>,
    /// Maximum number of bytes that the calls of all orgs together write to the outbox within its retention time.
    pub event_bytes: u64,
    /// Answers of calls that only read.
    pub answers: Arc<dyn Answers>,
    /// Ends of calls that only read.
    pub briefs: Arc<dyn BriefRecords>,
}

pub(super) type SharedParts = (Option<Arc<Replicas>>, Option<SharedCalls>, Option<Arc<dyn Answers>>);

/// Returns the parts shared with other gateways; none if this gateway is alone.
pub(super) fn in_common(
    shared: Option<Shared>,
    counters: &Arc<dyn Counters>,
    sealer: &Arc<Sealer>,
    this: OwnerId,
) -> SharedParts {
    let Some(Shared { directory, bus, inbox, followers, outbox, event_bytes, answers, briefs }) = shared
    else {
        return (None, None, None);
    };
    let replicas = Replicas::new(sealer.clone(), directory, bus, this);
    let of_calls = SharedCalls {
        events: Arc::new(SharedEvents::new(outbox, counters.clone(), event_bytes, sealer.clone(), this)),
        inboxes: Arc::new(Inboxes::new(inbox, sealer.clone())),
        followers: Arc::new(SharedFollowers::new(followers, this)),
        briefs: Arc::new(SharedBriefs::new(briefs, sealer.clone())),
    };
    (Some(Arc::new(replicas)), Some(of_calls), Some(answers))
}
