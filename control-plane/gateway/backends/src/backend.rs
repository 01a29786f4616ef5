//! The common interface of everything that runs calls: a backend for each runtime mode.
//!
//! Owns: the trait. Refuses: knowledge of any backend; the table in `lib.rs` chooses by the mode of a
//! primitive. Keeps true: a backend marks a call by [`Execution::started`] before any part of it leaves the gateway.

use asp_call::call::CallKind;
use asp_call::call::outcome::{Output, Refusal};
use asp_call::execution::{Availability, Execution, ResourceSubscription, SessionNote, SubscriptionGuard};
use asp_proto::snapshot::Primitive;
use asp_proto::snapshot::runtime::Mode;
use asp_snapshot::Snapshot;
use async_trait::async_trait;

/// A backend of one gateway. Every method except [`Backend::run`] has a default: most backends prepare, watch and
/// drain nothing.
#[async_trait]
pub(super) trait Backend: Send + Sync {
    /// Runs a call of a primitive of its mode.
    async fn run(&self, execution: &Execution) -> Result<Output, Refusal>;

    /// Whether it can answer calls of this kind; every backend runs invocations, some complete arguments or list
    /// resources too.
    fn answers(&self, kind: &CallKind) -> bool {
        kind.is_invocation()
    }

    /// Whether a call whose gateway is gone can continue here.
    fn continues(&self, _primitive: &Primitive) -> bool {
        false
    }

    /// Whether the primitive may be shown to clients of the server. Only its own backend decides, and the built-in one, whose
    /// toggles hide static prompts too.
    fn offers(&self, _server: &str, _primitive: &Primitive) -> bool {
        true
    }

    /// Returns a number that grows whenever the answers of [`Backend::offers`] change.
    fn offers_changed(&self) -> u64 {
        0
    }

    /// State of the plugin behind a primitive of its mode; `None` for a backend without plugins.
    fn availability(&self, _primitive: &Primitive) -> Option<Availability> {
        None
    }

    /// Prepares the runtimes of a new snapshot's primitives.
    fn prepare(&self, _snapshot: &Snapshot) {}

    /// Starts to report changes of a resource; `None` if nothing reports them, or too many are watched.
    fn watch(&self, _subscribed: ResourceSubscription<'_>) -> Option<SubscriptionGuard> {
        None
    }

    /// Handles a client's notification about its session.
    fn handle_session_note(&self, _session: &str, _said: SessionNote) {}

    /// Returns once the work of ended calls is done.
    async fn drained(&self) {}
}

/// Returns the mode of a primitive; `None` if its runtime is missing.
pub(super) fn mode(primitive: &Primitive) -> Option<&Mode> {
    primitive.runtime.as_ref()?.mode.as_ref()
}

/// Returns the refusal of a call whose primitive has another mode than its backend.
pub(super) fn misplaced(execution: &Execution) -> Refusal {
    Refusal::Internal(format!("primitive {} belongs to another backend", execution.call.entry.primitive.id))
}
