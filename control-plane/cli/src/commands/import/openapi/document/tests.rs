//! Documents as people and tools write them.

use super::OpenApiDocument;

/// Reads a document in YAML.
fn yaml(text: &str) -> OpenApiDocument {
    OpenApiDocument::parse(format!("openapi: 3.1.0\n{text}").as_bytes()).unwrap()
}

#[test]
fn a_key_that_is_written_twice_has_its_last_value_and_is_reported() {
    let document = yaml("paths:\n  /a:\n    get: {operationId: first}\n    get: {operationId: last}\n");
    let operations = document.operations().unwrap();
    assert_eq!(operations.iter().map(|operation| operation.id()).collect::<Vec<_>>(), ["last"]);
    assert!(matches!(document.losses(), [one] if one.contains("get")), "{:?}", document.losses());
}

#[test]
fn many_operations_may_refer_to_one_anchor() {
    let mut text = "paths:\n  /p: {get: {parameters: &all [{name: a, in: query}]}}\n".to_owned();
    for number in 0..500 {
        text.push_str(&format!("  /p{number}: {{get: {{parameters: *all}}}}\n"));
    }
    assert_eq!(yaml(&text).operations().unwrap().len(), 501);
}

#[test]
fn an_example_that_reads_as_too_large_a_number_is_no_fault() {
    let text = "paths: {/a: {get: {operationId: a, x-digests: [1e9999, .inf, .nan]}}}\n";
    assert_eq!(yaml(text).operations().unwrap().len(), 1);
}
