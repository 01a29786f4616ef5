use serde_json::{Value, json};

use super::{SchemaRules, check, without_nullable};
use crate::document::Document;
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::source::Source;

fn judged(schema: &Value, object_root: bool) -> Vec<(FaultCode, String)> {
    let source = Source { path: "a/b.yaml".into(), text: "a: 1".into() };
    let (document, _) = Document::parse(&source);
    let document = document.expect("it parses");
    let mut findings = Findings::new(&source.path, &document, 200);
    let rules = SchemaRules { object_root, header_annotations: true };
    let validator = check(schema, "", rules, &mut findings);
    let found: Vec<_> = findings.into_list().into_iter().map(|fault| (fault.code, fault.path)).collect();
    let refused = found.iter().any(|(code, _)| !code.is_warning());
    assert_eq!(validator.is_none(), refused, "a validator comes back exactly for a sound schema");
    found
}

fn tool(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

#[test]
fn ordinary_schemas_are_accepted() {
    let table = [
        json!({"type": "object"}),
        json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:x", "type": "object"}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
               "properties": {"a": {"$ref": "#/definitions/n"}}, "definitions": {"n": {"type": "string"}}}),
        tool(json!({"a": {"type": ["string", "null"], "format": "email", "default": null}})),
        tool(
            json!({"nullable": {"type": "string"}, "pattern": {"type": "string"}, "$ref": {"type": "string"}}),
        ),
        tool(json!({"a": {"$ref": "#/properties/b"}, "b": {"type": "string", "pattern": "^(a+)+$"}})),
        json!({"type": "object", "properties": {"a": {"$ref": "#item"}}, "$defs": {"i": {"$anchor": "item", "type": "string"}}}),
        tool(json!({"a": {"$ref": "#/properties/List%3CString%3E"}, "List<String>": {"type": "string"}})),
        // A tree: every inner value is evaluated once.
        json!({"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "items": {"type": "array", "items": {"$ref": "#"}}}}),
        json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}}),
        // Any JSON value.
        json!({"type": "object", "properties": {"v": {"$ref": "#/$defs/json"}}, "$defs": {"json": {"anyOf": [
            {"type": ["string", "number", "boolean", "null"]},
            {"type": "array", "items": {"$ref": "#/$defs/json"}},
            {"type": "object", "additionalProperties": {"$ref": "#/$defs/json"}},
        ]}}}),
        tool(json!({"a b/c~d%e": {"type": "integer", "default": 3}})),
    ];
    for schema in table {
        assert_eq!(judged(&schema, true), [], "{schema}");
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn hostile_schemas_are_refused_quickly_with_their_code() {
    let doubling = |levels: usize| {
        let mut defs = json!({"a0": {"type": "string"}});
        for level in 1..=levels {
            let inner = json!({"$ref": format!("#/$defs/a{}", level - 1)});
            defs[format!("a{level}")] = json!({"allOf": [inner, inner]});
        }
        json!({"type": "object", "properties": {"a": {"$ref": format!("#/$defs/a{levels}")}}, "$defs": defs})
    };
    let unused = |levels: usize| {
        let mut schema = doubling(levels);
        schema["properties"] = json!({});
        schema
    };
    let chain = |length: usize| {
        let mut defs = json!({"c0": {"type": "string"}});
        for index in 1..=length {
            defs[format!("c{index}")] = json!({"$ref": format!("#/$defs/c{}", index - 1)});
        }
        json!({"type": "object", "properties": {"a": {"$ref": format!("#/$defs/c{length}")}}, "$defs": defs})
    };
    let nested = |levels: usize| {
        let mut schema = json!({"type": "string"});
        for _ in 0..levels {
            schema = json!({"not": schema});
        }
        tool(json!({"a": schema}))
    };
    let many: Vec<String> = (0..1_001).map(|n| n.to_string()).collect();
    let wide: Value =
        (0..6_000).map(|n| (format!("p{n}"), json!({}))).collect::<serde_json::Map<_, _>>().into();
    let table = [
        ("allOf doubling", doubling(28), FaultCode::SchemaBudget),
        ("doubling that nobody refers to", unused(28), FaultCode::SchemaBudget),
        ("doubling below the limit of depth", doubling(14), FaultCode::SchemaBudget),
        ("a long chain", chain(2_000), FaultCode::SchemaBudget),
        ("deep nesting", nested(70), FaultCode::SchemaBudget),
        ("a huge enum", tool(json!({"a": {"enum": many}})), FaultCode::SchemaBudget),
        ("a large text", tool(json!({"a": {"description": "x".repeat(300_000)}})), FaultCode::SchemaBudget),
        ("many properties", tool(wide), FaultCode::SchemaBudget),
        ("a loop", tool(json!({"a": {"$ref": "#/properties/a"}})), FaultCode::SchemaLoop),
        (
            "a long loop",
            json!({"type": "object", "allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}}),
            FaultCode::SchemaLoop,
        ),
        (
            "a dynamic loop",
            json!({"type": "object", "$dynamicAnchor": "me", "anyOf": [{"$dynamicRef": "#me"}]}),
            FaultCode::SchemaLoop,
        ),
        (
            "recursion that doubles",
            json!({"type": "object", "allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]}),
            FaultCode::SchemaBudget,
        ),
        (
            "recursion by two keywords",
            json!({"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "$defs": {"n": {"items": {"$ref": "#/$defs/n"}, "contains": {"$ref": "#/$defs/n"}}}}),
            FaultCode::SchemaBudget,
        ),
        ("a remote reference", tool(json!({"a": {"$ref": "http://127.0.0.1/x.json"}})), FaultCode::SchemaRef),
        ("a file reference", tool(json!({"a": {"$ref": "file:///etc/passwd"}})), FaultCode::SchemaRef),
        ("a relative reference", tool(json!({"a": {"$ref": "other.json#/a"}})), FaultCode::SchemaRef),
        ("a dangling reference", tool(json!({"a": {"$ref": "#/$defs/none"}})), FaultCode::BadSchema),
        ("a reference to no schema", tool(json!({"a": {"$ref": "#/type"}})), FaultCode::BadSchema),
        ("an escaped loop", tool(json!({"a": {"$ref": "#/properties/%61"}})), FaultCode::SchemaLoop),
        ("a dangling escape", tool(json!({"a": {"$ref": "#/properties/%62"}})), FaultCode::BadSchema),
        ("half an escape", tool(json!({"a": {"$ref": "#/properties/%6"}})), FaultCode::BadSchema),
        ("a back-reference", tool(json!({"a": {"pattern": "(a)\\1"}})), FaultCode::SchemaPattern),
        ("a look-behind", tool(json!({"a": {"pattern": "(?<=a)b"}})), FaultCode::SchemaPattern),
        (
            "a repeat of repeats",
            tool(json!({"a": {"pattern": "(a{1,1000}){1,1000}"}})),
            FaultCode::SchemaPattern,
        ),
        ("a flag inside the pattern", tool(json!({"a": {"pattern": "(?i)a"}})), FaultCode::SchemaPattern),
        ("an anchor of other engines", tool(json!({"a": {"pattern": "\\Aa"}})), FaultCode::SchemaPattern),
        ("an escape that needs none", tool(json!({"a": {"pattern": "a\\-b"}})), FaultCode::SchemaPattern),
        ("a named group of Python", tool(json!({"a": {"pattern": "(?P<n>a)"}})), FaultCode::SchemaPattern),
        ("a class in a class", tool(json!({"a": {"pattern": "[[:alpha:]]"}})), FaultCode::SchemaPattern),
        ("an open group", tool(json!({"a": {"pattern": "(a"}})), FaultCode::SchemaPattern),
        (
            "a bad key pattern",
            json!({"type": "object", "patternProperties": {"(?=a)": {}}}),
            FaultCode::SchemaPattern,
        ),
        ("a tiny step", tool(json!({"a": {"multipleOf": 1e-300}})), FaultCode::BadSchema),
        (
            "a foreign dialect",
            json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"}),
            FaultCode::BadSchema,
        ),
        (
            "a keyword that changed since draft-07",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "dependencies": {"a": ["b"]}}),
            FaultCode::BadSchema,
        ),
        (
            "a reference with neighbours, which draft-07 ignores",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                   "properties": {"a": {"$ref": "#/definitions/n", "minLength": 1}}, "definitions": {"n": {"type": "string"}}}),
            FaultCode::BadSchema,
        ),
        ("an inner id", tool(json!({"a": {"$id": "https://example.com/a"}})), FaultCode::BadSchema),
        ("an unknown type", tool(json!({"a": {"type": "text"}})), FaultCode::BadSchema),
        ("a negative length", tool(json!({"a": {"maxLength": -1}})), FaultCode::BadSchema),
        ("a boolean property", tool(json!({"a": true})), FaultCode::SchemaRoot),
        ("a typeless root", json!({}), FaultCode::SchemaRoot),
        ("a boolean root", json!(true), FaultCode::SchemaRoot),
        ("a union root", json!({"type": ["object", "null"]}), FaultCode::SchemaRoot),
    ];
    for (name, schema, code) in table {
        let found = judged(&schema, true);
        assert!(!found.is_empty(), "{name} was accepted");
        assert!(found.iter().all(|(found, _)| *found == code), "{name}: {found:?}");
    }
}

#[test]
fn a_schema_with_many_recursive_parts_is_refused_by_the_length_of_its_chain() {
    let count = 400;
    let defs: serde_json::Map<_, _> = (0..count)
        .map(|index| {
            let next = format!("#/$defs/d{}", (index + 1) % count);
            (format!("d{index}"), json!({"type": "object", "properties": {"a": {"$ref": next}}}))
        })
        .collect();
    let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs});
    let found = judged(&schema, true);
    // The chain is longer than the validator may recurse.
    assert_eq!(found.first().map(|fault| fault.0), Some(FaultCode::SchemaBudget));
}

#[test]
fn large_but_flat_schemas_are_judged_by_the_number_of_their_parts() {
    let keys: Vec<String> = (0..18_000).map(|n| format!("k{n}")).collect();
    let patterns = |count: usize| -> Value {
        let pattern = |n: usize| json!({"type": "string", "pattern": format!("^[a-z]{{1,200}}{n}$")});
        (0..count).map(|n| (format!("p{n}"), pattern(n))).collect::<serde_json::Map<_, _>>().into()
    };
    let wide: Value =
        (0..4_000).map(|n| (format!("p{n}"), json!({}))).collect::<serde_json::Map<_, _>>().into();
    let numbers = vec![1; 50_000];
    let table = [
        ("required", json!({"type": "object", "required": keys}), None),
        ("properties", tool(wide), None),
        ("patterns", tool(patterns(100)), None),
        ("too many patterns", tool(patterns(101)), Some(FaultCode::SchemaBudget)),
        ("a large default", tool(json!({"a": {"default": numbers}})), Some(FaultCode::SchemaBudget)),
        (
            "many bad keywords",
            tool(json!({"a": {"allOf": vec![json!({"type": "text"}); 4_000]}})),
            Some(FaultCode::BadSchema),
        ),
    ];
    for (name, schema, code) in table {
        let found = judged(&schema, true);
        assert_eq!(found.first().map(|fault| fault.0), code, "{name}: {found:?}");
    }
}

#[test]
fn header_annotations_obey_every_rule() {
    let bad = [
        tool(json!({"a": {"type": "number", "x-mcp-header": "A"}})),
        tool(json!({"a": {"type": "object", "x-mcp-header": "A"}})),
        tool(json!({"a": {"type": ["string", "null"], "x-mcp-header": "A"}})),
        tool(json!({"a": {"x-mcp-header": "A"}})),
        tool(json!({"a": {"type": "string", "x-mcp-header": "A B"}})),
        tool(json!({"a": {"type": "string", "x-mcp-header": "A\r\nB"}})),
        tool(json!({"a": {"type": "string", "x-mcp-header": ""}})),
        tool(json!({"a": {"type": "string", "x-mcp-header": 7}})),
        tool(json!({"a": {"type": "string", "x-mcp-header": "\u{e9}"}})),
        tool(json!({"a": {"type": "string", "x-mcp-header": "x".repeat(65)}})),
        tool(
            json!({"a": {"type": "string", "x-mcp-header": "Key"}, "b": {"type": "string", "x-mcp-header": "KEY"}}),
        ),
        tool(json!({"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}})),
        tool(json!({"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}})),
        json!({"type": "object", "x-mcp-header": "A"}),
        json!({"type": "object", "additionalProperties": {"type": "string", "x-mcp-header": "A"}}),
        json!({"type": "object", "$defs": {"a": {"type": "string", "x-mcp-header": "A"}}}),
    ];
    for schema in bad {
        let found = judged(&schema, true);
        assert!(!found.is_empty(), "{schema} was accepted");
        assert!(found.iter().all(|(code, _)| *code == FaultCode::BadHeaderAnnotation), "{schema}: {found:?}");
    }
    let good = tool(json!({
        "a": {"type": "string", "x-mcp-header": "Region"},
        "b": {"type": "object", "properties": {"c": {"type": "integer", "x-mcp-header": "Count"}}},
        "d": {"type": "boolean", "x-mcp-header": "Dry-Run"},
        "x-mcp-header": {"type": "string"},
    }));
    assert_eq!(judged(&good, true), []);
}

#[test]
fn defaults_are_judged_by_the_subschema_they_stand_in() {
    let table = [
        (tool(json!({"a": {"type": "integer", "default": "1"}})), "/properties/a/default"),
        (tool(json!({"a": {"$ref": "#/$defs/n", "default": 0}})), ""),
        (
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/n", "default": 0}}, "$defs": {"n": {"type": "integer", "minimum": 1}}}),
            "/properties/a/default",
        ),
        (
            tool(json!({"a b": {"type": "string", "maxLength": 1, "default": "xx"}})),
            "/properties/a b/default",
        ),
        (
            tool(json!({"a": {"type": "array", "items": {"enum": ["x"]}, "default": ["y"]}})),
            "/properties/a/default",
        ),
        (
            tool(json!({"a": {"type": "string", "format": "date-time", "default": "today"}})),
            "/properties/a/default",
        ),
    ];
    for (schema, path) in table {
        let found = judged(&schema, true);
        if path.is_empty() {
            assert_eq!(found[0].0, FaultCode::BadSchema, "{schema}");
        } else {
            assert_eq!(found, [(FaultCode::BadDefault, path.to_string())], "{schema}");
        }
    }
    let nullable = tool(json!({"a": {"type": "string", "nullable": true, "default": null}}));
    let found = judged(&nullable, true);
    assert_eq!(found, [(FaultCode::NullableRewritten, "/properties/a/nullable".to_string())]);
}

#[test]
fn nullable_becomes_a_union_and_the_rest_stays_as_written() {
    let table = [
        (json!({"type": "string", "nullable": true}), json!({"type": ["string", "null"]})),
        (json!({"type": "string", "nullable": false}), json!({"type": "string", "nullable": false})),
        (
            json!({"description": "d", "type": "string", "enum": ["a"], "nullable": true, "title": "t"}),
            json!({"description": "d", "type": ["string", "null"], "enum": ["a", null], "title": "t"}),
        ),
        (json!({"type": ["string", "null"], "nullable": true}), json!({"type": ["string", "null"]})),
        (
            json!({"$ref": "#/$defs/a", "nullable": true}),
            json!({"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}),
        ),
        (
            json!({"type": "string", "not": {"const": "x"}, "nullable": true}),
            json!({"anyOf": [{"type": "string", "not": {"const": "x"}}, {"type": "null"}]}),
        ),
        (
            json!({"properties": {"nullable": {"type": "string", "nullable": true}}}),
            json!({"properties": {"nullable": {"type": ["string", "null"]}}}),
        ),
        (json!({"default": {"nullable": true}}), json!({"default": {"nullable": true}})),
        (
            json!({"anyOf": [{"type": "integer", "nullable": true}]}),
            json!({"anyOf": [{"type": ["integer", "null"]}]}),
        ),
    ];
    for (written, compiled) in table {
        // Compared as text, so that the order of the keys counts.
        assert_eq!(without_nullable(&written).to_string(), compiled.to_string());
    }
}
