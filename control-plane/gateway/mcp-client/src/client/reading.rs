//! Messages of one HTTP response of an upstream: a JSON body, or server-sent events as they arrive.
//!
//! Keeps true: an event, a body and the whole answer to a request are bounded; invalid JSON in a stream is skipped;
//! the position for resuming a stream is known (MCP 2025-11-25, resumability).

use std::collections::VecDeque;
use std::time::Duration;

use asp_json::{Json, held, unmarked};
use asp_outbound::retry_after;
use asp_platform::event_stream::Frames;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Response, StatusCode};
use tokio::time::Instant;

use super::ClientFault;
use crate::message::Message;

/// Maximum size of a JSON body, and of a stream that answers a request, in bytes.
const MAX_RESPONSE: usize = 16 << 20;
/// The same for one page of a list, which is held while it is compared.
pub(crate) const MAX_PAGE: usize = 4 << 20;
/// Maximum size of an event in a stream that lasts as long as its session: each session may hold so much without a
/// call.
const MAX_LISTENED: usize = 256 << 10;
/// Maximum number of bytes of such a stream per `WHILE`; beyond it the stream is closed, and reopened after a pause.
const LISTENED_IN_A_WHILE: usize = 4 << 20;
const TOO_MANY_VALUES: &str = "the service's answer holds too many JSON values";
const WHILE: Duration = Duration::from_secs(60);

/// The messages of one response.
pub(super) struct Messages {
    response: Response,
    /// `None` for a single JSON body.
    frames: Option<Frames>,
    body: Vec<u8>,
    ready: VecDeque<Message>,
    /// Bytes of the body or of the stream that may still arrive.
    left: usize,
    /// Start of the current interval of `WHILE`; `None` if all bytes are counted.
    counted: Option<Instant>,
    ended: bool,
    heard: Instant,
}

impl Messages {
    /// Reads the answer to a request of this method.
    pub(super) fn answering(response: Response, method: &str) -> Messages {
        let most = if method.ends_with("/list") { MAX_PAGE } else { MAX_RESPONSE };
        Messages::of(response, most, Frames::bounded(most))
    }

    /// Reads a stream that lasts as long as its session.
    pub(super) fn listening(response: Response) -> Messages {
        let messages = Messages::of(response, LISTENED_IN_A_WHILE, Frames::bounded(MAX_LISTENED));
        Messages { counted: Some(Instant::now()), ..messages }
    }

    fn of(response: Response, left: usize, frames: Frames) -> Messages {
        Messages {
            frames: is_event_stream(&response).then_some(frames),
            response,
            body: Vec::new(),
            ready: VecDeque::new(),
            left,
            counted: None,
            ended: false,
            heard: Instant::now(),
        }
    }

    /// Continues the same stream in another response; previous bytes count.
    pub(super) fn go_on(&self, response: Response) -> Result<Messages, ClientFault> {
        let mut next = Messages::of(response, self.left, Frames::bounded(MAX_RESPONSE));
        let Some(frames) = next.frames.as_mut() else {
            return Err(loss("the service's answer was interrupted"));
        };
        if let Some(place) = &self.frames {
            frames.go_on_from(place);
        }
        Ok(next)
    }

    pub(super) fn is_stream(&self) -> bool {
        self.frames.is_some()
    }

    /// Returns when something last arrived, including comments.
    pub(super) fn last_arrival(&self) -> Instant {
        self.heard
    }

    /// Returns the id of the last event that had one, and the pause that the service asks for before it is asked
    /// again.
    pub(super) fn resumable(&self) -> Option<(String, Option<Duration>)> {
        let frames = self.frames.as_ref()?;
        Some((frames.last_id()?.to_owned(), frames.retry()))
    }

    /// Waits for the next message; `None` at the end. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<Message>, ClientFault> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Ok(Some(message));
            }
            if self.ended {
                return Ok(None);
            }
            let chunk =
                self.response.chunk().await.map_err(|_| loss("the service's answer was interrupted"))?;
            self.heard = Instant::now();
            match chunk {
                Some(chunk) => self.take(&chunk)?,
                None => self.end()?,
            }
        }
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), ClientFault> {
        if self.counted.is_some_and(|since| since.elapsed() >= WHILE) {
            self.counted = Some(Instant::now());
            self.left = LISTENED_IN_A_WHILE;
        }
        let too_large = || loss("the service's answer is too large");
        self.left = self.left.checked_sub(chunk.len()).ok_or_else(too_large)?;
        let Some(frames) = &mut self.frames else {
            self.body.extend_from_slice(chunk);
            return Ok(());
        };
        for text in frames.push(chunk).map_err(|_| loss("the service's answer is too large"))? {
            if held::is_too_much(text.as_bytes()) {
                return Err(loss(TOO_MANY_VALUES));
            }
            if let Ok(message) = Json::parse(unmarked(text.as_bytes())) {
                self.ready.extend(messages(&message));
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), ClientFault> {
        self.ended = true;
        if self.frames.is_some() {
            return Ok(());
        }
        let status = self.response.status();
        if held::is_too_much(&self.body) {
            return Err(loss(TOO_MANY_VALUES));
        }
        let found = Json::parse(unmarked(&self.body)).map(|body| messages(&body)).unwrap_or_default();
        let is_answer = |message: &Message| match message {
            Message::Answer { .. } => true,
            // For a refusal, the status says more.
            Message::Unaddressed(_) => status.is_success(),
            Message::Request { .. } | Message::Notification { .. } => false,
        };
        if found.iter().any(is_answer) {
            self.ready.extend(found);
            return Ok(());
        }
        // A redirect is not followed.
        if !status.is_success() {
            let names_session = super::names_session(&String::from_utf8_lossy(&self.body));
            let wait = retry_after(self.response.headers());
            let said = found.into_iter().find_map(|message| match message {
                Message::Unaddressed(failure) => Some(failure.message),
                _ => None,
            });
            return Err(ClientFault::Refused { status, wait, names_session, said: said.unwrap_or_default() });
        }
        match status {
            StatusCode::ACCEPTED => Ok(()),
            status => Err(loss(&format!("the service answered {} without a result", status.as_u16()))),
        }
    }
}

/// Whether a response is a stream of server-sent events.
pub fn is_event_stream(response: &Response) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|kind| {
        let kind = String::from_utf8_lossy(kind.as_bytes());
        kind.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/event-stream"))
    })
}

/// Parses one message, or those of a batch (MCP 2025-03-26).
fn messages(json: &Json) -> Vec<Message> {
    match json.elements() {
        Some(batch) => batch.iter().filter_map(Message::of).collect(),
        None => Message::of(json).into_iter().collect(),
    }
}

pub(super) fn loss(why: &str) -> ClientFault {
    ClientFault::Lost(why.to_owned())
}
