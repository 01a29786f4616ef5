//! The call resource: the state of a call at a service that hosts calls (docs/http-calls.md; model: SEP-1597).
//!
//! Owns: reading it from bytes, within bounds. Refuses: an unknown status, a status of waiting without its question,
//! and every part above its bound. Keeps true: data that only returns to the service (`serverData`) is kept as it was
//! written, and so are numbers of progress. Uses nothing else of this crate, so that it can be fuzzed alone.

use asp_json::{Json, unmarked};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Maximum length of an etag or id in bytes.
const MAX_NAME: usize = 256;
/// Maximum size of `serverData` in bytes.
const MAX_SERVER_DATA: usize = 64 << 10;
/// Maximum size of a form and of a model's input in bytes, as JSON text; the same as for plugins.
const MAX_FORM: usize = 64 << 10;
const MAX_SAMPLING: usize = 512 << 10;

/// Status of a call. The last three are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    Submitted,
    Running,
    AwaitingElicitationResult,
    AwaitingSamplingResult,
    Success,
    Failed,
    Canceled,
}

/// One validated state of a call.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallResource {
    pub id: Option<String>,
    pub etag: Option<String>,
    pub status: Status,
    pub progress: Option<Progress>,
    /// Parameters of an MCP request; present exactly if the status awaits its result.
    #[serde(skip)]
    pub asked: Option<Map<String, Value>>,
    elicitation_request: Option<Box<RawValue>>,
    sampling_request: Option<Box<RawValue>>,
    pub server_data: Option<Box<RawValue>>,
    /// An MCP result; present if the status is `success`.
    pub result: Option<Json>,
    pub error: Option<ServiceError>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Progress {
    /// A number, as `total` is.
    pub progress: Json,
    #[serde(default)]
    pub total: Option<Json>,
    #[serde(default, deserialize_with = "optional_text")]
    pub message: Option<String>,
}

impl Progress {
    fn is_of_numbers(&self) -> bool {
        self.progress.is_number() && self.total.as_ref().is_none_or(|total| total.is_number())
    }
}

/// The service's own error, in a call or as the body of a refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServiceError {
    #[serde(deserialize_with = "text_or_null")]
    pub code: String,
    #[serde(deserialize_with = "text_or_null")]
    pub message: String,
}

/// Reads a text; null, which some services write for an absent one, is empty.
fn text_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    optional_text(deserializer).map(Option::unwrap_or_default)
}

/// Reads a text that may contain half a surrogate pair (RFC 8259 section 8.2), which a `String` of serde_json
/// rejects.
fn optional_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let Some(text) = Option::<Json>::deserialize(deserializer)? else { return Ok(None) };
    text.as_str().map(|text| Some(text.to_owned())).ok_or_else(|| D::Error::custom("no text"))
}

/// Reason why the bytes are not a call resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    #[error("it is not a JSON object with a known status")]
    Shape,
    #[error("`{0}` is too large")]
    TooLarge(&'static str),
    #[error("`{0}` is missing")]
    Missing(&'static str),
}

/// Reads a call resource. The caller has bounded the bytes; the depth is bounded by `serde_json` (128).
pub fn parse(bytes: &[u8]) -> Result<CallResource, Misfit> {
    let mut written: CallResource = serde_json::from_slice(unmarked(bytes)).map_err(|_| Misfit::Shape)?;
    let elicitation = written.elicitation_request.take();
    let sampling = written.sampling_request.take();
    written.asked = match written.status {
        Status::AwaitingElicitationResult => Some(request("elicitationRequest", elicitation, MAX_FORM)?),
        Status::AwaitingSamplingResult => Some(request("samplingRequest", sampling, MAX_SAMPLING)?),
        _ => None,
    };
    if written.progress.as_ref().is_some_and(|progress| !progress.is_of_numbers()) {
        return Err(Misfit::Shape);
    }
    if written.result.as_ref().is_some_and(|result| !result.is_object()) {
        return Err(Misfit::Shape);
    }
    if written.status == Status::Success && written.result.is_none() {
        return Err(Misfit::Missing("result"));
    }
    for (name, text) in [("id", &written.id), ("etag", &written.etag)] {
        if text.as_ref().is_some_and(|text| text.len() > MAX_NAME) {
            return Err(Misfit::TooLarge(name));
        }
    }
    if written.server_data.as_ref().is_some_and(|data| data.get().len() > MAX_SERVER_DATA) {
        return Err(Misfit::TooLarge("serverData"));
    }
    Ok(written)
}

/// Reads the error of a refusal's body, `{"error": {"code", "message"}}`; `None` for any other body.
pub fn parse_error(bytes: &[u8]) -> Option<ServiceError> {
    #[derive(Deserialize)]
    struct RefusalBody {
        error: ServiceError,
    }
    serde_json::from_slice::<RefusalBody>(unmarked(bytes)).ok().map(|body| body.error)
}

/// Reads the parameters of a question, written as the whole MCP request or alone; null members are absent.
fn request(
    name: &'static str,
    written: Option<Box<RawValue>>,
    most: usize,
) -> Result<Map<String, Value>, Misfit> {
    let written = written.ok_or(Misfit::Missing(name))?;
    let raw = written.get();
    if raw.len() > most {
        return Err(Misfit::TooLarge(name));
    }
    let Ok(Value::Object(mut request)) = asp_json::decode(raw) else { return Err(Misfit::Shape) };
    request.retain(|_, value| !value.is_null());
    match request.remove("params") {
        Some(Value::Object(mut params)) => {
            params.retain(|_, value| !value.is_null());
            Ok(params)
        }
        Some(_) => Err(Misfit::Shape),
        None => Ok(request),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: &Value) -> Result<CallResource, Misfit> {
        parse(value.to_string().as_bytes())
    }

    #[test]
    fn half_a_surrogate_pair_loses_no_state() {
        let of = |members: &str| parse(format!(r#"{{"status":{members}}}"#).as_bytes()).unwrap();
        let failed = of(r#""failed","error":{"code":"X","message":"cut \ud83d"}"#);
        assert_eq!(failed.error.unwrap().message, "cut \u{fffd}");
        let running = of(r#""running","progress":{"progress":1,"message":"cut \ud83d"}"#);
        assert_eq!(running.progress.unwrap().message.as_deref(), Some("cut \u{fffd}"));
        let asks = of(r#""awaitingElicitationResult","elicitationRequest":{"message":"cut \ud83d"}"#);
        assert_eq!(asks.asked.unwrap()["message"], "cut \u{fffd}");
    }

    #[test]
    fn null_members_are_absent() {
        let failed =
            read(&json!({"id": null, "etag": null, "status": "failed", "progress": null, "result": null,
            "serverData": null, "error": {"code": null, "message": null}}))
            .unwrap();
        assert_eq!((failed.id, failed.error), (None, Some(ServiceError::default())));
        assert_eq!(parse_error(br#"{"error":{"code":"X","message":null}}"#).unwrap().code, "X");
        let form = json!({"mode": null, "message": "?", "requestedSchema": null});
        for request in [form.clone(), json!({"params": form}), json!({"message": "?", "params": null})] {
            let asks = json!({"status": "awaitingElicitationResult", "elicitationRequest": request});
            assert_eq!(Value::Object(read(&asks).unwrap().asked.unwrap()), json!({"message": "?"}), "{asks}");
        }
    }

    #[test]
    fn every_status_is_read_and_unknown_members_are_skipped() {
        let words = ["submitted", "running", "success", "failed", "canceled"];
        for word in words {
            let read =
                read(&json!({"toolname": "t", "id": "1", "etag": "e", "expiration": "2026", "request": {},
                                    "status": word, "result": {}, "later": [1]}));
            assert_eq!(read.unwrap().id.as_deref(), Some("1"), "{word}");
        }
        for bad in [json!({"status": "done"}), json!({}), json!([]), json!({"status": 7})] {
            assert_eq!(read(&bad).unwrap_err(), Misfit::Shape, "{bad}");
        }
        assert_eq!(parse(br#"{"status":"running","status":"failed"}"#).unwrap_err(), Misfit::Shape);
        assert_eq!(parse(&[b'['; 4096]).unwrap_err(), Misfit::Shape);
        let deep =
            format!(r#"{{"status":"success","result":{{"a":{}1{}}}}}"#, "[".repeat(200), "]".repeat(200));
        assert_eq!(parse(deep.as_bytes()).unwrap_err(), Misfit::Shape);
    }

    #[test]
    fn a_question_is_read_from_the_whole_request_or_from_its_parameters() {
        let params = json!({"message": "?", "requestedSchema": {}});
        let whole = json!({"method": "elicitation/create", "params": params});
        for request in [&params, &whole] {
            let call = read(&json!({"status": "awaitingElicitationResult", "elicitationRequest": request}));
            assert_eq!(Value::Object(call.unwrap().asked.unwrap()), params);
        }
        let none = json!({"status": "awaitingSamplingResult", "elicitationRequest": params});
        assert_eq!(read(&none).unwrap_err(), Misfit::Missing("samplingRequest"));
        let odd = json!({"status": "awaitingSamplingResult", "samplingRequest": {"params": 1}});
        assert_eq!(read(&odd).unwrap_err(), Misfit::Shape);
        assert_eq!(read(&json!({"status": "success"})).unwrap_err(), Misfit::Missing("result"));
    }

    #[test]
    fn what_travels_back_is_kept_as_it_was_written() {
        let text = br#"{"status":"running","serverData":{"b": 1.0, "a":  "x"}}"#;
        let data = parse(text).unwrap().server_data.unwrap();
        assert_eq!(data.get(), r#"{"b": 1.0, "a":  "x"}"#);
    }

    #[test]
    fn numbers_of_progress_are_kept_as_they_were_written() {
        let text = br#"{"status":"running","progress":{"progress":9007199254740993,"total":1.50}}"#;
        let progress = parse(text).unwrap().progress.unwrap();
        assert_eq!(progress.progress.text(), "9007199254740993");
        assert_eq!(progress.total.unwrap().text(), "1.50");
        for bad in [json!({"progress": "1"}), json!({"progress": 1, "total": "2"}), json!({"total": 2})] {
            assert_eq!(
                read(&json!({"status": "running", "progress": bad})).unwrap_err(),
                Misfit::Shape,
                "{bad}"
            );
        }
        let without = read(&json!({"status": "running", "progress": {"progress": 1, "total": null}}));
        assert_eq!(without.unwrap().progress.unwrap().total, None);
    }

    #[test]
    fn every_part_has_its_bound() {
        let long = |length: usize| "x".repeat(length);
        let rows = [
            (json!({"status": "running", "etag": long(MAX_NAME + 1)}), "etag"),
            (json!({"status": "running", "id": long(MAX_NAME + 1)}), "id"),
            (json!({"status": "running", "serverData": long(MAX_SERVER_DATA)}), "serverData"),
            (
                json!({"status": "awaitingElicitationResult", "elicitationRequest": {"message": long(MAX_FORM)}}),
                "elicitationRequest",
            ),
            (
                json!({"status": "awaitingSamplingResult", "samplingRequest": {"x": long(MAX_SAMPLING)}}),
                "samplingRequest",
            ),
        ];
        for (value, name) in rows {
            assert_eq!(read(&value).unwrap_err(), Misfit::TooLarge(name));
        }
    }

    #[test]
    fn a_refusals_body_is_read_when_it_is_one() {
        let error =
            parse_error(br#"{"error": {"code": "NO_SUCH", "message": "no such thing", "stack": "x"}}"#);
        assert_eq!(error.unwrap().message, "no such thing");
        assert!(parse_error("\u{feff}{\"error\": {}}".as_bytes()).is_some(), "a byte order mark is nothing");
        assert!(parse("\u{feff}{\"status\": \"running\"}".as_bytes()).is_ok());
        assert_eq!(parse_error(br#"{"error": {}}"#).unwrap(), ServiceError::default());
        assert_eq!(parse_error(br#"{"error": "plain"}"#), None);
        assert_eq!(parse_error(b"<html>"), None);
    }
}
