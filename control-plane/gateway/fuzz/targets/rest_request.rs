//! Any text as what a request of REST says: no panic; what is read is within its bounds, and is written one way only.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../protocols/src/rest/conditions.rs"]
mod conditions;
#[allow(dead_code)]
#[path = "../../protocols/src/rest/event_id.rs"]
mod event_id;
#[allow(dead_code)]
#[path = "../../protocols/src/rest/path.rs"]
mod path;
#[allow(dead_code)]
#[path = "../../protocols/src/rest/openapi/references.rs"]
mod references;

use path::{CallPart, Resource};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(Resource::Call { tool, id, part }) = path::parse(text) {
        assert!((1..=path::MAX_ID).contains(&id.len()) && !tool.is_empty());
        let end = match part {
            CallPart::Whole => "",
            CallPart::Advance => "/advance",
            CallPart::Cancel => "/cancel",
            CallPart::Events => "/events",
        };
        assert!(text.ends_with(&format!("/rest/tools/{tool}/calls/{id}{end}")), "{text}");
    }
    if let Some(tags) = conditions::tags(text) {
        // What matches strongly matches weakly.
        assert!(!tags.match_strongly("a") || tags.match_weakly("a"));
    }
    let preferences = conditions::preferences([text, text].into_iter());
    assert!(preferences.wait.is_none_or(|wait| wait <= conditions::MAX_WAIT));
    assert_eq!(preferences, conditions::preferences([text].into_iter()));
    if let Some(reached) = event_id::reached(text) {
        assert_eq!(event_id::reached(&reached.to_string()), Some(reached));
    }
    if let Ok(schema) = serde_json::from_str::<serde_json::Value>(text) {
        let moved = references::moved(schema.clone(), "#");
        assert_eq!(moved, schema, "a schema that stays where it is stays as it is");
    }
});
