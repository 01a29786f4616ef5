//! The output schema of a tool: the JSON that the successful responses of its operation have in common.
//!
//! Keeps true: a tool has an output schema only if each successful response is a JSON object, because a result without
//! structured content, or another one, would not match it (MCP up to 2025-11-25: the root is an object).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::super::document::DescribedOperation;
use super::super::schema::SchemaTranslator;
use super::super::values::{Kind, essence, is_json, kinds};
use super::{Building, is_accepted_by_default};

/// Media type of a stream of events, which some operations send instead of JSON if an argument asks for it.
const EVENT_STREAM: &str = "text/event-stream";

impl<'a> Building<'a> {
    /// Takes the schemas of the successful responses, unless one of them may be something else than a JSON object.
    pub(super) fn output(&mut self, found: &DescribedOperation<'a>) {
        let responses = found.operation.get("responses").and_then(Value::as_object);
        let successes = responses.into_iter().flatten().filter(|(status, _)| status.starts_with('2'));
        let mut translator = SchemaTranslator::of_results(self.document);
        let mut schemas = Vec::new();
        for (_, response) in successes {
            let Some(written) = self.json_schema(response) else { return };
            let Some(schema) = object_schema(translator.take(written)) else { return };
            if !schemas.contains(&schema) {
                schemas.push(schema);
            }
        }
        // A response to HEAD has no body.
        if schemas.is_empty() || found.method == "head" {
            return;
        }
        self.tool.output = match schemas.len() {
            1 => schemas.pop(),
            _ => Some(json!({"type": "object", "anyOf": schemas})),
        };
        translator.notes().for_each(|note| self.note(note));
    }

    /// Returns the schema of a response that is JSON when the tool's request is answered.
    fn json_schema(&self, response: &'a Value) -> Option<&'a Value> {
        let content = self.document.resolve(response).ok()?.get("content")?.as_object()?;
        let accepted = self.tool.headers.get("accept").and_then(Value::as_str);
        if accepted.is_some_and(|kind| !is_json(kind)) || !prefers_json(content) {
            return None;
        }
        let json = content.iter().filter(|(kind, media)| is_json(kind) && !self.is_bytes(media));
        let json = json.filter_map(|(kind, media)| Some((kind, media.get("schema")?)));
        json.min_by_key(|(kind, _)| !is_accepted_by_default(kind)).map(|(_, schema)| schema)
    }
}

/// Whether the request gets JSON if the service chooses among these media types by `Accept`.
fn prefers_json(content: &Map<String, Value>) -> bool {
    content.keys().all(|kind| is_json(kind))
        || content.keys().any(|kind| is_accepted_by_default(kind))
            && !content.keys().any(|kind| essence(kind) == EVENT_STREAM)
}

/// Returns the schema with the type of its root; `None` if it accepts anything but objects.
fn object_schema(mut schema: Value) -> Option<Value> {
    let is_object = kinds(&schema) == BTreeSet::from([Kind::Object]);
    let choices = schema.get("anyOf").and_then(Value::as_array);
    let accepts_null = schema.get("type").is_some_and(Value::is_array)
        || choices.into_iter().flatten().any(|choice| *choice == json!({"type": "null"}));
    if !is_object || accepts_null {
        return None;
    }
    let members = schema.as_object_mut()?;
    members.insert("type".into(), "object".into());
    // A property of a tool is an object (MCP up to 2025-11-25).
    let properties = members.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(Map::values_mut).filter(|property| property.is_boolean())
    {
        *property = json!({});
    }
    Some(schema)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::operation::tool;
    use super::super::super::tests::{document, id, only};
    use super::super::Tool;

    fn answered(responses: Value) -> Tool {
        only(json!({"parameters": [id()], "responses": responses})).unwrap()
    }

    fn answer(schema: Value) -> Value {
        json!({"200": {"content": {"application/json": {"schema": schema}}}})
    }

    #[test]
    fn the_schema_of_a_successful_answer_is_the_tools_output_schema() {
        let order = json!({"type": "object", "required": ["id", "at"], "additionalProperties": false, "properties": {
            "id": {"type": "integer"}, "at": {"type": "string", "format": "date-time", "default": "now"},
            "note": {"type": "string"}, "state": {"enum": ["open"]}, "any": {}, "secret": {"writeOnly": true},
            "created": {"type": "string", "readOnly": true}}});
        let tool = answered(answer(order));
        assert_eq!(
            tool.output,
            Some(json!({"type": "object", "required": ["id", "at"], "properties": {
                "id": {"type": "integer"}, "at": {"type": "string"}, "note": {"type": ["string", "null"]},
                "state": {"anyOf": [{"enum": ["open"]}, {"type": "null"}]}, "any": {},
                "created": {"type": ["string", "null"]}}})),
        );
        for left_out in ["`additionalProperties`", "`default`", "`format`", "`writeOnly`"] {
            assert!(tool.notes.iter().any(|note| note.contains(left_out)), "{left_out}: {:?}", tool.notes);
        }
        assert!(!tool.notes.iter().any(|note| note.contains("content of its responses")), "{:?}", tool.notes);
    }

    #[test]
    fn a_tool_whose_answer_may_be_something_else_has_no_output_schema() {
        let object = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let of = |kinds: &[&str]| {
            let media = |kind: &&str| ((*kind).to_owned(), json!({"schema": object}));
            json!({"200": {"content": kinds.iter().map(media).collect::<serde_json::Map<_, _>>()}})
        };
        let mut maybe_empty = of(&["application/json"]);
        maybe_empty["204"] = json!({"description": "Nothing"});
        for (responses, expected) in [
            (of(&["application/json"]), true),
            (of(&["application/json", "application/xml"]), true),
            (of(&["application/hal+json"]), true),
            (of(&["*/*"]), true),
            (of(&["application/hal+json", "text/csv"]), false),
            (of(&["application/json", "text/event-stream"]), false),
            (maybe_empty, false),
            (json!({"404": of(&["application/json"])["200"]}), false),
            (answer(json!({"type": "array", "items": object})), false),
            (answer(json!({"type": ["object", "null"]})), false),
            (answer(json!({"anyOf": [object, {"type": "null"}]})), false),
            (answer(json!({})), false),
            (answer(json!({"$ref": "#/components/schemas/Lost"})), false),
            (answer(json!({"allOf": [object, {"required": ["a"]}]})), true),
        ] {
            let tool = answered(responses.clone());
            assert_eq!(tool.output.is_some(), expected, "{responses}");
            assert!(tool.output.is_none_or(|output| output["type"] == "object"), "{responses}");
        }
    }

    #[test]
    fn several_successful_answers_are_one_of_their_schemas() {
        let content = |name: &str| {
            let schema =
                json!({"type": "object", "required": [name], "properties": {name: {"type": "string"}}});
            json!({"content": {"application/json": {"schema": schema}}})
        };
        let same = answered(json!({"200": content("a"), "201": content("a")}));
        assert_eq!(same.output.unwrap()["required"], json!(["a"]));
        let both = answered(json!({"200": content("a"), "202": content("b")})).output.unwrap();
        assert_eq!(
            (both["type"].as_str(), both["anyOf"].as_array().map(Vec::len)),
            (Some("object"), Some(2))
        );
    }

    /// GitHub's answers have hundreds of members.
    #[test]
    fn a_large_answer_is_cut_and_named() {
        let properties: serde_json::Map<String, Value> =
            (0..1_000).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect();
        let large = json!({"type": "object", "properties": properties, "required": ["p1", "p999"]});
        let schemas = json!({"schemas": {"Large": large}});
        let responses = answer(json!({"$ref": "#/components/schemas/Large"}));
        let document = document(json!({"/x": {"get": {"responses": responses}}}), schemas);
        let tool = tool(&document, &document.operations().unwrap()[0]).unwrap();
        let output = tool.output.unwrap();
        assert!(output.to_string().len() < 32 << 10, "{}", output.to_string().len());
        assert_eq!(output["properties"]["p1"], json!({"type": "string"}));
        assert!(tool.notes.iter().any(|note| note.contains("too large")), "{:?}", tool.notes);
    }
}
