//! Any bytes as an OpenAPI document: no panic, an end in bounded time and memory, and what comes out of an operation is
//! one request whose places its arguments fill.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../../import/src/openapi/document.rs"]
mod document;
#[allow(dead_code)]
#[path = "../../../import/src/openapi/operation.rs"]
mod operation;
#[allow(dead_code)]
#[path = "../../../import/src/openapi/schema.rs"]
mod schema;

fuzz_target!(|bytes: &[u8]| {
    let Ok(document) = document::Document::parse(bytes) else { return };
    let _ = document.server();
    let Ok(found) = document.operations() else { return };
    for operation in found.iter().take(64) {
        let Ok(tool) = operation::tool(&document, operation) else { continue };
        assert!(!tool.name.is_empty() && tool.summary.len() <= 4096);
        // A body that is all of the arguments has no other places.
        let is_whole = tool.body.as_ref().is_some_and(|body| body == "args");
        let names = tool.input.get("properties").and_then(serde_json::Value::as_object);
        let places = tool.query.values().chain(tool.headers.values());
        for template in places.filter_map(serde_json::Value::as_str) {
            let name = template.trim_matches(['{', '}']);
            assert!(!is_whole && names.is_some_and(|names| names.contains_key(name)), "{template}");
        }
    }
});
