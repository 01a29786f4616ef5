//! A JSON text with its view.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, SerializeSeq, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::cursor::{Cursor, Syntax, decode};

mod members;
mod patch;

pub use members::{Members, elements, first_elements, members, named};
use patch::patched;

/// A JSON value that passes through. Its text is what is passed on; reading it as a [`Value`] reads its view, which is
/// decoded when it is first read.
///
/// It is written by [`Json::raw`] alone: `serde_json::to_value` and `json!` cannot hold what a text holds.
#[derive(Clone)]
pub struct Json(Arc<Inner>);

struct Inner {
    raw: Box<RawValue>,
    view: OnceLock<Value>,
}

impl Json {
    /// Reads a whole text.
    pub fn parse(text: &[u8]) -> Result<Json, Syntax> {
        let mut cursor = Cursor::new(text)?;
        cursor.value()?;
        cursor.end()?;
        raw(std::str::from_utf8(text).map_err(|_| Syntax)?.trim()).map(Json::of)
    }

    /// A part of a text that was read; null for what is no JSON.
    pub fn part(text: &str) -> Json {
        raw(text).map_or_else(|Syntax| Json::from(Value::Null), Json::of)
    }

    fn of(raw: Box<RawValue>) -> Json {
        Json(Arc::new(Inner { raw, view: OnceLock::new() }))
    }

    /// The same text with another view: what it means with the defaults of a schema, for one.
    pub fn viewed_as(&self, view: Value) -> Json {
        Json(Arc::new(Inner { raw: self.0.raw.clone(), view: OnceLock::from(view) }))
    }

    /// The text for a value that was made of this one's view: every part that is the same has its text as it was.
    pub fn changed_to(&self, value: Value) -> Json {
        if value == *self.view() {
            return self.viewed_as(value);
        }
        let text = patched(self.text(), self.view(), &value);
        raw(&text)
            .map_or_else(|Syntax| Json::from(value.clone()), |raw| Json::of(raw).viewed_as(value.clone()))
    }

    /// The same value without white space between its tokens.
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
        Json::part(&text)
    }

    /// The text, on one line.
    pub fn text(&self) -> &str {
        self.0.raw.get()
    }

    /// The text, to be written by serde_json.
    pub fn raw(&self) -> &RawValue {
        &self.0.raw
    }

    /// The decoded view.
    pub fn view(&self) -> &Value {
        self.0.view.get_or_init(|| decode(self.text()).unwrap_or_default())
    }

    /// The view, where it was read by now.
    pub fn read_view(&self) -> Option<&Value> {
        self.0.view.get()
    }

    /// A member of an object with its text; of equal keys the last.
    pub fn member(&self, name: &str) -> Option<Json> {
        let [found] = named(self.text(), [name])?;
        found.map(Json::part)
    }

    /// The elements of an array with their texts.
    pub fn elements(&self) -> Option<Vec<Json>> {
        Some(elements(self.text())?.into_iter().map(Json::part).collect())
    }

    /// The value at a JSON Pointer (RFC 6901), with its text.
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

/// An array index as RFC 6901 writes it.
fn index(token: &str) -> Option<usize> {
    let is_plain = token == "0" || !token.starts_with(['0', '+']);
    token.parse().ok().filter(|_| is_plain)
}

/// The text on one line: outside of strings a line break is white space, and in strings there is none.
fn raw(text: &str) -> Result<Box<RawValue>, Syntax> {
    let line = match text.contains(['\n', '\r']) {
        true => Cow::Owned(text.replace(['\n', '\r'], " ")),
        false => Cow::Borrowed(text),
    };
    RawValue::from_string(line.into_owned()).map_err(|_| Syntax)
}

/// A text without the byte order mark that some servers put before their JSON: a reader may ignore it (RFC 8259 section
/// 8.1), and [`Json::parse`] does not.
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

/// Writes a value as its text, and none as null.
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
        // A value has a text.
        let raw = to_raw_value(&value).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Json(Arc::new(Inner { raw, view: OnceLock::from(value) }))
    }
}

/// Without a view, which would hold the text again.
impl From<&str> for Json {
    fn from(text: &str) -> Json {
        // A text has its JSON.
        Json::of(to_raw_value(text).unwrap_or_else(|_| RawValue::NULL.to_owned()))
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
        Json::parse(raw.get().as_bytes()).map_err(|Syntax| D::Error::custom("no JSON, or too deep"))
    }
}

/// Compares by value, as the view has it.
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
