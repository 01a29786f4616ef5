//! Forms of documents, and the arguments that they become.

use asp_registry::Source;
use serde_json::{Value, json};

use super::super::super::specs;
use super::super::operation::{Tool, tool};
use super::super::skip_reason::SkipReason;
use super::super::tests::{document, id, only};
use super::super::{ImportArgs, ImportReport, import};

const URLENCODED: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data";

fn of(content: Value) -> Result<Tool, SkipReason> {
    only(json!({"parameters": [id()], "requestBody": {"required": true, "content": content}}))
}

/// Builds a form with these properties, all but `name` optional.
fn multipart(properties: Value) -> Result<Tool, SkipReason> {
    of(json!({MULTIPART: {"schema": {"type": "object", "required": ["name"], "properties": properties}}}))
}

#[test]
fn a_form_is_the_argument_body_and_its_styles_are_the_documents() {
    let schema = json!({"type": "object", "required": ["amount"], "properties": {
        "amount": {"type": "integer"}, "expand": {"type": "array", "items": {"type": "string"}},
        "metadata": {"type": "object"}, "ids[]": {"type": "array"}, "tags": {"type": "array"}}});
    let deep = json!({"style": "deepObject", "explode": true});
    let media = json!({"schema": schema, "encoding": {"expand": deep, "metadata": deep,
        "tags": {"style": "form", "explode": true}}});
    let tool = of(json!({URLENCODED: media})).unwrap();
    assert_eq!((tool.body, tool.body_format), (Some(json!("/body")), Some("form")));
    assert_eq!(
        Value::Object(tool.body_styles),
        json!({"expand": "deepObject", "metadata": "deepObject", "ids[]": "form"})
    );
    assert_eq!(tool.input["properties"]["body"], schema);
    assert_eq!(tool.input["required"], json!(["id", "body"]));
    assert_eq!((tool.headers.len(), tool.notes.len()), (0, 0));
}

#[test]
fn json_wins_over_a_form_and_a_urlencoded_form_over_parts() {
    let form = json!({"schema": {"type": "object", "properties": {"a": {"type": "string"}}}});
    let file = json!({"schema": {"type": "object", "required": ["f"],
        "properties": {"f": {"type": "string", "format": "binary"}}}});
    for (content, expected) in [
        (json!({MULTIPART: form, URLENCODED: form, "application/json": {}}), None),
        (json!({MULTIPART: form, URLENCODED: form}), Some("form")),
        (json!({"Multipart/Form-Data; x=1": form}), Some("multipart")),
        (json!({URLENCODED: file, MULTIPART: form}), Some("multipart")),
        (json!({"text/plain": {}, URLENCODED: form}), Some("form")),
    ] {
        assert_eq!(of(content.clone()).unwrap().body_format, expected, "{content}");
    }
}

#[test]
fn a_file_is_left_out_where_it_is_optional() {
    let text = json!({"type": "string"});
    for file in [
        json!({"type": "string", "format": "binary"}),
        json!({"type": "string", "contentMediaType": "application/octet-stream"}),
        json!({"anyOf": [{"type": "string", "format": "binary"}, {"type": "null"}]}),
        json!({"type": "array", "items": {"type": "string", "format": "binary"}}),
    ] {
        let tool = multipart(json!({"name": text, "file": file})).unwrap();
        assert_eq!(tool.input["properties"]["body"]["properties"], json!({"name": text}), "{file}");
        assert!(tool.notes.contains(&"its form field file is left out: it is a file".to_owned()), "{file}");
        let needed = SkipReason::Field { name: "name".into(), why: "is a file" };
        assert_eq!(multipart(json!({"name": file, "a": text})).unwrap_err(), needed, "{file}");
        let nothing_else = json!({MULTIPART: {"schema": {"type": "object", "properties": {"file": file}}}});
        assert_eq!(of(nothing_else).unwrap_err(), SkipReason::NoField, "{file}");
    }
    for text in [
        json!({"type": "string", "format": "byte"}),
        json!({"type": "string", "contentMediaType": "image/png", "contentEncoding": "base64"}),
        json!({"type": "string", "contentMediaType": "text/csv"}),
    ] {
        let notes = multipart(json!({"name": text})).unwrap().notes;
        assert!(!notes.iter().any(|note| note.contains("form field")), "{text}: {notes:?}");
    }
}

#[test]
fn a_field_that_is_encoded_in_another_way_is_left_out_and_named() {
    let list = json!({"type": "array", "items": {"type": "string"}});
    let object = json!({"type": "object", "properties": {"k": {"type": "string"}}});
    for (field, encoding, left_out) in [
        (&list, json!({"explode": false}), Some("is a list in one text")),
        (&list, json!({"style": "pipeDelimited"}), Some("is a list in one text")),
        (&list, json!({"contentType": "image/png, image/jpeg"}), Some("has a content type of its own")),
        (&object, json!({"style": "form"}), Some("is an object that is sent as one field per member")),
        (&object, json!({"contentType": "application/json; charset=utf-8"}), None),
        (&list, json!({"contentType": "text/plain"}), None),
    ] {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": field}});
        let media = json!({"schema": schema, "encoding": {"b": encoding}});
        let notes = of(json!({URLENCODED: media})).unwrap().notes;
        let expected = left_out.map(|why| format!("its form field b is left out: it {why}"));
        assert_eq!(notes, Vec::from_iter(expected), "{encoding}");
    }
}

#[test]
fn parts_of_a_composed_form_are_looked_at() {
    let file = json!({"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}});
    let name = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let composed = of(json!({MULTIPART: {"schema": {"allOf": [file, name]}}})).unwrap();
    assert_eq!(composed.input["properties"]["body"]["allOf"][0]["properties"], json!({}));
    let chosen = of(json!({MULTIPART: {"schema": {"oneOf": [file, name]}}})).unwrap_err();
    assert_eq!(chosen, SkipReason::Field { name: "file".into(), why: "is a file" });
    // Each of its parts is the schema itself.
    let tree = json!({"properties": {"a": {"type": "string"}}, "allOf": [
        {"$ref": "#/components/schemas/Tree"}, {"$ref": "#/components/schemas/Tree"}]});
    let body = json!({"content": {MULTIPART: {"schema": {"$ref": "#/components/schemas/Tree"}}}});
    let document =
        document(json!({"/x": {"post": {"requestBody": body}}}), json!({"schemas": {"Tree": tree}}));
    let found = tool(&document, &document.operations().unwrap()[0]).unwrap();
    assert_eq!(found.body_format, Some("multipart"));
}

#[test]
fn an_imported_form_is_a_spec_without_faults() {
    let media = json!({"schema": {"type": "object", "properties": {"expand": {"type": "array"}}},
        "encoding": {"expand": {"style": "deepObject"}}});
    let text =
        json!({"openapi": "3.0.3", "servers": [{"url": "https://api.example"}], "paths": {"/charges": {
        "post": {"operationId": "charge", "requestBody": {"content": {URLENCODED: media}}}}}})
        .to_string();
    let args = ImportArgs { mcp: None, openapi: Some("api.json".into()), ..specs::tests::args() };
    let imported = import(&args, text.as_bytes(), &mut ImportReport::default()).unwrap();
    let spec: Value = serde_json::from_str(&imported.files["up/charge.json"]).unwrap();
    assert_eq!(
        spec["runtime"]["http"],
        json!({"method": "POST", "url": "https://api.example/charges", "body": "/body", "bodyFormat": "form",
            "bodyStyles": {"expand": "deepObject"}})
    );
    let sources: Vec<Source> = imported.files.into_iter().map(|(path, text)| Source { path, text }).collect();
    assert_eq!(asp_registry::check(&sources).faults, []);
}
