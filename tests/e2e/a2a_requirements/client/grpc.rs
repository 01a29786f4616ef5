//! Requests of A2A 1.0 over gRPC, by hand: frames over HTTP/2, and messages by the definition's descriptors, so that the
//! platform's codec does not check itself.

mod proto_json;

use std::net::SocketAddr;
use std::sync::LazyLock;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::http1::Response;
use asp_e2e::http2;
use asp_proto::A2A_DESCRIPTORS;
use asp_proto::a2a::google::rpc::{BadRequest, ErrorInfo, Status};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use prost_types::Any;
use serde_json::{Value, json};

use super::Reply;

pub(super) const MEDIA_TYPE: &str = "application/grpc";
const SERVICE: &str = "lf.a2a.v1.A2AService";
/// Length of a frame's flag and length, in bytes.
const PREFIX: usize = 5;
/// Codes by number.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(A2A_DESCRIPTORS).expect("the definition of A2A"));

/// Sends the parameters of a method, and reads the answer.
pub(super) async fn send(
    edge: SocketAddr,
    method: &str,
    params: &Value,
    headers: &[(String, String)],
) -> Result<Reply> {
    let service = POOL.get_service_by_name(SERVICE).context("the service")?;
    let method = service.methods().find(|known| known.name() == method).context("a method of the service")?;
    let message = proto_json::read(method.input(), params)?.encode_to_vec();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len())?.to_be_bytes());
    body.extend(message);
    let mut request = http::Request::post(format!("http://{edge}/{SERVICE}/{}", method.name()));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let response = http2::send(edge, request.header("te", "trailers").body(body)?, &[]).await?;
    ensure!(response.status == 200, "HTTP status {}", response.status);
    ensure!(response.header("content-type") == Some(MEDIA_TYPE), "{:?}", response.headers);
    let code: usize = response.header("grpc-status").context("no grpc-status")?.parse()?;
    let mut messages = Vec::new();
    for frame in frames(&response.body)? {
        messages.push(proto_json::write(&DynamicMessage::decode(method.output(), frame)?)?);
    }
    let mut reply = Reply { response, result: Value::Null, error: None, events: Vec::new() };
    if code != 0 {
        reply.error = Some(error(code, &reply.response)?);
    } else if method.is_server_streaming() {
        reply.events = messages;
    } else {
        let count = messages.len();
        let only = messages.pop().filter(|_| count == 1);
        reply.result = only.with_context(|| format!("{count} messages"))?;
    }
    // What a failed check prints.
    reply.response.body = json!([reply.result, reply.events]).to_string().into_bytes();
    Ok(reply)
}

/// Returns the number of a code.
pub(super) fn code(name: &str) -> Result<usize> {
    CODES.iter().position(|known| *known == name).with_context(|| format!("no code is called {name}"))
}

/// Splits a body into its messages.
fn frames(mut body: &[u8]) -> Result<Vec<&[u8]>> {
    let mut frames = Vec::new();
    while !body.is_empty() {
        let (prefix, rest) = body.split_first_chunk::<PREFIX>().context("half a frame")?;
        let [flag, length @ ..] = *prefix;
        ensure!(flag == 0, "a compressed frame");
        let length = usize::try_from(u32::from_be_bytes(length))?;
        let (frame, rest) = rest.split_at_checked(length).context("half a message")?;
        frames.push(frame);
        body = rest;
    }
    Ok(frames)
}

/// Returns the status of a response in the form of REST's error object.
fn error(code: usize, response: &Response) -> Result<Value> {
    let details = response.header("grpc-status-details-bin").context("no grpc-status-details-bin")?;
    let status = Status::decode(STANDARD_NO_PAD.decode(details)?.as_slice())?;
    ensure!(usize::try_from(status.code)? == code, "two codes: {} and {code}", status.code);
    let name = CODES.get(code).with_context(|| format!("code {code}"))?;
    let details = status.details.iter().map(detail).collect::<Result<Vec<Value>>>()?;
    Ok(json!({"code": code, "status": name, "message": status.message, "details": details}))
}

fn detail(detail: &Any) -> Result<Value> {
    let bytes = detail.value.as_slice();
    match detail.type_url.strip_prefix("type.googleapis.com/") {
        Some("google.rpc.ErrorInfo") => {
            let ErrorInfo { reason, domain, metadata } = ErrorInfo::decode(bytes)?;
            Ok(json!({"@type": detail.type_url, "reason": reason, "domain": domain, "metadata": metadata}))
        }
        Some("google.rpc.BadRequest") => {
            let violations = BadRequest::decode(bytes)?.field_violations;
            let named =
                violations.iter().map(|one| json!({"field": one.field, "description": one.description}));
            Ok(json!({"@type": detail.type_url, "fieldViolations": named.collect::<Vec<Value>>()}))
        }
        _ => bail!("a detail of the type {:?}", detail.type_url),
    }
}
