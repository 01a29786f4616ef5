//! A call as an HTTP response: one JSON body if the result comes first, otherwise server-sent events.
//!
//! Keeps true: the client pulls the stream, so a slow one holds no buffer beyond the call's bounded log; a comment
//! every 15 s keeps proxies from closing a quiet stream; a resumable stream ends without a result if another gateway
//! continues the call.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::authority::Attachment;
use asp_call::call::event::{Amount, LogLevel};
use asp_call::call::outcome::{Outcome, Refusal};
use asp_call::call::question::Question;
use asp_call::clock::wait_until;
use asp_json::Json;
use asp_proto::mcp_revision::Revision;
use axum::response::Response;
use futures::{FutureExt, stream};
use http::StatusCode;
use tokio::time::Instant;

use super::codec::{RpcResponse, accepted, status};
use super::events;
use super::results::{CallResult, RequestKind};
use super::resume::Resumable;
use crate::events::{COMMENT, KEEP_ALIVE, respond as respond_with};
use crate::unserved;

mod call_stream;

use call_stream::{CallStream, Frame};

/// Silence after which a response becomes a stream.
const STREAM_AFTER: Duration = Duration::from_secs(5);

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
        return RpcResponse::result(&view.id, &result).respond(StatusCode::OK);
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
            let is_unbegun = !call.was_handed_over() && !call.ownership.passed_on.is_set();
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
    respond_with(stream::unfold(events, |mut events| async move { Some((events.next().await?, events)) }))
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
                if self.has_id && self.following.is_continued_remotely() {
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
