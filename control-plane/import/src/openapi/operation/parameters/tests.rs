//! Parameters of documents, and the arguments that they become.

use serde_json::{Value, json};

use super::super::super::skip_reason::SkipReason;
use super::super::super::tests::{document, id, only};
use super::super::tool;

#[test]
fn a_list_or_an_object_of_a_parameter_is_written_as_the_document_says() {
    let list = json!({"type": "array", "items": {"type": "integer"}});
    let maybe = json!({"anyOf": [list, {"type": "null"}]});
    let either = json!({"anyOf": [{"type": "string"}, {"type": "array"}]});
    let object = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let range = json!({"anyOf": [object, {"type": "integer"}]});
    for (place, name, written, expected) in [
        ("query", "p", json!({"schema": list}), "{p*}"),
        ("query", "p", json!({"schema": maybe}), "{p*}"),
        ("query", "p", json!({"schema": either}), "{p*}"),
        ("query", "p", json!({"schema": list, "style": "form", "explode": false}), "{p}"),
        ("query", "p", json!({"schema": list, "style": "pipeDelimited", "explode": true}), "{p*}"),
        ("query", "p", json!({"schema": list, "style": "spaceDelimited", "explode": true}), "{p*}"),
        ("query", "p", json!({"schema": object, "style": "deepObject"}), "{p*}"),
        ("query", "p", json!({"schema": range, "style": "deepObject"}), "{p*}"),
        ("query", "p[]", json!({"schema": list, "style": "deepObject"}), "{p*}"),
        ("header", "p", json!({"schema": list}), "{p}"),
    ] {
        let mut parameter = json!({"name": "p", "in": place, "required": true});
        parameter.as_object_mut().unwrap().extend(written.as_object().unwrap().clone());
        let tool = only(json!({"parameters": [id(), parameter]})).unwrap();
        let of = if place == "query" { &tool.query } else { &tool.headers };
        assert_eq!(of[name], expected, "{written}");
        assert_eq!(tool.input["properties"]["p"], written["schema"]);
    }
    let ids = json!({"name": "id", "in": "path", "required": true, "schema": list});
    assert_eq!(only(json!({"parameters": [ids]})).unwrap().path, "/things/{id}");
}

#[test]
fn a_list_in_brackets_does_not_replace_a_parameter_of_that_name() {
    let list = json!({"type": "array", "items": {"type": "string"}});
    let plain = json!({"name": "p[]", "in": "query", "schema": list});
    let deep = json!({"name": "p", "in": "query", "style": "deepObject", "schema": list});
    for (parameters, template, left_out) in
        [(json!([id(), plain, deep]), "{p__*}", "p"), (json!([id(), deep, plain]), "{p*}", "p[]")]
    {
        let tool = only(json!({"parameters": parameters})).unwrap();
        assert_eq!(json!(tool.query), json!({"p[]": template}));
        let note = format!("its query parameter {left_out} is left out: it has the name of another one");
        assert_eq!(tool.notes, [note]);
    }
}

/// Spring describes pages and filters this way (OpenAPI 3.1, Parameter Object: style `form`, exploded).
#[test]
fn each_member_of_an_object_in_a_query_is_a_parameter() {
    let text = json!({"type": "string"});
    let page = json!({"type": "object", "required": ["page"], "properties": {
        "page": {"type": "integer", "description": "Which"}, "sort": {"type": "array", "items": text},
        "token": text, "id": text, "more": {"type": "object", "properties": {"x": text}}}});
    let query =
        |name: &str, schema: &Value| json!({"name": name, "in": "query", "required": true, "schema": schema});
    let sort = json!({"name": "sort", "in": "query", "schema": text});
    let tool = only(json!({"parameters": [id(), query("pageable", &page), sort]})).unwrap();
    assert_eq!(json!(tool.query), json!({"page": "{page}", "sort": "{sort*}", "id": "{id_2}"}));
    assert_eq!(tool.input["required"], json!(["id", "page"]));
    assert_eq!(tool.input["properties"]["page"], page["properties"]["page"]);
    assert_eq!(
        tool.notes,
        [
            "its query parameter token is left out: it looks like a credential, which is never an argument",
            "its query parameter more is left out: it is more than one text or number",
            "its query parameter sort is left out: it has the name of another one",
        ]
    );
    let any = query("any", &json!({"type": "object", "additionalProperties": text}));
    let tool = only(json!({"parameters": [id(), any]})).unwrap();
    assert_eq!(tool.notes, ["its query parameter any is left out: the document names none of its members"]);
    let sorted = json!({"properties": {"sort": {"type": "string"}}});
    let composed = query("composed", &json!({"allOf": [page, sorted, {"required": ["sort"]}]}));
    let tool = only(json!({"parameters": [id(), composed]})).unwrap();
    assert_eq!(json!(tool.query), json!({"page": "{page}", "sort": "{sort*}", "id": "{id_2}"}));
    assert_eq!(tool.input["required"], json!(["id", "page", "sort"]));
    let chosen = query("chosen", &json!({"anyOf": [page]}));
    assert_eq!(
        only(json!({"parameters": [id(), chosen]})).unwrap_err(),
        SkipReason::Parameter { name: "chosen".into(), why: "is more than one text or number" }
    );
}

/// Documents of some frameworks omit the description.
#[test]
fn a_place_of_the_path_that_is_not_described_takes_a_text() {
    let other = json!({"name": "id", "in": "query", "schema": {"type": "integer"}});
    let tool = only(json!({"parameters": [other]})).unwrap();
    assert_eq!((tool.path.as_str(), json!(tool.query)), ("/things/{id_2}", json!({"id": "{id}"})));
    assert_eq!(tool.input["required"], json!(["id_2"]));
    assert!(
        tool.notes.iter().any(|note| note.contains("path parameter id is not described")),
        "{:?}",
        tool.notes
    );
}

/// Some public documents also write query parameters in the path.
#[test]
fn a_parameter_in_the_query_of_a_path_is_one_argument() {
    let query = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let operation = json!({"parameters": [query("lat"), query("key"), query("page")]});
    let both = json!({"lat": "{lat}", "page": "{page}"});
    let renamed = json!({"lat": "{lat}", "page": "{page}", "day[]": "{lat}"});
    for (path, expected, written) in [
        ("/alerts?lat={lat}&key={key}", "/alerts", &both),
        ("/alerts?lat={latitude}", "/alerts", &both),
        ("/alerts?lat={lat}&units=metric&day={day}", "/alerts?units=metric&day={day}", &both),
        ("/alerts?day%5B%5D={lat}", "/alerts", &renamed),
        ("/alerts?lat", "/alerts?lat", &both),
    ] {
        let document = document(json!({path: {"get": operation}}), json!({}));
        let tool = tool(&document, &document.operations().unwrap()[0]).unwrap();
        assert_eq!(tool.path, expected, "{path}");
        assert_eq!(json!(tool.query), *written, "{path}");
        assert!(tool.input["properties"].get("key").is_none(), "a credential: {}", tool.input);
        let arguments = 2 + usize::from(path.contains("{day}"));
        assert_eq!(tool.input["properties"].as_object().unwrap().len(), arguments, "{}", tool.input);
    }
}

#[test]
fn a_credential_in_the_query_of_a_path_is_left_out_and_named() {
    let schemes = json!({"securitySchemes": {"Own": {"type": "apiKey", "in": "query", "name": "own"}}});
    for (path, name) in [
        ("/pets?api_key={api_key}&a=1", "api_key"),
        ("/pets?a=1&k={apiKey}", "k"),
        ("/pets?token={value}&a=1", "token"),
        ("/pets?own={own}&a=1", "own"),
        ("/pets?a=1&auth=Bearer%20{token}", "auth"),
    ] {
        let document = document(json!({path: {"get": {}}}), schemes.clone());
        let tool = tool(&document, &document.operations().unwrap()[0]).unwrap();
        assert_eq!((tool.path.as_str(), tool.query.len()), ("/pets?a=1", 0), "{path}");
        assert_eq!(tool.input["properties"], json!({}), "{path}");
        let note = format!(
            "its query parameter {name} is left out: it looks like a credential, for which the operator names one \
             (`--credential`)"
        );
        assert_eq!(tool.notes, [note], "{path}");
    }
}

#[test]
fn an_argument_with_the_name_of_another_place_fills_its_own() {
    let parameter =
        |name: &str| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}});
    let operation = json!({"parameters": [parameter("a.b"), parameter("a_b")]});
    let document = document(json!({"/x/{a.b}/y/{a_b}/{a.b}": {"get": operation}}), json!({}));
    let tool = tool(&document, &document.operations().unwrap()[0]).unwrap();
    assert_eq!(tool.path, "/x/{a_b}/y/{a_b_2}/{a_b}");
}

#[test]
fn a_parameter_may_be_of_several_scalar_kinds() {
    let query = |schema: Value| {
        let operation = json!({"parameters": [id(), {"name": "q", "in": "query", "schema": schema}]});
        only(operation).unwrap().query.contains_key("q")
    };
    for schema in [
        json!({"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Q"}),
        json!({"oneOf": [{"type": "integer"}, {"type": "string", "enum": ["all"]}]}),
        json!({"allOf": [{"type": "string", "enum": ["a"]}]}),
        json!({"type": ["integer", "null"]}),
        json!({"allOf": [{"description": "A size"}, {"enum": [1, 2]}]}),
        json!({"anyOf": [{"type": "string"}, {"type": "array"}]}),
        json!({"anyOf": [{"enum": ["a"]}, {"nullable": true}]}),
        json!({"const": "a"}),
        json!({"items": {"type": "string"}}),
        json!({"type": "array", "items": {"title": "Any"}}),
    ] {
        assert!(query(schema.clone()), "{schema}");
    }
    for schema in [
        json!({"anyOf": [{"type": "string"}, {"type": "object"}]}),
        json!({"anyOf": [{"type": "object"}]}),
        json!({"type": "null"}),
        json!({"allOf": [{"description": "Anything"}]}),
    ] {
        assert!(!query(schema.clone()), "{schema}");
    }
}

/// FastAPI describes an argument without a type hint this way, and some documents write the type next to the name, as in
/// version 2.
#[test]
fn a_parameter_without_a_type_takes_a_text() {
    let of_path = json!({"name": "id", "in": "path", "required": true, "schema": {"title": "Id"}});
    let query = |name: &str, schema: Value| json!({"name": name, "in": "query", "schema": schema});
    let parameters = json!([of_path, query("any", json!({})), query("sure", json!(true)),
        query("named", json!({"type": "text", "description": "d"})), {"name": "old", "in": "query", "type": "integer"},
        {"name": "X-Mode", "in": "header"}]);
    let tool = only(json!({"parameters": parameters})).unwrap();
    let text = json!({"type": "string"});
    assert_eq!(
        tool.input["properties"],
        json!({"id": {"type": "string", "title": "Id"}, "any": text, "sure": text,
            "named": {"type": "string", "description": "d"}, "old": text, "X_Mode": text})
    );
    assert_eq!(tool.input["required"], json!(["id"]));
    assert_eq!((tool.path.as_str(), tool.query.len(), tool.headers.len()), ("/things/{id}", 4, 1));
    for note in [
        "its path parameter id has no type: it is imported as text",
        "its query parameter old has no type: it is imported as text",
    ] {
        assert!(tool.notes.iter().any(|other| other == note), "{:?}", tool.notes);
    }
    assert!(!tool.notes.iter().any(|note| note.contains("is left out: it")), "{:?}", tool.notes);
}

#[test]
fn a_place_in_a_list_is_an_argument_and_a_secret_is_none() {
    let query = |name: &str| {
        let parameter = json!({"name": name, "in": "query", "schema": {"type": "string"}});
        only(json!({"parameters": [id(), parameter]})).unwrap().query.contains_key(name)
    };
    for name in [
        "pageToken",
        "page_token",
        "nextToken",
        "continuationToken",
        "syncToken",
        "cursorToken",
        "startToken",
        "shopping",
        "monkey",
    ] {
        assert!(query(name), "{name}");
    }
    for name in [
        "token",
        "accessToken",
        "refresh_token",
        "csrfToken",
        "apiKey",
        "key",
        "session",
        "session_id",
        "sid",
        "jwt",
        "bearer",
        "signature",
        "otp",
        "pin",
        "passwd",
        "pwd",
        "password",
    ] {
        assert!(!query(name), "{name}");
    }
}

#[test]
fn a_parameter_that_is_written_otherwise_is_named() {
    let text = json!({"type": "string"});
    let list = json!({"type": "array", "items": text});
    for (style, why) in [
        (json!({"style": "matrix", "explode": true, "schema": list}), "style"),
        (json!({"style": "label", "explode": true, "schema": list}), "style"),
        (json!({"style": "label", "schema": {"type": "object"}}), "more than one text"),
        (json!({"content": {"application/xml": {"schema": text}}}), "media type"),
    ] {
        let mut parameter = id();
        parameter.as_object_mut().unwrap().extend(style.as_object().unwrap().clone());
        if style.get("schema").is_none() {
            parameter.as_object_mut().unwrap().shift_remove("schema");
        }
        let fault = only(json!({"operationId": "a", "parameters": [parameter]})).unwrap_err().to_string();
        assert!(fault.contains(why), "{style}: {fault}");
    }
    for (style, schema) in [
        ("deepObject", json!({"anyOf": [text, {"type": "array", "items": text}]})),
        ("spaceDelimited", json!({"type": "array", "items": text})),
        ("pipeDelimited", json!({"type": "array", "items": text})),
    ] {
        let query = json!({"name": "q", "in": "query", "style": style, "schema": schema});
        let tool = only(json!({"operationId": "a", "parameters": [id(), query]})).unwrap();
        assert!(tool.query.is_empty(), "{style}");
        assert!(tool.notes.iter().any(|note| note.contains("parameter q is left out")), "{:?}", tool.notes);
    }
}

#[test]
fn a_style_of_a_path_is_text_before_the_value() {
    let list = json!({"type": "array", "items": {"type": "string"}});
    for (style, path) in
        [("label", "/things/.{id}"), ("matrix", "/things/;id={id}"), ("simple", "/things/{id}")]
    {
        for schema in [&json!({"type": "string"}), &list] {
            let id = json!({"name": "id", "in": "path", "required": true, "style": style, "schema": schema});
            let tool = only(json!({"parameters": [id]})).unwrap();
            assert_eq!((tool.path.as_str(), tool.notes.len()), (path, 0), "{schema}");
        }
    }
}

#[test]
fn a_parameter_that_is_json_is_a_text_of_it() {
    let filter = json!({"type": "object", "properties": {"age": {"type": "integer"}}});
    let query = |kind: &str| {
        let content = json!({kind: {"schema": filter}});
        json!({"name": "filter", "in": "query", "description": "Which ones", "content": content})
    };
    let tool = only(json!({"parameters": [id(), query("application/json")]})).unwrap();
    assert_eq!(json!(tool.query), json!({"filter": "{filter}"}));
    assert_eq!(
        tool.input["properties"]["filter"],
        json!({"type": "string", "contentMediaType": "application/json", "contentSchema": filter,
            "description": "Which ones"})
    );
    assert_eq!(tool.notes, Vec::<String>::new());
    let of = |place: &str, name: &str| {
        let content = json!({"application/json": {"schema": filter}});
        json!({"name": name, "in": place, "required": true, "content": content})
    };
    let tool = only(json!({"parameters": [of("path", "id"), of("header", "X-Filter")]})).unwrap();
    let text = json!({"type": "string", "contentMediaType": "application/json", "contentSchema": filter});
    assert_eq!(tool.input["properties"], json!({"id": text, "X_Filter": text}));
    assert_eq!(
        (tool.path.as_str(), json!(tool.headers)),
        ("/things/{id}", json!({"x-filter": "{X_Filter}"}))
    );
    for kind in ["application/xml", "*/*"] {
        let tool = only(json!({"parameters": [id(), query(kind)]})).unwrap();
        let note = "its query parameter filter is left out: it is written in a media type of its own";
        assert_eq!((tool.query.len(), tool.notes), (0, vec![note.to_owned()]), "{kind}");
    }
}

#[test]
fn a_header_is_a_key_of_the_document_whatever_its_case() {
    let key = json!({"name": "x-api-key", "in": "header", "required": true, "schema": {"type": "string"}});
    let schemes =
        json!({"securitySchemes": {"Key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}});
    let document = document(json!({"/x": {"get": {"parameters": [key]}}}), schemes);
    let tool = tool(&document, &document.operations().unwrap()[0]).unwrap();
    assert!(tool.headers.is_empty(), "{:?}", tool.headers);
}

#[test]
fn a_cookie_that_proves_who_calls_is_left_out_alone() {
    let cookie =
        |name: &str| json!({"name": name, "in": "cookie", "required": true, "schema": {"type": "string"}});
    let schemes =
        json!({"securitySchemes": {"Login": {"type": "apiKey", "in": "cookie", "name": "JSESSIONID"}}});
    for (name, is_served) in [("JSESSIONID", true), ("session", true), ("locale", false)] {
        let document = document(json!({"/x": {"get": {"parameters": [cookie(name)]}}}), schemes.clone());
        let tool = tool(&document, &document.operations().unwrap()[0]);
        assert_eq!(tool.is_ok(), is_served, "{name}");
        let notes = tool.map(|tool| tool.notes).unwrap_or_default();
        assert!(!is_served || notes[0].contains("`--credential`"), "{notes:?}");
    }
}

#[test]
fn a_path_is_written_as_a_uri_and_its_argument_titled_by_its_name() {
    let named = json!({"name": "имя", "in": "path", "required": true, "schema": {"type": "string"}});
    let operation = json!({"parameters": [named]});
    for (path, expected) in [
        ("/käse/{имя}/a b|c", "/k%C3%A4se/{___}/a%20b%7Cc"),
        ("/v1/{имя}:cancel", "/v1/{___}:cancel"),
        ("/a%20b/{имя}/", "/a%20b/{___}/"),
    ] {
        let document = document(json!({path: {"post": operation}}), json!({}));
        let tool = tool(&document, &document.operations().unwrap()[0]).unwrap();
        assert_eq!(tool.path, expected);
        assert_eq!(tool.input["properties"]["___"], json!({"type": "string", "title": "имя"}));
    }
}
