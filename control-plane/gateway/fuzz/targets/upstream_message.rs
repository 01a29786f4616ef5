//! Any bytes as what an upstream MCP server says, as a body and as a stream of events: no panic; what is a message has one
//! kind, means the same when it is written again, and tells of an error in a bounded text without control characters but line
//! breaks and tabs.
#![no_main]

// `service_text` by the name of its crate, whose HTTP client is not built for this.
extern crate self as asp_outbound;

use asp_json::Json;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[allow(dead_code)]
#[path = "../../call/src/call/event/amount.rs"]
mod amount;
#[allow(dead_code)]
#[path = "../../../../platform/src/event_stream.rs"]
mod event_stream;
#[allow(dead_code)]
#[path = "../../mcp-client/src/message.rs"]
mod message;
#[path = "../../../../platform/outbound/src/service_text.rs"]
mod service_text;

use amount::Amount;
use message::{Message, ServerEvent};

/// Longest text of an error in bytes.
const MAX_SAID: usize = 16 << 10;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(body) = Json::parse(bytes) {
        each(&body);
    }
    let Ok(events) = event_stream::Frames::bounded(256 << 10).push(bytes) else { return };
    for event in events {
        if let Ok(said) = Json::parse(event.as_bytes()) {
            each(&said);
        }
    }
});

fn is_unsafe(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
}

fn each(said: &Json) {
    match said.elements() {
        Some(batch) => batch.iter().for_each(one),
        None => one(said),
    }
}

fn one(said: &Json) {
    let Some(message) = Message::of(said) else { return };
    let again = match &message {
        Message::Answer { id, outcome: Ok(result) } => json!({"id": id, "result": **result}),
        Message::Answer { id, outcome: Err(failure) } => {
            let said = &failure.message;
            assert!((1..=MAX_SAID).contains(&said.len()) && !said.contains(is_unsafe), "{said:?}");
            // Hiding what was hidden hides no more than the line.
            let error = json!({"code": failure.code, "message": "x"});
            assert!(matches!(
                Message::of(&json!({"id": id, "error": error}).into()),
                Some(Message::Answer { id: of, outcome: Err(same) }) if of == *id && same.code == failure.code
            ));
            return;
        }
        Message::Unaddressed(failure) => {
            let said = &failure.message;
            assert!((1..=MAX_SAID).contains(&said.len()) && !said.contains(is_unsafe), "{said:?}");
            return;
        }
        Message::Request { id, method, params } => json!({"id": **id, "method": method, "params": **params}),
        Message::Notification { method, params } => {
            if let Some((token, event)) = message::event(method, params) {
                assert_eq!(token.is_some(), matches!(event, ServerEvent::Progress { .. }));
                if let ServerEvent::Progress { progress, total, .. } = event {
                    assert!(
                        [Some(progress), total].iter().flatten().all(|number| Amount::of(number).is_some())
                    );
                }
            }
            json!({"method": method, "params": **params})
        }
    };
    assert_eq!(Message::of(&again.into()), Some(message));
}
