//! Any bytes as a service's call: no panic; what is taken is within its bounds, and means the same when it is
//! written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[allow(dead_code)]
#[path = "../../backends/src/hosted/resource.rs"]
mod resource;

use resource::{Status, parse, parse_error};

fuzz_target!(|body: &[u8]| {
    if let Some(error) = parse_error(body) {
        assert!(error.code.len() + error.message.len() <= body.len() * 3);
    }
    let Ok(call) = parse(body) else { return };
    for name in [&call.id, &call.etag].into_iter().flatten() {
        assert!(name.len() <= 256);
    }
    let awaits = matches!(call.status, Status::AwaitingElicitationResult | Status::AwaitingSamplingResult);
    assert_eq!(call.asked.is_some(), awaits);
    assert!(call.status != Status::Success || call.result.is_some());
    let Some(data) = &call.server_data else { return };
    // What travels back is the service's own text, and JSON.
    let text = data.get();
    assert!(text.len() <= 64 << 10);
    assert!(body.windows(text.len()).any(|part| part == text.as_bytes()));
    let mut again = json!({"status": "running"});
    again["serverData"] = asp_json::decode(text).unwrap();
    assert_eq!(parse(again.to_string().as_bytes()).unwrap().status, Status::Running);
});
