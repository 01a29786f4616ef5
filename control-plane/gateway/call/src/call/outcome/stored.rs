//! The stored form of an output: an object whose `kind` names the variant; JSON that passes through keeps its text
//! (I-14).

use asp_json::{Json, Members, raw_values};
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::Output;

/// An array of JSON texts.
struct Texts<'a>(&'a [Json]);

impl Serialize for Texts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        raw_values(self.0, serializer)
    }
}

impl Serialize for Output {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        match self {
            Output::Tool { content, structured, is_error, meta, more } => {
                object.serialize_entry("kind", "tool")?;
                object.serialize_entry("content", &Texts(content))?;
                object.serialize_entry("structured", &structured.as_ref().map(Json::raw))?;
                if structured.as_ref().is_some_and(|value| value.is_null()) {
                    object.serialize_entry("structured_null", &true)?;
                }
                object.serialize_entry("is_error", is_error)?;
                object.serialize_entry("meta", meta.to_json().raw())?;
                write_members(&mut object, "more", more)?;
            }
            Output::Contents { contents, meta, more } => {
                object.serialize_entry("kind", "contents")?;
                object.serialize_entry("contents", &Texts(contents))?;
                write_members(&mut object, "meta", meta)?;
                write_members(&mut object, "more", more)?;
            }
            Output::Messages { description, messages, meta, more } => {
                object.serialize_entry("kind", "messages")?;
                object.serialize_entry("description", description)?;
                object.serialize_entry("messages", &Texts(messages))?;
                write_members(&mut object, "meta", meta)?;
                write_members(&mut object, "more", more)?;
            }
            Output::Completion { values, total, has_more } => {
                object.serialize_entry("kind", "completion")?;
                object.serialize_entry("values", values)?;
                object.serialize_entry("total", total)?;
                object.serialize_entry("has_more", has_more)?;
            }
        }
        object.end()
    }
}

/// Writes members that earlier versions did not have, unless there are none.
fn write_members<M: SerializeMap>(object: &mut M, name: &str, members: &Members) -> Result<(), M::Error> {
    if members.is_empty() {
        return Ok(());
    }
    object.serialize_entry(name, members.to_json().raw())
}

/// The members of every kind. Serde does not distinguish the kinds, because its buffer does not preserve JSON texts.
#[derive(serde::Deserialize)]
struct Flat {
    kind: String,
    content: Option<Vec<Json>>,
    structured: Option<Json>,
    /// Whether the result is null, which `structured` does not tell from none.
    #[serde(default)]
    structured_null: bool,
    #[serde(default)]
    is_error: bool,
    meta: Option<Json>,
    more: Option<Json>,
    contents: Option<Vec<Json>>,
    description: Option<String>,
    messages: Option<Vec<Json>>,
    values: Option<Vec<String>>,
    total: Option<u32>,
    has_more: Option<bool>,
}

impl<'de> Deserialize<'de> for Output {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Output, D::Error> {
        let flat = Flat::deserialize(deserializer)?;
        let lacks = || D::Error::custom("an output lacks a member");
        let meta = flat.meta.as_ref().map(Members::of).unwrap_or_default();
        let more = flat.more.as_ref().map(Members::of).unwrap_or_default();
        Ok(match flat.kind.as_str() {
            "tool" => Output::Tool {
                content: flat.content.ok_or_else(lacks)?,
                structured: flat.structured.or_else(|| flat.structured_null.then(|| Value::Null.into())),
                is_error: flat.is_error,
                meta,
                more,
            },
            "contents" => Output::Contents { contents: flat.contents.ok_or_else(lacks)?, meta, more },
            "messages" => {
                let messages = flat.messages.ok_or_else(lacks)?;
                Output::Messages { description: flat.description, messages, meta, more }
            }
            "completion" => Output::Completion {
                values: flat.values.ok_or_else(lacks)?,
                total: flat.total,
                has_more: flat.has_more.ok_or_else(lacks)?,
            },
            _ => return Err(D::Error::custom("an output of an unknown kind")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_comes_back_from_its_store_as_it_was_written() {
        let json = |text: &str| Json::parse(text.as_bytes()).unwrap();
        let structured =
            r#"{"n":340282366920938463463374607431768211455,"s":"\ud83d","d":1.50,"a":1,"\u0061":2}"#;
        let mut meta = Members::default();
        meta.insert("x/y", json("1e3"));
        let output = Output::Tool {
            content: vec![json(r#"{"type":"text","text":"cut \ud83d"}"#)],
            structured: Some(json(structured)),
            is_error: false,
            meta,
            more: Members::default(),
        };
        let stored = serde_json::to_string(&output).unwrap();
        assert!(stored.contains(structured), "{stored}");
        let Output::Tool { content, structured: read, meta, .. } = serde_json::from_str(&stored).unwrap()
        else {
            panic!("{stored}")
        };
        assert_eq!(content[0].text(), r#"{"type":"text","text":"cut \ud83d"}"#);
        assert_eq!(read.unwrap().text(), structured);
        assert_eq!(meta.get("x/y").unwrap().text(), "1e3");
    }

    #[test]
    fn a_result_that_is_null_is_told_from_none() {
        for structured in [None, Some(Value::Null.into())] {
            let mut output = Output::text("");
            if let Output::Tool { structured: kept, .. } = &mut output {
                *kept = structured;
            }
            let stored = serde_json::to_string(&output).unwrap();
            assert_eq!(serde_json::from_str::<Output>(&stored).unwrap(), output, "{stored}");
        }
    }

    #[test]
    fn outputs_of_this_version_and_of_earlier_ones_are_read() {
        for text in [
            r#"{"kind":"tool","content":[{"type":"text","text":"x"}],"structured":null,"is_error":true,"meta":{"a":1}}"#,
            r#"{"kind":"contents","contents":[]}"#,
            r#"{"kind":"tool","content":[],"structured":null,"is_error":false,"meta":{},"more":{"usage":{"n":1.50}}}"#,
            r#"{"kind":"contents","contents":[],"meta":{"a":1.50}}"#,
            r#"{"kind":"contents","contents":[],"more":{"a":1.50}}"#,
            r#"{"kind":"messages","description":null,"messages":[]}"#,
            r#"{"kind":"messages","description":null,"messages":[],"meta":{"a":1.50},"more":{"b":1}}"#,
            r#"{"kind":"completion","values":["a"],"total":null,"has_more":false}"#,
        ] {
            let output: Output = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&output).unwrap(), text);
        }
    }
}
