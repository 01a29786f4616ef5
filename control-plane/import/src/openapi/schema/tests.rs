//! Schemas of documents, and their translation.

use serde_json::{Value, json};

use super::super::operation::tool;
use super::super::tests::{document, id, only};

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

/// A large value that many places in an operation refer to.
#[test]
fn a_value_that_is_repeated_stays_within_the_budget_of_an_operation() {
    let large: Vec<String> = (0..20_000).map(|n| format!("value number {n}")).collect();
    let reference = json!({"$ref": "#/components/schemas/Large"});
    let properties: serde_json::Map<String, Value> =
        (0..1_500).map(|n| (format!("p{n}"), reference.clone())).collect();
    for member in [json!({"enum": large}), json!({"description": "x".repeat(1 << 20)})] {
        let schemas = json!({"schemas": {"Large": member}});
        let body = json!({"content": {"application/json": {"schema": {"properties": properties}}}});
        let document = document(json!({"/x": {"post": {"requestBody": body}}}), schemas);
        let tool = tool(&document, &document.operations().unwrap()[0]).unwrap();
        assert!(tool.input.to_string().len() < 256 << 10, "{}", tool.input.to_string().len());
        assert!(tool.notes.iter().any(|note| note.contains("too large")), "{:?}", tool.notes);
    }
}

/// The service reports violations itself.
#[test]
fn what_is_not_taken_over_makes_no_schema_accept_less() {
    let text = json!({"type": "string"});
    let of = |pattern: &str| json!({"type": "string", "pattern": pattern});
    for (written, taken) in [
        (json!({"oneOf": [of("^a"), of("^b")]}), json!({"anyOf": [text, text]})),
        (
            json!({"additionalProperties": false, "patternProperties": {"^x-": {}}, "properties": {"a": text}}),
            json!({"properties": {"a": text}}),
        ),
        (json!({"additionalProperties": false}), json!({"additionalProperties": false})),
        (json!({"type": "string", "format": "time"}), text.clone()),
        (json!({"type": "array", "prefixItems": [text], "items": false}), json!({"type": "array"})),
    ] {
        let body = json!({"content": {"application/json": {"schema": written}}});
        let tool = only(json!({"parameters": [id()], "requestBody": body})).unwrap();
        assert_eq!(tool.input["properties"]["body"], taken, "{written}");
    }
    let large = json!({"description": "x".repeat(1 << 20)});
    let body = json!({"properties": {"a": large, "b": text}, "additionalProperties": false});
    let body = json!({"content": {"application/json": {"schema": body}}});
    let tool = only(json!({"parameters": [id()], "requestBody": body})).unwrap();
    assert_eq!(tool.input["properties"]["body"], json!({"properties": {"a": {}}}));
}

/// Returns the notes on an operation whose body is `schema`, and the resulting schema.
fn noted(schema: &Value) -> (Vec<String>, Value) {
    let body = json!({"content": {"application/json": {"schema": schema}}});
    let mut tool = only(json!({"parameters": [id()], "requestBody": body})).unwrap();
    (tool.notes, tool.input["properties"]["body"].take())
}

/// Many documents lack a component, or were split over several files.
#[test]
fn a_reference_that_leads_to_nothing_accepts_anything() {
    for reference in ["#/components/schemas/Lost", "./pet.yaml#/Pet", "Pet", "#pet"] {
        let (notes, taken) = noted(&json!({"type": "object", "required": ["pet"],
            "properties": {"pet": {"$ref": reference}, "name": {"type": "string"}}}));
        let properties = json!({"pet": {}, "name": {"type": "string"}});
        assert_eq!(
            taken,
            json!({"type": "object", "required": ["pet"], "properties": properties}),
            "{reference}"
        );
        let note = "a `$ref` of its schemas that leads to nothing in the document accepts anything";
        assert_eq!(notes, [note], "{reference}");
    }
    let form = json!({"application/x-www-form-urlencoded": {"schema": {"$ref": "#/lost"}}});
    let refused = only(json!({"parameters": [id()], "requestBody": {"content": form}})).unwrap_err();
    assert_eq!(refused.to_string(), "#/lost refers to nothing in the document");
}

#[test]
fn the_parts_of_an_object_do_not_reject_each_others_properties() {
    let text = json!({"type": "string"});
    let closed = |name: &str| json!({"properties": {name: text}, "additionalProperties": false});
    let open = |name: &str| json!({"properties": {name: text}});
    for (written, taken) in [
        (json!({"allOf": [closed("a"), closed("b")]}), json!({"allOf": [open("a"), open("b")]})),
        (
            json!({"allOf": [closed("a")], "type": "object", "additionalProperties": false}),
            json!({"type": "object", "allOf": [open("a")]}),
        ),
        (
            json!({"properties": {"b": text}, "oneOf": [closed("a"), closed("c")]}),
            json!({"properties": {"b": text}, "anyOf": [open("a"), open("c")]}),
        ),
        (
            json!({"properties": {"$type": text}, "additionalProperties": false, "discriminator": {}}),
            open("$type"),
        ),
        // A choice names all properties, and so does the only part.
        (json!({"anyOf": [closed("a"), closed("b")]}), json!({"anyOf": [closed("a"), closed("b")]})),
        (json!({"allOf": [closed("a")]}), json!({"allOf": [closed("a")]})),
        // A value within a part is an object of its own.
        (
            json!({"allOf": [{"properties": {"in": closed("a")}}, open("b")]}),
            json!({"allOf": [{"properties": {"in": closed("a")}}, open("b")]}),
        ),
    ] {
        assert_eq!(noted(&written).1, taken, "{written}");
    }
}

#[test]
fn no_part_of_an_object_requires_what_only_the_service_writes() {
    let base =
        json!({"properties": {"id": {"type": "string", "readOnly": true}, "name": {"type": "string"}}});
    let (_, taken) = noted(&json!({"allOf": [base, {"type": "object", "required": ["id", "name"]}],
        "properties": {"inner": {"required": ["id"]}}}));
    assert_eq!(taken["allOf"][1], json!({"type": "object", "required": ["name"]}));
    assert_eq!(taken["properties"]["inner"], json!({"required": ["id"]}), "it is another object");
    let (_, taken) = noted(&json!({"allOf": [base, {"required": ["id"]}]}));
    assert_eq!(taken["allOf"][1], json!({}));
}

#[test]
fn an_argument_has_the_default_that_the_service_assumes() {
    let order = json!({"schemas": {"Order": {"type": "string", "enum": ["asc", "desc"]}}});
    let sort = json!({"$ref": "#/components/schemas/Order", "default": "asc"});
    let page = json!({"name": "page", "in": "query", "schema": {"type": "integer", "default": 1}});
    let sorted = json!({"name": "sort", "in": "query", "schema": sort});
    let document = document(json!({"/x": {"get": {"parameters": [page, sorted]}}}), order);
    let tool = tool(&document, &document.operations().unwrap()[0]).unwrap();
    let properties = json!({"page": {"type": "integer", "default": 1},
        "sort": {"type": "string", "enum": ["asc", "desc"], "default": "asc"}});
    assert_eq!((tool.input["properties"].clone(), tool.notes), (properties, Vec::new()));
}

/// springdoc describes `Map<String, Object>` this way, whose values may also be texts and lists.
#[test]
fn values_of_a_map_that_are_described_as_objects_of_no_members_may_be_anything() {
    let any = json!({"type": "object", "additionalProperties": {"type": "object"}});
    let taken = json!({"type": "object", "additionalProperties": {}});
    let note = "`additionalProperties: {type: object}` of its schemas accepts any value: frameworks describe values of any \
                type so";
    assert_eq!(noted(&any), (vec![note.to_owned()], taken.clone()));
    let (notes, property) = noted(&json!({"properties": {"attributes": any}}));
    assert_eq!((notes.len(), &property["properties"]["attributes"]), (1, &taken));
    let member = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let described = json!({"type": "object", "additionalProperties": member});
    assert_eq!(noted(&described), (Vec::new(), described));
}

#[test]
fn each_keyword_that_is_not_taken_over_is_named_once() {
    let left_out = |keyword: &str| format!("`{keyword}` of its schemas is left out");
    let text = json!({"type": "string", "pattern": "^a", "default": "a", "format": "byte", "x-own": 1});
    let body = json!({"properties": {"a": text, "b": text, "id": {"readOnly": true}, "c": {"own": 1}},
        "discriminator": {"propertyName": "a"}, "oneOf": [{"minProperties": 1}]});
    let (notes, _) = noted(&body);
    let mut expected = vec![
        "properties of its schemas that are `readOnly` are left out".to_owned(),
        "`oneOf` of its schemas is imported as `anyOf`".to_owned(),
    ];
    let keywords = ["discriminator", "format", "minProperties", "pattern"];
    expected.extend(keywords.map(left_out));
    expected.push("members of its schemas that are not known keywords are left out".to_owned());
    assert_eq!(notes, expected);
    let (notes, _) = noted(&json!({"anyOf": [{}], "oneOf": [{}], "type": "file"}));
    assert_eq!(notes, ["oneOf", "type"].map(left_out));
    let (notes, _) = noted(&json!({"$ref": "#/components/schemas/Node", "minProperties": 1}));
    assert_eq!(
        notes,
        [
            "members next to a `$ref` of its schemas are left out",
            "a schema of it within itself accepts anything"
        ]
    );
    let (notes, _) = noted(&json!({"required": ["a", "b"], "properties": {"a": {"items": [{}]}}}));
    assert_eq!(
        notes,
        [
            "schemas of it that are neither objects nor booleans accept anything",
            "names in `required` of its schemas that are not in `properties` are left out"
        ]
    );
    let deep = (0..30).fold(json!({}), |inner, _| json!({"items": inner}));
    assert_eq!(noted(&deep).0, ["schemas of it that are nested too deep accept anything"]);
}

#[test]
fn what_stands_beside_a_reference_is_of_its_place() {
    let schemas = json!({"schemas": {"Name": {"type": "string", "description": "Any name"},
        "Id": {"type": "string", "readOnly": true}}});
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let mut own = reference("Name");
    own["description"] = "This name".into();
    let mut maybe = reference("Name");
    maybe["nullable"] = true.into();
    let mut read = reference("Name");
    read["readOnly"] = true.into();
    let object = json!({"properties": {"own": own, "maybe": maybe, "read": read, "id": reference("Id")}});
    let body = json!({"content": {"application/json": {"schema": object}}});
    let document = document(json!({"/x": {"post": {"requestBody": body}}}), schemas);
    let tool = tool(&document, &document.operations().unwrap()[0]).unwrap();
    let name = json!({"type": "string", "description": "Any name"});
    assert_eq!(
        tool.input["properties"]["body"]["properties"],
        json!({"own": {"type": "string", "description": "This name"}, "maybe": {"anyOf": [name, {"type": "null"}]}})
    );
}

#[test]
fn what_may_be_null_may_be_null() {
    let nothing = json!({"type": "null"});
    for (written, taken) in [
        (json!({"type": "string", "nullable": true}), json!({"type": ["string", "null"]})),
        (json!({"type": ["string", "null"]}), json!({"type": ["string", "null"]})),
        (json!({"enum": ["a"], "nullable": true}), json!({"anyOf": [{"enum": ["a"]}, nothing]})),
        (
            json!({"allOf": [{"type": "string"}], "nullable": true}),
            json!({"anyOf": [{"allOf": [{"type": "string"}]}, nothing]}),
        ),
        (
            json!({"type": "object", "allOf": [{"title": "A"}], "nullable": true}),
            json!({"anyOf": [{"type": ["object", "null"], "allOf": [{"title": "A"}]}, nothing]}),
        ),
        // YAML reads an unquoted name this way.
        (json!({"type": ["string", null]}), json!({"type": ["string", "null"]})),
        (
            json!({"anyOf": [{"type": "string"}, {"nullable": true}]}),
            json!({"anyOf": [{"type": "string"}, nothing]}),
        ),
        (json!({"nullable": true}), json!({})),
    ] {
        let schema = json!({"type": "object", "properties": {"a": written}});
        let body = json!({"content": {"application/json": {"schema": schema}}});
        let tool = only(json!({"operationId": "a", "parameters": [id()], "requestBody": body})).unwrap();
        assert_eq!(tool.input["properties"]["body"]["properties"]["a"], taken, "{written}");
    }
}

#[test]
fn an_enumeration_that_contradicts_its_type_accepts_what_it_lists() {
    let schema = |kind: Value, values: Value| json!({"type": kind, "enum": values});
    let nullable = json!({"type": "integer", "enum": ["1"], "nullable": true});
    for (written, taken) in [
        (schema(json!("integer"), json!(["1", "2"])), schema(json!("integer"), json!([1, 2]))),
        (schema(json!("number"), json!(["0.5"])), schema(json!("number"), json!([0.5]))),
        (schema(json!("boolean"), json!(["true", "false"])), schema(json!("boolean"), json!([true, false]))),
        (
            schema(json!("string"), json!([1, 2.5, true])),
            schema(json!("string"), json!(["1", "2.5", "true"])),
        ),
        (schema(json!(["integer", "null"]), json!(["1"])), schema(json!(["integer", "null"]), json!([1]))),
        (nullable, schema(json!(["integer", "null"]), json!([1, null]))),
        (schema(json!("integer"), json!([1, "2", 2])), schema(json!("integer"), json!([1, 2]))),
        // YAML reads `[auto, true, 1.0]` so.
        (
            schema(json!("string"), json!(["auto", true, 1.0])),
            schema(json!("string"), json!(["auto", "true", "1.0"])),
        ),
        (schema(json!("integer"), json!([1, "many"])), json!({"enum": [1, "many"]})),
        (schema(json!("integer"), json!(["1", "1.5"])), json!({"enum": ["1", "1.5"]})),
        (schema(json!("integer"), json!(["low", "high"])), json!({"enum": ["low", "high"]})),
        (schema(json!("array"), json!(["a", "b"])), json!({"type": "array"})),
    ] {
        let body = json!({"content": {"application/json": {"schema": written}}});
        let tool = only(json!({"parameters": [id()], "requestBody": body})).unwrap();
        assert_eq!(tool.input["properties"]["body"], taken, "{written}");
        assert!(tool.notes.iter().any(|note| note.contains("contradicts its `type`")), "{:?}", tool.notes);
    }
    for plain in [
        schema(json!(["string", "integer"]), json!(["1", 2])),
        schema(json!("string"), json!([])),
        schema(json!("string"), json!(["1"])),
    ] {
        let body = json!({"content": {"application/json": {"schema": plain}}});
        let tool = only(json!({"parameters": [id()], "requestBody": body})).unwrap();
        assert_eq!(tool.input["properties"]["body"], plain);
        assert_eq!(tool.notes, Vec::<String>::new(), "{plain}");
    }
}

#[test]
fn a_reference_is_percent_decoded() {
    let schemas = json!({"schemas": {"Page<\u{fc}ser>": {"type": "array"}}});
    for reference in ["#/components/schemas/Page%3C%C3%BCser%3E", "#/components/schemas/Page<\u{fc}ser>"] {
        let body = json!({"content": {"application/json": {"schema": {"$ref": reference}}}});
        let document = document(json!({"/x": {"post": {"requestBody": body}}}), schemas.clone());
        let tool = tool(&document, &document.operations().unwrap()[0]).unwrap();
        assert_eq!(tool.input["properties"]["body"], json!({"type": "array"}), "{reference}");
    }
}
