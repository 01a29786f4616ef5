//! Lookup of a call, and waiting for its changes.
//!
//! Keeps true: a waiting request holds a permit, of which a gateway has a limited number (I-4), and waits no longer
//! than the client asked for; a call that another gateway continues is followed there and is not reported as ended.

use std::time::Duration;

use asp_pipeline::pipeline::admission::AdmissionPermit;
use asp_pipeline::pipeline::lookup::FoundCall;
use tokio::time::Instant;
use uuid::Uuid;

use super::problem::Problem;
use super::resource::{self, CallView};
use crate::ProtocolRequest;

/// Polling interval for a call at another gateway.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl ProtocolRequest {
    /// Returns the caller's call with this id at any gateway.
    pub(super) async fn find(&self, id: Uuid) -> Result<Option<FoundCall>, Problem> {
        let found = self.gateway.pipeline.find(id, &self.caller, &self.server.message.name).await;
        found.map_err(Problem::of_store)
    }

    /// Takes a permit to wait.
    pub(super) fn waits(&self) -> Result<AdmissionPermit, Problem> {
        self.gateway.waiting.admit(&self.caller.org).map_err(|full| Problem::of(&full))
    }

    /// Returns the call's view once `is_enough` accepts it or the call has ended, and at the latest at the end of the
    /// client's wait or at the shutdown of this gateway.
    pub(super) async fn view_once(
        &self,
        found: FoundCall,
        is_enough: impl Fn(&CallView) -> bool,
    ) -> Result<CallView, Problem> {
        self.view_within(self.preferences().wait.unwrap_or_default(), found, is_enough).await
    }

    /// The same within a time of this protocol.
    pub(super) async fn view_within(
        &self,
        within: Duration,
        mut found: FoundCall,
        is_enough: impl Fn(&CallView) -> bool,
    ) -> Result<CallView, Problem> {
        let id = found.id();
        let until = Instant::now() + within;
        let mut waits = None;
        loop {
            if found.has_moved() {
                // If the call cannot be found, or not yet, its client retries.
                found = self.find(id).await?.ok_or_else(Problem::runs_remotely)?;
            }
            // The reader starts before the view is taken, so that no change in between is missed.
            let events = found.call().map(|call| call.events.reader_from(call.events.next_number()));
            let view = resource::of_found(&found);
            if found.has_moved() {
                continue;
            }
            if view.has_ended()
                && let Some(call) = found.call()
            {
                self.gateway.pipeline.end_stored(call).await;
            }
            let is_late = Instant::now() >= until || self.gateway.pipeline.is_leaving();
            if is_enough(&view) || view.has_ended() || is_late {
                return Ok(view);
            }
            if waits.is_none() {
                waits = Some(self.waits()?);
            }
            let Some((call, mut events)) = found.call().cloned().zip(events) else {
                tokio::time::sleep_until(until.min(Instant::now() + LOOK_EVERY)).await;
                // The call may have moved here and ended in between.
                found = self.find(id).await?.ok_or_else(|| Problem::not_found("no such call"))?;
                continue;
            };
            tokio::select! {
                _ = events.next() => {}
                _ = call.finished() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }
}
