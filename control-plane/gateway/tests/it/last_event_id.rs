//! Streams of legacy sessions that are cut, and clients that come back to them with `Last-Event-ID`.

use std::time::Duration;

use axum::body::Body;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::{Answer, Fixture, Legacy};

#[path = "last_event_id/calls.rs"]
mod calls;
#[path = "last_event_id/changes.rs"]
mod changes;
#[path = "last_event_id/refusals.rs"]
mod refusals;

const REVISIONS: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];
/// Hang guard of one event.
const BOUND: Duration = Duration::from_secs(20);

/// One server-sent event.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    id: Option<String>,
    retry: Option<u64>,
    /// `None` for an event without a message.
    message: Option<Value>,
}

impl Event {
    fn id(&self) -> String {
        self.id.clone().unwrap_or_else(|| panic!("{self:?} has no id"))
    }

    fn message(&self) -> &Value {
        self.message.as_ref().unwrap_or_else(|| panic!("{self:?} is no message"))
    }
}

/// An open stream.
struct Stream {
    body: Body,
    held: String,
}

impl Stream {
    fn of(response: axum::response::Response) -> Stream {
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Stream { body: response.into_body(), held: String::new() }
    }

    /// The next event; `None` when the stream has ended.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.held.find("\n\n") {
                let text: String = self.held.drain(..end + 2).collect();
                let field = |name: &str| {
                    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
                };
                let (Some(data), id) = (field("data"), field("id").map(str::to_owned)) else { continue };
                let message = (!data.is_empty()).then(|| serde_json::from_str(data).unwrap());
                return Some(Event { id, retry: field("retry").map(|text| text.parse().unwrap()), message });
            }
            let frame = tokio::time::timeout(BOUND, self.body.frame()).await.expect("an event or the end")?;
            let text = String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap();
            self.held.push_str(&text.replace("\r\n", "\n"));
        }
    }

    /// All that is left.
    async fn rest(mut self) -> Vec<Event> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }

    /// The next event that is a message.
    async fn message(&mut self) -> Event {
        loop {
            let event = self.next().await.expect("the stream is open");
            if event.message.is_some() {
                return event;
            }
        }
    }
}

async fn connect(fixture: &Fixture, user: &str, revision: &str) -> Legacy {
    Legacy::connect(fixture, "demo", user, revision, json!({})).await
}

/// Counts to so many, one number each so many milliseconds.
fn count(to: u64, delay: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": "count-1", "method": "tools/call", "params": {"name": "count",
           "arguments": {"to": to, "delayMs": delay}, "_meta": {"progressToken": "p"}}})
}

async fn get(client: &Legacy, fixture: &Fixture, last: Option<&str>) -> axum::response::Response {
    let headers = client.headers();
    let mut headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    headers.extend(last.map(|last| ("last-event-id", last)));
    fixture.open(Method::GET, &format!("/{}/mcp", client.server), &headers, "").await
}

/// The stream that goes on after an event.
async fn back(client: &Legacy, last: &str) -> Stream {
    Stream::of(get(client, &client.fixture, Some(last)).await)
}

/// Returns the answer for a client that resumes and gets no stream.
async fn refused(client: &Legacy, fixture: &Fixture, last: &str) -> Answer {
    let response = get(client, fixture, Some(last)).await;
    let (parts, body) = response.into_parts();
    assert_ne!(
        parts.headers.get("content-type").map(|kind| kind.as_bytes()),
        Some(&b"text/event-stream"[..])
    );
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    Answer { status: parts.status, headers: parts.headers, text }
}
