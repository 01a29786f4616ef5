//! Any bytes as a request of A2A, over JSON-RPC and REST of both versions: no panic; what is accepted is within its bounds, and
//! means the same when a client of ours writes it again.
#![no_main]

use asp_a2a::bounds::{MAX_ID, MAX_PARTS, MAX_VIOLATIONS};
use asp_a2a::{A2aFailure, Operation, Request, jsonrpc, rest, version};
use libfuzzer_sys::fuzz_target;

const METHODS: [&str; 4] = ["GET", "POST", "DELETE", "HEAD"];

fuzz_target!(|bytes: &[u8]| {
    // Forms differ in depth, and a text has at most 127 levels.
    if bytes.iter().filter(|byte| matches!(byte, b'[' | b'{')).count() > 100 {
        return;
    }
    if let Ok(envelope) = jsonrpc::read_envelope(bytes) {
        check(jsonrpc::decode_request(&envelope));
    }
    // A first line with the target, then the body.
    let at = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (head, body) = bytes.split_at(at);
    let Ok(head) = std::str::from_utf8(head) else { return };
    let (path, query) = head.split_once('?').unwrap_or((head, ""));
    for method in METHODS {
        if let Ok(route) = rest::route(method, path) {
            check(rest::decode_request(route, query, body));
        }
    }
    let _ = rest::query_version(query);
    assert!(version::extensions([head, head]).len() <= 64);
});

fn check(decoded: Result<Request, A2aFailure>) {
    let request = match decoded {
        Ok(request) => request,
        Err(failure) => return assert!(failure.violations.len() <= MAX_VIOLATIONS),
    };
    if let Operation::Send(send) | Operation::Stream(send) = &request.operation {
        assert!((1..=MAX_PARTS).contains(&send.message.parts.len()));
        assert!((1..=MAX_ID).contains(&send.message.message_id.len()));
    }
    if let Operation::CreatePush(config) = &request.operation {
        assert!(!config.url.chars().any(char::is_control) && !config.task_id.is_empty());
    }
    let Some(text) = jsonrpc::encode_request(1, &request) else { return };
    let envelope = jsonrpc::read_envelope(text.as_bytes()).expect("an envelope of ours");
    let again = jsonrpc::decode_request(&envelope).expect("a request of ours");
    assert_eq!(jsonrpc::encode_request(1, &again), Some(text));
}
