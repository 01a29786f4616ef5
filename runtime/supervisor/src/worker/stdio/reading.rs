//! Reads of resources and prompts of an MCP server, for which a plugin has separate calls.
//!
//! Owns `resources/read` and `prompts/get`, the listings as reads of several requests, and the translation of their
//! results to PPP. Refuses completion of partial input: only a spec can list the values.

use std::collections::BTreeMap;

use asp_json::{Json, Members, first_elements, named};
use asp_proto::envelope::MCP_LISTS;
use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::plugin::{
    ContentChunk, GetPromptRequest, GetPromptResponse, ListResourcesResponse, PromptMessage,
    ReadResourceRequest, content_chunk,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::mpsc;
use tonic::Status;

use super::INVALID_PARAMS;
use super::listing::{Listing, NamedLists};
use super::translation;
use super::wire::{RpcAnswer, string, string_member};

/// MCP 2025-11-25, server/resources, error handling.
const RESOURCE_NOT_FOUND: i64 = -32002;
/// Maximum number of contents and messages that are passed on, as at the gateway.
const MAX_ITEMS: usize = 1001;

/// A read or a prompt for the server, and the channel for its parts.
pub struct Reading {
    pub work: Work,
    pub parts: mpsc::Sender<ReadPart>,
}

/// Work of a read.
pub enum Work {
    Resource(ReadResourceRequest),
    Prompt(GetPromptRequest),
    /// A listing of everything that the server has.
    Lists(Box<Listing>),
}

/// A part of a read's result.
pub enum ReadPart {
    /// A request or event of the server before the end.
    Event(Box<Out>),
    /// Contents of a resource. This part and those below are the last of their read.
    Contents(Vec<ContentChunk>),
    Prompt(GetPromptResponse),
    Lists(ListResourcesResponse),
    Failed(Status),
}

/// Result of a server's answer for its read.
pub(super) enum ReadOutcome {
    Part(ReadPart),
    /// Work that remains: the server needs another request.
    Rest(Box<Work>),
}

/// Returns the metadata of a request: the call's own id as its progress token, and its trace.
pub(super) fn meta(request_id: &str, attrs: &BTreeMap<String, String>) -> Json {
    let traceparent = attrs.get("traceparent").map(|parent| ("traceparent", parent.as_str()));
    Members::from_iter([("progressToken", request_id)].into_iter().chain(traceparent)).to_json()
}

impl Work {
    pub(super) fn request_id(&self) -> &str {
        match self {
            Work::Resource(request) => &request.request_id,
            Work::Prompt(request) => &request.request_id,
            Work::Lists(listing) => &listing.request.request_id,
        }
    }

    /// Whether its gateway wants to be notified when lists change.
    pub(super) fn wants_list_changes(&self) -> bool {
        match self {
            Work::Resource(request) => request.attrs.contains_key(MCP_LISTS),
            Work::Prompt(request) => request.attrs.contains_key(MCP_LISTS),
            Work::Lists(_) => false,
        }
    }

    pub(super) fn lists(&self) -> bool {
        matches!(self, Work::Lists(_))
    }

    /// Whether it asks for completions of partial input instead of a read.
    pub fn completes(&self) -> bool {
        match self {
            Work::Resource(request) => !request.completing.is_empty(),
            Work::Prompt(request) => !request.completing.is_empty(),
            Work::Lists(_) => false,
        }
    }

    /// Returns the request to the server; `None` when nothing is left to ask.
    pub(super) fn request(&self) -> Option<(&'static str, Json)> {
        Some(match self {
            Work::Resource(request) => {
                let uri = if request.uri.is_empty() { &request.primitive } else { &request.uri };
                let meta = meta(&request.request_id, &request.attrs);
                let params = Members::from_iter([("uri", Json::from(uri.as_str())), ("_meta", meta)]);
                ("resources/read", params.to_json())
            }
            Work::Prompt(request) => {
                let bytes = request.arguments.as_ref().map(|json| json.value.as_slice()).unwrap_or_default();
                let arguments = Json::parse(bytes).ok().filter(|json| json.text().starts_with('{'));
                let params = Members::from_iter([
                    ("name", Json::from(request.name.as_str())),
                    ("arguments", arguments.unwrap_or_else(|| Json::part("{}"))),
                    ("_meta", meta(&request.request_id, &request.attrs)),
                ]);
                ("prompts/get", params.to_json())
            }
            Work::Lists(listing) => return listing.next(),
        })
    }

    /// Turns the server's answer into a part for the caller, or into the next request.
    pub(super) fn translate_answer(self, answer: RpcAnswer, lists: NamedLists) -> ReadOutcome {
        let given = match (self, answer) {
            (Work::Lists(mut listing), answer) => match listing.take(answer, lists) {
                Ok(()) if listing.next().is_some() => {
                    return ReadOutcome::Rest(Box::new(Work::Lists(listing)));
                }
                Ok(()) => Ok(ReadPart::Lists(listing.finish(lists.notify_of_changes))),
                Err(status) => Err(status),
            },
            (Work::Resource(_), RpcAnswer::Result(result)) => contents(&result).map(ReadPart::Contents),
            (Work::Prompt(_), RpcAnswer::Result(result)) => prompt(&result).map(ReadPart::Prompt),
            (_, RpcAnswer::Error { code, message, .. }) => Err(match code {
                RESOURCE_NOT_FOUND => Status::not_found(message),
                INVALID_PARAMS => Status::invalid_argument(message),
                _ => Status::internal(message),
            }),
        };
        ReadOutcome::Part(given.unwrap_or_else(ReadPart::Failed))
    }
}

/// Returns the elements of a list that a result must have; without the list, the answer is malformed.
fn items<'a>(result: &'a Json, name: &str) -> Result<Vec<&'a str>, Status> {
    let [items] = named(result.text(), [name]).unwrap_or_default();
    let items =
        items.filter(|items| *items != "null").ok_or_else(|| malformed(&format!("{name} is missing")))?;
    first_elements(items, MAX_ITEMS).ok_or_else(|| malformed(&format!("{name} is not an array")))
}

fn malformed(fault: &str) -> Status {
    Status::internal(format!("the server's answer is malformed: {fault}"))
}

fn contents(result: &Json) -> Result<Vec<ContentChunk>, Status> {
    items(result, "contents")?.into_iter().map(content).collect()
}

fn content(item: &str) -> Result<ContentChunk, Status> {
    let [uri, mime_type, text, blob, meta] =
        named(item, ["uri", "mimeType", "text", "blob", "_meta"]).unwrap_or_default();
    let data = match (blob.and_then(string), text.and_then(string)) {
        (Some(blob), _) => {
            let bytes = STANDARD.decode(blob);
            content_chunk::Data::Blob(bytes.map_err(|_| Status::internal("a blob is not Base64"))?)
        }
        (None, Some(text)) => content_chunk::Data::Text(text),
        (None, None) => return Err(malformed("a content has neither text nor blob")),
    };
    Ok(ContentChunk {
        uri: uri.and_then(string).unwrap_or_default(),
        mime_type: mime_type.and_then(string).unwrap_or_default(),
        data: Some(data),
        meta: meta.filter(|meta| *meta != "null").map(translation::json),
        ..ContentChunk::default()
    })
}

fn prompt(result: &Json) -> Result<GetPromptResponse, Status> {
    let message = |item: &str| {
        let [role, content] = named(item, ["role", "content"]).unwrap_or_default();
        PromptMessage {
            role: role.and_then(string).unwrap_or_default(),
            content: content.map(translation::json),
        }
    };
    Ok(GetPromptResponse {
        description: string_member(result.text(), "description").unwrap_or_default(),
        messages: items(result, "messages")?.into_iter().map(message).collect(),
        ..GetPromptResponse::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn contents_are_texts_and_bytes_with_what_the_server_says_of_them() {
        let result = json!({"contents": [
            {"uri": "a:1", "mimeType": "text/plain", "text": "hi", "_meta": {"x": 1}},
            {"uri": "a:2", "blob": "aGk="},
        ]});
        let all = contents(&result.into()).unwrap();
        assert_eq!(all[0].data, Some(content_chunk::Data::Text("hi".into())));
        assert_eq!(all[0].meta.as_ref().unwrap().value, b"{\"x\":1}");
        assert_eq!(all[1].data, Some(content_chunk::Data::Blob(b"hi".to_vec())));
        assert!(contents(&json!({"contents": [{"uri": "a", "blob": "!"}]}).into()).is_err());
    }

    #[test]
    fn a_malformed_resource_or_prompt_is_no_empty_success() {
        for (result, fault) in [
            (json!({}), "contents is missing"),
            (json!({"contents": null}), "contents is missing"),
            (json!({"contents": "text"}), "contents is not an array"),
            (json!({"contents": ["text"]}), "neither text nor blob"),
            (json!({"contents": [{"uri": "a:1", "text": 7}]}), "neither text nor blob"),
        ] {
            let status = contents(&result.clone().into()).unwrap_err();
            assert!(status.message().contains(fault), "{result}: {status}");
        }
        assert!(contents(&json!({"contents": []}).into()).unwrap().is_empty());
        assert!(prompt(&json!({}).into()).is_err() && prompt(&json!({"messages": {}}).into()).is_err());
        assert!(prompt(&json!({"messages": []}).into()).is_ok());
    }

    #[test]
    fn an_error_of_the_server_is_told_by_its_kind() {
        for (code, expected) in [
            (RESOURCE_NOT_FOUND, tonic::Code::NotFound),
            (INVALID_PARAMS, tonic::Code::InvalidArgument),
            (-1, tonic::Code::Internal),
        ] {
            let work = Work::Resource(ReadResourceRequest::default());
            let answer = RpcAnswer::Error { code, message: "no".into(), data: None };
            let given = work.translate_answer(answer, NamedLists::default());
            let ReadOutcome::Part(ReadPart::Failed(status)) = given else { panic!("{code}") };
            assert_eq!(status.code(), expected, "{code}");
        }
    }
}
