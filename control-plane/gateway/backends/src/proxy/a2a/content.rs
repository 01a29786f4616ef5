//! Parts of an agent's messages and artifacts as the content of a tool's output.
//!
//! Keeps true: data keeps its text (I-14); the one value among the parts is the structured content, with its text for clients
//! that do not read that; a file is not fetched: its address is passed on.

use asp_a2a::{Part, PartContent};
use asp_call::call::content::own_meta;
use asp_call::call::outcome::{Output, text_block};
use asp_json::{Json, Members};
use serde_json::Value;

/// Media type of unidentified bytes (RFC 9110 section 8.3).
const OCTETS: &str = "application/octet-stream";

/// Returns the output of a call that these parts answer; `metadata` is what the agent says of them.
pub(super) fn output(call: &str, parts: &[Part], metadata: Option<&Json>, is_error: bool) -> Output {
    let mut values = parts.iter().filter_map(|part| match &part.content {
        PartContent::Data(value) => Some(value),
        _ => None,
    });
    let structured = values.next().filter(|_| values.next().is_none() && !is_error).cloned();
    let content = parts.iter().enumerate().map(|(number, part)| block(call, number, part)).collect();
    Output::Tool { content, structured, is_error, meta: own_meta(metadata), more: Members::default() }
}

/// Returns the texts of parts, one a line.
pub(super) fn text(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match &part.content {
        PartContent::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Returns a part as an MCP content block.
fn block(call: &str, number: usize, part: &Part) -> Json {
    let media_type = part.media_type.as_deref();
    let name = part.filename.as_deref();
    match &part.content {
        PartContent::Data(value) => text_block(value.text()).into(),
        PartContent::Text(text) if name.is_some() => {
            resource(uri(call, number, name), media_type, ("text", text.as_str()))
        }
        PartContent::Text(text) => text_block(text).into(),
        PartContent::Raw(bytes) => match media_type.and_then(|essence| essence.split('/').next()) {
            Some(kind @ ("image" | "audio")) => {
                object([("type", Some(kind)), ("data", Some(bytes.as_str())), ("mimeType", media_type)])
            }
            _ => {
                let media_type = Some(media_type.unwrap_or(OCTETS));
                resource(uri(call, number, name), media_type, ("blob", bytes.as_str()))
            }
        },
        PartContent::Url(url) => {
            let last = url.split(['?', '#']).next().and_then(|path| path.rsplit('/').next());
            let name = name.or(last.filter(|name| !name.is_empty())).unwrap_or(url.as_str());
            object([
                ("type", Some("resource_link")),
                ("uri", Some(url.as_str())),
                ("name", Some(name)),
                ("mimeType", media_type),
            ])
        }
    }
}

fn resource(uri: String, media_type: Option<&str>, (kind, content): (&str, &str)) -> Json {
    let resource = object([("uri", Some(uri.as_str())), ("mimeType", media_type), (kind, Some(content))]);
    Members::from_iter([("type", Json::from("resource")), ("resource", resource)]).to_json()
}

/// Names the contents of a part: the agent gives it no address.
fn uri(call: &str, number: usize, name: Option<&str>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~');
    let name: String = name.unwrap_or_default().chars().map(|c| if plain(c) { c } else { '_' }).collect();
    match name.is_empty() {
        true => format!("urn:asp:call:{call}/{number}"),
        false => format!("urn:asp:call:{call}/{number}/{name}"),
    }
}

/// Returns an object of the texts that are there.
fn object<const N: usize>(members: [(&str, Option<&str>); N]) -> Json {
    let there = members.into_iter().filter_map(|(name, text)| Some((name, Value::from(text?))));
    there.collect::<Members>().to_json()
}

#[cfg(test)]
mod tests {
    use asp_a2a::Base64;
    use asp_call::call::content::is_content_block;
    use serde_json::json;

    use super::*;

    fn file(content: PartContent, media_type: Option<&str>, filename: Option<&str>) -> Part {
        Part {
            media_type: media_type.map(str::to_owned),
            filename: filename.map(str::to_owned),
            ..content.into()
        }
    }

    #[test]
    fn every_part_has_its_block_and_the_one_value_is_structured() {
        let value = Json::part(r#"{"n":1.50}"#);
        let parts = [
            PartContent::Text("hi".into()).into(),
            PartContent::Data(value.clone()).into(),
            file(PartContent::Raw(Base64::of(b"hi")), Some("image/png"), None),
            file(PartContent::Raw(Base64::of(b"hi")), None, Some("a b.txt")),
            file(PartContent::Text("x".into()), Some("text/css"), Some("b.css")),
            file(PartContent::Url("https://a/b.csv?x=1".into()), Some("text/csv"), None),
        ];
        let id = "7";
        let metadata = Json::from(json!({"a/b": 1, "asp/reply": "message"}));
        let Output::Tool { content, structured, is_error: false, meta, .. } =
            output(id, &parts, Some(&metadata), false)
        else {
            panic!("no tool's output")
        };
        assert_eq!(structured, Some(value));
        assert_eq!(meta.to_json().text(), r#"{"a/b":1}"#);
        assert!(content.iter().all(|block| is_content_block(block)), "{content:?}");
        let expected = [
            json!({"type": "text", "text": "hi"}),
            json!({"type": "text", "text": r#"{"n":1.50}"#}),
            json!({"type": "image", "data": "aGk=", "mimeType": "image/png"}),
            json!({"type": "resource", "resource":
                {"uri": format!("urn:asp:call:{id}/3/a_b.txt"), "mimeType": OCTETS, "blob": "aGk="}}),
            json!({"type": "resource", "resource":
                {"uri": format!("urn:asp:call:{id}/4/b.css"), "mimeType": "text/css", "text": "x"}}),
            json!({"type": "resource_link", "uri": "https://a/b.csv?x=1", "name": "b.csv",
                "mimeType": "text/csv"}),
        ];
        assert_eq!(content, expected.map(Json::from));
        assert_eq!(text(&parts), "hi\nx");
    }

    #[test]
    fn several_values_and_those_of_an_error_are_texts() {
        let data = || Part::from(PartContent::Data(Json::part("1")));
        for (parts, is_error) in [(vec![data(), data()], false), (vec![data()], true), (vec![], false)] {
            let Output::Tool { content, structured: None, .. } = output("7", &parts, None, is_error) else {
                panic!("{parts:?}")
            };
            assert_eq!(content.len(), parts.len());
        }
    }
}
