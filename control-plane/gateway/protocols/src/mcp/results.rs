//! A call's outcome in MCP, per revision.

use std::borrow::Cow;

use asp_call::call::Call;
use asp_call::call::outcome::{Outcome, Output, Refusal, text_block};
use asp_call::call::page::Visit;
use asp_edge::Reason;
use asp_json::{Json, Members, write_string};
use asp_proto::mcp_revision::{Feature, Revision};
use asp_proto::snapshot::Kind;
use asp_snapshot::VirtualServer;
use serde_json::{Value, json};

use super::codec::{RpcFailure, WriteJson};

/// Error code for an unknown resource in MCP up to 2025-11-25 (resources, error handling); 2026-07-28 uses -32602.
const RESOURCE_NOT_FOUND: i32 = -32002;

/// Error code of MCP 2025-11-25 alone.
const URL_ELICITATION_REQUIRED: i32 = -32042;

/// Member of `_meta` with the server's `Implementation` (2026-07-28).
pub(super) const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// The kind of request that the outcome answers: only the result of a tool call can carry an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Tool,
    Other,
}

impl RequestKind {
    /// Returns the kind of the request that began a call.
    pub(super) fn of(call: &Call) -> RequestKind {
        match call.entry.primitive.kind() {
            Kind::Tool | Kind::Task => RequestKind::Tool,
            _ => RequestKind::Other,
        }
    }
}

/// The result of a call before encoding. It borrows the content of the output, which is therefore written once and
/// never copied.
#[derive(Default)]
pub(super) struct CallResult<'a> {
    members: Vec<(&'a str, Member<'a>)>,
    meta: Option<&'a Members>,
    /// Members of `_meta` that take precedence over those of `meta`.
    own_meta: Vec<(&'static str, Value)>,
}

enum Member<'a> {
    Own(Value),
    Sent(&'a Json),
    All(Cow<'a, [Json]>),
    Text(&'a str),
}

impl WriteJson for Member<'_> {
    fn write(&self, text: &mut Vec<u8>) {
        match self {
            Member::Own(value) => value.write(text),
            Member::Sent(json) => json.write(text),
            Member::All(all) => {
                text.push(b'[');
                for (at, json) in all.iter().enumerate() {
                    if at > 0 {
                        text.push(b',');
                    }
                    json.write(text);
                }
                text.push(b']');
            }
            Member::Text(own) => write_string(text, own),
        }
    }
}

impl<'a> CallResult<'a> {
    /// Adds a member; a name must not be added twice.
    pub(super) fn put(&mut self, name: &'static str, value: Value) {
        self.members.push((name, Member::Own(value)));
    }

    /// Returns the result as one value; JSON that passes through keeps its text.
    pub(super) fn to_json(&self) -> Json {
        let mut text = Vec::new();
        self.write(&mut text);
        // Composed of texts.
        Json::part(String::from_utf8(text).unwrap_or_else(|_| "null".to_owned()))
    }

    /// Sets a member of `_meta`.
    pub(super) fn put_meta(&mut self, name: &'static str, value: Value) {
        self.own_meta.push((name, value));
    }
}

/// Appends `"name":` to an object, after a comma unless it is the first member.
fn write_name(text: &mut Vec<u8>, name: &str) {
    if text.last() != Some(&b'{') {
        text.push(b',');
    }
    write_string(text, name);
    text.push(b':');
}

impl WriteJson for CallResult<'_> {
    fn write(&self, text: &mut Vec<u8>) {
        text.push(b'{');
        for (name, member) in &self.members {
            write_name(text, name);
            member.write(text);
        }
        if self.meta.is_some_and(|meta| !meta.is_empty()) || !self.own_meta.is_empty() {
            write_name(text, "_meta");
            self.write_meta(text);
        }
        text.push(b'}');
    }
}

impl CallResult<'_> {
    fn write_meta(&self, text: &mut Vec<u8>) {
        let own = &self.own_meta;
        let is_own = |name: &str| own.iter().any(|(own, _)| *own == name);
        text.push(b'{');
        for (name, value) in self.meta.iter().flat_map(|meta| meta.iter()).filter(|(name, _)| !is_own(name)) {
            write_name(text, name);
            value.write(text);
        }
        for (name, value) in own {
            write_name(text, name);
            value.write(text);
        }
        text.push(b'}');
    }
}

/// Returns the result or the error of a finished call.
pub(super) fn of_outcome<'a>(
    outcome: &'a Outcome,
    call: &Call,
    asked: RequestKind,
    revision: Revision,
) -> Result<CallResult<'a>, RpcFailure> {
    match outcome {
        Outcome::Done { output, replayed } => {
            let mut result = of_output(output, revision);
            if *replayed {
                result.put_meta("asp/replayed", true.into());
            }
            Ok(result)
        }
        // A primitive that its backend found gone is reported as unknown (I-10).
        Outcome::Refused(Refusal::Unknown) => {
            let what = match call.entry.primitive.kind() {
                Kind::Prompt => "prompt",
                _ => "tool",
            };
            Err(unknown(what, &call.entry.listing.mcp_name, revision).of_call())
        }
        Outcome::Refused(refusal) => {
            let mut result = of_refusal(refusal, asked, revision)?;
            result.put_meta("asp/traceId", call.trace.to_string().into());
            Ok(result)
        }
    }
}

fn of_output(output: &Output, revision: Revision) -> CallResult<'_> {
    let mut result = CallResult::default();
    let members = &mut result.members;
    match output {
        Output::Tool { content, structured, is_error, meta, more } => {
            let structured = structured.as_ref();
            let shown = structured.filter(|value| takes_structured(value, revision));
            members.extend(shown.map(|value| ("structuredContent", Member::Sent(value))));
            let content = match structured {
                Some(value) if shown.is_none() && content.is_empty() => {
                    Member::Own(json!([text_block(value.text())]))
                }
                _ => known_blocks(content, revision),
            };
            members.push(("content", content));
            members.push(("isError", Member::Own((*is_error).into())));
            members.extend(other_members(more));
            result.meta = Some(meta);
        }
        Output::Contents { contents, meta, more } => {
            members.push(("contents", known_contents(contents, revision)));
            members.extend(other_members(more));
            result.meta = Some(meta);
        }
        Output::Messages { description, messages, meta, more } => {
            members.extend(description.as_deref().map(|text| ("description", Member::Text(text))));
            members.push(("messages", Member::All(messages.into())));
            members.extend(other_members(more));
            result.meta = Some(meta);
        }
        Output::Completion { values, total, has_more } => {
            let mut completion = json!({"values": values, "hasMore": has_more});
            if let (Some(total), Some(completion)) = (total, completion.as_object_mut()) {
                completion.insert("total".into(), (*total).into());
            }
            members.push(("completion", Member::Own(completion)));
        }
    }
    result
}

fn other_members(members: &Members) -> impl Iterator<Item = (&str, Member<'_>)> {
    members.iter().map(|(name, value)| (name, Member::Sent(value)))
}

/// Whether `CallToolResult.structuredContent` may be this value.
fn takes_structured(value: &Value, revision: Revision) -> bool {
    revision.has(Feature::AnyOutput) || (revision.has(Feature::StructuredOutput) && value.is_object())
}

/// Contents without `_meta`, unless the revision has it.
fn known_contents(contents: &[Json], revision: Revision) -> Member<'_> {
    if revision.has(Feature::Meta) {
        return Member::All(contents.into());
    }
    let known = contents.iter().map(|content| {
        let mut members = Members::of(content);
        members.remove("_meta");
        members.to_json()
    });
    Member::All(known.collect())
}

/// Content blocks with the URIs of resource links as text, unless the revision has such links: a client that does not know
/// them would refuse the whole result.
fn known_blocks(content: &[Json], revision: Revision) -> Member<'_> {
    if revision.has(Feature::ResourceLinks) {
        return Member::All(content.into());
    }
    let known = content.iter().map(|block| match block.get("type").and_then(Value::as_str) {
        Some("resource_link") => {
            text_block(block.get("uri").and_then(Value::as_str).unwrap_or_default()).into()
        }
        _ => block.clone(),
    });
    Member::All(known.collect())
}

/// Returns a refusal within a tool call as a tool error if the model can act on it, otherwise as a JSON-RPC error.
fn of_refusal(
    refusal: &Refusal,
    asked: RequestKind,
    revision: Revision,
) -> Result<CallResult<'static>, RpcFailure> {
    let message = refusal.public_message();
    if asked == RequestKind::Tool {
        match refusal {
            Refusal::Limited { limit, retry_after_ms } => {
                let mut result = tool_error(&format!("{message}; retry after {retry_after_ms} ms"), refusal);
                result.put_meta("asp/retryAfterMs", (*retry_after_ms).into());
                result.put_meta("asp/limit", (*limit).into());
                if let Some(remaining) = refusal.remaining_calls() {
                    result.put_meta("asp/remaining", remaining.into());
                }
                return Ok(result);
            }
            Refusal::InvalidArguments { .. } if revision.has(Feature::ArgumentErrors) => {
                return Ok(tool_error(&message, refusal));
            }
            Refusal::PagesFirst { .. } if !revision.has(Feature::UrlElicitationError) => {
                return Ok(tool_error(&message, refusal));
            }
            Refusal::NotApproved(_)
            | Refusal::InputExpired
            | Refusal::DuplicateId
            | Refusal::Upstream(_)
            | Refusal::Declined(_)
            | Refusal::Barred(_)
            | Refusal::OutcomeUnknown
            | Refusal::InvalidOutput { .. } => return Ok(tool_error(&message, refusal)),
            _ => {}
        }
    }
    let mut failure = RpcFailure::with(refusal.reason(), &message).in_call().of_call();
    match refusal {
        Refusal::Relayed { code, data, .. } => failure = relayed(failure, *code, data.as_ref()),
        Refusal::PagesFirst { pages } if revision.has(Feature::UrlElicitationError) => {
            failure.code = URL_ELICITATION_REQUIRED;
            failure = failure.data("elicitations", pages.iter().map(elicitation).collect());
        }
        Refusal::UnknownResource { uri } => failure = no_resource(failure, uri, revision),
        Refusal::InvalidArguments { pointer, .. } => {
            failure = failure.data("pointer", pointer.clone().into())
        }
        Refusal::Limited { limit, retry_after_ms } => {
            failure = failure.data("retryAfterMs", (*retry_after_ms).into()).data("limit", (*limit).into());
            if let Some(remaining) = refusal.remaining_calls() {
                failure = failure.data("remaining", remaining.into());
            }
        }
        _ => {}
    }
    for (name, value) in refusal.revocation_members() {
        failure = failure.data(name, value.into());
    }
    Err(failure)
}

/// Adds the upstream's own error to the platform's. Codes that MCP itself defines are not passed on, and no retry is
/// recommended, as the upstream may refuse for good.
fn relayed(mut failure: RpcFailure, code: i64, data: Option<&Json>) -> RpcFailure {
    failure.code = match (code, i32::try_from(code)) {
        (-32768..-32603 | -32600..=-32000, _) | (_, Err(_)) => Reason::Internal.jsonrpc_code(),
        (_, Ok(code)) => code,
    };
    if failure.is(Reason::UpstreamUnavailable) {
        for spelling in ["recoveryHint", "recovery_hint"] {
            failure = failure.data(spelling, Reason::OutcomeUnknown.recovery_hint().into());
        }
    }
    let mut upstream = Members::default();
    upstream.insert("code", Value::from(code));
    if let Some(data) = data {
        upstream.insert("data", data.clone());
    }
    failure.upstream = Some(upstream.to_json());
    failure
}

/// Returns MCP 2025-11-25 `ElicitRequestURLParams`. The id is the upstream's, because its later messages about the
/// visit use it.
fn elicitation(visit: &Visit) -> Value {
    json!({"mode": "url", "elicitationId": visit.id, "message": visit.message, "url": visit.url})
}

/// Returns `isError` without `structuredContent`, which clients validate even in errors.
fn tool_error(text: &str, refusal: &Refusal) -> CallResult<'static> {
    let mut result = CallResult::default();
    result.put("content", json!([text_block(text)]));
    result.put("isError", true.into());
    result.put_meta("asp/reason", refusal.reason().as_str().into());
    result
}

/// Sets a member of the result's `_meta`.
pub(super) fn set_meta(result: &mut Members, name: &str, value: Value) {
    let mut meta = result.get("_meta").map(Members::of).unwrap_or_default();
    meta.insert(name, value);
    result.insert("_meta", meta.to_json());
}

/// Returns the error for an unknown name, the same whether it is hidden or does not exist (I-10). A resource error
/// includes the URI (SEP-2164).
pub(super) fn unknown(what: &str, name: &str, revision: Revision) -> RpcFailure {
    let failure = RpcFailure::with(Reason::UnknownPrimitive, &format!("unknown {what}: {name}")).in_call();
    if what == "resource" { no_resource(failure, name, revision) } else { failure }
}

fn no_resource(failure: RpcFailure, uri: &str, revision: Revision) -> RpcFailure {
    let mut failure = failure.data("uri", uri.into());
    if !revision.is_modern() {
        failure.code = RESOURCE_NOT_FOUND;
    }
    failure
}

/// MCP `Implementation` of a server.
pub(super) fn server_info(server: &VirtualServer, revision: Revision) -> Value {
    let server = &server.message;
    let mut info = json!({"name": server.name, "version": server.version});
    if let Some(info) = info.as_object_mut()
        && revision.has(Feature::Titles)
        && !server.title.is_empty()
    {
        info.insert("title".into(), server.title.clone().into());
    }
    info
}
