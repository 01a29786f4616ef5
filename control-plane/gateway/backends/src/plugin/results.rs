//! Conversion of a worker's end into the call's: `Completed`, `Failed`, and the chunks before them.
//!
//! Keeps true: a plugin's text reaches the model only as the text of a tool error, bounded and without line noise; a
//! failure that the plugin reports is distinguished from one of the platform.

use std::collections::HashMap;

use asp_call::call::content::{is_content_block, misfit, own_meta, parse};
use asp_call::call::outcome::{Output, Refusal, text_block};
use asp_json::{Json, Members};
use asp_proto::plugin::{Completed, ResultChunk};
use serde_json::Value;

/// Maximum size in bytes of joined chunks; more are counted and left out.
const MAX_CHUNKS: usize = 4 << 20;

/// Parts of a result that arrived before its end.
#[derive(Default)]
pub(super) struct Chunks {
    text: String,
    dropped: usize,
    /// Length of `text` and value of `dropped` at the last checkpoint.
    marked: (usize, usize),
    /// Length of `text` up to the line break after its last structured part.
    structured_end: usize,
}

impl Chunks {
    /// Adds a part and returns its text.
    pub(super) fn push(&mut self, chunk: &ResultChunk) -> String {
        let mut part = chunk.text.clone();
        let structured = parse(chunk.structured.as_ref()).ok().flatten();
        if let Some(json) = &structured {
            // A structured part gets a line of its own.
            if !self.text.is_empty() && !self.text.ends_with('\n') {
                part.push('\n');
            }
            part.push_str(&json.to_string());
            part.push('\n');
        }
        if self.text.len() + part.len() > MAX_CHUNKS {
            self.dropped += part.len();
        } else {
            self.text.push_str(&part);
            if structured.is_some() {
                self.structured_end = self.text.len();
            }
        }
        part
    }

    /// Returns the text that a successor does not send again, and the number of bytes that were left out of it;
    /// everything if a checkpoint is being stored.
    pub(super) fn saved_text(&self, all: bool) -> (&str, usize) {
        if all {
            return (&self.text, self.dropped);
        }
        let (length, dropped) = self.marked;
        (self.text.get(..length).unwrap_or_default(), dropped)
    }

    pub(super) fn restored(text: String, dropped: u64) -> Chunks {
        let dropped = usize::try_from(dropped).unwrap_or(usize::MAX);
        Chunks { marked: (text.len(), dropped), text, dropped, structured_end: 0 }
    }

    /// Marks the current text as kept, whatever happens to the worker.
    pub(super) fn mark(&mut self) {
        self.marked = (self.text.len(), self.dropped);
    }

    /// Discards the text after the mark: a successor sends it again.
    pub(super) fn rewind(&mut self) {
        let (length, dropped) = self.marked;
        self.text.truncate(length);
        self.dropped = dropped;
        self.structured_end = if self.structured_end > length { 0 } else { self.structured_end };
    }

    fn block(self) -> Option<Json> {
        let Chunks { mut text, dropped, structured_end, .. } = self;
        // The line break that this code added; a plugin's own ones stay.
        if structured_end == text.len() {
            text.pop();
        }
        if dropped > 0 {
            text.push_str(&format!("\n[{dropped} bytes left out]"));
        }
        (!text.is_empty()).then(|| text_block(&text).into())
    }
}

/// Parts that a finished call adds to its result.
pub(super) struct Extras {
    pub chunks: Chunks,
    /// Content blocks of the artifacts.
    pub links: Vec<Value>,
    /// Public URIs of the artifacts by the plugin's own.
    pub uris: HashMap<String, String>,
}

/// Returns the output of a call that completed.
pub(super) fn completed(completed: &Completed, extras: Extras) -> Result<Output, Refusal> {
    let mut structured = parse(completed.output.as_ref())?;
    if let Some(value) = &mut structured {
        published(value, &extras.uris);
    }
    let mut content: Vec<Json> = extras.chunks.block().into_iter().collect();
    match parse(completed.content.as_ref())? {
        Some(blocks) => {
            let malformed = || misfit("content is not a list of MCP content blocks");
            for mut block in blocks.elements().ok_or_else(malformed)? {
                if !is_content_block(&block) {
                    return Err(malformed());
                }
                published(&mut block, &extras.uris);
                content.push(block);
            }
        }
        // A caller that does not read structured content gets it as text (MCP tools, structured content).
        None => content.extend(structured.as_ref().map(|value| text_block(value.text()).into())),
    }
    content.extend(extras.links.into_iter().map(Json::from));
    Ok(Output::Tool {
        content,
        // In an error, null carries no information.
        structured: structured.filter(|value| !(completed.is_error && value.is_null())),
        is_error: completed.is_error,
        meta: own_meta(parse(completed.meta.as_ref())?.as_ref()),
        more: Members::default(),
    })
}

/// Replaces artifact URIs in JSON by the public ones.
fn published(json: &mut Json, uris: &HashMap<String, String>) {
    if uris.is_empty() {
        return;
    }
    let mut value = json.view().clone();
    publish(&mut value, uris);
    *json = json.changed_to(value);
}

/// Replaces a plugin's own artifact URIs by those under which its caller can read them.
fn publish(value: &mut Value, uris: &HashMap<String, String>) {
    match value {
        Value::String(text) => {
            if let Some(public) = uris.get(text) {
                text.clone_from(public);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| publish(item, uris)),
        Value::Object(members) => members.values_mut().for_each(|member| publish(member, uris)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use asp_call::call::content::{MAX_FAILURE, readable};
    use asp_proto::plugin::Json as Sent;

    use super::*;
    use serde_json::json;

    fn json_of(value: &Value) -> Option<Sent> {
        Some(Sent { value: value.to_string().into_bytes() })
    }

    fn extras() -> Extras {
        Extras { chunks: Chunks::default(), links: Vec::new(), uris: HashMap::new() }
    }

    #[test]
    fn chunks_come_first_and_links_last() {
        let mut chunks = Chunks::default();
        for text in ["one ", "two"] {
            chunks.push(&ResultChunk { text: text.into(), ..ResultChunk::default() });
        }
        chunks.push(&ResultChunk { structured: json_of(&json!({"n": 1})), ..ResultChunk::default() });
        let links = vec![json!({"type": "resource_link", "uri": "asp-artifact://1/a", "name": "a"})];
        let uris = HashMap::from([("report://t/a".to_owned(), "asp-artifact://1/a".to_owned())]);
        let end = Completed { output: json_of(&json!({"report": "report://t/a"})), ..Completed::default() };
        let output = completed(&end, Extras { chunks, links: links.clone(), uris }).unwrap();
        let Output::Tool { content, structured, is_error, .. } = output else { panic!("no tool output") };
        assert_eq!(structured, Some(json!({"report": "asp-artifact://1/a"}).into()));
        assert!(!is_error);
        assert_eq!(content[0]["text"], "one two\n{\"n\":1}");
        assert_eq!(content[1]["text"], r#"{"report":"asp-artifact://1/a"}"#);
        assert_eq!(content[2], links[0]);
    }

    #[test]
    fn a_plugins_own_line_breaks_stay() {
        let text = |text: &str| ResultChunk { text: text.into(), ..ResultChunk::default() };
        let structured = ResultChunk { structured: json_of(&json!(1)), ..ResultChunk::default() };
        let joined = |parts: &[ResultChunk]| {
            let mut chunks = Chunks::default();
            parts.iter().for_each(|part| drop(chunks.push(part)));
            chunks.block().map(|block| block["text"].as_str().unwrap().to_owned())
        };
        assert_eq!(joined(&[text("a\n\n")]).as_deref(), Some("a\n\n"));
        assert_eq!(joined(&[structured.clone(), text("a\n")]).as_deref(), Some("1\na\n"));
        assert_eq!(joined(&[text("a\n"), structured.clone()]).as_deref(), Some("a\n1"));
        assert_eq!(joined(&[]), None);
        let mut chunks = Chunks::default();
        chunks.push(&text("a\n"));
        chunks.mark();
        chunks.push(&structured);
        chunks.rewind();
        chunks.push(&text("b\n"));
        assert_eq!(chunks.block().unwrap()["text"], "a\nb\n");
    }

    #[test]
    fn chunks_are_joined_up_to_their_bound() {
        let mut chunks = Chunks::default();
        let part = ResultChunk { text: "x".repeat(1 << 20), ..ResultChunk::default() };
        for _ in 0..5 {
            chunks.push(&part);
        }
        let block = chunks.block().unwrap();
        let text = block["text"].as_str().unwrap();
        assert!(text.ends_with("[1048576 bytes left out]"));
        assert!(text.len() < MAX_CHUNKS + 64);
    }

    #[test]
    fn content_is_taken_as_given_when_it_is_mcp_content() {
        let blocks = json!([{"type": "image", "data": "aGk=", "mimeType": "image/png"}]);
        let end =
            Completed { content: json_of(&blocks), output: json_of(&json!({})), ..Completed::default() };
        let Output::Tool { content, structured, .. } = completed(&end, extras()).unwrap() else { panic!() };
        assert_eq!(content[0].view(), &blocks[0]);
        assert_eq!(structured, Some(json!({}).into()));
        for (output, kept) in [(json!({"line": 7}), true), (json!(null), false)] {
            let end = Completed { output: json_of(&output), is_error: true, ..Completed::default() };
            let Output::Tool { structured, is_error: true, .. } = completed(&end, extras()).unwrap() else {
                panic!()
            };
            assert_eq!(structured, kept.then(|| output.into()), "what an error says");
        }
        for bad in [json!({}), json!([1]), json!([{"type": "text"}]), json!([{"type": "html", "text": ""}])] {
            let end = Completed { content: json_of(&bad), ..Completed::default() };
            assert!(matches!(completed(&end, extras()), Err(Refusal::InvalidOutput { .. })), "{bad}");
        }
        let end = Completed { output: Some(Sent { value: b"{".to_vec() }), ..Completed::default() };
        assert!(matches!(completed(&end, extras()), Err(Refusal::InvalidOutput { .. })));
    }

    #[test]
    fn a_failure_is_told_in_one_clean_line() {
        assert_eq!(readable("\n \u{1b}[31mboom\u{1b}[0m at x\nTraceback: secret"), "[31mboom[0m at x");
        assert_eq!(readable(&"ü".repeat(MAX_FAILURE)).len(), MAX_FAILURE);
    }
}
