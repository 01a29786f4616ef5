//! A refusal as a client reads it, whatever its form is.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use prost::Message;
use serde_json::Value;

use crate::a2a::{ErrorInfo, RpcStatus};

/// Reason of a refusal, and the code in its form; a problem document has none of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadRefusal {
    pub reason: Option<String>,
    /// Code of the JSON-RPC error.
    pub jsonrpc: Option<i64>,
    /// Name of the status in the error of A2A's REST binding.
    pub rest: Option<String>,
    /// Code of the error in that binding of 0.3.
    pub rest_v03: Option<i64>,
    /// gRPC status.
    pub grpc: Option<i64>,
}

impl ReadRefusal {
    pub fn read<'a>(header: impl Fn(&str) -> Option<&'a str>, body: &[u8]) -> ReadRefusal {
        if let Some(status) = header("grpc-status") {
            let reason = header("grpc-status-details-bin").and_then(reason_in_details);
            return ReadRefusal { reason, grpc: status.parse().ok(), ..ReadRefusal::default() };
        }
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
        let places = ["/error/data/0/reason", "/error/details/0/reason", "/data/0/reason"];
        let of_a2a = places.into_iter().find_map(text);
        let reason = text("/error/data/reason").or_else(|| text("/reason")).map(str::to_owned);
        let code = body.pointer("/error/code").and_then(Value::as_i64);
        ReadRefusal {
            reason: reason.or_else(|| of_a2a.map(str::to_ascii_lowercase)),
            jsonrpc: code.filter(|_| body.get("jsonrpc").is_some()),
            rest: text("/error/status").map(str::to_owned),
            // A problem document has a code as well, and no data.
            rest_v03: body.get("data").and_then(|_| body.get("code")).and_then(Value::as_i64),
            grpc: None,
        }
    }
}

/// Returns the reason in `grpc-status-details-bin`.
fn reason_in_details(details: &str) -> Option<String> {
    let status = RpcStatus::decode(STANDARD_NO_PAD.decode(details).ok()?.as_slice()).ok()?;
    let info = ErrorInfo::decode(status.details.first()?.value.as_slice()).ok()?;
    Some(info.reason.to_ascii_lowercase())
}
