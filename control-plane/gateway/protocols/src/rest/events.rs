//! A call as a resumable stream of server-sent events (WHATWG HTML, section 9.2).
//!
//! Keeps true: the client pulls the stream, so that a slow one holds no memory beyond the call's bounded log; events
//! dropped from that log are reported as a gap, never skipped silently; the call's end is sent once and last, but not
//! if another gateway continues the call, because the client reconnects there; nothing is sent under a token that has
//! expired or was revoked, and nothing of a call that its caller has lost access to.

use std::sync::Arc;

use asp_call::call::Call;
use asp_call::call::authority::ends_at;
use asp_call::call::event::Event;
use asp_call::call::follower::{Follower, FollowerItem};
use asp_call::clock::wait_until;
use asp_json::{Json, Members};
use asp_pipeline::pipeline::admission::AdmissionPermit;
use axum::response::{IntoResponse, Response};
use futures::stream;
use http::{StatusCode, header};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::calls::here;
use super::event_id::{END, EventPosition, reached};
use super::problem::Problem;
use super::resource;
use crate::ProtocolRequest;
use crate::events::{COMMENT, KEEP_ALIVE, respond as respond_with};
use crate::replica::Replica;

pub(super) async fn follow(request: &ProtocolRequest, tool: &str, name: &str) -> Result<Response, Problem> {
    let call = here(request, tool, name).await?;
    let last = match request.header("last-event-id") {
        None => None,
        Some(id) => Some(reached(id).ok_or_else(|| {
            Problem::invalid(StatusCode::BAD_REQUEST, "Last-Event-ID is not an event of this call")
        })?),
    };
    let (first, missed) = match last {
        Some(EventPosition::End) => {
            // A client that reconnects after the end gets 204, which stops its reconnecting (WHATWG HTML, section
            // 9.2.3).
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        Some(EventPosition::Event(stream, number)) if call.events.counts(stream) => (number, false),
        // The call moved to another gateway, which numbers its events from the start.
        Some(EventPosition::Event(..)) => (0, true),
        None => (call.events.oldest(), false),
    };
    let telling = EventStream {
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
    let mut response =
        respond_with(stream::unfold(
            telling,
            |mut telling| async move { Some((telling.next().await?, telling)) },
        ));
    super::set(&mut response, header::CACHE_CONTROL, "no-store");
    Ok(response)
}

/// One stream.
struct EventStream {
    gateway: Arc<Replica>,
    caller: Arc<asp_edge::Caller>,
    /// Expiry of the token.
    until: Option<Instant>,
    follower: Follower,
    /// Number of the next event to send, if the log still has it.
    position: u64,
    /// Whether events were lost before the next one.
    missed: bool,
    path: String,
    call: Arc<Call>,
    begun: bool,
    /// Event to send after a gap.
    held: Option<FollowerItem>,
    ended: bool,
    _place: AdmissionPermit,
}

impl EventStream {
    /// Returns the next text to send; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        if self.ended || self.is_over() {
            return None;
        }
        if !std::mem::replace(&mut self.begun, true) {
            // Shows intermediaries that the response has started.
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
        // The log dropped events that arrived since the previous check.
        let oldest = self.follower.first_retained();
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
            FollowerItem::Asked(question) => match resource::question_view(&question) {
                Some(asked) => {
                    let mut data = Members::default();
                    data.insert(asked.member, asked.request);
                    data.insert("serverData", question.id);
                    self.text("asked", &data.to_json())
                }
                None => COMMENT.to_owned(),
            },
            // The client reconnects for the rest, which the other gateway sends.
            FollowerItem::Ended(_) if self.call.ownership.continued.is_set() => {
                self.ended = true;
                return None;
            }
            FollowerItem::Ended(_) => {
                self.ended = true;
                self.gateway.pipeline.end_stored(&self.call).await;
                let call = resource::of(&self.call).body(&self.path);
                format!("id: {END}\nevent: end\ndata: {call}\n\n")
            }
        })
    }

    /// Reports that events before number `oldest` are missing.
    fn gap(&mut self, oldest: u64) -> String {
        let lost = oldest.saturating_sub(self.position);
        self.position = self.position.max(oldest);
        self.text("gap", &json!({"lost": lost}).into())
    }

    /// Whether the token has expired or was revoked.
    fn is_over(&self) -> bool {
        let revoked = || self.gateway.snapshot().is_none_or(|snapshot| snapshot.revoked(&self.caller));
        self.until.is_some_and(|until| until <= Instant::now()) || revoked()
    }

    fn text(&self, name: &str, data: &Json) -> String {
        format!("id: {}\nevent: {name}\ndata: {data}\n\n", self.place())
    }

    /// Returns the id from which a client resumes after this event.
    fn place(&self) -> String {
        EventPosition::Event(self.call.events.stream(), self.position).to_string()
    }
}

/// Returns the name and the data of an event; `None` for events that are not sent as such.
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
        | Event::Visited { .. }
        | Event::Tool(_) => return None,
    })
}
