//! URI templates of RFC 6570 level 1 (`{name}`), matched in linear time.
//!
//! Refuses: operators, modifiers and adjacent variables, which level 1 does not need and which make
//! matching ambiguous or slow (CVE-2026-0621 was a backtracking matcher).

use serde_json::{Map, Value};

/// Longest URI that is matched, in bytes.
const MAX_URI_LEN: usize = 8 * 1024;

/// A parsed template: literals and variables in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UriTemplate {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Variable(String),
}

impl UriTemplate {
    /// Parses `text`; `None` when it is not level 1 or two variables touch.
    pub fn parse(text: &str) -> Option<UriTemplate> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (literal, after) = match rest.split_once('{') {
                None => (rest, None),
                Some((literal, after)) => (literal, Some(after)),
            };
            if literal.contains('}') {
                return None;
            }
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.into()));
            }
            let Some(after) = after else { break };
            let (name, tail) = after.split_once('}')?;
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                return None;
            }
            if matches!(parts.last(), Some(Part::Variable(_))) {
                return None;
            }
            parts.push(Part::Variable(name.into()));
            rest = tail;
        }
        Some(UriTemplate { parts })
    }

    /// The variables of `uri`, percent-decoded; `None` when it does not match. A variable is not empty and
    /// holds no `/`, as level 1 expansion encodes one.
    pub fn matches(&self, uri: &str) -> Option<Map<String, Value>> {
        if uri.len() > MAX_URI_LEN {
            return None;
        }
        let mut variables = Map::new();
        let mut rest = uri;
        let mut parts = self.parts.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                Part::Literal(literal) => rest = rest.strip_prefix(literal.as_str())?,
                Part::Variable(name) => {
                    let end = match parts.peek() {
                        Some(Part::Literal(next)) => rest.find(next.as_str())?,
                        _ => rest.len(),
                    };
                    let (value, tail) = rest.split_at_checked(end)?;
                    if value.is_empty() || value.contains('/') {
                        return None;
                    }
                    variables.insert(name.clone(), Value::String(percent_decode(value)?));
                    rest = tail;
                }
            }
        }
        rest.is_empty().then_some(variables)
    }

    /// The URI with every variable replaced by its percent-encoded value. `None` when one is missing or is
    /// neither string, number nor boolean.
    pub fn expand(&self, values: &Map<String, Value>) -> Option<String> {
        let mut uri = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => uri.push_str(literal),
                Part::Variable(name) => match values.get(name)? {
                    Value::String(text) => percent_encode(text, &mut uri),
                    Value::Number(number) => percent_encode(&number.to_string(), &mut uri),
                    Value::Bool(flag) => uri.push_str(if *flag { "true" } else { "false" }),
                    Value::Null | Value::Array(_) | Value::Object(_) => return None,
                },
            }
        }
        Some(uri)
    }

    /// The names of the variables, in order.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(name) => Some(name.as_str()),
            Part::Literal(_) => None,
        })
    }
}

/// Encodes everything but the unreserved characters (RFC 3986 section 2.3).
pub fn percent_encode(text: &str, into: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            into.push(char::from(byte));
        } else {
            into.push_str(&format!("%{byte:02X}"));
        }
    }
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = char::from(rest.next()?).to_digit(16)?;
            let low = char::from(rest.next()?).to_digit(16)?;
            bytes.push((high * 16 + low) as u8);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_template_matches_what_it_expands_to() {
        let template = UriTemplate::parse("demo://items/{id}/parts/{part}").unwrap();
        let values = json!({"id": "a b/ü", "part": 7});
        let uri = template.expand(values.as_object().unwrap()).unwrap();
        assert_eq!(uri, "demo://items/a%20b%2F%C3%BC/parts/7");
        assert_eq!(Value::Object(template.matches(&uri).unwrap()), json!({"id": "a b/ü", "part": "7"}));
    }

    #[test]
    fn what_does_not_match_is_refused() {
        let template = UriTemplate::parse("test://template/{id}/data").unwrap();
        for uri in [
            "test://template//data",
            "test://template/1/2/data",
            "test://template/1/data/",
            "test://template/1",
            "TEST://template/1/data",
            "test://template/%zz/data",
            "test://template/%ff/data",
            "",
        ] {
            assert_eq!(template.matches(uri), None, "{uri}");
        }
        assert_eq!(template.matches(&format!("test://template/{}/data", "a".repeat(1 << 20))), None);
    }

    #[test]
    fn templates_beyond_level_1_do_not_parse() {
        for text in ["x://{+path}", "x://{a,b}", "x://{a*}", "x://{a}{b}", "x://{", "x://}", "x://{}"] {
            assert_eq!(UriTemplate::parse(text), None, "{text}");
        }
    }
}
