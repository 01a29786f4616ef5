//! `Mcp-Param-*` headers of tools whose input schema marks a property with `x-mcp-header`
//! (MCP 2026-07-28, Streamable HTTP; SEP-2243).
//!
//! Keeps true: a marked value in the body has an equal header, and a header has an equal value in the body.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use serde_json::Value;

/// Deepest `properties` chain that is followed (the registry refuses deeper schemas).
const MAX_DEPTH: usize = 64;
const PREFIX: &str = "mcp-param-";
/// Whole numbers up to here have one form as a JSON number that is read as a float.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
const SENTINEL: (&str, &str) = ("=?base64?", "?=");

/// The marked properties of one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParamHeaders {
    marked: Vec<Marked>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Marked {
    /// Lower case, with the prefix.
    header: String,
    /// Property names from the root.
    path: Vec<String>,
}

impl ParamHeaders {
    /// Reads the marks of an input schema; text that is no JSON object has none.
    pub fn of(input_schema: &str) -> ParamHeaders {
        let mut marked = Vec::new();
        if let Ok(schema) = serde_json::from_str::<Value>(input_schema) {
            collect(&schema, &mut Vec::new(), &mut marked);
        }
        ParamHeaders { marked }
    }

    /// Compares headers and arguments; `Err` names the header that does not agree.
    pub fn check(&self, headers: &HeaderMap, arguments: &Value) -> Result<(), String> {
        for mark in &self.marked {
            let value = mark.path.iter().try_fold(arguments, |value, name| value.get(name));
            let expected = match value {
                None | Some(Value::Null) => None,
                Some(Value::String(text)) => Some(text.clone()),
                Some(plain @ (Value::Number(_) | Value::Bool(_))) => Some(plain.to_string()),
                // Not a type a header can mirror; the input schema refuses it.
                Some(Value::Array(_) | Value::Object(_)) => continue,
            };
            let mut raws = headers.get_all(&mark.header).iter();
            let sent = match (raws.next(), raws.next()) {
                (None, _) => None,
                // Whoever routes by it may have read another one of them.
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

fn collect(schema: &Value, path: &mut Vec<String>, marked: &mut Vec<Marked>) {
    if path.len() >= MAX_DEPTH {
        return;
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, property) in properties {
        path.push(name.clone());
        if let Some(header) = property.get("x-mcp-header").and_then(Value::as_str) {
            marked.push(Marked {
                header: format!("{PREFIX}{}", header.to_ascii_lowercase()),
                path: path.clone(),
            });
        }
        collect(property, path, marked);
        path.pop();
    }
}

/// A mirrored value: plain, or `=?base64?…?=` with strict standard Base64 of UTF-8.
pub fn decode(raw: &str) -> Option<String> {
    let raw = raw.trim();
    match raw.strip_prefix(SENTINEL.0).and_then(|rest| rest.strip_suffix(SENTINEL.1)) {
        None => Some(raw.to_owned()),
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
    }
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

    type Sent = &'static [(&'static str, &'static str)];

    #[test]
    fn a_marked_value_and_its_header_must_agree() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "inner": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}}});
        let marks = ParamHeaders::of(&schema.to_string());
        let rows: [(Value, Sent, bool); 15] = [
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
}
