//! The pipeline as the rest of its gateway drives it: snapshots, availability, the lease, and the end of a shutdown.
//!
//! Refuses: calls, which protocols start and find. Keeps true: nothing outside of the pipeline reaches its parts.

use std::sync::{Arc, Weak};
use std::time::Duration;

use asp_call::call::Call;
use asp_call::execution::{
    Availability, ResourceListener, ResourceSubscription, SessionNote, SubscriptionGuard,
};
use asp_call::telemetry::metrics::Metrics;
use asp_call::telemetry::traces::Tracer;
use asp_call::telemetry::usage::UsageMeter;
use asp_proto::snapshot::Primitive;
use asp_snapshot::Snapshot;
use uuid::Uuid;

use super::lookup::StoreFault;
use super::{EndListener, Pipeline};

impl Pipeline {
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Puts a snapshot in force: running calls are evaluated by it, and the backends of its primitives are prepared.
    pub fn put_in_force(&self, snapshot: &Arc<Snapshot>) {
        self.running.evaluate_all(snapshot);
        self.backends.prepare(snapshot);
    }

    /// Drops the ended calls that no client can return for, and logs the number of failures that have no line; called
    /// once a minute, and at the end.
    pub fn sweep(&self) {
        self.registry.sweep();
        self.failures.report_left_out();
    }

    /// Renews the lease by which the calls that run here belong to this gateway.
    pub async fn renew_lease(&self) -> Result<(), StoreFault> {
        Ok(self.active.renew().await?)
    }

    /// Asks the store whether other gateways use it; called after each renewal of the lease.
    pub async fn look_for_others(&self) {
        self.active.look_for_others().await;
        self.metrics.set_alone(self.active.is_alone());
    }

    /// Whether this gateway must not start calls that the stores have to remember: it cannot reach them, or its lease
    /// is about to end.
    pub fn is_away(&self) -> bool {
        self.active.is_away()
    }

    /// Whether the calls that run here are being left to other gateways.
    pub fn is_leaving(&self) -> bool {
        self.calls.are_left()
    }

    /// Returns the availability of the plugin behind a primitive; `None` if it has none.
    pub fn availability(&self, primitive: &Primitive) -> Option<Availability> {
        self.backends.availability(primitive)
    }

    /// Returns a number that changes whenever the set of primitives that may run here changes.
    pub(crate) fn offers_stamp(&self) -> u64 {
        self.backends.offers_changed()
    }

    /// Reports changes of a resource from now on; `None` if there is no source for them, or too many resources are
    /// followed.
    pub(crate) fn follow_resource(&self, subscribed: ResourceSubscription<'_>) -> Option<SubscriptionGuard> {
        self.backends.follow(subscribed)
    }

    /// Sets the receiver of changes of resources. Only the first one counts, which the gateway sets when it is wired.
    pub fn listen(&self, listener: Weak<dyn ResourceListener>) {
        let _ = self.listener.set(listener);
    }

    /// Sets the receiver of the end of every call. Only the first one counts.
    pub fn listen_to_ends(&self, listener: EndListener) {
        let _ = self.end_listener.set(listener);
    }

    /// Makes spans of calls from now on. Only the first tracer counts.
    pub fn trace_to(&self, tracer: Arc<Tracer>) {
        let _ = self.tracer.set(tracer);
    }

    /// Returns the calls that run here.
    pub fn running_calls(&self) -> Vec<Arc<Call>> {
        self.registry.running()
    }

    /// Cancels a call of an org that runs here; false if there is none.
    pub fn cancel_for_admin(&self, id: &str, org: &str) -> bool {
        let Ok(id) = Uuid::parse_str(id) else { return false };
        let call = self.registry.find_running(id).filter(|call| call.caller.org == org);
        call.is_some_and(|call| {
            call.cancel();
            true
        })
    }

    /// Counts the usage of calls from now on. Only the first meter counts.
    pub fn count_usage(&self, meter: Arc<UsageMeter>) {
        let _ = self.meter.set(meter);
    }

    /// Notes that the client of a legacy session reported a change of its roots.
    pub fn roots_changed(&self, session: &str) {
        self.backends.handle_session_note(session, SessionNote::RootsChanged);
    }

    /// Notes that a legacy session has ended, and with it its sessions at upstream servers.
    pub fn session_ended(&self, session: &str) {
        self.backends.handle_session_note(session, SessionNote::Ended);
    }

    /// Returns when all work for ended calls is done and their events are durable; waits at most `longest` for the
    /// stores.
    pub async fn drained(&self, longest: Duration) {
        self.backends.drained().await;
        tokio::join!(self.active.drained(longest), self.ledgers.drained(longest));
        self.audit.flush().await;
        if let Some(meter) = self.meter.get()
            && tokio::time::timeout(longest, meter.flush()).await.is_err()
        {
            tracing::warn!("the last usage of calls could not be stored in time; it may be lost");
        }
    }

    /// Ends the calls that still run, and waits until each has its outcome.
    pub async fn end_calls(&self) {
        self.calls.end().await;
    }

    /// Stores what only this process has of ended calls, for at most `longest`.
    pub async fn end_brief_calls(&self, longest: Duration) {
        self.active.end_brief_calls(longest).await;
    }

    /// Gives the lease back: other gateways may take over the remaining calls at once.
    pub async fn retire(&self) {
        self.active.retire().await;
    }
}
