//! Results of workers and services, read with bounds: content blocks, JSON, and failures.

use asp_json::{Json, Members, first_line, held};
use asp_proto::plugin::{Failed, Json as Sent};
use serde_json::Value;

use crate::call::Call;
use crate::call::outcome::{Output, Refusal, after_handover};

/// Maximum length of a failure's text in bytes.
pub const MAX_FAILURE: usize = 2 * 1024;

/// Maximum size in memory of the data of one protocol error, in bytes.
const MAX_DATA: usize = 64 << 10;
/// `_meta` member with the plugin's own code of a failure.
pub(crate) const META_CODE: &str = "asp/code";

/// Returns the end of a call that failed.
pub fn failed(call: &Call, failed: &Failed) -> Result<Output, Refusal> {
    let message = readable(&failed.message);
    let pointer = || {
        let details = parse(failed.details.as_ref()).ok().flatten();
        let pointer = details.as_ref().and_then(|details| details.get("pointer")?.as_str()).map(readable);
        pointer.unwrap_or_default()
    };
    match failed.code.as_str() {
        "CANCELLED" if call.is_cancelled() => Err(Refusal::Cancelled),
        // The runtime stops a call that runs, or is silent, for too long.
        "CANCELLED" | "DEADLINE" => Err(after_handover(call, Refusal::Deadline)),
        "INVALID_ARGUMENT" => Err(Refusal::InvalidArguments { pointer: pointer(), message }),
        "INVALID_OUTPUT" => Err(Refusal::InvalidOutput { pointer: pointer(), message }),
        code => {
            let text = if message.is_empty() { "the tool failed" } else { message.as_str() };
            Ok(Output::tool_error(text).with_meta(META_CODE, readable(code)))
        }
    }
}

/// Returns the data of a protocol error without white space between its tokens; `None` if it is too large.
pub fn bounded(data: Option<Json>) -> Option<Json> {
    data.filter(|data| held::of_value(data.view()) <= MAX_DATA).map(|data| data.compact())
}

/// Reads JSON from a worker; `None` if there is none.
pub fn parse(json: Option<&Sent>) -> Result<Option<Json>, Refusal> {
    match json.map(|json| json.value.as_slice()) {
        None | Some([]) => Ok(None),
        Some(text) if held::is_too_much(text) => Err(misfit("the result holds too many JSON values")),
        Some(text) => Json::parse(text).map(Some).map_err(|_| misfit("the result is not JSON")),
    }
}

pub fn misfit(message: &str) -> Refusal {
    Refusal::InvalidOutput { pointer: String::new(), message: message.into() }
}

/// Returns the `_meta` of a result from outside, without members that only the platform sets.
pub fn own_meta(said: Option<&Json>) -> Members {
    let mut meta = said.map(Members::of).unwrap_or_default();
    meta.retain(|name| !name.starts_with("asp/"));
    meta
}

/// Whether `block` is of a type that tool results may contain since MCP 2025-06-18.
pub fn is_content_block(block: &Value) -> bool {
    let has = |name: &str| block.get(name).is_some_and(Value::is_string);
    match block.get("type").and_then(Value::as_str) {
        Some("text") => has("text"),
        Some("image" | "audio") => has("data") && has("mimeType"),
        Some("resource_link") => has("uri"),
        Some("resource") => block.get("resource").is_some_and(Value::is_object),
        _ => false,
    }
}

/// Returns one line of bounded length, without control characters.
pub fn readable(text: &str) -> String {
    let line = first_line(text);
    let mut kept: String = line.chars().filter(|c| !c.is_control()).collect();
    kept.truncate(kept.floor_char_boundary(MAX_FAILURE));
    kept
}
