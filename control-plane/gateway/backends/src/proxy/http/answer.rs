//! Conversion of a 2xx answer's body into the call's output.
//!
//! Keeps true: the service has confirmed the call, so that no body makes the outcome unknown; JSON becomes structured
//! content, text stays text, images and audio become MCP content, and other bytes are passed on unchanged. Messages
//! of a prompt are MCP messages, or an error that says what is wrong with them.

use asp_call::call::outcome::{Output, Refusal, text_block};
use asp_call::execution::Execution;
use asp_call::media_type::MediaType;
use asp_json::{Json, Members, held};
use asp_proto::snapshot::{Kind, ProxyHttp};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::conversation::results;
use crate::outbound::upstream::unanswered;

/// Media type of unidentified bytes (RFC 9110 section 8.3).
const OCTETS: &str = "application/octet-stream";

/// A body by its kind.
enum Body<'a> {
    Empty,
    Json(Json),
    Text(String),
    Bytes(&'a [u8]),
}

/// Returns the output of a call whose service answered 2xx with this body.
pub(super) fn output(
    mapping: &ProxyHttp,
    execution: &Execution,
    (media_type, bytes): (&MediaType, &[u8]),
) -> Result<Output, Refusal> {
    let body = match read(media_type, bytes) {
        Body::Json(value) => match value.pointed(&mapping.result) {
            Some(mapped) => Body::Json(mapped),
            None => return unmapped(mapping, execution),
        },
        body => body,
    };
    Ok(match execution.call.entry.primitive.kind() {
        Kind::Resource | Kind::ResourceTemplate => resource(execution, media_type, body),
        Kind::Prompt => prompt(media_type, body).map_err(|fault| unanswered(&execution.call, &fault))?,
        _ => tool(execution, media_type, body),
    })
}

fn read<'a>(media_type: &MediaType, bytes: &'a [u8]) -> Body<'a> {
    let is_named = !media_type.essence.is_empty();
    let text = match is_named && !bytes.is_empty() {
        true => media_type.text(bytes),
        false => media_type.decode(bytes),
    };
    let Some(text) = text else { return Body::Bytes(bytes) };
    // White space counts as empty where a document is expected, and as content in any other text.
    let may_be_document = media_type.is_json() || !is_named;
    if text.is_empty() || may_be_document && text.trim().is_empty() {
        return Body::Empty;
    }
    // Without a type, a text that begins like JSON may be JSON.
    let may_be_json = media_type.is_json() || !is_named && text.trim_start().starts_with(['{', '[']);
    if may_be_json
        && !held::is_too_much(text.as_bytes())
        && let Ok(value) = Json::parse(text.as_bytes())
    {
        return Body::Json(value);
    }
    Body::Text(text)
}

/// Returns the result of a call whose service succeeded, but whose answer lacks the result that the spec maps.
fn unmapped(mapping: &ProxyHttp, execution: &Execution) -> Result<Output, Refusal> {
    let why = "the service's answer lacks the mapped result";
    match execution.call.entry.primitive.kind() {
        Kind::Resource | Kind::ResourceTemplate | Kind::Prompt => Err(unanswered(&execution.call, why)),
        _ => Ok(Output::tool_error(&format!(
            "the call succeeded at the service, but {why} at {}; correct runtime.http.result of the spec",
            mapping.result
        ))),
    }
}

fn tool(execution: &Execution, media_type: &MediaType, body: Body<'_>) -> Output {
    let content = match body {
        Body::Json(value) => return Output::structured(value),
        Body::Empty => Vec::new(),
        Body::Text(text) => vec![text_block(&text).into()],
        Body::Bytes(bytes) => {
            let uri = format!("urn:asp:call:{}", execution.call.id);
            vec![block(media_type, bytes, &uri).into()]
        }
    };
    let meta = Members::default();
    Output::Tool { content, structured: None, is_error: false, meta, more: Members::default() }
}

/// Builds MCP image or audio content, or an embedded resource for everything else.
fn block(media_type: &MediaType, bytes: &[u8], uri: &str) -> Value {
    let data = STANDARD.encode(bytes);
    let essence = media_type.essence.as_str();
    match essence.split('/').next() {
        Some(kind @ ("image" | "audio")) => json!({"type": kind, "data": data, "mimeType": essence}),
        _ => json!({"type": "resource", "resource": {"uri": uri, "mimeType": named(essence), "blob": data}}),
    }
}

fn named(essence: &str) -> &str {
    if essence.is_empty() { OCTETS } else { essence }
}

fn resource(execution: &Execution, media_type: &MediaType, body: Body<'_>) -> Output {
    let uri = execution.arguments.get("uri").cloned().unwrap_or(Value::Null);
    let essence = match media_type.essence.as_str() {
        "" => "text/plain",
        essence => essence,
    };
    let contents = match body {
        Body::Json(value) => json!({"uri": uri, "mimeType": "application/json", "text": value.text()}),
        Body::Empty => json!({"uri": uri, "mimeType": essence, "text": ""}),
        Body::Text(text) => json!({"uri": uri, "mimeType": essence, "text": text}),
        Body::Bytes(bytes) => {
            json!({"uri": uri, "mimeType": named(&media_type.essence), "blob": STANDARD.encode(bytes)})
        }
    };
    Output::contents(vec![contents.into()])
}

/// Returns a prompt's messages, with all other members of an MCP result; `Err` describes what is malformed.
fn prompt(media_type: &MediaType, body: Body<'_>) -> Result<Output, String> {
    let said = |content: Value| vec![Json::from(json!({"role": "user", "content": content}))];
    let messages = match body {
        Body::Json(value) => match value.get("messages") {
            None | Some(Value::Null) => said(text_block(value.text())),
            Some(_) => return results::output(Kind::Prompt, None, &value),
        },
        Body::Empty => Vec::new(),
        Body::Text(text) => said(text_block(&text)),
        Body::Bytes(bytes) => said(block(media_type, bytes, "urn:asp:prompt")),
    };
    Ok(Output::messages(None, messages))
}
