//! Documents and the specs they become, and documents that are rejected.

use serde_json::{Value, json};

use super::super::specs;
use super::document::{DocumentFault, OpenApiDocument};
use super::omissions::Omissions;
use super::operation::{Tool, tool};
use super::skip_reason::SkipReason;
use super::{ImportArgs, ImportReport, import, note_unknown_names};

pub(super) fn document(paths: Value, components: Value) -> OpenApiDocument {
    let whole = json!({"openapi": "3.0.3", "servers": [{"url": "https://{host}.example/v1",
        "variables": {"host": {"default": "api"}}}], "paths": paths, "components": components});
    OpenApiDocument::parse(whole.to_string().as_bytes()).unwrap()
}

pub(super) fn only(operation: Value) -> Result<Tool, SkipReason> {
    let schemas = json!({"schemas": {
        "Node": {"type": "object", "properties": {"name": {"type": "string"}, "child": {"$ref": "#/components/schemas/Node"}}},
        "Ring": {"$ref": "#/components/schemas/Ring"}}});
    let document = document(json!({"/things/{id}": {"post": operation}}), schemas);
    let operations = document.operations().unwrap();
    tool(&document, &operations[0])
}

pub(super) fn id() -> Value {
    json!({"name": "id", "in": "path", "required": true, "schema": {"type": "string"}})
}

#[test]
fn numbers_that_are_rounded_are_known() {
    let text = r#"{"openapi": "3.1.0", "paths": {}, "x-a": [18446744073709551615, 18446744073709551616]}"#;
    assert_eq!(OpenApiDocument::parse(text.as_bytes()).unwrap().losses(), ["18446744073709551616"]);
    assert!(document(json!({}), json!({})).losses().is_empty());
    let odd = r#"{"openapi": "3.1.0", "paths": {}, "x-a": "cut \ud83d", "x-b": 1e400}"#;
    assert_eq!(OpenApiDocument::parse(odd.as_bytes()).unwrap().losses().len(), 2);
    let yaml = "openapi: 3.1\nx-a: [18446744073709551615, 0.1, 1.5e3]\nx-b: 0.1234567890123456789\nx-c: -9223372036854775807\n";
    assert_eq!(OpenApiDocument::parse(yaml.as_bytes()).unwrap().losses(), ["0.12345678901234568"]);
    let large = "openapi: 3.1\nmaximum: 18446744073709551616\n";
    let losses = OpenApiDocument::parse(large.as_bytes()).unwrap().losses().to_vec();
    assert!(matches!(losses.as_slice(), [one] if one.starts_with("1.8446744073709552e")), "{losses:?}");
}

#[test]
fn names_that_select_nothing_are_told() {
    let operation = json!({"operationId": "a", "tags": ["t"]});
    let document = document(json!({"/a": {"get": operation}}), json!({}));
    let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    let args = ImportArgs {
        operations: names(["a", "b"]),
        except: names(["a", "c"]),
        tags: names(["t", "u"]),
        ..specs::tests::args()
    };
    let mut report = Omissions::default();
    note_unknown_names(&args, &document.operations().unwrap(), &mut report);
    let told =
        ["--operation b", "--except c", "--tag u"].map(|name| format!("note: {name}: no operation has it\n"));
    assert_eq!(report.lines(), told.concat());
}

#[test]
fn a_document_in_yaml_is_the_same_as_in_json() {
    let yaml = "# A comment.\nopenapi: 3.1\nservers: [{url: 'https://api.example/v1'}]\npaths:\n  /things:\n    get:\n      operationId: list\n      \
                summary: on\n      parameters:\n        - &page {name: page, in: query, schema: {type: integer}}\n      responses:\n        200: {description: ok}\n  \
                /others:\n    get: {operationId: others, parameters: [*page]}\n";
    let json = json!({"openapi": "3.1", "servers": [{"url": "https://api.example/v1"}], "paths": {
        "/things": {"get": {"operationId": "list", "summary": "on", "responses": {"200": {"description": "ok"}},
            "parameters": [{"name": "page", "in": "query", "schema": {"type": "integer"}}]}},
        "/others": {"get": {"operationId": "others",
            "parameters": [{"name": "page", "in": "query", "schema": {"type": "integer"}}]}}}});
    let tools = |text: &[u8]| {
        let document = OpenApiDocument::parse(text).unwrap();
        let found = document.operations().unwrap();
        assert_eq!(document.server().as_deref(), Some("https://api.example/v1"));
        found.iter().map(|one| tool(&document, one).unwrap()).collect::<Vec<_>>()
    };
    let of_yaml = tools(yaml.as_bytes());
    assert_eq!(of_yaml.len(), 2);
    assert_eq!(of_yaml, tools(json.to_string().as_bytes()));
}

/// Public documents, such as Trello's and Stripe's, have both.
#[test]
fn a_key_of_the_documents_security_is_no_argument_and_a_form_without_fields_is_no_body() {
    let key = json!({"name": "key", "in": "query", "required": true, "schema": {"type": "string"}});
    let form = json!({"content": {"application/x-www-form-urlencoded": {"schema": {"type": "object", "properties": {}}}}});
    let paths =
        json!({"/boards": {"get": {"operationId": "boards", "parameters": [key], "requestBody": form}}});
    let schemes = json!({"securitySchemes": {"APIKey": {"type": "apiKey", "in": "query", "name": "key"}}});
    let secured = document(paths.clone(), schemes);
    let boards = tool(&secured, &secured.operations().unwrap()[0]).unwrap();
    let header = json!({"name": "Api-Key", "in": "header", "required": true, "schema": {"type": "string"}});
    let invites = only(json!({"parameters": [id(), header]})).unwrap();
    assert_eq!(json!(invites.headers), json!({}));
    assert!(invites.notes.iter().any(|note| note.contains("looks like a credential")), "{:?}", invites.notes);
    assert_eq!((boards.body, json!(boards.query)), (None, json!({})));
    assert!(boards.notes.iter().any(|note| note.contains("a key of the document")), "{:?}", boards.notes);
    // Judged by its name alone, it may be what the operation is about, such as the key of a cache.
    let open = document(paths, json!({}));
    let refused = tool(&open, &open.operations().unwrap()[0]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "its required parameter key looks like a credential, which is never an argument"
    );
}

#[test]
fn operations_beyond_those_of_a_server_are_left_out_and_named() {
    let paths: serde_json::Map<String, Value> =
        (0..1_003).map(|n| (format!("/p{n}"), json!({"get": {"operationId": format!("p{n}")}}))).collect();
    let text = json!({"openapi": "3.0.3", "servers": [{"url": "https://api.example"}], "paths": paths});
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let args = ImportArgs {
        mcp: None,
        openapi: Some("api.json".into()),
        report: Some(report.clone()),
        ..specs::tests::args()
    };
    let imported = import(&args, text.to_string().as_bytes(), &mut ImportReport::default()).unwrap();
    assert_eq!(imported.ids.len(), 1_000);
    let lines = std::fs::read_to_string(report).unwrap();
    assert!(lines.contains("left out: get /p1002: a server has at most 1000 tools"), "{lines}");
}

#[test]
fn a_server_is_whole_or_none() {
    assert_eq!(document(json!({}), json!({})).server(), Some("https://api.example/v1".into()));
    for servers in
        [json!([]), json!([{"url": "/v1"}]), json!([{"url": "https://{host}/"}]), json!([{"url": "ftp://a"}])]
    {
        let text = json!({"openapi": "3.1.0", "servers": servers}).to_string();
        assert_eq!(OpenApiDocument::parse(text.as_bytes()).unwrap().server(), None, "{text}");
    }
}

#[test]
fn a_path_whose_operations_are_elsewhere_is_left_out_alone() {
    let text = json!({"openapi": "3.1.0", "servers": [{"url": "https://api.example"}],
        "paths": {"/a": {"$ref": "a.yaml"}, "/b": {"get": {"operationId": "b"}}}});
    let args = ImportArgs { mcp: None, openapi: Some("api.json".into()), ..specs::tests::args() };
    let imported = import(&args, text.to_string().as_bytes(), &mut ImportReport::default()).unwrap();
    assert_eq!(imported.ids, ["up.b"]);
    assert!(imported.said.contains("(1 left out)"), "{}", imported.said);
}

#[test]
fn what_version_3_2_adds_and_no_tool_has_is_left_out_and_named() {
    let whole = json!({"name": "filter", "in": "querystring",
        "content": {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}}});
    let text = json!({"openapi": "3.2.0", "servers": [{"url": "https://api.example"}], "paths": {"/a": {
        "get": {"operationId": "a", "tags": ["t"], "parameters": [whole]},
        "query": {"operationId": "asked", "tags": ["t"]},
        "additionalOperations": {"COPY": {"operationId": "copied", "tags": ["t"]}, "MOVE": {"tags": ["other"]}}}}});
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let args = ImportArgs {
        mcp: None,
        openapi: Some("api.json".into()),
        tags: vec!["t".into()],
        report: Some(report.clone()),
        ..specs::tests::args()
    };
    let imported = import(&args, text.to_string().as_bytes(), &mut ImportReport::default()).unwrap();
    assert_eq!(imported.ids, ["up.a"]);
    assert!(imported.said.contains("(2 left out)"), "{}", imported.said);
    let lines = std::fs::read_to_string(report).unwrap();
    for line in [
        "left out: query /a: no tool can have its method",
        "left out: COPY /a: no tool can have its method",
        "note: a: its querystring parameter filter is left out: it is in no place that is known here",
    ] {
        assert!(lines.lines().any(|written| written == line), "{line} in {lines}");
    }
}

/// Imports `document`, and returns the ids and the lines of the report.
fn reported(document: &Value) -> (Vec<String>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let args = ImportArgs {
        mcp: None,
        openapi: Some("api.json".into()),
        report: Some(report.clone()),
        ..specs::tests::args()
    };
    let imported = import(&args, document.to_string().as_bytes(), &mut ImportReport::default()).unwrap();
    let lines = std::fs::read_to_string(report).unwrap();
    (imported.ids, lines.lines().map(str::to_owned).collect())
}

#[test]
fn each_member_of_a_path_that_is_no_tool_is_named() {
    let path = json!({"summary": "A", "parameters": [], "x-own": {}, "get": {"operationId": "a"},
        "options": {"operationId": "o"}, "trace": {"operationId": "t"}, "GET": {}, "post": null, "serves": "no"});
    let first = json!({"url": "https://{at}.example", "variables": {"at": {"default": "api"}}});
    let document = json!({"openapi": "3.1.0", "paths": {"/a": path, "/b": null, "x-own": 1,
            "/c": {"$ref": "#/components/pathItems/c", "put": {}}},
        "components": {"pathItems": {"c": {"get": {"operationId": "c"}}}},
        "info": {"title": "A", "license": {}, "x-own": 1}, "x-own": 1, "servers": [first, {"url": "https://eu.example"}],
        "webhooks": {"sold": {"post": {}}}});
    let (ids, lines) = reported(&document);
    assert_eq!(ids, ["up.a", "up.c"]);
    assert_eq!(
        lines,
        [
            "left out: options /a: no tool can have its method",
            "left out: trace /a: no tool can have its method",
            "left out: GET /a: no tool can have its method",
            "note: post /a: it is left out: it holds no object",
            "note: serves /a: it is left out: it holds no object",
            "note: /b: it is left out: it holds no object",
            "note: /a: the summary of the path is left out",
            "note: /c: members next to the `$ref` of the path are left out",
            "note: webhook sold: it is left out: the service sends it, and no tool receives it",
            "note: the document: `license` of its info is left out",
            "note: the document: its servers after the first one are left out (`--proxy-url` names another)",
            "note: the document: the variables of its server get their default values (`--proxy-url` overrides the server)",
        ]
    );
}

/// Editors and web pages copy such characters along.
#[test]
fn invisible_characters_of_texts_leave_no_operation_out() {
    let name = json!({"name": "name", "in": "query", "description": "\u{feff}Which\u{200b}\r\none",
        "schema": {"type": "string", "title": "N\u{ad}ame"}});
    let document = json!({"openapi": "3.1.0", "servers": [{"url": "https://api.example"}], "paths": {"/a": {
        "get": {"operationId": "a\u{200b}", "summary": "Finds\u{200b} it", "parameters": [name]}}}});
    let root = tempfile::tempdir().unwrap();
    let args = ImportArgs {
        mcp: None,
        openapi: Some("api.json".into()),
        out: root.path().to_owned(),
        ..specs::tests::args()
    };
    crate::write::write_import(
        &args,
        import(&args, document.to_string().as_bytes(), &mut ImportReport::default()).unwrap(),
        &mut ImportReport::default(),
    )
    .unwrap();
    let spec: Value =
        serde_json::from_str(&std::fs::read_to_string(root.path().join("up/a.json")).unwrap()).unwrap();
    assert_eq!(spec["summary"], "Finds it");
    assert_eq!(
        spec["primitiveSchema"]["input_schema"]["properties"]["name"],
        json!({"type": "string", "title": "Name", "description": "Which\r\none"})
    );
    let note = "note: the document: the invisible characters of 3 of its texts are left out";
    assert!(reported(&document).1.iter().any(|line| line == note), "{:?}", reported(&document).1);
}

#[test]
fn an_operation_at_another_server_is_left_out_where_nobody_says_where_all_of_them_are() {
    let at = |url: &str| json!([{"url": url, "variables": {"host": {"default": "api"}}}]);
    let get = |id: &str, servers: Value| json!({"get": {"operationId": id, "servers": servers}});
    let text = json!({"openapi": "3.1.0", "servers": at("https://api.example/"), "paths": {
        "/a": get("same", at("https://{host}.example")), "/b": get("other", at("https://up.example")),
        "/c": {"servers": at("/v2"), "get": {"operationId": "relative"}}, "/d": get("none", json!([]))}});
    let args = |proxy_url: Option<&str>| ImportArgs {
        mcp: None,
        openapi: Some("api.json".into()),
        proxy_url: proxy_url.map(str::to_owned),
        ..specs::tests::args()
    };
    let ids = |args: ImportArgs| {
        import(&args, text.to_string().as_bytes(), &mut ImportReport::default()).unwrap().ids
    };
    assert_eq!(ids(args(None)), ["up.same", "up.none"]);
    assert_eq!(ids(args(Some("https://gate.example"))).len(), 4);
}

/// The document's author would choose the host.
#[test]
fn a_path_that_would_be_a_part_of_the_hosts_name_is_left_out() {
    for path in [".evil.test/x", "-admin.internal/x", ":8443/x", "@evil.test/x", "x", ""] {
        let document = document(json!({path: {"get": {"operationId": "a"}}}), json!({}));
        let operations = document.operations().unwrap();
        assert!(matches!(tool(&document, &operations[0]), Err(SkipReason::NoPath)), "{path}");
    }
}

#[test]
fn an_operation_becomes_one_request() {
    let tool = only(json!({"operationId": "change thing", "summary": "Changes it", "tags": ["t"],
        "parameters": [id(),
            {"name": "dry-run", "in": "query", "description": "Only looks", "schema": {"type": "boolean"}},
            {"name": "X-Mode", "in": "header", "schema": {"type": "string", "nullable": true, "enum": ["a"]}},
            {"name": "X-Forwarded-User", "in": "header", "required": true, "schema": {"type": "string"}},
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
    assert_eq!(json!(tool.query), json!({"dry-run": "{dry_run}", "fields": "{fields*}"}));
    assert_eq!(json!(tool.headers), json!({"x-mode": "{X_Mode}"}));
    assert_eq!(tool.body, Some(json!("/body")));
    assert_eq!(
        tool.input,
        json!({"type": "object", "required": ["id", "body"], "properties": {
            "id": {"type": "string"},
            "dry_run": {"type": "boolean", "description": "Only looks"},
            "X_Mode": {"type": ["string", "null"], "enum": ["a", null]},
            "fields": {"type": "array", "items": {"type": "string"}},
            "body": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string"}, "age": {"type": "integer", "exclusiveMinimum": 0}}}}})
    );
    // A header, a credential and a cookie; of the schemas `readOnly`, `example` and `format`.
    assert_eq!(tool.notes.len(), 6, "{:?}", tool.notes);
}

#[test]
fn what_one_request_cannot_carry_is_no_tool() {
    let lists = json!({"type": "array", "items": {"type": "array"}});
    let array = json!({"name": "a", "in": "query", "required": true, "schema": lists});
    let secret =
        json!({"name": "access_token", "in": "query", "required": true, "schema": {"type": "string"}});
    let elsewhere = json!({"$ref": "https://evil.example/p.json#/x"});
    let body = |kind: &str, schema: Value| json!({"content": {kind: {"schema": schema}}});
    for (operation, expected) in [
        (
            json!({"parameters": [id(), array]}),
            SkipReason::Parameter { name: "a".into(), why: "is more than one text or number" },
        ),
        (
            json!({"parameters": [id(), secret]}),
            SkipReason::Parameter {
                name: "access_token".into(),
                why: "looks like a credential, which is never an argument",
            },
        ),
        (
            json!({"parameters": [elsewhere]}),
            SkipReason::Document(DocumentFault::Reference("https://evil.example/p.json#/x".into())),
        ),
        (
            json!({"parameters": [{"$ref": "#/nowhere"}]}),
            SkipReason::Document(DocumentFault::Reference("#/nowhere".into())),
        ),
        (
            json!({"parameters": [{"$ref": "#/components/schemas/Ring"}]}),
            SkipReason::Document(DocumentFault::Loop("#/components/schemas/Ring".into())),
        ),
        (
            json!({"parameters": [id()], "requestBody": body("multipart/form-data", json!({}))}),
            SkipReason::Body("multipart/form-data".into()),
        ),
        (
            json!({"parameters": [id()], "requestBody": body("*/*", json!({"type": "string", "format": "binary"}))}),
            SkipReason::Body("*/*".into()),
        ),
        (
            json!({"parameters": std::iter::once(json!({"name": "x", "in": "query"})).chain((0..201).map(|n|
            json!({"name": format!("p{n}"), "in": "query"}))).collect::<Vec<_>>()}),
            SkipReason::TooMany,
        ),
    ] {
        assert_eq!(only(operation.clone()).unwrap_err(), expected, "{operation}");
    }
}

#[test]
fn a_body_is_the_whole_of_its_argument_whatever_its_schema() {
    let base = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    for schema in [
        json!({"allOf": [base], "properties": {"extra": {"type": "string"}}}),
        json!({"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": true}),
        json!({"type": "array", "items": {"type": "string"}}),
        json!({"type": "object", "additionalProperties": {"type": "integer"}}),
        json!({"anyOf": [{"type": "array", "items": {}}, base]}),
        json!({"type": "string"}),
        json!({}),
    ] {
        let body = json!({"required": true, "content": {"application/json": {"schema": schema}}});
        let tool = only(json!({"parameters": [id()], "requestBody": body})).unwrap();
        assert_eq!(tool.body, Some(json!("/body")), "{schema}");
        assert_eq!(tool.input["properties"]["body"], schema);
        assert_eq!(tool.input["required"], json!(["id", "body"]));
    }
}

#[test]
fn a_body_beside_a_parameter_of_its_name_has_another_one() {
    let query = json!({"name": "body", "in": "query", "schema": {"type": "string"}});
    let body = json!({"required": true, "content": {"application/json": {"schema": {"type": "object"}}}});
    let tool = only(json!({"parameters": [id(), query], "requestBody": body})).unwrap();
    assert_eq!((json!(tool.query), tool.body), (json!({"body": "{body}"}), Some(json!("/body_2"))));
    assert_eq!(tool.input["required"], json!(["id", "body_2"]));
}

#[test]
fn a_body_has_the_media_type_that_the_document_names() {
    for (kind, expected) in [
        ("application/vnd.api+json", Some("application/vnd.api+json")),
        ("Application/Merge-Patch+JSON", Some("Application/Merge-Patch+JSON")),
        ("application/hal+json; profile=x", Some("application/hal+json; profile=x")),
        ("application/x-amz-json-1.1", Some("application/x-amz-json-1.1")),
        ("application/*+json", None),
        ("application/json", None),
        ("*/*", None),
    ] {
        let body = json!({"content": {kind: {"schema": {"type": "object"}}}});
        let tool = only(json!({"parameters": [id()], "requestBody": body})).unwrap();
        assert_eq!(tool.headers.get("content-type").and_then(Value::as_str), expected, "{kind}");
    }
}

#[test]
fn answers_of_other_media_types_than_json_are_asked_for_by_name() {
    let v2 = "application/vnd.docker.distribution.manifest.v2+json";
    for (responses, expected) in [
        (json!({"200": {"content": {v2: {}}}}), Some(format!("{v2}, */*;q=0.5"))),
        (
            json!({"200": {"content": {"text/csv": {}}}, "2XX": {"content": {"image/png": {}}}}),
            Some("image/png, text/csv, */*;q=0.5".to_owned()),
        ),
        (json!({"200": {"content": {"text/csv": {}, "application/json; charset=utf-8": {}}}}), None),
        (json!({"200": {"content": {"*/*": {}}}}), None),
        (json!({"404": {"content": {"text/csv": {}}}, "204": {}}), None),
        (json!({"200": {"content": {"text/{kind}": {}}}}), None),
        (json!(null), None),
    ] {
        let tool = only(json!({"parameters": [id()], "responses": responses})).unwrap();
        assert_eq!(tool.headers.get("accept"), expected.map(Value::from).as_ref(), "{responses}");
    }
}

/// The same value, referred to by many operations.
#[test]
fn operations_beyond_the_bytes_of_one_import_are_left_out_and_counted() {
    const OPERATIONS: usize = 60;
    // A few bytes each here, but a line each in a spec.
    let schemas = json!({"schemas": {"Large": {"enum": vec![""; 100_000]}}});
    let body = json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Large"}}}});
    let paths: serde_json::Map<String, Value> =
        (0..OPERATIONS).map(|n| (format!("/p{n}"), json!({"post": {"requestBody": body}}))).collect();
    let text = json!({"openapi": "3.0.3", "servers": [{"url": "https://api.example"}], "paths": paths,
        "components": schemas})
    .to_string();
    let args = ImportArgs { mcp: None, openapi: Some("api.json".into()), ..specs::tests::args() };
    let imported = import(&args, text.as_bytes(), &mut ImportReport::default()).unwrap();
    let bytes: usize = imported.files.values().map(String::len).sum();
    assert!(
        (48 << 20..70 << 20).contains(&bytes),
        "{bytes} bytes of specs from {} of a document",
        text.len()
    );
    let left_out = OPERATIONS - imported.ids.len();
    assert!(left_out > 0 && imported.said.contains(&format!("({left_out} left out)")), "{}", imported.said);
}

#[test]
fn what_of_an_operation_means_nothing_here_is_said() {
    let operation = json!({"parameters": [id()], "security": [{"key": []}], "callbacks": {"a": {}},
        "responses": {"200": {"content": {"application/json": {}}, "links": {"next": {}}}}});
    let notes = only(operation).unwrap().notes.join("\n");
    for word in ["security", "callbacks", "content of its responses is", "links of its responses are"] {
        assert!(notes.contains(word), "{notes}");
    }
}
