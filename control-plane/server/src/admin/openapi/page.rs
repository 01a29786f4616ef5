//! The browsable page of the API document: operations by topic with their parameters, bodies and answers, then the types that
//! these use. HTML without scripts or external resources.

use std::collections::BTreeMap;

use serde_json::Value;

/// Prefix of a reference to a type.
const SCHEMAS: &str = "#/components/schemas/";

/// Formats every operation, by topic; each folds.
pub(super) fn operations(document: &Value) -> String {
    let mut by_topic: BTreeMap<&str, String> = BTreeMap::new();
    for (path, item) in members(document, "/paths") {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let topic = operation.pointer("/tags/0").and_then(Value::as_str).unwrap_or("other");
            by_topic.entry(topic).or_default().push_str(&operation_html(method, path, operation));
        }
    }
    let section = |(topic, operations): (&str, String)| format!("<h3>{}</h3>\n{operations}", escaped(topic));
    by_topic.into_iter().map(section).collect()
}

/// Formats every type that operations use.
pub(super) fn types(document: &Value) -> String {
    let one = |(name, schema): (&String, &Value)| {
        let name = escaped(name);
        let about = text(schema, "description");
        format!("<h3 id=\"{name}\">{name}</h3><p>{}</p>{}\n", escaped(about), members_html(schema))
    };
    members(document, "/components/schemas").map(one).collect()
}

fn operation_html(method: &str, path: &str, operation: &Value) -> String {
    let method = method.to_uppercase();
    let parameters = operation.get("parameters").and_then(Value::as_array).into_iter().flatten();
    let parameters: String = parameters
        .map(|parameter| {
            let required = parameter.get("required").and_then(Value::as_bool).unwrap_or_default();
            let kind = parameter.get("schema").map(type_html).unwrap_or_default();
            let place = format!("{}, {}", text(parameter, "in"), presence(required));
            row([&escaped(text(parameter, "name")), &kind, &place, &escaped(text(parameter, "description"))])
        })
        .collect();
    let body = operation.pointer("/requestBody/content").map(content_html);
    let body = body.map(|kind| format!("<p>Body: {kind}</p>")).unwrap_or_default();
    let answers: String = members(operation, "/responses")
        .map(|(status, answer)| {
            let kind = answer.get("content").map(content_html).unwrap_or_default();
            row([&escaped(status), &kind, "", &escaped(text(answer, "description"))])
        })
        .collect();
    let about: String = text(operation, "description")
        .split("\n\n")
        .map(|paragraph| format!("<p>{}</p>", escaped(paragraph)))
        .collect();
    format!(
        "<details id=\"{method}-{path}\"><summary><code>{method} {path}</code> {}</summary>{about}{}{body}{}</details>\n",
        escaped(text(operation, "summary")),
        table("Parameter", &parameters),
        table("Answer", &answers),
        path = escaped(path),
    )
}

/// Formats the types of a body or an answer, by media type.
fn content_html(content: &Value) -> String {
    let kinds = content.as_object().into_iter().flatten();
    let kinds = kinds.map(|(_, media)| media.get("schema").map_or_else(|| "text".to_owned(), type_html));
    kinds.collect::<Vec<String>>().join(" or ")
}

/// Formats the members of an object, or the values of another type.
fn members_html(schema: &Value) -> String {
    let combined = ["allOf", "oneOf", "anyOf"].into_iter().filter_map(|word| schema.get(word)?.as_array());
    let combined: String = combined.flatten().map(members_html).collect();
    let required = schema.get("required").and_then(Value::as_array);
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|required| required == name));
    let rows: String = members(schema, "/properties")
        .map(|(name, member)| {
            let presence = presence(is_required(name));
            row([&escaped(name), &type_html(member), presence, &escaped(text(member, "description"))])
        })
        .collect();
    if rows.is_empty() && combined.is_empty() {
        return format!("<p>{}</p>", type_html(schema));
    }
    format!("{combined}{}", table("Member", &rows))
}

/// Formats the name of a type: a link to it, a list of another one, or the values of a closed set.
fn type_html(schema: &Value) -> String {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        let name = escaped(name.strip_prefix(SCHEMAS).unwrap_or(name));
        return format!("<a href=\"#{name}\">{name}</a>");
    }
    let all = |list: &Vec<Value>, between: &str| {
        list.iter().map(type_html).filter(|kind| kind != "null").collect::<Vec<String>>().join(between)
    };
    for (word, between) in [("oneOf", " or "), ("anyOf", " or "), ("allOf", " with ")] {
        if let Some(list) = schema.get(word).and_then(Value::as_array) {
            return all(list, between);
        }
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let values = values.iter().map(|value| format!("<code>{}</code>", escaped(&value.to_string())));
        return values.collect::<Vec<String>>().join(", ");
    }
    let kind = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        kind => kind.and_then(Value::as_str),
    };
    match (kind, schema.get("items")) {
        (Some("array"), Some(items)) => format!("list of {}", type_html(items)),
        (kind, _) => escaped(kind.unwrap_or("any value")),
    }
}

const fn presence(is_required: bool) -> &'static str {
    if is_required { "required" } else { "optional" }
}

fn table(heading: &str, rows: &str) -> String {
    if rows.is_empty() {
        return String::new();
    }
    format!("<table><tr><th>{heading}</th><th>Type</th><th></th><th></th></tr>\n{rows}</table>")
}

fn row(cells: [&str; 4]) -> String {
    format!("<tr><td>{}</td></tr>\n", cells.join("</td><td>"))
}

fn members<'a>(of: &'a Value, pointer: &'a str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    of.pointer(pointer).and_then(Value::as_object).into_iter().flatten()
}

fn text<'a>(of: &'a Value, member: &str) -> &'a str {
    of.get(member).and_then(Value::as_str).unwrap_or_default()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use utoipa::OpenApi;

    use super::*;
    use crate::admin::openapi::ApiDocument;

    #[test]
    fn every_operation_has_its_parameters_its_body_and_its_answers() {
        let document = serde_json::to_value(ApiDocument::openapi()).unwrap();
        let page = operations(&document);
        let (_, after) = page.split_once("<details id=\"PUT-/api/policy/orgs/{org}/bindings\">").unwrap();
        let (put, _) = after.split_once("</details>").unwrap();
        for part in [
            "<td>org</td><td>string</td><td>path, required</td>",
            "<td>force</td><td>boolean</td><td>query, optional</td>",
            "Body: <a href=\"#Binding\">Binding</a>",
            "<td>200</td><td>list of <a href=\"#Binding\">Binding</a></td>",
            "<td>422</td><td><a href=\"#Problem\">Problem</a></td>",
            "Roles: `platform`",
        ] {
            assert!(put.contains(part), "{part} is missing from {put}");
        }
        let count = |text: &str| page.matches(text).count();
        let methods = document["paths"].as_object().unwrap().values();
        let methods: usize = methods.map(|item| item.as_object().unwrap().len()).sum();
        assert_eq!(count("<details"), methods);
    }

    #[test]
    fn every_link_of_the_page_leads_to_a_type_of_it() {
        let document = serde_json::to_value(ApiDocument::openapi()).unwrap();
        let types = types(&document);
        let page = operations(&document) + &types;
        let links = page.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next());
        let missing: Vec<&str> = links.filter(|name| !types.contains(&format!("id=\"{name}\""))).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(types.contains("<td>idOrPattern</td><td>string</td><td>required</td>"), "{types}");
    }

    #[test]
    fn a_type_is_named_in_words() {
        for (schema, words) in [
            (serde_json::json!({ "type": ["string", "null"] }), "string"),
            (
                serde_json::json!({ "oneOf": [{ "type": "null" }, { "$ref": "#/components/schemas/A" }] }),
                "<a href=\"#A\">A</a>",
            ),
            (serde_json::json!({ "type": "string", "enum": ["a<b"] }), "<code>&quot;a&lt;b&quot;</code>"),
            (serde_json::json!({ "type": "array", "items": { "type": "integer" } }), "list of integer"),
            (serde_json::json!({}), "any value"),
        ] {
            assert_eq!(type_html(&schema), words);
        }
    }
}
