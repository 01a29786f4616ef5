//! `Mcp-Param-*` headers of tools whose input schema marks a property with `x-mcp-header` (MCP 2026-07-28, Streamable
//! HTTP; SEP-2243).
//!
//! Keeps true: a marked value in the body has an equal header, and a header has an equal value in the body.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use serde_json::Value;

/// Maximum depth to which `properties` are followed (the registry rejects deeper schemas).
const MAX_DEPTH: usize = 64;
const PREFIX: &str = "mcp-param-";
/// Largest magnitude at which a float still represents every integer exactly (2^53).
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
const SENTINEL: (&str, &str) = ("=?base64?", "?=");

/// Headers that mirror arguments of one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParamHeaders {
    marked: Vec<MarkedProperty>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct MarkedProperty {
    /// Header name in lower case, with the prefix.
    header: String,
    /// Property names from the root.
    path: Vec<String>,
}

impl ParamHeaders {
    /// Collects the marked properties of an input schema; none if the text is not a JSON object.
    pub fn of(input_schema: &str) -> ParamHeaders {
        let mut marked = Vec::new();
        if let Ok(schema) = serde_json::from_str::<Value>(input_schema) {
            collect(&schema, &mut Vec::new(), &mut marked);
        }
        ParamHeaders { marked }
    }

    /// Returns the headers that a client sends with these arguments, as names and values.
    pub fn mirror(&self, arguments: &Value) -> Vec<(&str, String)> {
        let sent =
            |mark: &'_ MarkedProperty| header_text(value_at(mark, arguments)?).map(|text| encode(&text));
        self.marked.iter().filter_map(|mark| Some((mark.header.as_str(), sent(mark)?))).collect()
    }

    /// Compares headers and arguments. The error is the name of a header that disagrees.
    pub fn check(&self, headers: &HeaderMap, arguments: &Value) -> Result<(), String> {
        for mark in &self.marked {
            let value = value_at(mark, arguments);
            // A header cannot mirror this type; the input schema rejects the value.
            if value.is_some_and(|value| value.is_array() || value.is_object()) {
                continue;
            }
            let expected = value.and_then(header_text);
            let mut raws = headers.get_all(&mark.header).iter();
            let sent = match (raws.next(), raws.next()) {
                (None, _) => None,
                // An intermediary that routes by the header may have read the other one.
                (Some(_), Some(_)) => return Err(mark.header.clone()),
                (Some(raw), None) => {
                    let raw = raw.to_str().map_err(|_| mark.header.clone())?;
                    Some(decode(raw).ok_or_else(|| mark.header.clone())?)
                }
            };
            if !agree(sent.as_deref(), expected.as_deref(), value) {
                return Err(mark.header.clone());
            }
        }
        Ok(())
    }
}

fn value_at<'v>(mark: &MarkedProperty, arguments: &'v Value) -> Option<&'v Value> {
    mark.path.iter().try_fold(arguments, |value, name| value.get(name))
}

/// Returns the text of a value that a header can mirror.
fn header_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn agree(sent: Option<&str>, expected: Option<&str>, value: Option<&Value>) -> bool {
    if sent == expected {
        return true;
    }
    // Integers are compared as numbers: "007" and 7 agree, and 7.0 is an integer too (SHOULD).
    let whole = |number: f64| (number.fract() == 0.0 && number.abs() < MAX_EXACT).then_some(number as i64);
    let integer = |value: &Value| value.as_i64().or_else(|| whole(value.as_f64()?));
    match (sent.and_then(|text| text.parse::<i64>().ok()), value.and_then(integer)) {
        (Some(sent), Some(expected)) => sent == expected,
        _ => false,
    }
}

fn collect(schema: &Value, path: &mut Vec<String>, marked: &mut Vec<MarkedProperty>) {
    if path.len() >= MAX_DEPTH {
        return;
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, property) in properties {
        path.push(name.clone());
        if let Some(header) = property.get("x-mcp-header").and_then(Value::as_str) {
            marked.push(MarkedProperty {
                header: format!("{PREFIX}{}", header.to_ascii_lowercase()),
                path: path.clone(),
            });
        }
        collect(property, path, marked);
        path.pop();
    }
}

/// Decodes a mirrored value: plain text, or `=?base64?…?=` with strict standard Base64 of UTF-8.
pub fn decode(raw: &str) -> Option<String> {
    let raw = raw.trim();
    match raw.strip_prefix(SENTINEL.0).and_then(|rest| rest.strip_suffix(SENTINEL.1)) {
        None => Some(raw.to_owned()),
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
    }
}

/// Encodes text as a mirrored value: unchanged if a header can carry it and it does not look like an encoded value.
pub fn encode(text: &str) -> String {
    let is_plain = text.trim() == text && text.chars().all(|char| matches!(char, ' '..='~'));
    if is_plain && !text.starts_with(SENTINEL.0) {
        return text.to_owned();
    }
    format!("{}{}{}", SENTINEL.0, STANDARD.encode(text), SENTINEL.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    type HeaderList = &'static [(&'static str, &'static str)];

    #[test]
    fn a_marked_value_and_its_header_must_agree() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "inner": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}}});
        let marks = ParamHeaders::of(&schema.to_string());
        let rows: [(Value, HeaderList, bool); 15] = [
            (json!({"region": "eu"}), &[("mcp-param-region", "eu")], true),
            (json!({"region": "eu"}), &[("mcp-param-region", "=?base64?ZXU=?=")], true),
            (json!({"region": "eu"}), &[], false),
            (json!({"region": "eu"}), &[("mcp-param-region", "us")], false),
            (json!({"region": "eu"}), &[("mcp-param-region", "=?base64?ZXU?=")], false),
            (json!({"region": "eu"}), &[("mcp-param-region", "=?base64?Z!U=?=")], false),
            (json!({}), &[("mcp-param-region", "eu")], false),
            (json!({"region": null}), &[], true),
            (json!({"inner": {"n": 7}}), &[("mcp-param-n", "007")], true),
            (json!({"inner": {"n": 7}}), &[("mcp-param-n", "8")], false),
            (json!({"inner": {"n": 7.0}}), &[("mcp-param-n", "7")], true),
            (json!({"inner": {"n": 7.5}}), &[("mcp-param-n", "7")], false),
            (json!({"inner": {"n": "7"}}), &[("mcp-param-n", "07")], false),
            (json!({"region": "eu"}), &[("mcp-param-region", "eu"), ("mcp-param-region", "us")], false),
            (json!({}), &[("mcp-param-other", "x")], true),
        ];
        for (arguments, sent, agrees) in rows {
            assert_eq!(marks.check(&headers(sent), &arguments).is_ok(), agrees, "{arguments} {sent:?}");
        }
    }

    #[test]
    fn what_a_client_mirrors_agrees() {
        let schema = json!({"properties": {"region": {"type": "string", "x-mcp-header": "Region"},
            "inner": {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}}});
        let headers_of = ParamHeaders::of(&schema.to_string());
        for region in ["eu", "", " eu", "Z\u{fc}rich", "a\r\nb: c", "=?base64?ZXU=?="] {
            let arguments = json!({"region": region, "inner": {"n": 7}});
            let mirrored = headers_of.mirror(&arguments);
            let mut headers = HeaderMap::new();
            for (name, value) in &mirrored {
                headers
                    .append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            }
            assert_eq!(headers.len(), 2, "{mirrored:?}");
            assert_eq!(headers_of.check(&headers, &arguments), Ok(()), "{mirrored:?}");
        }
        assert!(headers_of.mirror(&json!({"region": null})).is_empty());
    }
}
