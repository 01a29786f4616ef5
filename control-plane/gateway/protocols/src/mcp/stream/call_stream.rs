//! The frames of a call's response: the messages for one client, from the call's events to its outcome.
//!
//! Keeps true: progress only grows; after a cancel by the client no response follows (MCP, utilities/cancellation);
//! events after a question that ends the response belong to the next response.

use std::time::Duration;

use asp_call::call::event::{Amount, Event};
use asp_call::call::follower::{Follower, FollowerItem};
use asp_call::call::outcome::{Outcome, Refusal};
use asp_call::clock::wait_until;
use asp_edge::Reason;
use asp_json::Members;
use http::StatusCode;
use serde_json::json;
use tokio::time::Instant;

use super::StreamView;
use crate::mcp::codec::{RpcFailure, RpcResponse, notification};
use crate::mcp::results;
use crate::mcp::resume::StreamPosition;

/// Time that a question waits for others to be asked with it, if the response ends with them.
const ASKED_TOGETHER: Duration = Duration::from_millis(50);
/// Message to a client that reaches the call at any gateway by sending its request again.
const CONTINUED: &str = "another gateway continues the call: send this again";
const LOST_LOGS: &str = "log messages are missing here: more were sent than are kept for a late reader";
/// `_meta` members of a progress notification: the plugin's counters and its phase.
const GAUGES: &str = "asp/gauges";
const PHASE: &str = "asp/phase";

/// Number of phase steps per unit of progress: a change of phase adds a thousandth, which no percentage shows.
const PHASE_STEPS: f64 = 1000.0;

/// Returns the next thousandth above `last`.
fn next_phase(last: f64) -> f64 {
    ((last * PHASE_STEPS).floor() + 1.0) / PHASE_STEPS
}

/// One step of a response.
pub(super) enum Frame {
    KeepAlive,
    /// Closes the stream; its client reconnects for the rest.
    Pause,
    Message(String),
    Final(RpcResponse, StatusCode),
}

/// A call as one client follows it. Dropped before its end, it tells the era that the client disconnected.
pub(super) struct CallStream {
    follower: Follower,
    pub view: StreamView,
    last_progress: Option<Amount>,
    /// Position of the first event.
    pub began: StreamPosition,
    /// End of the time that a question which ends the response waits for others.
    asked: Option<Instant>,
    /// Event to show after another frame has been sent.
    held: Option<FollowerItem>,
    pub ended: bool,
}

impl Drop for CallStream {
    fn drop(&mut self) {
        let is_last = self.view.attachment.close();
        if !self.ended && is_last {
            self.view.era.abandoned(self.view.attachment.call());
        }
    }
}

impl CallStream {
    pub(super) fn of(view: StreamView, last_progress: Option<Amount>) -> CallStream {
        let follower = Follower::from(view.attachment.call().clone(), view.from_event);
        let progress = last_progress.as_ref().map(Amount::value);
        let began = StreamPosition { next_event: view.from_event, progress };
        CallStream { follower, view, last_progress, began, asked: None, held: None, ended: false }
    }

    /// Whether another gateway continues the call, so that its end here is not its outcome.
    pub(super) fn is_continued_remotely(&self) -> bool {
        self.view.attachment.call().ownership.continued.is_set()
    }

    /// Whether, in addition, the client can resume the stream after its first event.
    pub(super) fn is_come_back_to(&self) -> bool {
        let resumable = || {
            let (call, token) = (self.view.attachment.call(), self.view.progress_token.as_ref());
            self.view.era.resumable(call, token).and_then(|stream| stream.primer(self.began))
        };
        self.is_continued_remotely() && self.view.accepts_stream && resumable().is_some()
    }

    /// Waits until other gateways can read the events before number `next`: no client may receive an event that they
    /// lack.
    pub(super) async fn are_seen(&self, next: u64) {
        if let Some(publication) = self.view.attachment.call().ownership.publication() {
            publication.wait_for(next).await;
        }
    }

    /// Returns the position after the last sent event: the next event, and the progress so far.
    pub(super) fn place(&self) -> StreamPosition {
        let next_event = match &self.held {
            Some(FollowerItem::Event(logged)) => logged.number,
            Some(FollowerItem::Asked(_) | FollowerItem::Ended(_)) | None => self.follower.next_unshown(),
        };
        StreamPosition { next_event, progress: self.last_progress.as_ref().map(Amount::value) }
    }

    /// Returns the next frame; `None` ends the response without a result.
    pub(super) async fn next_frame(&mut self) -> Option<Frame> {
        loop {
            let position = self.follower.position();
            let shown = match self.held.take() {
                Some(shown) => shown,
                None => tokio::select! {
                    biased;
                    shown = self.follower.next() => shown,
                    () = wait_until(self.asked) => match self.suspended(position) {
                        Some(frame) => return Some(frame),
                        None => continue,
                    },
                },
            };
            let before = self.lost_logs().or_else(|| self.taken_back(&shown));
            if let Some(text) = before {
                self.held = Some(shown);
                return Some(Frame::Message(text));
            }
            match shown {
                FollowerItem::Ended(outcome) => return self.last(&outcome),
                // Another attached or returning client can answer it.
                FollowerItem::Asked(question) if !self.view.attachment.abilities().answers(&question.ask) => {
                }
                FollowerItem::Asked(question) => {
                    match self.view.era.ask(self.view.attachment.call(), &question) {
                        Some(text) => return Some(Frame::Message(text)),
                        None => self.asked = Some(Instant::now() + ASKED_TOGETHER),
                    }
                }
                // Events after a question belong to the response that continues with its answer.
                FollowerItem::Event(logged) => {
                    if let Some(frame) = self.suspended(logged.number) {
                        return Some(frame);
                    }
                    if let Some(text) = self.event_notification(logged.event) {
                        return Some(Frame::Message(text));
                    }
                }
            }
        }
    }

    /// Returns the end of a response that has questions to ask; event number `next_event` is the first after them.
    /// `None` if there are none, or they have been answered by someone else.
    fn suspended(&mut self, next_event: u64) -> Option<Frame> {
        self.asked.take()?;
        let result = self.view.suspend(next_event)?;
        self.ended = true;
        Some(Frame::Final(RpcResponse::result(&self.view.id, &result), StatusCode::OK))
    }

    /// Withdraws a question that the client need not answer any more, because the call has ended or no longer waits for
    /// it.
    fn taken_back(&self, shown: &FollowerItem) -> Option<String> {
        let may_be = match shown {
            FollowerItem::Ended(_) => true,
            FollowerItem::Event(logged) => matches!(logged.event, Event::TakenBack { .. }),
            FollowerItem::Asked(_) => false,
        };
        if may_be { self.view.era.taken_back(self.view.attachment.call()) } else { None }
    }

    /// Reports that log messages for this client were dropped before it read them.
    fn lost_logs(&mut self) -> Option<String> {
        let level = self.follower.lost_logs(self.view.log_level?)?;
        let params = json!({"level": level.as_str(), "logger": "asp", "data": LOST_LOGS});
        Some(notification("notifications/message", params))
    }

    /// Returns the notification for an event, if this client gets one.
    fn event_notification(&mut self, event: Event) -> Option<String> {
        match event {
            Event::Progress { progress, total, message, gauges } => {
                let mut params = self.progress(&progress)?;
                if let Some(total) = total {
                    params.insert("total", total.as_json());
                }
                if let Some(message) = message {
                    params.insert("message", message);
                }
                if !gauges.is_empty() {
                    params.insert("_meta", json!({GAUGES: gauges}));
                }
                Some(notification("notifications/progress", params.to_json()))
            }
            Event::Status { phase, message } => {
                // MCP has no status messages and requires growing progress, so a phase counts as the smallest step.
                let last = self.last_progress.as_ref().map(Amount::value);
                let next = Amount::from(last.map_or(0.0, next_phase));
                let mut params = self.progress(&next)?;
                params.insert("message", message.unwrap_or_else(|| phase.clone()));
                params.insert("_meta", json!({PHASE: phase}));
                Some(notification("notifications/progress", params.to_json()))
            }
            Event::Log { level, logger, data } => {
                if level < self.view.log_level? {
                    return None;
                }
                let mut params = Members::default();
                params.insert("level", level.as_str());
                params.insert("data", data);
                if let Some(logger) = logger {
                    params.insert("logger", logger);
                }
                Some(notification("notifications/message", params.to_json()))
            }
            Event::Visited { id } if self.view.attachment.abilities().pages => {
                self.view.era.visited(self.view.attachment.call(), &id)
            }
            Event::Visited { .. }
            | Event::Chunk { .. }
            | Event::Artifact { .. }
            | Event::Asked { .. }
            | Event::Answered { .. }
            | Event::TakenBack { .. }
            | Event::Resumed
            | Event::Tool(_) => None,
        }
    }

    /// Returns the parameters of a progress notification; `None` if the client requested none or the progress would not
    /// grow.
    fn progress(&mut self, progress: &Amount) -> Option<Members> {
        let token = self.view.progress_token.clone()?;
        if self.last_progress.as_ref().is_some_and(|last| !progress.is_above(last)) {
            return None;
        }
        self.last_progress = Some(progress.clone());
        let mut params = Members::default();
        params.insert("progressToken", token);
        params.insert("progress", progress.as_json());
        Some(params)
    }

    /// Returns the frame with the outcome; `None` if no response follows a cancel.
    fn last(&self, outcome: &Outcome) -> Option<Frame> {
        if matches!(outcome, Outcome::Refused(Refusal::Cancelled)) && !self.view.era.answers_cancelled() {
            return None;
        }
        let id = &self.view.id;
        let call = self.view.attachment.call();
        if self.is_continued_remotely() && self.view.era.may_be_sent_again() {
            let failure = RpcFailure::with(Reason::UpstreamUnavailable, CONTINUED);
            return Some(Frame::Final(RpcResponse::failure(Some(id), &failure, call.trace), failure.status));
        }
        Some(match results::of_outcome(outcome, call, self.view.asked, self.view.revision) {
            Ok(mut result) => {
                self.view.era.complete(&mut result);
                Frame::Final(RpcResponse::result(id, &result), StatusCode::OK)
            }
            Err(failure) => {
                let status = failure.status;
                Frame::Final(RpcResponse::failure(Some(id), &failure, call.trace), status)
            }
        })
    }
}
