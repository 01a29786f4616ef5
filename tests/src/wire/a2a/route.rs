//! Routes of the REST binding, read from the `google.api.http` options of the methods.

use std::ops::Range;

use protox::prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

/// Method and path of one operation. The further routes of tenants are not read: the platform refuses those.
pub(super) struct Route {
    /// The method in lower case.
    method: String,
    /// Segments of the path; `*` stands for an id, with the verb after it.
    segments: Vec<String>,
    /// Fields that segments of the path are the values of.
    variables: Vec<(String, Range<usize>)>,
    /// The field that the body is, `*` for all that the path has not, or nothing.
    body: String,
}

impl Route {
    pub(super) fn read(rule: &DynamicMessage) -> Option<Route> {
        let text = |name: &str| rule.get_field_by_name(name)?.as_str().map(str::to_owned);
        let (method, template) =
            METHODS.into_iter().find_map(|name| Some((name, text(name).filter(|path| !path.is_empty())?)))?;
        let (segments, variables) = parse(&template);
        Some(Route { method: method.to_owned(), segments, variables, body: text("body").unwrap_or_default() })
    }

    /// The values of the path's variables, if this is the route of the request.
    pub(super) fn matches(&self, method: &str, path: &str) -> Option<Vec<(&str, String)>> {
        // The specification's text subscribes by POST, its protocol buffers by GET; SDKs do either.
        let verb = self.segments.last()?.rsplit_once(':').map(|(_, verb)| verb);
        let is_subscription = verb == Some("subscribe") && method.eq_ignore_ascii_case("post");
        if !(method.eq_ignore_ascii_case(&self.method) || is_subscription) {
            return None;
        }
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        if segments.len() != self.segments.len() {
            return None;
        }
        let pairs = self.segments.iter().zip(&segments);
        let values: Vec<&str> =
            pairs.map(|(pattern, segment)| value_of(pattern, segment)).collect::<Option<_>>()?;
        // A variable may take a fixed segment along, as in `tasks/7`.
        let variables = self.variables.iter();
        variables.map(|(name, range)| Some((name.as_str(), values.get(range.clone())?.join("/")))).collect()
    }

    /// The request message that path, query and body are together.
    pub(super) fn request(
        &self,
        input: &MessageDescriptor,
        variables: Vec<(&str, String)>,
        query: &str,
        body: Value,
    ) -> Value {
        let json_name = |name: &str| {
            input
                .get_field_by_name(name)
                .map_or_else(|| name.to_owned(), |field| field.json_name().to_owned())
        };
        let mut members = match (self.body.as_str(), body) {
            (_, Value::Null) => Map::new(),
            // One without a body in its route is a subscription by POST.
            ("*" | "", Value::Object(members)) => members,
            ("*" | "", other) => return other,
            // SDKs of 0.3 send the whole request where its field is the body.
            (field, Value::Object(members)) if members.contains_key(&json_name(field)) => members,
            (field, body) => Map::from_iter([(json_name(field), body)]),
        };
        for (name, value) in variables {
            members.insert(json_name(name), value.into());
        }
        for (name, text) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let (name, text) = (decoded(name), decoded(text));
            // The version may stand there as in its header.
            if name.eq_ignore_ascii_case("a2a-version") {
                continue;
            }
            let field = input.get_field_by_json_name(&name);
            match field {
                Some(field) if field.is_list() => {
                    let list = members.entry(name).or_insert_with(|| Value::Array(Vec::new()));
                    if let Value::Array(items) = list {
                        items.push(parameter(&field, text));
                    }
                }
                Some(field) => {
                    members.insert(name, parameter(&field, text));
                }
                None => {
                    members.insert(name, text.into());
                }
            }
        }
        Value::Object(members)
    }
}

/// A parameter as the JSON value of its field.
fn parameter(field: &FieldDescriptor, text: String) -> Value {
    match (field.kind(), text.as_str()) {
        (Kind::Bool, "true") => true.into(),
        (Kind::Bool, "false") => false.into(),
        _ => text.into(),
    }
}

fn parse(template: &str) -> (Vec<String>, Vec<(String, Range<usize>)>) {
    let (mut segments, mut variables) = (Vec::new(), Vec::new());
    let mut open: Option<(String, usize)> = None;
    for part in template.trim_start_matches('/').split('/') {
        let mut part = part;
        if let Some(variable) = part.strip_prefix('{') {
            let (name, pattern) = variable.split_once('=').unwrap_or((variable.trim_end_matches('}'), "*}"));
            open = Some((name.to_owned(), segments.len()));
            part = pattern;
        }
        let closes = part.contains('}');
        segments.push(part.replacen('}', "", 1));
        if closes && let Some((name, start)) = open.take() {
            variables.push((name, start..segments.len()));
        }
    }
    (segments, variables)
}

/// The part of a segment that a pattern takes, if it fits.
fn value_of<'s>(pattern: &str, segment: &'s str) -> Option<&'s str> {
    match pattern.strip_prefix('*') {
        Some(verb) => segment.strip_suffix(verb).filter(|id| !id.is_empty() && !id.contains(':')),
        None => (pattern == segment).then_some(segment),
    }
}

/// A name or a value of a query without its escapes.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().replace('+', " ").into_bytes();
    for part in parts {
        let code = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.extend(code);
        bytes.extend(part.get(2..).unwrap_or_default().replace('+', " ").bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_segments_and_the_fields_that_they_are() {
        let (segments, variables) = parse("/v1/{name=tasks/*}:cancel");
        assert_eq!(segments, ["v1", "tasks", "*:cancel"]);
        assert_eq!(variables, [("name".to_owned(), 1..3)]);
        let (segments, variables) = parse("/tasks/{task_id=*}/pushNotificationConfigs/{id=*}");
        assert_eq!(segments, ["tasks", "*", "pushNotificationConfigs", "*"]);
        assert_eq!(variables, [("task_id".to_owned(), 1..2), ("id".to_owned(), 3..4)]);
    }

    #[test]
    fn a_verb_is_no_part_of_an_id() {
        assert_eq!(value_of("*:cancel", "7:cancel"), Some("7"));
        assert_eq!(value_of("*", "7:cancel"), None);
        assert_eq!(value_of("message:send", "message:send"), Some("message:send"));
    }

    #[test]
    fn escapes_of_a_query_are_read() {
        assert_eq!(decoded("2026-10-01T00%3A00%3A00Z"), "2026-10-01T00:00:00Z");
        assert_eq!(decoded("a+b%20%C3%A4%"), "a b ä");
    }
}
