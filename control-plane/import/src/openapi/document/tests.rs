//! Documents as people and tools write them.

use super::{DocumentFault, OpenApiDocument};

/// Reads a document in YAML.
fn yaml(text: &str) -> OpenApiDocument {
    OpenApiDocument::parse(format!("openapi: 3.1.0\n{text}").as_bytes()).unwrap()
}

#[test]
fn a_byte_order_mark_is_not_part_of_a_document() {
    for text in
        [r#"{"openapi": "3.1.0", "paths": {"/a": {"get": {}}}}"#, "openapi: 3.1.0\npaths: {/a: {get: {}}}\n"]
    {
        let document = OpenApiDocument::parse(format!("\u{feff}{text}").as_bytes()).unwrap();
        assert_eq!(document.operations().unwrap().len(), 1, "{text}");
    }
}

#[test]
fn a_page_for_people_is_reported_as_one() {
    for text in ["<!doctype html><html></html>", "\n<?xml version=\"1.0\"?><a/>"] {
        assert_eq!(OpenApiDocument::parse(text.as_bytes()).err(), Some(DocumentFault::Markup), "{text}");
    }
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

#[test]
fn a_server_without_a_host_is_where_the_document_was_read() {
    for (servers, place, expected) in [
        ("[]", "https://api.example/docs/openapi.yaml?v=1", Some("https://api.example")),
        ("[{url: /v1/}]", "https://api.example:8443/docs/openapi.yaml", Some("https://api.example:8443/v1")),
        ("[{url: ./v1}]", "http://api.example/docs/openapi.yaml", Some("http://api.example/docs/v1")),
        ("[{url: https://other.example/v1}]", "https://api.example/x", Some("https://other.example/v1")),
        ("[{url: //other.example/v1}]", "https://api.example/x", None),
        ("[{url: ftp://api.example}]", "https://api.example/x", None),
        ("[{url: '/{v}'}]", "https://api.example/x", None),
        ("[{url: /v1}]", "api.yaml", None),
        ("[]", "C:/api.yaml", None),
        ("[]", "https://user:key@api.example/x", None),
    ] {
        let document = yaml(&format!("servers: {servers}\n")).at(place);
        assert_eq!(document.server().as_deref(), expected, "{servers} at {place}");
    }
    let named = yaml("paths:\n  /a: {servers: [{url: /v1}], get: {}}\n  /b: {servers: [{url: /v2}], get: {}}\nservers: [{url: /v1}]\n")
        .at("https://api.example/openapi.yaml");
    let others: Vec<_> =
        named.operations().unwrap().iter().map(|operation| named.other_server(operation)).collect();
    assert_eq!(others, [None, Some("https://api.example/v2".to_owned())]);
}

#[test]
fn the_default_of_a_variable_may_be_a_number() {
    let document = yaml(
        "servers: [{url: 'https://api.example:{port}/v{v}', variables: {port: {default: 8443}, v: {default: '1'}}}]\n",
    );
    assert_eq!(document.server().as_deref(), Some("https://api.example:8443/v1"));
    let without = yaml("servers: [{url: 'https://{host}.example', variables: {host: {}}}]\n");
    assert_eq!(without.server(), None);
}

#[test]
fn what_is_no_document_of_version_3_is_refused() {
    for text in [
        "",
        "openapi: 2.0.0",
        "openapi: [3.0.0",
        "a: &a [*a]",
        "[]",
        "7",
        "{}",
        r#"{"swagger": "2.0"}"#,
        r#"{"openapi": 3}"#,
        r#"{"openapi": "4.0.0"}"#,
    ] {
        let fault = OpenApiDocument::parse(text.as_bytes()).err();
        assert!(
            matches!(fault, Some(DocumentFault::Json(_) | DocumentFault::Yaml(_) | DocumentFault::Version)),
            "{text}: {fault:?}"
        );
    }
    for (deep, is_json) in [("[".repeat(100_000), true), (format!("a: {}", "[".repeat(100_000)), false)] {
        let fault = OpenApiDocument::parse(deep.as_bytes()).err();
        assert!(
            matches!(
                (&fault, is_json),
                (Some(DocumentFault::Json(_)), true) | (Some(DocumentFault::Yaml(_)), false)
            ),
            "{fault:?}"
        );
    }
    // Each level stands for ten of the previous one.
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let before = level - 1;
        let ten = vec![format!("*a{before}"); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{ten}]\n"));
    }
    assert!(matches!(OpenApiDocument::parse(bomb.as_bytes()).err(), Some(DocumentFault::Yaml(_))));
}

#[test]
fn a_document_in_utf_16_is_named_as_one() {
    let text = r#"{"openapi": "3.0.0"}"#;
    for (mark, unit) in
        [("\u{feff}", u16::to_le_bytes as fn(u16) -> [u8; 2]), ("", u16::to_be_bytes as fn(u16) -> [u8; 2])]
    {
        let bytes: Vec<u8> = format!("{mark}{text}").encode_utf16().flat_map(unit).collect();
        assert_eq!(OpenApiDocument::parse(&bytes).err(), Some(DocumentFault::Encoding));
    }
}
