//! Any bytes as the stream of a remote agent, over JSON-RPC and REST of both versions: no panic; the same events come out however
//! the bytes are cut; what is accepted means the same when a stream of ours has it; an error is told in bounded text.
#![no_main]

use asp_a2a::jsonrpc::{self, AnswerFault};
use asp_a2a::{Generation, StreamEvent, rest};
use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../../../platform/src/event_stream.rs"]
mod event_stream;

use event_stream::Frames;

/// Largest event that is read, in bytes.
const MAX_EVENT: usize = 64 << 10;

/// Reads an event, and writes one.
struct Binding {
    read: fn(Generation, &[u8]) -> Result<StreamEvent, AnswerFault>,
    write: fn(Generation, &StreamEvent) -> String,
}

const BINDINGS: [Binding; 2] = [
    Binding { read: rest::decode_event, write: rest::encode_event },
    Binding { read: jsonrpc::decode_event, write: write_jsonrpc },
];

fn write_jsonrpc(generation: Generation, event: &StreamEvent) -> String {
    jsonrpc::encode_event(Some("1"), generation, event)
}

fuzz_target!(|bytes: &[u8]| {
    // Forms differ in depth, and a text has at most 127 levels.
    if bytes.iter().filter(|byte| matches!(byte, b'[' | b'{')).count() > 100 {
        return;
    }
    let Ok(events) = Frames::bounded(MAX_EVENT).push(bytes) else { return };
    let mut frames = Frames::bounded(MAX_EVENT);
    let cut: Vec<String> = bytes.chunks(3).flat_map(|chunk| frames.push(chunk).unwrap()).collect();
    assert_eq!(cut, events);
    for text in events.iter().filter(|text| !text.trim().is_empty()) {
        for generation in [Generation::V03, Generation::V10] {
            for binding in &BINDINGS {
                check(binding, generation, asp_json::unmarked(text.as_bytes()));
            }
        }
    }
});

fn check(binding: &Binding, generation: Generation, text: &[u8]) {
    match (binding.read)(generation, text) {
        Ok(event) => {
            let written = (binding.write)(generation, &event);
            let carried = Frames::default().push(format!("data: {written}\n\n").as_bytes()).unwrap();
            assert_eq!(carried, [written.as_str()], "an event is on one line");
            let again = (binding.read)(generation, written.as_bytes()).expect("an event of ours");
            assert_eq!((binding.write)(generation, &again), written);
        }
        Err(AnswerFault::Refused(failure)) => {
            assert!(failure.message.len() <= 4096 && !failure.message.chars().any(char::is_control));
        }
        Err(AnswerFault::Invalid(_)) => {}
    }
}
