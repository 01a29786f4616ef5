//! Conversion of a 2xx answer's body into the call's output.
//!
//! Keeps true: the service has confirmed the call, so that no body makes the outcome unknown; JSON becomes structured
//! content, text stays text, images and audio become MCP content, and other bytes are passed on unchanged: in the result
//! of a tool, or as an artifact if they are many. Messages of a prompt are MCP messages, or an error that says what is
//! wrong with them.

use std::time::Duration;

use asp_call::call::outcome::{Output, Refusal, text_block};
use asp_call::execution::Execution;
use asp_call::media_type::MediaType;
use asp_json::{Json, Members, held};
use asp_proto::snapshot::{Kind, ProxyHttp};
use asp_store::blobs::BlobError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{CONTENT_DISPOSITION, HeaderMap};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::HttpResponse;
use crate::artifacts::{ArtifactLabel, Artifacts};
use crate::conversation::results;
use crate::outbound::upstream::unanswered;

/// Media type of unidentified bytes (RFC 9110 section 8.3).
const OCTETS: &str = "application/octet-stream";
/// Maximum size in bytes of an image or audio in a tool's result, and of other bytes there; larger ones are artifacts.
const MAX_MEDIA: usize = 1 << 20;
const MAX_EMBEDDED: usize = 64 << 10;
/// Size in bytes of a write to the store of artifacts.
const PIECE: usize = 1 << 20;
/// Longest wait for that store.
const KEEP_WITHIN: Duration = Duration::from_secs(10);
/// Name of an artifact to which the service gives none, and maximum length of a name in characters.
const UNNAMED: &str = "answer";
const MAX_NAME: usize = 255;

/// A body by its kind.
enum Body<'a> {
    Empty,
    Json(Json),
    Text(String),
    Bytes(&'a [u8]),
}

/// Returns the output of a call whose service answered 2xx.
pub(super) async fn output(
    artifacts: &Artifacts,
    mapping: &ProxyHttp,
    execution: &Execution,
    answer: &HttpResponse,
) -> Result<Output, Refusal> {
    let media_type = &answer.media_type;
    let body = match read(media_type, &answer.body) {
        Body::Json(value) => match value.pointed(&mapping.result) {
            Some(mapped) => Body::Json(mapped),
            None => return unmapped(mapping, execution),
        },
        body => body,
    };
    Ok(match execution.call.entry.primitive.kind() {
        Kind::Resource | Kind::ResourceTemplate => resource(execution, media_type, body),
        Kind::Prompt => prompt(media_type, body).map_err(|fault| unanswered(&execution.call, &fault))?,
        _ => tool(artifacts, execution, answer, body).await,
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

async fn tool(artifacts: &Artifacts, execution: &Execution, answer: &HttpResponse, body: Body<'_>) -> Output {
    let content = match body {
        Body::Json(value) => return Output::structured(value),
        Body::Empty => Vec::new(),
        Body::Text(text) => vec![text_block(&text).into()],
        Body::Bytes(bytes) => vec![content_of(artifacts, execution, (answer, bytes)).await.into()],
    };
    let meta = Members::default();
    Output::Tool { content, structured: None, is_error: false, meta, more: Members::default() }
}

/// Returns the content for bytes: themselves, or a link to an artifact. If the store does not take them, they are in the
/// result, since the call was completed.
async fn content_of(
    artifacts: &Artifacts,
    execution: &Execution,
    (answer, bytes): (&HttpResponse, &[u8]),
) -> Value {
    let call = &execution.call;
    let is_media = ["image/", "audio/"].iter().any(|kind| answer.media_type.essence.starts_with(kind));
    let limit = if is_media { MAX_MEDIA } else { MAX_EMBEDDED };
    if bytes.len() > limit {
        let kept = timeout(KEEP_WITHIN, keep(artifacts, execution, answer)).await;
        match kept.unwrap_or_else(|_| Err(BlobError::Unavailable("it did not answer in time".into()))) {
            Ok(link) => return link,
            Err(error) => tracing::warn!(
                call = %call.id, trace = %call.trace, %error,
                "bytes of a service's answer were not stored as an artifact and are in the result; check the artifact \
                 store, or the bounds that the error names"
            ),
        }
    }
    block(&answer.media_type, bytes, &format!("urn:asp:call:{}", call.id))
}

/// Stores the body as an artifact of the call, and returns an MCP resource link to it (2025-06-18 and later).
async fn keep(
    artifacts: &Artifacts,
    execution: &Execution,
    answer: &HttpResponse,
) -> Result<Value, BlobError> {
    let call = &execution.call;
    let name = file_name(&answer.headers).unwrap_or_else(|| UNNAMED.to_owned());
    let content_type = named(&answer.media_type.essence);
    let mut incoming = artifacts.begin(call).await?;
    for piece in answer.body.chunks(PIECE) {
        incoming.write(piece).await?;
    }
    let uri = incoming.finish(call, ArtifactLabel { name: &name, content_type }).await?;
    let size = answer.body.len();
    Ok(json!({"type": "resource_link", "uri": uri, "name": name, "mimeType": content_type, "size": size}))
}

/// Returns the name of the file that the service sends, without a path, because clients may store it under this name (RFC 6266
/// section 4.3).
fn file_name(headers: &HeaderMap) -> Option<String> {
    let written = headers.get(CONTENT_DISPOSITION)?.to_str().ok()?;
    let mut parameters = written.split(';').filter_map(|part| part.split_once('='));
    let (_, value) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("filename"))?;
    let last = value.trim().trim_matches('"').rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = last.chars().take(MAX_NAME).collect();
    (!["", ".", ".."].contains(&name.as_str())).then_some(name)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_name_that_its_service_gives_it() {
        let name = |written: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_DISPOSITION, written.parse().unwrap());
            file_name(&headers)
        };
        assert_eq!(name("attachment; filename=\"report 7.pdf\"").as_deref(), Some("report 7.pdf"));
        assert_eq!(name("attachment; FileName=a.zip; size=3").as_deref(), Some("a.zip"));
        assert_eq!(name("attachment; filename=\"../../.ssh/config\"").as_deref(), Some("config"));
        assert_eq!(name("attachment; filename=\"c:\\temp\\a.exe\"").as_deref(), Some("a.exe"));
        for without in [
            "inline",
            "attachment; filename=\"a/..\"",
            "attachment; filename=\"\"",
            "attachment; filename*=UTF-8''a.pdf",
        ] {
            assert_eq!(name(without), None, "{without}");
        }
        assert_eq!(file_name(&HeaderMap::new()), None);
    }
}
