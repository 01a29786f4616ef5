//! Lookup of a call, and how long a request waits for it to change.
//!
//! Keeps true: whoever waits holds a place, of which a gateway has so many (I-4), and waits no longer than they asked for; a call
//! that another gateway goes on with is followed there, and has not ended.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::problem::Problem;
use super::resource::{self, View};
use crate::faces::FaceRequest;
use crate::pipeline::admission::AdmissionPermit;
use crate::pipeline::lookup::FoundCall;

/// How often a call that runs elsewhere is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl FaceRequest {
    /// The caller's call with this id, wherever it is.
    pub(super) async fn find(&self, id: Uuid) -> Result<Option<FoundCall>, Problem> {
        let found = self.gateway.pipeline.find(id, &self.caller, &self.server.message.name).await;
        found.map_err(Problem::of_store)
    }

    /// A place among those who wait.
    pub(super) fn waits(&self) -> Result<AdmissionPermit, Problem> {
        self.gateway.waiting.admit(&self.caller.org).map_err(|full| Problem::of(&full))
    }

    /// The call once `is_enough` of it, at the latest when the client does not wait any longer, or this gateway leaves its calls.
    pub(super) async fn view_once(
        &self,
        mut found: FoundCall,
        is_enough: impl Fn(&View) -> bool,
    ) -> Result<View, Problem> {
        let id = found.id();
        let until = Instant::now() + self.preferences().wait.unwrap_or_default();
        let mut waits = None;
        loop {
            if found.has_moved() {
                // Where it is not found any more, or not yet, its client asks again.
                found = self.find(id).await?.ok_or_else(Problem::elsewhere)?;
            }
            // Whoever comes between two states of it is told of the second.
            let events = found.call().map(|call| call.events.reader_from(call.events.next_number()));
            let view = resource::of_found(&found);
            if found.has_moved() {
                continue;
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
                // It may have come and gone in between.
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
