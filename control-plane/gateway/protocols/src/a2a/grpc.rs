//! The gRPC binding: one message, and its answer or a stream of answers with a status at the end.
//!
//! Keeps true: every response has HTTP status 200 and the status of gRPC, in the headers of a refusal and else in the trailers.
//! A quiet stream sends nothing, since gRPC has no comments; keep-alives are the connection's.

use std::convert::Infallible;

use asp_a2a::grpc::service::{GrpcMethod, decode_request, encode_answer, encode_event};
use asp_a2a::grpc::{once_read, read_frame, status_fields, write_frame};
use asp_a2a::{A2aError, A2aFailure, Generation, Request as AgentRequest};
use asp_edge::Trace;
use axum::body::{Body, Bytes};
use axum::response::Response;
use futures::{Stream, StreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body::Frame;
use http_body_util::StreamBody;

use super::extensions::Negotiation;
use super::operations::{OperationResult, perform};
use super::refused::RefusedRequest;
use super::stream::{StreamItem, TaskStream};
use super::version::check_version;
use crate::{ProtocolRequest, whole};

const MEDIA_TYPE: &str = "application/grpc";

/// Answers one request.
pub(super) async fn serve(mut request: ProtocolRequest) -> Response {
    // A frame that cannot be read is not decoded.
    let message = read_frame(&request.body).map_or(0, once_read);
    let bytes = whole(message, &request.body);
    let answered = match request.hold_bytes(bytes) {
        Ok(()) => answer(&request).await,
        Err(fault) => Err(RefusedRequest::of_memory_fault(&fault)),
    };
    answered.unwrap_or_else(|refused| refuse(&request, refused))
}

async fn answer(request: &ProtocolRequest) -> Result<Response, RefusedRequest> {
    let method = GrpcMethod::at(request.uri.path()).ok_or(A2aError::MethodNotFound)?;
    let asked = read(request, method)?;
    let negotiation = Negotiation::of(request, method.generation);
    let mut response = match perform(request, asked, &negotiation).await? {
        OperationResult::Answer(answer) => {
            let message = encode_answer(method.generation, &answer)?;
            respond(stream::iter([data(&message), Frame::trailers(success())]))
        }
        OperationResult::Stream(events) => respond(frames(events, method.generation, request.admitted.trace)),
    };
    negotiation.echo(response.headers_mut());
    Ok(response)
}

/// Reads the message; the version header is checked after it.
fn read(request: &ProtocolRequest, method: GrpcMethod) -> Result<AgentRequest, A2aFailure> {
    let media_type = request.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if !matches!(media_type, Some(b"application/grpc" | b"application/grpc+proto")) {
        let message = "messages must be protocol buffers: application/grpc or application/grpc+proto";
        return Err(A2aFailure::new(A2aError::ContentTypeNotSupported, message));
    }
    let asked = decode_request(method, read_frame(&request.body)?)?;
    check_version(request, method.generation)?;
    Ok(asked)
}

/// Returns the frames of a stream and the status at its end.
fn frames(
    events: Box<TaskStream>,
    generation: Generation,
    trace: Trace,
) -> impl Stream<Item = Frame<Bytes>> + Send + 'static {
    stream::unfold(Some(events), move |open| async move {
        let mut events = open?;
        let status = loop {
            match events.next().await {
                Some(StreamItem::Quiet) => {}
                Some(StreamItem::Event(event)) => match encode_event(generation, &event) {
                    Ok(message) => return Some((data(&message), Some(events))),
                    Err(failure) => break status(&RefusedRequest::from(failure).traced(trace).failure),
                },
                None => break success(),
            }
        };
        Some((Frame::trailers(status), None))
    })
}

fn data(message: &[u8]) -> Frame<Bytes> {
    Frame::data(write_frame(message).into())
}

fn success() -> HeaderMap {
    let ok = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
    HeaderMap::from_iter([ok])
}

fn status(failure: &A2aFailure) -> HeaderMap {
    let fields = status_fields(failure).into_iter().filter_map(|(name, value)| {
        Some((HeaderName::from_static(name), HeaderValue::try_from(value).ok()?))
    });
    fields.collect()
}

fn respond(frames: impl Stream<Item = Frame<Bytes>> + Send + 'static) -> Response {
    let mut response = Response::new(Body::new(StreamBody::new(frames.map(Ok::<_, Infallible>))));
    describe(&mut response);
    response
}

/// Adds the headers that every response has.
fn describe(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
}

/// Returns the response of a refused request.
fn refuse(request: &ProtocolRequest, refused: RefusedRequest) -> Response {
    let refused = refused.traced(request.admitted.trace);
    let mut response = Response::new(Body::empty());
    *response.headers_mut() = status(&refused.failure);
    describe(&mut response);
    refused.complete(&mut response);
    response
}
