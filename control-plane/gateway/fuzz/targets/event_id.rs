//! Any bytes as the inside of an event id: no panic; what is a position means the same when it is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../pipeline/src/event_id/position.rs"]
mod position;

use position::{MAX_TOKEN, Position};

fuzz_target!(|bytes: &[u8]| {
    let Some(position) = Position::decode(bytes) else { return };
    if let Position::Call(call) = &position {
        assert!(
            call.progress_token.as_ref().is_none_or(|token| !token.is_empty() && token.len() <= MAX_TOKEN)
        );
    }
    // A progress that is no number is none that anything equals: the bytes are compared.
    assert_eq!(position.encode().as_deref(), Some(bytes));
});
