//! The pipeline as a backend sees it: nested calls, the limits on delegates, and the records of delegations.

use std::sync::{Arc, Weak};
use std::time::Duration;

use asp_call::call::outcome::Refusal;
use asp_call::call::{Call, Invocation};
use asp_call::execution::{DelegationGrant, Platform};
use asp_call::telemetry::audit::{self, DelegationRecord};
use asp_call::telemetry::metrics::Usage;
use asp_snapshot::{ListedPrimitive, Snapshot};
use async_trait::async_trait;

use super::Pipeline;
use super::entitlement::ServerView;

#[async_trait]
impl Platform for Pipeline {
    fn begin(self: Arc<Self>, snapshot: Arc<Snapshot>, invocation: Invocation) -> Result<Arc<Call>, Refusal> {
        Pipeline::begin(&self, snapshot, invocation)
    }

    async fn admit_delegation(
        &self,
        snapshot: &Snapshot,
        call: &Call,
        delegate: &ListedPrimitive,
    ) -> Result<DelegationGrant, Refusal> {
        let grant = self.limiter.admit_delegation(snapshot, &call.server, &call.caller, delegate).await?;
        Ok(Box::new(grant))
    }

    fn visible(&self, snapshot: &Snapshot, call: &Call) -> Vec<bool> {
        let mut view = ServerView::of(snapshot, &call.server, &call.authority.caller(), call.protocol);
        call.server
            .entries
            .iter()
            .map(|entry| view.shows(entry) && self.offers(&call.server, entry))
            .collect()
    }

    fn resource_changed(&self, call: &Call, uri: &str) {
        if let Some(listing) = call.server.listing_template(uri) {
            self.listings.forget(&call.server.message.name, &call.caller.org, &listing.primitive.id);
        }
        if let Some(listener) = self.listener.get().and_then(Weak::upgrade) {
            listener.changed(&call.server.message.name, &call.caller.org, uri);
        }
    }

    fn offers_changed(&self) {
        if let Some(listener) = self.listener.get().and_then(Weak::upgrade) {
            listener.offers_changed();
        }
    }

    async fn record_delegation(&self, call: &Call, delegated: &DelegationRecord) {
        call.model_usage.add((delegated.tokens_in, delegated.tokens_out));
        let usage = Usage { tokens_in: delegated.tokens_in, tokens_out: delegated.tokens_out };
        self.metrics.delegations.ended(delegated.way, delegated.outcome, delegated.took, usage);
        // The nested call of a primitive is counted by itself.
        if let Some(meter) = self.meter.get()
            && delegated.way != "primitive"
        {
            meter.add_model_tokens(call, delegated.tokens_in, delegated.tokens_out);
        }
        // It has happened; the audit itself counts a loss.
        let _ = self.audit.record_end(audit::delegated(call, delegated)).await;
    }

    fn record_cpu(&self, call: &Call, cpu: Duration) {
        if let Some(meter) = self.meter.get() {
            meter.cpu_used(call, cpu);
        }
    }
}
