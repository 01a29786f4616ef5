//! Any bytes as a JSON-RPC body: no panic, and the syntax verdict is that of `serde_json`.
#![no_main]

use asp_edge::Reason;
use asp_edge::envelope::{Batches, scan};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let is_json = serde_json::from_slice::<serde_json::Value>(body).is_ok();
    match scan(body, Batches::Accepted) {
        Err(Reason::ParseError) => assert!(!is_json),
        Err(reason) => assert!(is_json && reason == Reason::InvalidRequest),
        Ok(envelope) => {
            assert!(is_json);
            if let Some(id) = envelope.id {
                assert!(serde_json::from_str::<serde_json::Value>(&id).is_ok());
            }
        }
    }
});
