//! Calls of gRPC through a tap to a server that answers each with one message.

use std::convert::Infallible;
use std::net::SocketAddr;

use http::{HeaderName, HeaderValue};
use http_body_util::{BodyExt, StreamBody};
use tokio::net::TcpListener;

use super::super::{Tap, Verdict};
use super::*;
use crate::http1;

/// The request for task 7.
const GET_TASK: &[u8] = b"\x12\x017";
/// The task with its status, which is completed.
const TASK: &[u8] = b"\x0a\x017\x1a\x02\x08\x03";
const TASK_WITHOUT_STATUS: &[u8] = b"\x0a\x017";

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [[0].as_slice(), &length.to_be_bytes(), message].concat()
}

async fn serve(message: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(move |request: Request<Incoming>| async move {
                // A call is answered once it has been sent.
                let _ = request.into_body().collect().await;
                let trailers =
                    HeaderMap::from_iter([(HeaderName::from_static(STATUS), HeaderValue::from_static("0"))]);
                let data = Frame::data(Bytes::from(framed(message)));
                let frames = [data, Frame::trailers(trailers)].map(Ok::<_, Infallible>);
                let body = StreamBody::new(futures::stream::iter(frames));
                Response::builder().header(CONTENT_TYPE, "application/grpc").body(body)
            });
            let builder = server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

/// Calls for a task through a tap; returns the answer and the verdict of the record.
async fn call(answer: &'static [u8]) -> (http1::Response, Verdict) {
    let record = Arc::new(Record::new().unwrap());
    let tap = Tap::start(serve(answer).await, Link::EDGE, record.clone()).await.unwrap();
    let request = Request::post(format!("http://{}/lf.a2a.v1.A2AService/GetTask", tap.address))
        .header(CONTENT_TYPE, "application/grpc")
        .header("te", "trailers")
        .body(framed(GET_TASK))
        .unwrap();
    let response = crate::http2::send(tap.address, request, &[]).await.unwrap();
    (response, record.verdict(false))
}

#[tokio::test]
async fn a_call_passes_whole_and_its_messages_are_in_the_record() {
    let (response, verdict) = call(TASK).await;
    assert_eq!((response.status, response.header(STATUS)), (200, Some("0")));
    assert_eq!(response.body, framed(TASK));
    let is_seen = verdict.report.contains("results of A2A 1.0 over gRPC: GetTask 1");
    assert!(verdict.holds && is_seen, "{}", verdict.report);
}

#[tokio::test]
async fn a_message_that_does_not_fit_passes_and_is_a_fault() {
    let (response, verdict) = call(TASK_WITHOUT_STATUS).await;
    assert_eq!(response.body, framed(TASK_WITHOUT_STATUS));
    let is_named = verdict.report.contains("lf.a2a.v1.Task.status is REQUIRED");
    assert!(!verdict.holds && is_named, "{}", verdict.report);
}

#[test]
fn messages_are_cut_out_once_they_are_whole() {
    let mut messages = Messages::default();
    let mut found = Vec::new();
    for byte in [framed(b"a"), framed(b""), framed(b"bc")].concat() {
        messages.0.extend_from_slice(&[byte]);
        while let Ok(Some(message)) = messages.next() {
            found.push(message);
        }
    }
    assert_eq!(found, ["a", "", "bc"]);
    messages.0.extend_from_slice(b"\x01\0\0\0\0");
    assert!(messages.next().is_err(), "compressed");
}
