//! Any bytes as a stream of an upstream: no panic; the same events come out however the bytes are cut; where the
//! stream can be gone on with fits a header.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../../../platform/src/event_stream.rs"]
mod event_stream;

use event_stream::Frames;

fuzz_target!(|bytes: &[u8]| {
    let mut whole = Frames::default();
    let Ok(expected) = whole.push(bytes) else { return };
    let size = usize::from(bytes.first().copied().unwrap_or(1) % 7) + 1;
    let mut frames = Frames::default();
    let mut events = Vec::new();
    for chunk in bytes.chunks(size) {
        events.extend(frames.push(chunk).unwrap());
    }
    assert_eq!(events, expected);
    assert_eq!((frames.last_id(), frames.retry()), (whole.last_id(), whole.retry()));
    if let Some(id) = frames.last_id() {
        assert!(!id.is_empty() && id.len() <= 1024 && id.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    }
});
