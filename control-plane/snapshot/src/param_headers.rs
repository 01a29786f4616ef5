//! `Mcp-Param-*` headers of tools whose input schema marks a property with `x-mcp-header` (MCP 2026-07-28, Streamable
//! HTTP; SEP-2243).
//!
//! Keeps true: a marked value in the body has an equal header, and a header has an equal value in the body.

use asp_json::Json;
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
    pub fn mirror(&self, arguments: &Json) -> Vec<(&str, String)> {
        let sent =
            |mark: &'_ MarkedProperty| header_text(&value_at(mark, arguments)?).map(|text| encode(&text));
        self.marked.iter().filter_map(|mark| Some((mark.header.as_str(), sent(mark)?))).collect()
    }

    /// Compares headers and arguments. The error is the name of a header that disagrees.
    pub fn check(&self, headers: &HeaderMap, arguments: &Json) -> Result<(), String> {
        for mark in &self.marked {
            let value = value_at(mark, arguments);
            // A header cannot mirror this type; the input schema rejects the value.
            if value.as_ref().is_some_and(|value| value.is_array() || value.is_object()) {
                continue;
            }
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
            if !agree(sent.as_deref(), value.as_ref()) {
                return Err(mark.header.clone());
            }
        }
        Ok(())
    }
}

/// Returns the value that a property has in the text of the arguments, without defaults.
fn value_at(mark: &MarkedProperty, arguments: &Json) -> Option<Json> {
    mark.path.iter().try_fold(arguments.clone(), |value, name| value.member(name))
}

/// Returns the text of a value that a header can mirror.
fn header_text(value: &Json) -> Option<String> {
    match value.view() {
        Value::String(text) => Some(text.clone()),
        // An integer beyond 64 bits has all of its digits in the text only.
        Value::Number(_) if integer(value).is_none() && is_integer(value.text()) => {
            Some(value.text().to_owned())
        }
        plain @ (Value::Number(_) | Value::Bool(_)) => Some(plain.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn is_integer(number: &str) -> bool {
    number.strip_prefix('-').unwrap_or(number).bytes().all(|digit| digit.is_ascii_digit())
}

/// Returns a number that the view represents exactly as an integer.
fn integer(value: &Value) -> Option<i64> {
    let whole = |number: f64| (number.fract() == 0.0 && number.abs() < MAX_EXACT).then_some(number as i64);
    value.as_i64().or_else(|| whole(value.as_f64()?))
}

fn agree(sent: Option<&str>, value: Option<&Json>) -> bool {
    if sent == value.and_then(header_text).as_deref() {
        return true;
    }
    let (Some(sent), Some(value)) = (sent, value.filter(|value| value.is_number())) else { return false };
    // Integers are compared as numbers: "007" and 7 agree, and 7.0 is an integer too (SHOULD).
    sent == value.text()
        || integer(value).is_some_and(|number| sent.parse::<i64>().is_ok_and(|sent| sent == number))
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
            let arguments = Json::from(arguments);
            assert_eq!(marks.check(&headers(sent), &arguments).is_ok(), agrees, "{arguments} {sent:?}");
        }
    }

    #[test]
    fn what_a_client_mirrors_agrees() {
        let schema = json!({"properties": {"region": {"type": "string", "x-mcp-header": "Region"},
            "inner": {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}}});
        let headers_of = ParamHeaders::of(&schema.to_string());
        for region in ["eu", "", " eu", "Z\u{fc}rich", "a\r\nb: c", "=?base64?ZXU=?="] {
            let arguments = Json::from(json!({"region": region, "inner": {"n": 7}}));
            let mirrored = headers_of.mirror(&arguments);
            let mut headers = HeaderMap::new();
            for (name, value) in &mirrored {
                headers
                    .append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            }
            assert_eq!(headers.len(), 2, "{mirrored:?}");
            assert_eq!(headers_of.check(&headers, &arguments), Ok(()), "{mirrored:?}");
        }
        assert!(headers_of.mirror(&json!({"region": null}).into()).is_empty());
    }

    /// Invariant I-14.
    #[test]
    fn numbers_that_a_double_cannot_hold_agree_by_their_text() {
        let schema = json!({"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}});
        let marks = ParamHeaders::of(&schema.to_string());
        let large = "340282366920938463463374607431768211455";
        for (number, sent, agrees) in [
            (large, large, true),
            (large, "340282366920938463463374607431768211456", false),
            ("-18446744073709551617", "-18446744073709551617", true),
            ("18446744073709551615", "18446744073709551615", true),
            ("18446744073709551615", "18446744073709551614", false),
            ("1e3", "1e3", true),
            ("1e3", "1000", true),
            ("1.50", "1.5", true),
        ] {
            let arguments = Json::parse(format!("{{\"n\":{number}}}").as_bytes()).unwrap();
            let agreed = marks.check(&headers(&[("mcp-param-n", sent)]), &arguments);
            assert_eq!(agreed.is_ok(), agrees, "{number} {sent}");
        }
        let arguments = Json::parse(format!("{{\"n\":{large}}}").as_bytes()).unwrap();
        assert_eq!(marks.mirror(&arguments), [("mcp-param-n", large.to_owned())]);
        // The body has no default.
        let completed = Json::part("{}").viewed_as(json!({"n": 7}));
        assert!(marks.mirror(&completed).is_empty());
    }
}
