//! Translation of an MCP server's messages to PPP.

use asp_json::{Json, Members, named};
use asp_proto::plugin::log_line::Level;
use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::plugin::{Completed, Failed, Json as JsonText, LogLine, Progress, ResourceChanged};
use serde_json::{Value, json};

use super::INVALID_PARAMS;
use super::wire::{string, string_member};

/// Returns a text as PPP represents it.
pub(super) fn json(text: &str) -> JsonText {
    JsonText { value: text.as_bytes().to_vec() }
}

/// Translates a result, keeping the server's text. A result that is not one of MCP becomes a tool error that says what
/// is wrong with it.
pub(super) fn translate_result(request_id: &str, result: &Json) -> Out {
    let members = named(result.text(), ["structuredContent", "content", "isError", "_meta"]);
    let [output, content, is_error, meta] =
        members.unwrap_or_default().map(|member| member.filter(|text| *text != "null"));
    let fault = match (content, is_error) {
        (_, Some(word)) if word != "true" && word != "false" => "isError is neither true nor false",
        (Some(content), _) if !content.starts_with('[') => "content is not an array of content blocks",
        (None, _) if output.is_none() => "content is missing",
        _ => {
            return Out::Completed(Completed {
                request_id: request_id.to_owned(),
                output: output.map(json),
                content: content.map(json),
                is_error: is_error == Some("true"),
                meta: meta.map(json),
                ..Completed::default()
            });
        }
    };
    malformed_result(request_id, fault, content.and_then(string))
}

/// Builds a tool error with the fault, and with the text that the server sent in place of content.
fn malformed_result(request_id: &str, fault: &str, text: Option<String>) -> Out {
    let fault = format!("the server's answer is malformed: {fault}");
    let texts = [Some(fault), text].into_iter().flatten();
    let content: Vec<Value> = texts.map(|text| json!({"type": "text", "text": text})).collect();
    Out::Completed(Completed {
        request_id: request_id.to_owned(),
        content: Some(json(&Value::from(content).to_string())),
        is_error: true,
        ..Completed::default()
    })
}

pub(super) fn failed(request_id: &str, code: &str, message: &str) -> Out {
    Out::Failed(Failed {
        request_id: request_id.to_owned(),
        code: code.to_owned(),
        message: message.to_owned(),
        ..Failed::default()
    })
}

/// Translates an error, keeping the server's text; code and data are in the details.
pub(super) fn translate_error(request_id: &str, (code, message): (i64, &str), data: Option<Json>) -> Out {
    let word = if code == INVALID_PARAMS { "INVALID_ARGUMENT" } else { "INTERNAL" };
    let mut details = Members::from_iter([("code", Json::from(Value::from(code)))]);
    if let Some(data) = data {
        details.insert("data", data);
    }
    Out::Failed(Failed {
        request_id: request_id.to_owned(),
        code: word.to_owned(),
        message: message.to_owned(),
        details: Some(json(details.to_json().text())),
        ..Failed::default()
    })
}

/// Translates a notification, if it has a meaning in PPP. `only` is the id of the only running call, or empty.
pub(super) fn translate_notification(method: &str, params: &Json, only: String) -> Option<Out> {
    let text = |name: &str| string_member(params.text(), name).unwrap_or_default();
    match method {
        "notifications/progress" => progress(params),
        "notifications/message" => {
            let data = params.member("data");
            let message = data.map(|data| string(data.text()).unwrap_or_else(|| data.text().to_owned()));
            Some(log(only, &text("level"), message.unwrap_or_default()))
        }
        // Outside a call, there is no client to notify.
        "notifications/resources/updated" if !only.is_empty() => {
            Some(Out::ResourceChanged(ResourceChanged { request_id: only, uri: text("uri") }))
        }
        "notifications/tools/list_changed"
        | "notifications/resources/list_changed"
        | "notifications/prompts/list_changed" => {
            let message =
                format!("{method}: ignored, because specs and their pins define what this server offers");
            Some(log(String::new(), "warning", message))
        }
        _ => None,
    }
}

fn progress(params: &Json) -> Option<Out> {
    let [amount, total, token, message] =
        named(params.text(), ["progress", "total", "progressToken", "message"])?;
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
    let text = |member: Option<&str>| member.and_then(string).unwrap_or_default();
    let amount = number(amount?)?;
    let total = total.and_then(number);
    let percent = match total {
        Some(total) if total > 0.0 => amount / total * 100.0,
        _ => amount,
    };
    Some(Out::Progress(Progress {
        request_id: text(token),
        percent: percent.clamp(0.0, 100.0),
        message: text(message),
        amount: Some(amount),
        total,
        ..Progress::default()
    }))
}

/// Builds a log line of a call, or of the worker if `request_id` is empty.
fn log(request_id: String, severity: &str, message: String) -> Out {
    let (level, severity) = match severity {
        "debug" => (Level::Debug, severity),
        "warning" => (Level::Warn, severity),
        "notice" => (Level::Info, severity),
        "error" | "critical" | "alert" | "emergency" => (Level::Error, severity),
        _ => (Level::Info, "info"),
    };
    let severity = severity.to_owned();
    Out::Log(LogLine { request_id, level: level.into(), message, severity, ..LogLine::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_code_and_its_data() {
        let data = Json::part(r#"{"n":1.50,"s":"\ud83d"}"#);
        for (code, word) in [(INVALID_PARAMS, "INVALID_ARGUMENT"), (-32601, "INTERNAL"), (1001, "INTERNAL")] {
            let Out::Failed(failed) = translate_error("r", (code, "no"), Some(data.clone())) else {
                panic!("{code}")
            };
            let details = String::from_utf8(failed.details.unwrap().value).unwrap();
            assert_eq!((failed.code.as_str(), failed.message.as_str()), (word, "no"));
            assert_eq!(details, format!(r#"{{"code":{code},"data":{data}}}"#));
        }
    }

    #[test]
    fn a_result_that_is_none_of_mcp_is_an_error_and_no_empty_success() {
        let of = |result: &str| match translate_result("r", &Json::parse(result.as_bytes()).unwrap()) {
            Out::Completed(completed) => completed,
            other => panic!("{other:?}"),
        };
        for (result, said) in [
            (r#"{}"#, &["content is missing"][..]),
            (r#"{"content":null}"#, &["content is missing"]),
            (r#"{"content":"just text"}"#, &["content is not an array", "just text"]),
            (r#"{"content":[],"isError":"true"}"#, &["isError is neither"]),
            (r#"{"content":[],"isError":1}"#, &["isError is neither"]),
        ] {
            let completed = of(result);
            let content: Value = serde_json::from_slice(&completed.content.unwrap().value).unwrap();
            assert!(completed.is_error && content.as_array().unwrap().len() == said.len(), "{result}");
            for (block, said) in content.as_array().unwrap().iter().zip(said) {
                assert!(block["text"].as_str().unwrap().contains(said), "{result}: {block}");
            }
        }
        for (result, is_error) in [
            (r#"{"content":[],"isError":null}"#, false),
            (r#"{"structuredContent":{"a":1},"isError":false}"#, false),
            (r#"{"content":[],"structuredContent":{"a":1},"isError":true}"#, true),
        ] {
            assert_eq!(of(result).is_error, is_error, "{result}");
        }
    }

    #[test]
    fn a_log_keeps_its_level_and_is_the_only_calls() {
        for (level, expected, kept) in [
            ("emergency", Level::Error, "emergency"),
            ("notice", Level::Info, "notice"),
            ("loud", Level::Info, "info"),
        ] {
            let params = json!({"level": level, "data": {"a": 1}}).into();
            let Some(Out::Log(line)) = translate_notification("notifications/message", &params, "r".into())
            else {
                panic!("no log")
            };
            assert_eq!((line.level(), line.severity.as_str()), (expected, kept));
            assert_eq!((line.message.as_str(), line.request_id.as_str()), (r#"{"a":1}"#, "r"));
        }
    }

    #[test]
    fn an_update_is_told_within_a_call_and_a_changed_list_to_the_log() {
        let told = |method: &str, only: &str| {
            translate_notification(method, &json!({"uri": "a:1"}).into(), only.to_owned())
        };
        assert!(told("notifications/resources/updated", "").is_none());
        assert!(matches!(
            told("notifications/resources/updated", "r"),
            Some(Out::ResourceChanged(changed)) if changed.uri == "a:1" && changed.request_id == "r"
        ));
        assert!(matches!(
            told("notifications/tools/list_changed", "r"),
            Some(Out::Log(line)) if line.request_id.is_empty() && line.message.contains("list_changed")
        ));
        assert!(told("notifications/unknown", "r").is_none());
    }
}
