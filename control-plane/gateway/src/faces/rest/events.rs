//! A call as a stream of server-sent events (WHATWG HTML, section 9.2), which goes on where it broke off.
//!
//! Keeps true: the stream is pulled by its client, so that a slow one holds nothing of ours beyond the call's bounded log;
//! what that log has dropped meanwhile is told as a gap, never passed over; the call's end is told once and last, and not where another
//! gateway goes on with the call, to which its client comes back; nothing
//! goes out under a token that has ended or was revoked, and nothing of a call that was taken away from its caller.

use std::convert::Infallible;
use std::sync::Arc;

use asp_json::{Json, Members};
use axum::body::{Body, Bytes};
use axum::response::Response;
use futures::stream;
use http::{StatusCode, header};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::calls::here;
use super::event_id::{END, Reached, reached};
use super::problem::Problem;
use super::resource;
use crate::call::Call;
use crate::call::authority::ends_at;
use crate::call::event::Event;
use crate::call::follower::{Follower, FollowerItem};
use crate::clock::wait_until;
use crate::faces::FaceRequest;
use crate::faces::events::{COMMENT, KEEP_ALIVE, respond as respond_with};
use crate::gateway::Gateway;
use crate::pipeline::admission::AdmissionPermit;

pub(super) async fn follow(request: &FaceRequest, tool: &str, name: &str) -> Result<Response, Problem> {
    let call = here(request, tool, name).await?;
    let last = match request.header("last-event-id") {
        None => None,
        Some(id) => Some(reached(id).ok_or_else(|| {
            Problem::invalid(StatusCode::BAD_REQUEST, "Last-Event-ID is none of this call's events")
        })?),
    };
    let (first, missed) = match last {
        Some(Reached::End) => {
            // A client that reconnects after the end is told to stop (WHATWG HTML, section 9.2.3).
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(response);
        }
        Some(Reached::Event(stream, number)) if call.events.counts(stream) => (number, false),
        // It went on at another gateway, which counts anew.
        Some(Reached::Event(..)) => (0, true),
        None => (call.events.oldest(), false),
    };
    let telling = Telling {
        gateway: request.gateway.clone(),
        caller: request.caller.clone(),
        until: ends_at(&request.caller),
        follower: Follower::from(call.clone(), if last.is_none() { 0 } else { first }),
        position: first,
        missed,
        path: request.uri.path().strip_suffix("/events").unwrap_or(request.uri.path()).to_owned(),
        call,
        begun: false,
        held: None,
        ended: false,
        _place: request.waits()?,
    };
    let events = stream::unfold(telling, |mut telling| async move {
        let text = telling.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), telling))
    });
    let mut response = respond_with(Body::from_stream(events));
    super::set(&mut response, header::CACHE_CONTROL, "no-store");
    Ok(response)
}

/// One stream.
struct Telling {
    gateway: Arc<Gateway>,
    caller: Arc<asp_edge::Caller>,
    /// When the token ends.
    until: Option<Instant>,
    follower: Follower,
    /// The event that is told next, if the log has it.
    position: u64,
    /// Events were lost before those that come.
    missed: bool,
    path: String,
    call: Arc<Call>,
    begun: bool,
    /// What is told after a gap.
    held: Option<FollowerItem>,
    ended: bool,
    _place: AdmissionPermit,
}

impl Telling {
    /// The text that goes out next; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        if self.ended || self.is_over() {
            return None;
        }
        if !std::mem::replace(&mut self.begun, true) {
            // Shows intermediaries that the response has begun.
            return Some(COMMENT.to_owned());
        }
        let oldest = self.call.events.oldest();
        if std::mem::take(&mut self.missed) || self.position < oldest {
            return Some(self.gap(oldest));
        }
        let until = self.until;
        let shown = match self.held.take() {
            Some(shown) => shown,
            None => tokio::select! {
                biased;
                shown = self.follower.next() => shown,
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(COMMENT.to_owned()),
                () = wait_until(until) => return None,
            },
        };
        if self.is_over() {
            return None;
        }
        // More came since the last look than the log keeps.
        let oldest = self.follower.kept_from();
        if self.position < oldest {
            self.held = Some(shown);
            return Some(self.gap(oldest));
        }
        self.position = self.position.max(self.follower.position());
        Some(match shown {
            FollowerItem::Event(logged) => match named(&logged.event) {
                Some((name, data)) => self.text(name, &data),
                None => COMMENT.to_owned(),
            },
            FollowerItem::Asked(question) => match resource::asked(&question) {
                Some(asked) => {
                    let mut data = Members::default();
                    data.insert(asked.member, asked.request);
                    data.insert("serverData", question.id);
                    self.text("asked", &data.to_json())
                }
                None => COMMENT.to_owned(),
            },
            // Its client comes back for the rest, which that gateway tells.
            FollowerItem::Ended(_) if self.call.ownership.is_continued_elsewhere() => {
                self.ended = true;
                return None;
            }
            FollowerItem::Ended(_) => {
                self.ended = true;
                let call = resource::of(&self.call).body(&self.path);
                format!("id: {END}\nevent: end\ndata: {call}\n\n")
            }
        })
    }

    /// Says that events are missing before number `oldest`.
    fn gap(&mut self, oldest: u64) -> String {
        let lost = oldest.saturating_sub(self.position);
        self.position = self.position.max(oldest);
        self.text("gap", &json!({"lost": lost}).into())
    }

    /// Whether the token may see no more.
    fn is_over(&self) -> bool {
        let revoked = || self.gateway.snapshot().is_none_or(|snapshot| snapshot.revoked(&self.caller));
        self.until.is_some_and(|until| until <= Instant::now()) || revoked()
    }

    fn text(&self, name: &str, data: &Json) -> String {
        format!("id: {}\nevent: {name}\ndata: {data}\n\n", self.place())
    }

    /// Where a client goes on that was told this far.
    fn place(&self) -> String {
        Reached::Event(self.call.events.stream(), self.position).to_string()
    }
}

/// The name and the data of an event; `None` for what is told by others.
fn named(event: &Event) -> Option<(&'static str, Json)> {
    Some(match event {
        Event::Progress { .. } => ("progress", resource::progress(event)?),
        Event::Log { level, logger, data } => {
            let mut told = Members::default();
            told.insert("level", level.as_str());
            told.insert("logger", Value::from(logger.clone()));
            told.insert("data", data.clone());
            ("log", told.to_json())
        }
        Event::Chunk { text } => ("chunk", json!({"text": text}).into()),
        Event::Artifact { uri, content_type, description } => {
            ("artifact", json!({"uri": uri, "mimeType": content_type, "description": description}).into())
        }
        Event::Status { phase, message } => ("status", json!({"phase": phase, "message": message}).into()),
        Event::Asked { .. }
        | Event::Answered { .. }
        | Event::TakenBack { .. }
        | Event::Resumed
        | Event::Visited { .. } => return None,
    })
}
