//! Any template filled with any value: the value fills its place, never another one, and a match gives it back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

#[allow(dead_code)]
#[path = "../../../registry/src/uri_template.rs"]
mod uri_template;

use uri_template::UriTemplate;

fuzz_target!(|input: (&str, &str)| {
    let (text, value) = input;
    if let Ok(template) = UriTemplate::parse_matching(text)
        && let Some(variables) = template.matches(value)
    {
        assert_eq!(variables.len(), template.variables().count());
    }
    let Ok(template) = UriTemplate::parse(text) else { return };
    let values: Map<String, Value> = template.variables().map(|name| (name.to_owned(), value.into())).collect();
    let Ok(uri) = template.expand(&values) else { return };
    // As many segments as the template has, also for whoever removes dot segments.
    assert_eq!(uri.matches('/').count(), template.sample_uri().matches('/').count());
    let path = |uri: &str| uri.split(['?', '#', '&']).next().unwrap_or_default().to_owned();
    let dots = |uri: &str| path(uri).split('/').skip(1).filter(|part| matches!(*part, "." | "..")).count();
    assert!(dots(&uri) <= dots(&template.sample_uri()));
});
