//! Conversion of a service's end of a call, or of its refusal to begin one, into the call's.
//!
//! Keeps true: a service's text reaches the caller only as one clean line of bounded length, and only if it is about
//! the call itself; a status alone reveals nothing about the service's internals (I-11).

use asp_call::call::Call;
use asp_call::call::content::{is_content_block, own_meta};
use asp_call::call::outcome::{Output, Refusal, text_block};
use asp_json::{Json, Members};
use asp_outbound::service_text::sanitize;
use asp_proto::plugin::Failed;
use asp_snapshot::schema::Schema;
use serde_json::Value;

use super::resource::{CallResource, ServiceError, Status, parse_error};
use super::service::ServiceResponse;
use crate::outbound::refused::by_status;
use crate::outbound::upstream::unanswered;

/// Returns the outcome of a call whose status is final.
pub(super) fn ended(call: &Call, resource: CallResource, expired: bool) -> Result<Output, Refusal> {
    match resource.status {
        Status::Success => {
            let result = resource.result.unwrap_or_else(|| Value::Null.into());
            completed(&result, call.entry.output.as_ref())
        }
        // A failure after an expired question has that reason, as for a plugin.
        Status::Failed if expired => Err(Refusal::InputExpired),
        Status::Failed => failed(call, resource.error.unwrap_or_default()),
        Status::Canceled if call.is_cancelled() => Err(Refusal::Cancelled),
        _ => Err(unanswered(call, "the service cancelled the call")),
    }
}

/// Converts an MCP tool result (`CallToolResult`).
fn completed(result: &Json, schema: Option<&Schema>) -> Result<Output, Refusal> {
    let member = |name: &str| result.member(name).filter(|value| !value.is_null());
    let is_error = member("isError").map_or(Some(false), |word| word.as_bool());
    let may_be_null =
        || is_error == Some(false) && schema.is_some_and(|schema| schema.check(&Value::Null).is_ok());
    let structured = result.member("structuredContent").filter(|value| !value.is_null() || may_be_null());
    let content = match (member("content"), &structured) {
        (Some(blocks), _) if is_content(&blocks) => blocks.elements(),
        // A caller that does not read structured content gets it as text (MCP tools, structured content).
        (None, Some(value)) => Some(vec![text_block(value.text()).into()]),
        _ => None,
    };
    let (Some(content), Some(is_error)) = (content, is_error) else {
        let message = "the result is not an MCP tool result".to_owned();
        return Err(Refusal::InvalidOutput { pointer: String::new(), message });
    };
    let meta = own_meta(member("_meta").as_ref());
    Ok(Output::Tool { content, structured, is_error, meta, more: Members::default() })
}

fn is_content(blocks: &Json) -> bool {
    blocks.as_array().is_some_and(|blocks| blocks.iter().all(is_content_block))
}

/// Converts a failure, which has the codes of a plugin's.
fn failed(call: &Call, error: ServiceError) -> Result<Output, Refusal> {
    asp_call::call::content::failed(
        call,
        &Failed { code: error.code, message: sanitize(&error.message), ..Failed::default() },
    )
}

/// Returns the refusal of a call that the service did not begin.
pub(super) fn refused<T>(call: &Call, answer: &ServiceResponse) -> Result<T, Refusal> {
    let said = parse_error(&answer.body).map(|error| sanitize(&error.message)).unwrap_or_default();
    Err(by_status(answer.status, answer.retry_after, said).of(call))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result(value: Value) -> Result<Output, Refusal> {
        completed(&value.into(), None)
    }

    #[test]
    fn a_result_is_taken_only_when_it_is_one_of_mcp() {
        let blocks = json!([{"type": "text", "text": "a"}]);
        let output = result(json!({"content": blocks, "structuredContent": {"n": 1}, "_meta": {"x": 1}}));
        assert_eq!(
            output.unwrap(),
            Output::Tool {
                content: vec![blocks[0].clone().into()],
                structured: Some(json!({"n": 1}).into()),
                is_error: false,
                meta: Members::from_iter([("x", Json::from(json!(1)))]),
                more: Members::default(),
            }
        );
        for alone in [
            json!({"structuredContent": {"n": 1}}),
            json!({"structuredContent": {"n": 1}, "content": null, "isError": null}),
        ] {
            let Ok(Output::Tool { content, is_error: false, .. }) = result(alone) else { panic!() };
            assert_eq!(content[0]["text"], r#"{"n":1}"#);
        }
        let schema = Schema::compile(r#"{"type":["object","null"]}"#).unwrap();
        let null: Json = json!({"content": [], "structuredContent": null}).into();
        for (schema, expected) in [(Some(&schema), Some(Json::from(Value::Null))), (None, None)] {
            let Ok(Output::Tool { structured, .. }) = completed(&null, schema) else { panic!() };
            assert_eq!(structured, expected);
        }
        let Ok(Output::Tool { structured, is_error, .. }) =
            result(json!({"content": blocks, "structuredContent": {"line": 7}, "isError": true}))
        else {
            panic!()
        };
        assert_eq!((structured, is_error), (Some(json!({"line": 7}).into()), true));
        for bad in [
            json!({}),
            json!({"content": "a"}),
            json!({"content": [1]}),
            json!({"content": [{"type": "text"}]}),
            json!({"content": [], "isError": "true"}),
        ] {
            assert!(matches!(result(bad.clone()), Err(Refusal::InvalidOutput { .. })), "{bad}");
        }
    }
}
