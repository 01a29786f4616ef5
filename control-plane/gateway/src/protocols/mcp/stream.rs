//! A call as an HTTP response: one JSON body if the result comes first, otherwise server-sent events.
//!
//! Keeps true: the client pulls the stream, so a slow one holds no buffer beyond the call's bounded log; a comment
//! every 15 s keeps proxies from closing a quiet stream; progress only grows; after a cancel by the client no response
//! follows (MCP, utilities/cancellation); a resumable stream ends without a result if another gateway continues the
//! call.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use asp_edge::Reason;
use asp_json::{Json, Members};
use asp_proto::mcp_revision::Revision;
use axum::body::{Body, Bytes};
use axum::response::Response;
use futures::{FutureExt, stream};
use http::StatusCode;
use serde_json::json;
use tokio::time::Instant;

use super::codec::{RpcFailure, RpcResponse, accepted, notification, status};
use super::events;
use super::progress::next_phase;
use super::results::{self, CallResult, RequestKind};
use super::resume::{Resumable, StreamPosition};
use crate::call::Call;
use crate::call::authority::Attachment;
use crate::call::event::{Amount, Event, LogLevel};
use crate::call::follower::{Follower, FollowerItem};
use crate::call::outcome::{Outcome, Refusal};
use crate::call::question::Question;
use crate::clock::wait_until;
use crate::protocols::events::{COMMENT, KEEP_ALIVE, respond as respond_with};
use crate::protocols::unserved;

/// Silence after which a response becomes a stream.
const STREAM_AFTER: Duration = Duration::from_secs(5);
/// Time that a question waits for others to be asked with it, if the response ends with them.
const ASKED_TOGETHER: Duration = Duration::from_millis(50);
/// Message to a client that reaches the call at any gateway by sending its request again.
const CONTINUED: &str = "another gateway goes on with the call: send this again";
const LOST_LOGS: &str = "log messages are missing here: more came than are kept for a client that reads late";
/// `_meta` members of a progress notification: the plugin's counters and its phase.
const GAUGES: &str = "asp/gauges";
const PHASE: &str = "asp/phase";

/// Parameters of a response, by which one era presents a call.
pub(super) struct StreamView {
    pub attachment: Attachment,
    pub asked: RequestKind,
    pub revision: Revision,
    /// Id of the request as JSON text.
    pub id: String,
    pub progress_token: Option<Json>,
    /// Lowest level of log messages to send; `None` sends none.
    pub log_level: Option<LogLevel>,
    /// Whether the client accepts `text/event-stream`.
    pub accepts_stream: bool,
    /// Number of the first event in this response; above 0 if an earlier response showed the previous ones.
    pub from_event: u64,
    pub era: Box<dyn Era>,
}

impl StreamView {
    /// Returns the final result if the call waits for an answer that this client can give and the era ends the response
    /// for it.
    fn suspend(&mut self, next_event: u64) -> Option<Json> {
        let call = self.attachment.call();
        let mut questions = call.questions.pending();
        questions.retain(|question| self.attachment.abilities().answers(&question.ask));
        if questions.is_empty() {
            return None;
        }
        let result = self.era.suspend(call, questions, next_event)?;
        self.attachment.leave_to_answer();
        Some(result)
    }
}

/// The differences between the eras.
pub(super) trait Era: Send + Sync {
    /// Adds the members that the revision requires to a result.
    fn complete(&self, result: &mut CallResult<'_>);
    /// Returns a question as a message on the stream; `None` if [`Era::suspend`] asks it.
    fn ask(&self, call: &Arc<Call>, question: &Question) -> Option<String>;
    /// Returns a message that withdraws one of those questions after it became moot, once each.
    fn taken_back(&self, _call: &Arc<Call>) -> Option<String> {
        None
    }
    /// Returns the message that a user is done on a page; `None` if the revision has none.
    fn visited(&self, call: &Call, question: &str) -> Option<String>;
    /// Returns the final result of a response that ends because the call waits for answers to `questions`; the next
    /// response continues with event number `next_event`.
    fn suspend(&self, call: &Arc<Call>, questions: Vec<Question>, next_event: u64) -> Option<Json>;
    /// Whether the client reaches the same call by sending its request again.
    fn may_be_sent_again(&self) -> bool {
        false
    }
    /// Whether anyone still waits for the response to a cancelled call.
    fn answers_cancelled(&self) -> bool;
    /// Returns the stream that answers the call, if the client can resume it.
    fn resumable(&self, _call: &Arc<Call>, _progress_token: Option<&Json>) -> Option<Resumable> {
        None
    }
    /// Handles a client that disconnected before the outcome, if no other client follows the call or will return to it.
    fn abandoned(&self, call: &Arc<Call>);
}

/// Answers with the call's outcome, and streams the events before it.
pub(super) async fn respond(mut view: StreamView) -> Response {
    if view.from_event > 0
        && let Some(result) = view.suspend(view.from_event)
    {
        // The retry left questions open, so they are asked again.
        return RpcResponse::result(&view.id, &result.raw()).respond(StatusCode::OK);
    }
    // Progress continues from the value that the client received before the question.
    let last_progress = view.attachment.call().events.progress_before(view.from_event);
    let mut following = CallStream::of(view, last_progress);
    let first = tokio::select! {
        biased;
        frame = following.next_frame() => frame,
        () = tokio::time::sleep(STREAM_AFTER), if following.view.accepts_stream => Some(Frame::KeepAlive),
    };
    match first {
        Some(frame @ Frame::Final(..)) if following.is_come_back_to() => {
            event_stream(following, Some(frame), false)
        }
        Some(Frame::Final(response, status)) => {
            following.ended = true;
            following.are_seen(following.place().next_event).await;
            let mut response = response.respond(status);
            let call = following.view.attachment.call();
            let is_unbegun = !call.was_handed_over() && !call.ownership.is_passed_on();
            if is_unbegun && matches!(call.outcome().as_deref(), Some(Outcome::Refused(Refusal::Upstream(_))))
            {
                unserved::mark(response.extensions_mut());
            }
            response
        }
        Some(frame) if following.view.accepts_stream => event_stream(following, Some(frame), false),
        Some(_) => only_final(following).await,
        // Cancelled: the client does not want an answer.
        None => {
            following.ended = true;
            accepted()
        }
    }
}

/// Resumes a broken stream whose client last received `last_progress`. If nothing is left to send, answers 204, which
/// stops its reconnecting (WHATWG HTML, server-sent events).
pub(super) fn resume(view: StreamView, last_progress: Option<f64>) -> Response {
    let mut following = CallStream::of(view, last_progress.map(Amount::from));
    match following.next_frame().now_or_never() {
        Some(None) => {
            following.ended = true;
            status(StatusCode::NO_CONTENT)
        }
        Some(frame) => event_stream(following, frame, true),
        None => event_stream(following, None, true),
    }
}

/// Waits for the outcome and skips events, for a client that accepts no stream.
async fn only_final(mut following: CallStream) -> Response {
    while let Some(frame) = following.next_frame().await {
        if let Frame::Final(response, status) = frame {
            following.ended = true;
            return response.respond(status);
        }
    }
    following.ended = true;
    accepted()
}

/// Returns a response of server-sent events that begins with `first`; `has_id`: the client already has the id of an
/// earlier event.
fn event_stream(following: CallStream, first: Option<Frame>, has_id: bool) -> Response {
    let view = &following.view;
    let resumable = view.era.resumable(view.attachment.call(), view.progress_token.as_ref());
    let primer = resumable.as_ref().and_then(|stream| stream.primer(following.began));
    let said = Instant::now();
    let events = Events { following, resumable, primer, has_id, held: first, said };
    let texts = stream::unfold(events, |mut events| async move {
        let text = events.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), events))
    });
    respond_with(Body::from_stream(texts))
}

/// The events of a call's stream, as text.
struct Events {
    following: CallStream,
    /// The resumable stream, if the client can resume it.
    resumable: Option<Resumable>,
    /// The event to send before any message.
    primer: Option<String>,
    /// Whether the client has an id from which it can resume.
    has_id: bool,
    held: Option<Frame>,
    /// Time of the last event.
    said: Instant,
}

impl Events {
    /// Returns the next text; `None` after the last.
    async fn next(&mut self) -> Option<String> {
        if self.following.ended {
            return None;
        }
        if let Some(primer) = self.primer.take() {
            self.following.are_seen(self.following.began.next_event).await;
            self.has_id = true;
            return Some(primer);
        }
        let frame = match self.held.take() {
            Some(frame) => Some(frame),
            None => self.wait().await,
        };
        let place = self.following.place();
        if !matches!(frame, Some(Frame::KeepAlive)) {
            self.following.are_seen(place.next_event).await;
        }
        let id = |next_event| self.resumable.as_ref().and_then(|stream| stream.id(next_event));
        let text = match frame? {
            Frame::KeepAlive => return Some(COMMENT.to_owned()),
            Frame::Message(text) => {
                let id = id(Some(place));
                self.has_id |= id.is_some();
                events::message(&text, id.as_deref())
            }
            Frame::Final(response, _) => {
                self.following.ended = true;
                if self.has_id && self.following.is_continued_elsewhere() {
                    // The client resumes the stream at the gateway that continues the call.
                    return None;
                }
                events::message(&response.text, id(None).as_deref())
            }
            Frame::Pause => match id(Some(place)) {
                Some(id) => {
                    self.following.ended = true;
                    events::pause(&id)
                }
                None => COMMENT.to_owned(),
            },
        };
        self.said = Instant::now();
        Some(text)
    }

    async fn wait(&mut self) -> Option<Frame> {
        let resumable = self.resumable.as_ref();
        let pauses = resumable.and_then(|stream| Some(self.said + stream.pauses_after()?));
        tokio::select! {
            biased;
            // The client has resumed on another connection.
            () = taken_over(resumable) => {
                self.following.ended = true;
                None
            }
            frame = self.following.next_frame() => frame,
            () = wait_until(pauses) => Some(Frame::Pause),
            () = tokio::time::sleep(KEEP_ALIVE) => Some(Frame::KeepAlive),
        }
    }
}

async fn taken_over(stream: Option<&Resumable>) {
    match stream {
        Some(stream) => stream.taken_over().await,
        None => std::future::pending().await,
    }
}

enum Frame {
    KeepAlive,
    /// Closes the stream; its client reconnects for the rest.
    Pause,
    Message(String),
    Final(RpcResponse, StatusCode),
}

struct CallStream {
    follower: Follower,
    view: StreamView,
    last_progress: Option<Amount>,
    /// Position of the first event.
    began: StreamPosition,
    /// End of the time that a question which ends the response waits for others.
    asked: Option<Instant>,
    /// Event to show after another frame has been sent.
    held: Option<FollowerItem>,
    ended: bool,
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
    fn of(view: StreamView, last_progress: Option<Amount>) -> CallStream {
        let follower = Follower::from(view.attachment.call().clone(), view.from_event);
        let progress = last_progress.as_ref().map(Amount::value);
        let began = StreamPosition { next_event: view.from_event, progress };
        CallStream { follower, view, last_progress, began, asked: None, held: None, ended: false }
    }

    /// Whether another gateway continues the call, so that its end here is not its outcome.
    fn is_continued_elsewhere(&self) -> bool {
        self.view.attachment.call().ownership.is_continued_elsewhere()
    }

    /// Whether, in addition, the client can resume the stream after its first event.
    fn is_come_back_to(&self) -> bool {
        let resumable = || {
            let (call, token) = (self.view.attachment.call(), self.view.progress_token.as_ref());
            self.view.era.resumable(call, token).and_then(|stream| stream.primer(self.began))
        };
        self.is_continued_elsewhere() && self.view.accepts_stream && resumable().is_some()
    }

    /// Waits until other gateways can read the events before number `next`: no client may receive an event that they
    /// lack.
    async fn are_seen(&self, next: u64) {
        if let Some(publication) = self.view.attachment.call().ownership.publication() {
            publication.wait_for(next).await;
        }
    }

    /// Returns the position after the last sent event: the next event, and the progress so far.
    fn place(&self) -> StreamPosition {
        let next_event = match &self.held {
            Some(FollowerItem::Event(logged)) => logged.number,
            Some(FollowerItem::Asked(_) | FollowerItem::Ended(_)) | None => self.follower.next_unshown(),
        };
        StreamPosition { next_event, progress: self.last_progress.as_ref().map(Amount::value) }
    }

    /// Returns the next frame; `None` ends the response without a result.
    async fn next_frame(&mut self) -> Option<Frame> {
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
                    if let Some(text) = self.shown(logged.event) {
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
        Some(Frame::Final(RpcResponse::result(&self.view.id, &result.raw()), StatusCode::OK))
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
    fn shown(&mut self, event: Event) -> Option<String> {
        match event {
            Event::Progress { progress, total, message, gauges } => {
                let mut params = self.progress(&progress)?;
                if let Some(total) = total {
                    params.insert("total", total.written());
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
            | Event::Resumed => None,
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
        params.insert("progress", progress.written());
        Some(params)
    }

    fn last(&self, outcome: &Outcome) -> Option<Frame> {
        if matches!(outcome, Outcome::Refused(Refusal::Cancelled)) && !self.view.era.answers_cancelled() {
            return None;
        }
        let id = &self.view.id;
        let call = self.view.attachment.call();
        if self.is_continued_elsewhere() && self.view.era.may_be_sent_again() {
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
