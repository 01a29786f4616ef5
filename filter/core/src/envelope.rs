//! The bounded scan of a JSON-RPC body: the kind of its message, and the primitive it addresses.
//!
//! Owns the JSON-RPC 2.0 envelope rules and MCP's batch rule; `asp_json` owns syntax. No DOM is built and unknown
//! members are skipped. A syntax fault anywhere takes precedence over an envelope fault, so that the answer does not
//! depend on where reading stopped.

use std::borrow::Cow;

use crate::reason::Reason;

use asp_json::{Cursor, Syntax, Value};

/// Maximum number of messages in a 2025-03-26 batch.
pub const MAX_BATCH: usize = 50;
/// Maximum length of `method`, in bytes.
pub const MAX_METHOD_BYTES: usize = 128;
/// Maximum length of `id`, in bytes of JSON text.
pub const MAX_ID_BYTES: usize = 1024;

const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// Result of the bounded scan of a JSON-RPC body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    pub kind: EnvelopeKind,
    /// Empty for a response and for a batch.
    pub method: String,
    /// The `id` exactly as written (JSON text), when there is one.
    pub id: Option<String>,
    /// `params.name` of tools/call and prompts/get, `params.uri` of resources/read.
    pub name: Option<String>,
    /// Task that a message of A2A is about, else its context.
    pub task: Option<String>,
    /// `params._meta["io.modelcontextprotocol/protocolVersion"]` when it is a string.
    pub meta_version: Option<String>,
    /// The messages of a batch, in order; empty otherwise.
    pub batch: Vec<Envelope>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnvelopeKind {
    #[default]
    Request,
    Notification,
    Response,
    /// Batch with its number of messages (2025-03-26 only).
    Batch(usize),
}

/// Binding whose messages are scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    Mcp,
    /// MCP 2025-03-26, which alone has arrays of messages.
    McpBatches,
    /// A2A, whose gateway answers parameters of any other type as invalid ones.
    A2a,
}

/// Scans one JSON-RPC body.
///
/// Fails with `ParseError` if the body is not JSON by the rules of RFC 8259, is nested deeper than 127 levels, or holds
/// a number beyond the range of a double; with `InvalidRequest` if it is JSON but not a JSON-RPC 2.0 message.
pub fn scan(body: &[u8], binding: Binding) -> Result<Envelope, Reason> {
    let scanned = scan_text(body, binding).map_err(|Syntax| Reason::ParseError)?;
    let envelope = scanned.ok_or(Reason::InvalidRequest)?;
    let batch = matches!(envelope.kind, EnvelopeKind::Batch(_));
    if batch && binding != Binding::McpBatches {
        return Err(Reason::InvalidRequest);
    }
    Ok(envelope)
}

/// Returns the `id` of a message that is refused, as JSON text; `None` if it has no valid one, has several, could not be
/// parsed, or is a response, whose refusal has none (MCP 2025-11-25, sending messages to the server).
pub fn id_of_refused(body: &[u8], reason: Reason) -> Option<&str> {
    if reason == Reason::ParseError {
        return None;
    }
    let mut cursor = Cursor::new(body).ok()?;
    let mut count = 0;
    let mut found = None;
    let mut is_response = false;
    let read = cursor.object_with_keys(|cursor, key| {
        let value = cursor.value()?;
        match &*key.unescape() {
            "id" => {
                count += 1;
                found = id(value);
            }
            "result" | "error" => is_response = true,
            _ => {}
        }
        Ok(())
    });
    read.ok()?;
    found.filter(|_| count == 1 && !is_response)
}

/// Scans the whole text; `None` for well-formed JSON that is not an envelope.
fn scan_text(body: &[u8], binding: Binding) -> Result<Option<Envelope>, Syntax> {
    let mut cursor = Cursor::new(body)?;
    let envelope = match cursor.peek() {
        Some(b'{') => message(&mut cursor, binding)?,
        Some(b'[') => batch(&mut cursor, binding)?,
        _ => {
            cursor.value()?;
            None
        }
    };
    cursor.end()?;
    // No plugin language could represent the number as sent.
    if cursor.beyond_double {
        return Err(Syntax);
    }
    Ok(envelope.filter(|_| !cursor.repeated_key))
}

fn batch(cursor: &mut Cursor<'_>, binding: Binding) -> Result<Option<Envelope>, Syntax> {
    let mut messages = Vec::new();
    let mut valid = true;
    cursor.array(|cursor| {
        let element = match cursor.peek() {
            Some(b'{') if messages.len() < MAX_BATCH => message(cursor, binding)?,
            _ => {
                cursor.value()?;
                None
            }
        };
        match element {
            // Batches exist in 2025-03-26 only; that revision has no messages of a later era.
            Some(element) if element.meta_version.is_none() => messages.push(element),
            _ => valid = false,
        }
        Ok(())
    })?;
    if !valid || messages.is_empty() {
        return Ok(None);
    }
    let kind = EnvelopeKind::Batch(messages.len());
    Ok(Some(Envelope { kind, batch: messages, ..Envelope::default() }))
}

/// Members of one message, as far as they have been read.
#[derive(Default)]
struct Draft<'a> {
    version: bool,
    method: Option<Cow<'a, str>>,
    id: Option<&'a str>,
    name: Option<Cow<'a, str>>,
    uri: Option<Cow<'a, str>>,
    ids: A2aIds<'a>,
    meta_version: Option<Cow<'a, str>>,
    result: bool,
    error: bool,
    /// Whether the parameters are neither an object, an array nor null.
    unstructured: bool,
    /// Whether another member has a type or size that no message has.
    invalid: bool,
}

/// Ids in the parameters of a request of A2A.
#[derive(Default)]
struct A2aIds<'a> {
    task: Option<Cow<'a, str>>,
    message_task: Option<Cow<'a, str>>,
    /// The task's, unless `taskId` is present.
    id: Option<Cow<'a, str>>,
    context: Option<Cow<'a, str>>,
    message_context: Option<Cow<'a, str>>,
}

impl<'a> A2aIds<'a> {
    fn first(self) -> Option<Cow<'a, str>> {
        let A2aIds { task, message_task, id, context, message_context } = self;
        task.or(message_task).or(id).or(context).or(message_context)
    }
}

fn message(cursor: &mut Cursor<'_>, binding: Binding) -> Result<Option<Envelope>, Syntax> {
    let mut draft = Draft::default();
    cursor.object(|cursor, key| {
        match key {
            "params" => params(cursor, &mut draft)?,
            "jsonrpc" => {
                draft.version = matches!(cursor.value()?, Value::String(text) if text.unescape() == "2.0");
            }
            "method" => match cursor.value()? {
                Value::String(text) => draft.method = Some(text.unescape()),
                _ => draft.invalid = true,
            },
            "id" => match id(cursor.value()?) {
                Some(text) => draft.id = Some(text),
                None => draft.invalid = true,
            },
            "result" => {
                cursor.value()?;
                draft.result = true;
            }
            "error" => {
                draft.invalid |= cursor.value()? != Value::Object;
                draft.error = true;
            }
            _ => {
                cursor.value()?;
            }
        }
        Ok(())
    })?;
    Ok(draft.finish(binding))
}

fn params<'a>(cursor: &mut Cursor<'a>, draft: &mut Draft<'a>) -> Result<(), Syntax> {
    if cursor.peek() != Some(b'{') {
        // An array is a valid envelope, but no method accepts such parameters; null stands for absent.
        draft.unstructured = !matches!(cursor.value()?, Value::Array | Value::Null);
        return Ok(());
    }
    cursor.object(|cursor, key| {
        match key {
            "_meta" if cursor.peek() == Some(b'{') => meta(cursor, draft)?,
            "name" => draft.name = string(cursor)?,
            "uri" => draft.uri = string(cursor)?,
            "taskId" => draft.ids.task = a2a_id(cursor)?,
            "id" => draft.ids.id = a2a_id(cursor)?,
            "contextId" => draft.ids.context = a2a_id(cursor)?,
            "message" if cursor.peek() == Some(b'{') => message_of_a2a(cursor, &mut draft.ids)?,
            _ => {
                cursor.value()?;
            }
        }
        Ok(())
    })
}

/// Reads the ids in `params.message` of a request of A2A. MCP has no rule about the keys of such a member.
fn message_of_a2a<'a>(cursor: &mut Cursor<'a>, ids: &mut A2aIds<'a>) -> Result<(), Syntax> {
    cursor.object_with_keys(|cursor, key| {
        match &*key.unescape() {
            "taskId" => ids.message_task = a2a_id(cursor)?,
            "contextId" => ids.message_context = a2a_id(cursor)?,
            _ => {
                cursor.value()?;
            }
        }
        Ok(())
    })
}

fn a2a_id<'a>(cursor: &mut Cursor<'a>) -> Result<Option<Cow<'a, str>>, Syntax> {
    Ok(string(cursor)?.filter(|id| (1..=MAX_ID_BYTES).contains(&id.len())))
}

fn meta<'a>(cursor: &mut Cursor<'a>, draft: &mut Draft<'a>) -> Result<(), Syntax> {
    cursor.object(|cursor, key| {
        match key {
            META_VERSION => draft.meta_version = string(cursor)?,
            _ => {
                cursor.value()?;
            }
        }
        Ok(())
    })
}

fn string<'a>(cursor: &mut Cursor<'a>) -> Result<Option<Cow<'a, str>>, Syntax> {
    Ok(match cursor.value()? {
        Value::String(text) => Some(text.unescape()),
        _ => None,
    })
}

/// Returns the text of a string or of an integer (MCP `RequestId`), which clients that know one kind of number write with a
/// fraction of zero; anything else would not survive a round trip.
fn id(value: Value<'_>) -> Option<&str> {
    let text = match value {
        Value::String(text) => text.literal,
        Value::Number(number) if asp_json::is_integer(number) => number,
        _ => return None,
    };
    (text.len() <= MAX_ID_BYTES).then_some(text)
}

// === impl Draft ===

impl Draft<'_> {
    /// Returns the envelope; `None` if the members do not form a message (JSON-RPC 2.0 sections 4 and 5).
    fn finish(self, binding: Binding) -> Option<Envelope> {
        let is_unstructured = self.unstructured && binding != Binding::A2a;
        if self.invalid || is_unstructured || !self.version {
            return None;
        }
        let kind = match (&self.method, self.result, self.error, self.id) {
            (Some(method), false, false, _) if method.len() > MAX_METHOD_BYTES => return None,
            (Some(_), false, false, Some(_)) => EnvelopeKind::Request,
            (Some(_), false, false, None) => EnvelopeKind::Notification,
            (None, true, false, Some(_)) | (None, false, true, Some(_)) => EnvelopeKind::Response,
            _ => return None,
        };
        let method = self.method.unwrap_or_default().into_owned();
        let name = match method.as_str() {
            "tools/call" | "prompts/get" => self.name,
            "resources/read" => self.uri,
            _ => None,
        };
        Some(Envelope {
            kind,
            method,
            id: self.id.map(str::to_owned),
            name: name.map(Cow::into_owned),
            task: self.ids.first().map(Cow::into_owned),
            meta_version: self.meta_version.map(Cow::into_owned),
            batch: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests;
