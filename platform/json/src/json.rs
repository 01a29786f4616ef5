//! A JSON text with its decoded view.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, SerializeSeq, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cursor::{Cursor, Syntax, decode};

mod members;
mod patch;

pub use members::{Members, elements, first_elements, members, named, string, write_string};
use patch::patched;

/// JSON value that is passed on unchanged. Its text is passed on; reading it as a [`Value`] reads its view, which is
/// decoded on first use.
///
/// Only [`Json::raw`] writes it: `serde_json::to_value` and `json!` cannot represent every text.
#[derive(Clone)]
pub struct Json(Arc<Inner>);

struct Inner {
    text: Box<str>,
    view: OnceLock<Value>,
}

impl Json {
    /// Parses a whole text.
    pub fn parse(text: &[u8]) -> Result<Json, Syntax> {
        Json::parse_text(text).map(|(json, _)| json)
    }

    /// Parses the text of a request, which has no number beyond the range of a double: many languages lack such a number
    /// (ADR 17).
    pub fn parse_request(text: &[u8]) -> Result<Json, Syntax> {
        let (json, is_beyond_double) = Json::parse_text(text)?;
        if is_beyond_double { Err(Syntax) } else { Ok(json) }
    }

    fn parse_text(text: &[u8]) -> Result<(Json, bool), Syntax> {
        let mut cursor = Cursor::new(text)?;
        cursor.value()?;
        cursor.end()?;
        let json = Json::part(std::str::from_utf8(text).map_err(|_| Syntax)?.trim());
        Ok((json, cursor.beyond_double))
    }

    /// Wraps a whole value that a [`Cursor`] has read, or whose text was composed of such; it is not read again.
    pub fn part(text: impl Into<String>) -> Json {
        Json::of(one_line(text.into()), OnceLock::new())
    }

    fn of(text: String, view: OnceLock<Value>) -> Json {
        Json(Arc::new(Inner { text: text.into_boxed_str(), view }))
    }

    /// Returns the same text with another view, for example with the defaults of a schema filled in.
    pub fn viewed_as(&self, view: Value) -> Json {
        Json::of(self.text().to_owned(), OnceLock::from(view))
    }

    /// Returns the text for a value derived from this one's view: every unchanged part keeps its text.
    pub fn changed_to(&self, value: Value) -> Json {
        if value == *self.view() {
            return self.viewed_as(value);
        }
        let text = patched(self.text(), self.view(), &value);
        Json::of(one_line(text), OnceLock::from(value))
    }

    /// Returns the same value without white space between its tokens.
    pub fn compact(&self) -> Json {
        let (mut in_string, mut is_escaped) = (false, false);
        let mut text = self.text().to_owned();
        text.retain(|c| {
            let is_kept = in_string || !matches!(c, ' ' | '\t' | '\n' | '\r');
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = in_string,
                '"' => in_string = !in_string,
                _ => {}
            }
            is_kept
        });
        Json::part(text)
    }

    /// Returns the text, on one line.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Returns the text in the form that serde_json writes, which reads it each time, but keeps no copy. Where the text can
    /// be copied as it is, [`Json::text`] is cheaper.
    pub fn raw(&self) -> &RawValue {
        // Every text is JSON.
        serde_json::from_str(self.text()).unwrap_or(RawValue::NULL)
    }

    /// Returns the decoded view.
    pub fn view(&self) -> &Value {
        self.0.view.get_or_init(|| decode(self.text()).unwrap_or_default())
    }

    /// Returns the view if it has been decoded.
    pub fn read_view(&self) -> Option<&Value> {
        self.0.view.get()
    }

    /// Returns a member of an object with its text; the last of equal keys.
    pub fn member(&self, name: &str) -> Option<Json> {
        let [found] = named(self.text(), [name])?;
        found.map(Json::part)
    }

    /// Returns the elements of an array with their texts.
    pub fn elements(&self) -> Option<Vec<Json>> {
        Some(elements(self.text())?.into_iter().map(Json::part).collect())
    }

    /// Returns the value at a JSON Pointer (RFC 6901), with its text.
    pub fn pointed(&self, pointer: &str) -> Option<Json> {
        if pointer.is_empty() {
            return Some(self.clone());
        }
        let mut at = self.text();
        for token in pointer.strip_prefix('/')?.split('/') {
            let token = token.replace("~1", "/").replace("~0", "~");
            at = match named(at, [token.as_str()]) {
                Some([member]) => member?,
                None => index(&token).and_then(|index| elements(at)?.get(index).copied())?,
            };
        }
        Some(Json::part(at))
    }
}

/// Parses an array index in the form of RFC 6901.
fn index(token: &str) -> Option<usize> {
    let is_plain = token == "0" || !token.starts_with(['0', '+']);
    token.parse().ok().filter(|_| is_plain)
}

/// Puts the text on one line: line breaks occur only outside of strings, where they are white space.
fn one_line(text: String) -> String {
    // A search for one character looks at many bytes at a time.
    let has_breaks = text.contains('\n') || text.contains('\r');
    if has_breaks { text.replace(['\n', '\r'], " ") } else { text }
}

/// Strips the byte order mark that some servers put before their JSON: a reader may ignore it (RFC 8259 section 8.1),
/// and [`Json::parse`] does not.
pub fn unmarked(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Writes a value as its text.
pub fn raw_value<S: Serializer>(value: &Json, serializer: S) -> Result<S::Ok, S::Error> {
    value.raw().serialize(serializer)
}

/// Writes values as an array of their texts.
pub fn raw_values<S: Serializer>(values: &[Json], serializer: S) -> Result<S::Ok, S::Error> {
    let mut array = serializer.serialize_seq(Some(values.len()))?;
    for value in values {
        array.serialize_element(value.raw())?;
    }
    array.end()
}

/// Writes a value as its text, and `None` as null.
pub fn raw_option<S: Serializer>(value: &Option<Json>, serializer: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(Json::raw).serialize(serializer)
}

impl Deref for Json {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.view()
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Json {
        // Every value has a text.
        let text = serde_json::to_string(&value).unwrap_or_else(|_| "null".to_owned());
        Json::of(text, OnceLock::from(value))
    }
}

/// Creates no view, which would hold the text a second time.
impl From<&str> for Json {
    fn from(text: &str) -> Json {
        // Every text can be written as JSON.
        Json::of(serde_json::to_string(text).unwrap_or_else(|_| "null".to_owned()), OnceLock::new())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Json {
        Json::from(text.as_str())
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Json {
        Json::from(Value::from(value))
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Json {
        Json::from(Value::from(value))
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Json::parse(raw.get().as_bytes()).map_err(|Syntax| D::Error::custom("not JSON, or nested too deep"))
    }
}

/// Compares by value, as decoded in the view.
impl PartialEq for Json {
    fn eq(&self, other: &Json) -> bool {
        self.text() == other.text() || self.view() == other.view()
    }
}

impl PartialEq<Value> for Json {
    fn eq(&self, other: &Value) -> bool {
        self.view() == other
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests;
