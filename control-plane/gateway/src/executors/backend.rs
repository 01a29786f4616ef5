//! The one door to what runs calls: a backend for each runtime mode.
//!
//! Owns: the trait. Refuses: knowledge of any backend; the table in `executors.rs` chooses by the mode of a primitive.
//! Keeps true: a backend marks a call by [`Execution::started`] before anything of it leaves the gateway.

use asp_proto::snapshot::Primitive;
use asp_proto::snapshot::runtime::Mode;
use asp_snapshot::Snapshot;
use async_trait::async_trait;

use crate::call::CallKind;
use crate::call::outcome::{Output, Refusal};
use crate::execution::{Availability, Execution, ResourceSubscription, SessionNote, SubscriptionGuard};

/// A backend of one gateway. All but [`Backend::run`] has a default: most backends prepare, watch and drain nothing.
#[async_trait]
pub(super) trait Backend: Send + Sync {
    /// Runs a call of a primitive of its mode.
    async fn run(&self, execution: &Execution) -> Result<Output, Refusal>;

    /// Whether it completes arguments or lists resources, too; every backend runs calls.
    fn answers(&self, kind: &CallKind) -> bool {
        kind.is_invocation()
    }

    /// Whether a call whose gateway is gone can continue here.
    fn continues(&self, _primitive: &Primitive) -> bool {
        false
    }

    /// Whether the primitive may be shown to clients of the server, as far as this backend can tell. All backends are asked for
    /// every primitive, because some hide those of another mode.
    fn offers(&self, _server: &str, _primitive: &Primitive) -> bool {
        true
    }

    /// Grows whenever [`Backend::offers`] answers otherwise than before.
    fn offers_changed(&self) -> u64 {
        0
    }

    /// State of the plugin behind a primitive of its mode; `None` for a backend without plugins.
    fn availability(&self, _primitive: &Primitive) -> Option<Availability> {
        None
    }

    /// Prepares what the primitives of a new snapshot run on.
    fn prepare(&self, _snapshot: &Snapshot) {}

    /// Reports changes of a resource from now on; `None` where nothing reports them, or more are watched than may be.
    fn watch(&self, _subscribed: ResourceSubscription<'_>) -> Option<SubscriptionGuard> {
        None
    }

    /// Takes note of what a client says of its session.
    fn heard(&self, _session: &str, _said: SessionNote) {}

    /// Returns when nothing of an ended call is left to do.
    async fn drained(&self) {}
}

/// The mode of a primitive; `None` where its runtime is missing.
pub(super) fn mode(primitive: &Primitive) -> Option<&Mode> {
    primitive.runtime.as_ref()?.mode.as_ref()
}

/// The refusal of a call whose primitive has another mode than its backend.
pub(super) fn misplaced(execution: &Execution) -> Refusal {
    Refusal::Internal(format!("primitive {} is of another backend", execution.call.entry.primitive.id))
}
