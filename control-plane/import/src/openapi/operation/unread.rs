//! The members of an operation that have no meaning for its tool, for the report.
//!
//! Keeps true: each is named once, even if many parameters have it. Extensions (`x-`) do not count.

use serde_json::{Map, Value, json};

use super::super::document::DescribedOperation;
use super::super::security::{self, OperationSecurity};
use super::super::values::one_line;
use super::Building;

/// Members of an operation that become part of its tool, determine whether it is one, or have a note of their own.
const USED: [&str; 10] = [
    "callbacks",
    "description",
    "operationId",
    "parameters",
    "requestBody",
    "responses",
    "security",
    "servers",
    "summary",
    "tags",
];
/// Members of a parameter or body that no tool has.
const UNREAD: [&str; 5] = ["allowEmptyValue", "allowReserved", "deprecated", "example", "examples"];

impl<'a> Building<'a> {
    /// Adds a note, once.
    pub(super) fn note(&mut self, note: String) {
        if !self.tool.notes.contains(&note) {
            self.tool.notes.push(note);
        }
    }

    /// Notes the members of the operation that have no meaning here.
    pub(super) fn note_unread(&mut self, found: &DescribedOperation<'a>) {
        if matches!(security::of(self.document, found), OperationSecurity::Unsupported) {
            self.note(
                "its security is left out: a call sends one credential, in a header (`--credential`)".into(),
            );
        }
        if has_content(found.operation.get("callbacks")) {
            self.note("its callbacks are left out".into());
        }
        if self.document.other_server(found).is_some() {
            self.note("its own server is left out: it is served at --proxy-url".into());
        }
        let responses = found.operation.get("responses").and_then(Value::as_object);
        let has_output = self.tool.output.is_some();
        for (member, are) in [("description", "is"), ("content", "is"), ("headers", "are"), ("links", "are")]
        {
            let is_read = |status: &str| has_output && member == "content" && status.starts_with('2');
            let has = |response: &Value| {
                self.document.resolve(response).is_ok_and(|response| has_content(response.get(member)))
            };
            if responses.into_iter().flatten().any(|(status, response)| !is_read(status) && has(response)) {
                self.note(format!("the {member} of its responses {are} left out"));
            }
        }
        for (name, value) in found.operation {
            if has_content(Some(value)) && !USED.contains(&name.as_str()) && !name.starts_with("x-") {
                self.note(format!("its member `{}` is left out", one_line(name)));
            }
        }
    }

    /// Notes the members of a `part` of the operation that no tool has.
    pub(super) fn note_unread_members(&mut self, part: &str, written: &Value) {
        for member in UNREAD.into_iter().filter(|member| has_content(written.get(*member))) {
            self.note(format!("`{member}` of its {part} is left out"));
        }
    }

    /// Notes the media types of a body that are not used.
    pub(super) fn note_unread_media_types(&mut self, content: &Map<String, Value>, sent: &str) {
        let others = content.keys().filter(|kind| *kind != sent).map(|kind| one_line(kind));
        let others = others.collect::<Vec<_>>().join(", ");
        if !others.is_empty() {
            self.note(format!("its body as {others} is left out: it is sent as {}", one_line(sent)));
        }
    }
}

/// Whether a member has content.
fn has_content(value: Option<&Value>) -> bool {
    let nothing = [Value::Null, false.into(), "".into(), json!([]), json!({})];
    value.is_some_and(|value| !nothing.contains(value))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::tests::{id, only};

    #[test]
    fn each_member_of_an_operation_that_no_tool_has_is_named() {
        let query = |name: &str| {
            json!({"name": name, "in": "query", "schema": {"type": "string"}, "example": "x", "deprecated": true,
                "allowReserved": true, "examples": {}})
        };
        let media = json!({"schema": {"type": "object"}, "example": {}, "examples": {"a": {}}});
        let content = json!({"application/json": media, "application/xml": {}, "text/csv": {}});
        let operation = json!({"parameters": [id(), query("a"), query("b")], "requestBody": {"content": content},
            "deprecated": true, "externalDocs": {"url": "https://docs.example"}, "own": 1, "x-own": 1, "empty": {},
            "responses": {"404": {"description": "None"}}});
        assert_eq!(
            only(operation).unwrap().notes,
            [
                "`allowReserved` of its parameters is left out",
                "`deprecated` of its parameters is left out",
                "`example` of its parameters is left out",
                "its body as application/xml, text/csv is left out: it is sent as application/json",
                "`examples` of its body is left out",
                "the description of its responses is left out",
                "its member `deprecated` is left out",
                "its member `externalDocs` is left out",
                "its member `own` is left out",
            ]
        );
    }

    #[test]
    fn what_is_of_a_parameter_that_is_written_otherwise_is_named() {
        let page = json!({"name": "page", "in": "query", "description": "Which", "example": {"n": 1},
            "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}});
        let filter = json!({"name": "filter", "in": "query",
            "content": {"application/json": {"examples": {"a": {}}, "schema": {"type": "object"}}}});
        let tool = only(json!({"parameters": [id(), page, filter]})).unwrap();
        assert_eq!(
            tool.notes,
            [
                "`example` of its parameters is left out",
                "the description of its query parameter page is left out: each member is a parameter",
                "`examples` of its parameters is left out",
            ]
        );
    }

    #[test]
    fn a_description_that_is_cut_is_named() {
        let notes = |letters: usize| {
            only(json!({"parameters": [id()], "description": "x".repeat(letters)})).unwrap().notes
        };
        assert_eq!(notes(4_096), Vec::<String>::new());
        assert_eq!(notes(4_097), ["its description is too long and is cut"]);
    }

    #[test]
    fn a_body_that_names_no_media_type_is_named() {
        let body = |body: Value| only(json!({"parameters": [id()], "requestBody": body})).unwrap();
        for empty in [json!({}), json!({"content": {}})] {
            let tool = body(empty.clone());
            let note = "its body is left out: the document names no media type of it";
            assert_eq!((tool.body, tool.notes), (None, vec![note.to_owned()]), "{empty}");
        }
    }

    #[test]
    fn a_body_has_its_own_description_and_that_of_its_schema() {
        for (schema, expected) in [
            (json!({"type": "object"}), "All of it"),
            (json!({"type": "object", "description": "A pet"}), "All of it. A pet"),
            (json!({"type": "object", "description": "All of it"}), "All of it"),
        ] {
            let body =
                json!({"description": "All of it", "content": {"application/json": {"schema": schema}}});
            let tool = only(json!({"parameters": [id()], "requestBody": body})).unwrap();
            assert_eq!(tool.input["properties"]["body"]["description"], expected, "{schema}");
        }
    }
}
