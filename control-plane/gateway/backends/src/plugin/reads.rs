//! One worker's part of a resource read or a prompt: content chunks or messages instead of events, or values for an
//! argument while the user types.
//!
//! Refuses: more values than a client receives, so that a plugin cannot flood a list that is read while somebody
//! types. An unusable value is left out; the others are kept.

use asp_call::call::CallKind;
use asp_call::call::content::{misfit, own_meta};
use asp_call::call::outcome::{Output, Refusal};
use asp_json::{Json, Members};
use asp_proto::plugin::content_chunk::Data;
use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::{Completion, ContentChunk, Failed, GetPromptResponse};
use asp_proto::snapshot::Kind as PrimitiveKind;
use asp_runtime_client::tunnel::{Tunnel, TunnelMessage};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::job::Job;
use super::recovery::AttemptOutcome;
use super::{listing, tunnel_events};

/// Maximum size of a resource in bytes: the limit of one result.
const MAX_CONTENTS: usize = 16 << 20;
/// Maximum number of messages in a prompt, and of contents in a resource.
const MAX_ITEMS: usize = 1000;

/// Failure code of a plugin without the hook (runtime/README.md).
pub(super) const UNSUPPORTED: &str = "UNSUPPORTED";

/// Follows the worker to the end of its attempt.
pub(super) async fn run(job: &Job<'_>, mut tunnel: Tunnel) -> AttemptOutcome {
    let call = job.call();
    let mut contents = Contents::default();
    loop {
        let heard = tokio::select! {
            heard = tunnel.next() => heard,
            // A read has no cancel: closing the tunnel ends it.
            () = call.cancelled() => return AttemptOutcome::cancelled(),
        };
        let heard = match heard.map(|heard| list(job, heard)) {
            Ok(Ok(heard)) => heard,
            Ok(Err(end)) => return end,
            Err(fault) => return AttemptOutcome::of_fault(call, &fault),
        };
        match heard {
            TunnelMessage::Content(ContentChunk { completion, .. })
            | TunnelMessage::Prompt(GetPromptResponse { completion, .. })
                if call.kind.completed_argument().is_some() =>
            {
                let none = || Refusal::Upstream("the plugin offers no values to complete with".into());
                return AttemptOutcome::Ended(completion.ok_or_else(none).and_then(offered));
            }
            TunnelMessage::Content(ContentChunk { asked: Some(asked), .. })
            | TunnelMessage::Prompt(GetPromptResponse { asked: Some(asked), .. }) => {
                return AttemptOutcome::Asked(asked);
            }
            TunnelMessage::Content(chunk) => {
                if let Err(refusal) = contents.push(chunk) {
                    return AttemptOutcome::Ended(Err(refusal));
                }
            }
            TunnelMessage::Prompt(prompt) => return AttemptOutcome::Ended(messages(prompt)),
            TunnelMessage::Message(Payload::Failed(end)) => return AttemptOutcome::Ended(failure(job, &end)),
            TunnelMessage::Message(Payload::McpRequested(_)) => {
                return AttemptOutcome::of_loss(call, "a message that only a stdio server sends");
            }
            TunnelMessage::Message(Payload::StorageRequested(_)) => {
                return AttemptOutcome::of_loss(call, "a message that only a tool or task sends");
            }
            TunnelMessage::Message(Payload::Log(line)) => drop(job.handle_log(line)),
            TunnelMessage::Message(_) => {}
            TunnelMessage::Listed(_) | TunnelMessage::Updated(_) => {}
            // A resource may have no contents; a prompt always has its answer.
            TunnelMessage::End
                if !call.was_handed_over()
                    || !call.kind.is_invocation()
                    || call.entry.primitive.kind() == PrimitiveKind::Prompt =>
            {
                return AttemptOutcome::of_loss(call, "the stream ended before the result");
            }
            TunnelMessage::End => return AttemptOutcome::Ended(contents.finish()),
            TunnelMessage::Event(event) => {
                if let Err(end) = tunnel_events::handle(job, &mut tunnel, &event).await {
                    return end;
                }
            }
        }
    }
}

/// Ends a call for a list with the list; rejects lists and contents that were not asked for, and passes everything
/// else on.
fn list(job: &Job<'_>, heard: TunnelMessage) -> Result<TunnelMessage, AttemptOutcome> {
    let call = job.call();
    match (heard, &call.kind) {
        (TunnelMessage::Listed(listed), CallKind::List) => {
            Err(AttemptOutcome::Ended(Ok(listing::read(call, listed))))
        }
        (TunnelMessage::Listed(_), _) => Err(AttemptOutcome::of_loss(call, "an unrequested list")),
        (TunnelMessage::Content(_), CallKind::List) => {
            Err(AttemptOutcome::of_loss(call, "content instead of a list"))
        }
        (heard, _) => Ok(heard),
    }
}

/// Converts a failure. A read has no result that carries an error, so the failure's text becomes the refusal's.
pub(super) fn failure(job: &Job<'_>, end: &Failed) -> Result<Output, Refusal> {
    if end.code == UNSUPPORTED {
        match job.call().kind {
            CallKind::Invoke => {}
            // A plugin without values or a list is no error for the client.
            CallKind::Complete(_) => return Ok(Output::completion(Vec::new(), Some(0), false)),
            CallKind::List => return Ok(Output::contents(Vec::new())),
        }
    }
    if end.code == "NOT_FOUND" {
        let uri = job.execution.arguments.get("uri").and_then(Value::as_str).unwrap_or_default();
        return Err(Refusal::UnknownResource { uri: uri.to_owned() });
    }
    match asp_call::call::content::failed(job.call(), end) {
        Ok(Output::Tool { content, .. }) => {
            let text = content.first().and_then(|block| block.get("text")?.as_str());
            Err(Refusal::Upstream(text.unwrap_or("the plugin failed").to_owned()))
        }
        other => other,
    }
}

/// Contents of a resource; the pieces that a plugin sends are joined by URI, up to one that starts a content.
#[derive(Default)]
struct Contents {
    items: Vec<Item>,
    size: usize,
}

struct Item {
    uri: String,
    mime_type: String,
    meta: Members,
    data: Data,
}

impl Contents {
    fn push(&mut self, chunk: ContentChunk) -> Result<(), Refusal> {
        let ContentChunk { uri, mime_type, data, meta, starts, asked: _, completion: _ } = chunk;
        self.size += meta.as_ref().map_or(0, |meta| meta.value.len());
        self.size += match &data {
            Some(Data::Text(text)) => text.len(),
            Some(Data::Blob(bytes)) => bytes.len(),
            None => 0,
        };
        if self.size > MAX_CONTENTS {
            return Err(misfit("the resource is too large"));
        }
        let full = self.items.len() >= MAX_ITEMS;
        let last = self.items.last_mut().filter(|item| !starts && item.uri == uri);
        match (last, data) {
            (Some(item), data) => item.append(data),
            (None, _) if full => Err(misfit("the resource has too many contents")),
            (None, data) => {
                let data = data.unwrap_or_else(|| Data::Text(String::new()));
                let meta = own_meta(asp_call::call::content::parse(meta.as_ref())?.as_ref());
                self.items.push(Item { uri, mime_type, meta, data });
                Ok(())
            }
        }
    }

    fn finish(self) -> Result<Output, Refusal> {
        Ok(Output::contents(self.items.into_iter().map(Item::finish).collect()))
    }
}

impl Item {
    fn append(&mut self, data: Option<Data>) -> Result<(), Refusal> {
        match (&mut self.data, data) {
            (_, None) => Ok(()),
            (Data::Text(text), Some(Data::Text(more))) => {
                text.push_str(&more);
                Ok(())
            }
            (Data::Blob(bytes), Some(Data::Blob(more))) => {
                bytes.extend(more);
                Ok(())
            }
            _ => Err(misfit("one content has both text and bytes")),
        }
    }

    fn finish(self) -> Json {
        let mut content = Members::from_iter([("uri", self.uri)]);
        if !self.mime_type.is_empty() {
            content.insert("mimeType", self.mime_type);
        }
        if !self.meta.is_empty() {
            content.insert("_meta", self.meta.to_json());
        }
        match self.data {
            Data::Text(text) => content.insert("text", text),
            Data::Blob(bytes) => content.insert("blob", STANDARD.encode(bytes)),
        };
        content.to_json()
    }
}

fn messages(prompt: GetPromptResponse) -> Result<Output, Refusal> {
    if prompt.messages.len() > MAX_ITEMS {
        return Err(misfit("the prompt has too many messages"));
    }
    let mut messages = Vec::with_capacity(prompt.messages.len());
    for message in prompt.messages {
        let content = asp_call::call::content::parse(message.content.as_ref())?;
        match (message.role.as_str(), content) {
            (role @ ("user" | "assistant"), Some(content)) if content.is_object() => {
                let message: Members =
                    [("role", Json::from(role)), ("content", content)].into_iter().collect();
                messages.push(message.to_json());
            }
            _ => return Err(misfit("a message of the prompt is not an MCP message")),
        }
    }
    let description = (!prompt.description.is_empty()).then_some(prompt.description);
    Ok(Output::messages(description, messages))
}

/// Maximum number of values in one answer (MCP `CompleteResult`).
const MAX_VALUES: usize = 100;
/// Maximum length of a value in bytes.
const MAX_VALUE: usize = 1024;

/// Converts the values into the call's output.
fn offered(said: Completion) -> Result<Output, Refusal> {
    let Completion { values, total, has_more } = said;
    let misfit =
        |what: String| Err(Refusal::Upstream(format!("the plugin's values cannot be offered: {what}")));
    if values.len() > MAX_VALUES {
        return misfit(format!("{} of them, at most {MAX_VALUES} are", values.len()));
    }
    let given = values.len();
    let values: Vec<String> =
        values.into_iter().filter(|value| (1..=MAX_VALUE).contains(&value.len())).collect();
    if values.len() < given {
        tracing::warn!(
            left_out = given - values.len(),
            "completion values were left out that are empty or too long"
        );
    }
    Ok(Output::completion(values, total, has_more))
}

#[cfg(test)]
mod tests {
    use asp_proto::plugin::Json as Sent;
    use asp_proto::plugin::PromptMessage;
    use serde_json::json;

    use super::*;

    fn chunk(uri: &str, data: Data) -> ContentChunk {
        ContentChunk {
            uri: uri.into(),
            mime_type: "text/plain".into(),
            data: Some(data),
            ..ContentChunk::default()
        }
    }

    #[test]
    fn pieces_of_one_uri_are_joined_and_bytes_are_encoded() {
        let mut contents = Contents::default();
        for (uri, text) in [("a:1", "one "), ("a:1", "two"), ("a:2", "three")] {
            contents.push(chunk(uri, Data::Text(text.into()))).unwrap();
        }
        contents.push(chunk("a:3", Data::Blob(b"hi".to_vec()))).unwrap();
        assert!(contents.push(chunk("a:3", Data::Text("x".into()))).is_err());
        let Output::Contents { contents, .. } = contents.finish().unwrap() else { panic!("no contents") };
        assert_eq!(contents[0], json!({"uri": "a:1", "mimeType": "text/plain", "text": "one two"}));
        assert_eq!(contents[1]["text"], "three");
        assert_eq!(contents[2]["blob"], "aGk=");
    }

    #[test]
    fn a_piece_that_starts_a_content_is_not_joined_to_one_with_the_same_uri() {
        let mut contents = Contents::default();
        let texts = [("one ", true), ("more", false), ("two", true)];
        for (text, starts) in texts {
            let data = Data::Text(text.into());
            contents.push(ContentChunk { starts, ..chunk("a:1", data) }).unwrap();
        }
        let blob = chunk("a:1", Data::Blob(b"hi".to_vec()));
        contents.push(ContentChunk { starts: true, ..blob }).unwrap();
        let Output::Contents { contents, .. } = contents.finish().unwrap() else { panic!("no contents") };
        assert_eq!(contents.len(), 3);
        assert_eq!(
            [&contents[0]["text"], &contents[1]["text"], &contents[2]["blob"]],
            ["one more", "two", "aGk="]
        );
    }

    #[test]
    fn a_resource_is_bounded() {
        let mut contents = Contents::default();
        let half = Data::Blob(vec![0; MAX_CONTENTS / 2]);
        assert!(contents.push(chunk("a", half.clone())).is_ok());
        assert!(contents.push(chunk("a", half)).is_ok());
        assert!(contents.push(chunk("a", Data::Blob(vec![0]))).is_err());
    }

    #[test]
    fn a_prompt_has_mcp_messages_or_is_refused() {
        let message = |role: &str, content: &str| PromptMessage {
            role: role.into(),
            content: Some(Sent { value: content.as_bytes().to_vec() }),
        };
        let good = GetPromptResponse {
            messages: vec![message("user", r#"{"type":"text","text":"x"}"#)],
            ..Default::default()
        };
        assert!(messages(good).is_ok());
        for bad in [message("system", "{}"), message("user", "[]"), message("user", "{")] {
            let prompt = GetPromptResponse { messages: vec![bad], ..Default::default() };
            assert!(messages(prompt).is_err());
        }
    }

    fn said(values: Vec<String>, total: Option<u32>) -> Result<Output, Refusal> {
        super::offered(Completion { values, total, has_more: false })
    }

    #[test]
    fn values_within_their_bounds_are_offered_and_no_others() {
        let hundred = vec!["x".repeat(MAX_VALUE); MAX_VALUES];
        let offered = Output::Completion { values: hundred.clone(), total: Some(100), has_more: false };
        assert_eq!(said(hundred.clone(), Some(100)), Ok(offered));
        let uncounted = Output::Completion { values: hundred.clone(), total: None, has_more: false };
        assert_eq!(said(hundred, Some(99)), Ok(uncounted));
        let mixed = vec![String::new(), "a".to_owned(), "x".repeat(MAX_VALUE + 1), "b".to_owned()];
        let kept = Output::Completion { values: vec!["a".into(), "b".into()], total: None, has_more: false };
        assert_eq!(said(mixed, None), Ok(kept));
        assert!(matches!(said(vec!["x".to_owned(); 101], None), Err(Refusal::Upstream(_))));
    }
}
