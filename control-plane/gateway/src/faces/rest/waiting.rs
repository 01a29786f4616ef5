//! Where a call is found, and how long a request waits for it to change.
//!
//! Keeps true: whoever waits holds a place, of which a gateway has so many (I-4), and waits no longer than they asked for; a call
//! that another gateway goes on with is followed there, and has not ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::problem::Problem;
use super::resource::{self, View};
use crate::call::Call;
use crate::durable::active::told::Seen;
use crate::durable::record::Put;
use crate::faces::FaceRequest;
use crate::pipeline::admission::Admitted;
use crate::pipeline::takeover::Found;

/// How often a call that runs elsewhere is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A call that its client put, and where it is.
pub(super) enum Place {
    Here(Arc<Call>),
    Elsewhere(Seen),
}

impl Place {
    /// The request that made it.
    pub(super) fn put(&self) -> Option<Put<'_>> {
        match self {
            Place::Here(call) => Put::of(call),
            Place::Elsewhere(seen) => seen.record.as_ref()?.put(),
        }
    }

    fn call(&self) -> Option<&Arc<Call>> {
        match self {
            Place::Here(call) => Some(call),
            Place::Elsewhere(_) => None,
        }
    }

    /// Whether it is here no more, because another gateway goes on with it.
    fn is_continued_elsewhere(&self) -> bool {
        self.call().is_some_and(|call| call.ownership.is_continued_elsewhere())
    }

    /// As it stands now.
    pub(super) fn view(&self, id: Uuid) -> View {
        match self {
            Place::Here(call) => resource::of(call),
            Place::Elsewhere(seen) => {
                let name = self.put().map(|put| put.name).unwrap_or_default();
                resource::elsewhere(id.as_bytes(), name, seen)
            }
        }
    }
}

impl FaceRequest {
    /// The caller's call with this id, wherever it is.
    pub(super) async fn find(&self, id: Uuid) -> Result<Option<Place>, Problem> {
        let found = self.gateway.pipeline.find(id, &self.caller, &self.server.message.name).await;
        Ok(found.map_err(Problem::of_store)?.map(|found| match found {
            Found::Here(call) => Place::Here(call),
            Found::Elsewhere(seen) => Place::Elsewhere(seen),
        }))
    }

    /// A place among those who wait.
    pub(super) fn waits(&self) -> Result<Admitted, Problem> {
        self.gateway.waiting.admit(&self.caller.org).map_err(|full| Problem::of(&full))
    }

    /// The call once `is_enough` of it, at the latest when the client does not wait any longer, or this gateway leaves its calls.
    pub(super) async fn view_once(
        &self,
        id: Uuid,
        mut place: Place,
        is_enough: impl Fn(&View) -> bool,
    ) -> Result<(Place, View), Problem> {
        let until = Instant::now() + self.preferences().wait.unwrap_or_default();
        let mut waits = None;
        loop {
            if place.is_continued_elsewhere() {
                // Where it is not found any more, or not yet, its client asks again.
                place = self.find(id).await?.ok_or_else(Problem::elsewhere)?;
            }
            // Whoever comes between two states of it is told of the second.
            let events = place.call().map(|call| call.events.reader_from(call.events.next_number()));
            let view = place.view(id);
            if place.is_continued_elsewhere() {
                continue;
            }
            let is_late = Instant::now() >= until || self.gateway.pipeline.calls.are_left();
            if is_enough(&view) || view.has_ended() || is_late {
                return Ok((place, view));
            }
            if waits.is_none() {
                waits = Some(self.waits()?);
            }
            let Some((call, mut events)) = place.call().cloned().zip(events) else {
                tokio::time::sleep_until(until.min(Instant::now() + LOOK_EVERY)).await;
                // It may have come and gone in between.
                place = self.find(id).await?.ok_or_else(|| Problem::not_found("no such call"))?;
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
