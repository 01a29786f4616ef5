//! Any bytes as an OpenAPI document: no panic, an end in bounded time and memory, and what comes out of an operation is
//! one request whose places its arguments fill.
#![no_main]

use asp_import::openapi_testkit::convert;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for operation in convert(bytes) {
        assert!(!operation.name.is_empty() && operation.summary.len() <= 4096);
        let arguments = operation.input["properties"].as_object().unwrap();
        let placed = operation.templates.iter().flat_map(|template| placeholders(template));
        let of_body = operation.body.iter().map(|pointer| pointer.trim_start_matches('/'));
        for name in placed.chain(of_body) {
            assert!(arguments.contains_key(name), "{name}");
        }
    }
});

/// Returns the arguments that a template names, each as `{name}` or `{name*}`.
fn placeholders(template: &str) -> impl Iterator<Item = &str> {
    let ended = template.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    ended.map(|(name, _)| name.trim_end_matches('*'))
}
