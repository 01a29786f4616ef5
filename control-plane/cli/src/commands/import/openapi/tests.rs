//! What a document becomes, and what none becomes.

use serde_json::{Value, json};

use super::document::{Document, Fault};
use super::operation::{Tool, Unfit, tool};

fn document(paths: Value, components: Value) -> Document {
    let whole = json!({"openapi": "3.0.3", "servers": [{"url": "https://{host}.example/v1",
        "variables": {"host": {"default": "api"}}}], "paths": paths, "components": components});
    Document::parse(whole.to_string().as_bytes()).unwrap()
}

fn only(operation: Value) -> Result<Tool, Unfit> {
    let schemas = json!({"schemas": {
        "Node": {"type": "object", "properties": {"name": {"type": "string"}, "child": {"$ref": "#/components/schemas/Node"}}},
        "Ring": {"$ref": "#/components/schemas/Ring"}}});
    let document = document(json!({"/things/{id}": {"post": operation}}), schemas);
    let operations = document.operations().unwrap();
    tool(&document, &operations[0])
}

fn id() -> Value {
    json!({"name": "id", "in": "path", "required": true, "schema": {"type": "string"}})
}

#[test]
fn what_is_no_document_of_version_3_is_refused() {
    for text in [
        "",
        "openapi: 3.0.0",
        "[]",
        "7",
        "{}",
        r#"{"swagger": "2.0"}"#,
        r#"{"openapi": 3}"#,
        r#"{"openapi": "4.0.0"}"#,
    ] {
        let fault = Document::parse(text.as_bytes()).err();
        assert!(matches!(fault, Some(Fault::Syntax(_) | Fault::Version)), "{text}: {fault:?}");
    }
    let deep = "[".repeat(100_000);
    assert!(matches!(Document::parse(deep.as_bytes()).err(), Some(Fault::Syntax(_))));
}

#[test]
fn a_server_is_whole_or_none() {
    assert_eq!(document(json!({}), json!({})).server(), Some("https://api.example/v1".into()));
    for servers in
        [json!([]), json!([{"url": "/v1"}]), json!([{"url": "https://{host}/"}]), json!([{"url": "ftp://a"}])]
    {
        let text = json!({"openapi": "3.1.0", "servers": servers}).to_string();
        assert_eq!(Document::parse(text.as_bytes()).unwrap().server(), None, "{text}");
    }
}

/// A document's author would choose the host.
#[test]
fn a_path_that_would_be_a_part_of_the_hosts_name_is_left_out() {
    for path in [".evil.test/x", "-admin.internal/x", ":8443/x", "@evil.test/x", "x", ""] {
        let document = document(json!({path: {"get": {"operationId": "a"}}}), json!({}));
        let operations = document.operations().unwrap();
        assert!(matches!(tool(&document, &operations[0]), Err(Unfit::NoPath)), "{path}");
    }
}

#[test]
fn an_operation_becomes_one_request() {
    let tool = only(json!({"operationId": "change thing", "summary": "Changes it", "tags": ["t"],
        "parameters": [id(),
            {"name": "dry-run", "in": "query", "description": "Only looks", "schema": {"type": "boolean"}},
            {"name": "X-Mode", "in": "header", "schema": {"type": "string", "nullable": true, "enum": ["a"]}},
            {"name": "fields", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
            {"name": "api_key", "in": "query", "schema": {"type": "string"}},
            {"name": "session", "in": "cookie", "schema": {"type": "string"}}],
        "requestBody": {"required": true, "content": {"application/json": {"schema": {"type": "object",
            "required": ["name", "id"], "properties": {"id": {"type": "integer", "readOnly": true},
                "name": {"type": "string", "format": "password", "example": "x"},
                "age": {"type": "integer", "minimum": 0, "exclusiveMinimum": true}}}}}}}))
    .unwrap();
    assert_eq!(
        (tool.method.as_str(), tool.path.as_str(), tool.mutation),
        ("POST", "/things/{id}", "non_idempotent")
    );
    assert_eq!(json!(tool.query), json!({"dry-run": "{dry_run}"}));
    assert_eq!(json!(tool.headers), json!({"x-mode": "{X_Mode}"}));
    assert_eq!(tool.body, Some(json!({"name": "/body/name", "age": "/body/age"})));
    assert_eq!(
        tool.input,
        json!({"type": "object", "required": ["id", "body"], "properties": {
            "id": {"type": "string"},
            "dry_run": {"type": "boolean", "description": "Only looks"},
            "X_Mode": {"type": ["string", "null"], "enum": ["a", null]},
            "body": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string"}, "age": {"type": "integer", "exclusiveMinimum": 0}}}}})
    );
    assert_eq!(tool.notes.len(), 3, "{:?}", tool.notes);
}

#[test]
fn what_one_request_of_json_cannot_carry_is_no_tool() {
    let array = json!({"name": "a", "in": "query", "required": true, "schema": {"type": "array"}});
    let secret =
        json!({"name": "access_token", "in": "query", "required": true, "schema": {"type": "string"}});
    let elsewhere = json!({"$ref": "https://evil.example/p.json#/x"});
    let body = |kind: &str, schema: Value| json!({"content": {kind: {"schema": schema}}});
    for (operation, expected) in [
        (json!({"parameters": [id(), array]}), Unfit::Parameter("a".into())),
        (json!({"parameters": [id(), secret]}), Unfit::Parameter("access_token".into())),
        (json!({}), Unfit::Path("id".into())),
        (
            json!({"parameters": [elsewhere]}),
            Unfit::Document(Fault::Reference("https://evil.example/p.json#/x".into())),
        ),
        (
            json!({"parameters": [{"$ref": "#/nowhere"}]}),
            Unfit::Document(Fault::Reference("#/nowhere".into())),
        ),
        (
            json!({"parameters": [{"$ref": "#/components/schemas/Ring"}]}),
            Unfit::Document(Fault::Loop("#/components/schemas/Ring".into())),
        ),
        (json!({"parameters": [id()], "requestBody": body("multipart/form-data", json!({}))}), Unfit::Body),
        (
            json!({"parameters": [id()], "requestBody": body("application/json", json!({"type": "array"}))}),
            Unfit::Body,
        ),
        (
            json!({"parameters": std::iter::once(json!({"name": "x", "in": "query"})).chain((0..201).map(|n|
            json!({"name": format!("p{n}"), "in": "query"}))).collect::<Vec<_>>()}),
            Unfit::TooMany,
        ),
    ] {
        assert_eq!(only(operation.clone()).unwrap_err(), expected, "{operation}");
    }
}

#[test]
fn a_schema_that_holds_itself_ends() {
    let body = json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Node"}}}});
    let tool = only(json!({"parameters": [id()], "requestBody": body})).unwrap();
    let inner = json!({"type": "object", "properties": {"name": {"type": "string"}, "child": {}}});
    assert_eq!(tool.input["properties"]["body"], inner);
}

#[test]
fn a_schema_that_doubles_at_each_step_stays_small() {
    let mut schemas = serde_json::Map::new();
    for n in 0..40 {
        let next = json!({"$ref": format!("#/components/schemas/S{}", n + 1)});
        schemas.insert(format!("S{n}"), json!({"type": "object", "properties": {"a": next, "b": next}}));
    }
    schemas.insert("S40".into(), json!({"type": "string"}));
    let body = json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}});
    let document = document(json!({"/x": {"post": {"requestBody": body}}}), json!({"schemas": schemas}));
    let tool = tool(&document, &document.operations().unwrap()[0]).unwrap();
    assert!(tool.input.to_string().len() < 256 << 10, "{}", tool.input.to_string().len());
}
