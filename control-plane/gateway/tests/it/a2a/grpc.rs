//! The gRPC binding, through the clients of both definitions: the same tasks as over the other bindings, and refusals as statuses.

use std::collections::BTreeMap;

use asp_a2a::grpc::generated::{a2a::v1 as v03, lf::a2a::v1 as v10};
use asp_a2a::grpc::{decode_status, write_frame};
use asp_a2a::{A2aError, A2aFailure};
use asp_proto::snapshot::GatewaySnapshot;
use asp_registry::{Inputs, assemble};
use axum::Router;
use axum::body::Body;
use http::Method;
use prost::Message as _;
use prost_types::{Struct, Value};
use serde_json::json;
use tonic::{Code, Request, Status, Streaming};

use super::{Client, completed, message_id, speaking};
use crate::support::{Fixture, token};

pub(super) type ClientV10 = v10::a2a_service_client::A2aServiceClient<Router>;
pub(super) type ClientV03 = v03::a2a_service_client::A2aServiceClient<Router>;

/// Any host selects `demo`.
pub(super) const HOST: &str = "mcp.example.com";

fn fixture() -> Fixture {
    Fixture::of(snapshot())
}

fn snapshot() -> GatewaySnapshot {
    assemble(Inputs { default_agent: "demo".into(), ..speaking() })
}

pub(super) fn client(fixture: &Fixture, host: &str) -> ClientV10 {
    let router = asp_gateway::http::router(fixture.gateway.clone());
    ClientV10::with_origin(router, format!("https://{host}").parse().unwrap())
}

pub(super) fn client_v03(fixture: &Fixture) -> ClientV03 {
    let router = asp_gateway::http::router(fixture.gateway.clone());
    ClientV03::with_origin(router, format!("https://{HOST}").parse().unwrap())
}

pub(super) fn by<M>(user: &str, message: M) -> Request<M> {
    let mut request = Request::new(message);
    let bearer = format!("Bearer {}", token(user));
    request.metadata_mut().insert("authorization", bearer.parse().unwrap());
    request
}

fn naming(skill: &str) -> Option<Struct> {
    Some(Struct { fields: BTreeMap::from([("skill".to_owned(), Value::from(skill))]) })
}

/// A message with a text; one that is JSON holds the arguments.
pub(super) fn message(skill: &str, text: &str) -> v10::SendMessageRequest {
    let content = Some(v10::part::Content::Text(text.into()));
    let message = v10::Message {
        message_id: message_id(),
        role: v10::Role::User.into(),
        parts: vec![v10::Part { content, ..v10::Part::default() }],
        metadata: naming(skill),
        ..v10::Message::default()
    };
    v10::SendMessageRequest { message: Some(message), ..Default::default() }
}

pub(super) fn message_v03(skill: &str, text: &str) -> v03::SendMessageRequest {
    let part = Some(v03::part::Part::Text(text.into()));
    let message = v03::Message {
        message_id: message_id(),
        role: v03::Role::User.into(),
        content: vec![v03::Part { part, metadata: None }],
        metadata: naming(skill),
        ..v03::Message::default()
    };
    let configuration = v03::SendMessageConfiguration { blocking: true, ..Default::default() };
    v03::SendMessageRequest { request: Some(message), configuration: Some(configuration), metadata: None }
}

/// A message whose task is not waited for.
fn at_once(skill: &str, text: &str) -> v10::SendMessageRequest {
    let configuration = v10::SendMessageConfiguration { return_immediately: true, ..Default::default() };
    v10::SendMessageRequest { configuration: Some(configuration), ..message(skill, text) }
}

pub(super) async fn sent(client: &mut ClientV10, message: v10::SendMessageRequest) -> v10::Task {
    let answer = client.send_message(by("alice", message)).await.unwrap().into_inner();
    match answer.payload {
        Some(v10::send_message_response::Payload::Task(task)) => task,
        other => panic!("{other:?}"),
    }
}

fn state(task: &v10::Task) -> v10::TaskState {
    task.status.as_ref().unwrap().state()
}

fn get(id: &str) -> v10::GetTaskRequest {
    v10::GetTaskRequest { id: id.into(), ..Default::default() }
}

fn failure(status: &Status) -> A2aFailure {
    decode_status(status.code().into(), status.message(), status.details())
}

/// The failure of a refusal, which always names its trace.
pub(super) fn refused<A: std::fmt::Debug>(answer: Result<A, Status>) -> (Code, A2aFailure) {
    let status = answer.unwrap_err();
    let failure = failure(&status);
    assert!(failure.metadata.iter().any(|(name, _)| name == "traceId"), "{status:?}");
    (status.code(), failure)
}

async fn events(mut stream: Streaming<v10::StreamResponse>) -> Vec<v10::stream_response::Payload> {
    let mut events = Vec::new();
    while let Some(event) = stream.message().await.unwrap() {
        events.push(event.payload.unwrap());
    }
    events
}

#[tokio::test]
async fn a_task_is_sent_read_and_listed_as_over_the_other_bindings() {
    let fixture = fixture();
    let mut client = client(&fixture, HOST);
    let task = sent(&mut client, message("echo", "hi")).await;
    assert_eq!((state(&task), task.artifacts[0].artifact_id.as_str()), (v10::TaskState::Completed, "result"));
    let mut versioned = by("alice", get(&task.id));
    versioned.metadata_mut().insert("a2a-version", "1.0".parse().unwrap());
    let got = client.get_task(versioned).await.unwrap().into_inner();
    assert_eq!((&got.id, &got.artifacts), (&task.id, &task.artifacts));
    let list = v10::ListTasksRequest { page_size: Some(5), ..Default::default() };
    let page = client.list_tasks(by("alice", list)).await.unwrap().into_inner();
    assert_eq!((page.tasks.len(), page.total_size, page.page_size), (1, 1, 5));
    assert_eq!(page.tasks[0].id, task.id);

    let over_jsonrpc = Client::of(&fixture, "demo").result("GetTask", json!({"id": task.id})).await;
    completed(&over_jsonrpc, &json!({"message": "hi"}));

    let mut old = client_v03(&fixture);
    let request = v03::GetTaskRequest { name: format!("tasks/{}", task.id), ..Default::default() };
    let got = old.get_task(by("alice", request)).await.unwrap().into_inner();
    assert_eq!((&got.id, got.status.unwrap().state()), (&task.id, v03::TaskState::Completed));
    let answer = old.send_message(by("alice", message_v03("echo", "hi"))).await.unwrap().into_inner();
    let Some(v03::send_message_response::Payload::Task(task)) = answer.payload else { panic!("no task") };
    assert_eq!(task.status.unwrap().state(), v03::TaskState::Completed);
}

#[tokio::test]
async fn active_extensions_are_in_the_metadata_of_the_response_as_of_the_request() {
    let cost = "https://proto-labs.ai/a2a/ext/cost-v1";
    let fixture = fixture();
    let mut request = by("alice", message("echo", "hi"));
    request.metadata_mut().insert("a2a-extensions", format!("urn:unknown,{cost}").parse().unwrap());
    let answer = client(&fixture, HOST).send_message(request).await.unwrap();
    assert_eq!(answer.metadata().get("a2a-extensions").unwrap(), cost);
    let mut request = by("alice", at_once("echo", "hi"));
    request.metadata_mut().insert("a2a-extensions", cost.parse().unwrap());
    let stream = client(&fixture, HOST).send_streaming_message(request).await.unwrap();
    assert_eq!(stream.metadata().get("a2a-extensions").unwrap(), cost);
    let mut request = by("alice", message_v03("echo", "hi"));
    request.metadata_mut().insert("x-a2a-extensions", cost.parse().unwrap());
    let answer = client_v03(&fixture).send_message(request).await.unwrap();
    assert_eq!(answer.metadata().get("x-a2a-extensions").unwrap(), cost);
}

#[tokio::test]
async fn a_task_is_cancelled_once_and_an_ended_one_is_not() {
    let fixture = fixture();
    let mut client = client(&fixture, HOST);
    let task = sent(&mut client, at_once("count", r#"{"to": 100, "delayMs": 500}"#)).await;
    let cancel = |id: &str| by("alice", v10::CancelTaskRequest { id: id.into(), ..Default::default() });
    for _ in 0..2 {
        let cancelled = client.cancel_task(cancel(&task.id)).await.unwrap().into_inner();
        assert_eq!(state(&cancelled), v10::TaskState::Canceled);
    }
    let ended = sent(&mut client, message("echo", "hi")).await;
    let (code, failure) = refused(client.cancel_task(cancel(&ended.id)).await);
    assert_eq!((code, failure.error), (Code::FailedPrecondition, A2aError::TaskNotCancelable));
}

#[tokio::test]
async fn a_stream_has_the_events_of_a_task_and_a_status_at_its_end() {
    use v10::stream_response::Payload;
    let fixture = fixture();
    let mut client = client(&fixture, HOST);
    let request = by("alice", message("count", r#"{"to": 3, "delayMs": 10}"#));
    let events_of_send = events(client.send_streaming_message(request).await.unwrap().into_inner()).await;
    let [
        Payload::Task(first),
        ..,
        Payload::ArtifactUpdate(result),
        Payload::StatusUpdate(status),
        Payload::Task(last),
    ] = events_of_send.as_slice()
    else {
        panic!("{events_of_send:?}")
    };
    assert_eq!((state(first), state(last)), (v10::TaskState::Submitted, v10::TaskState::Completed));
    assert_eq!(status.status.as_ref().unwrap().state(), v10::TaskState::Completed);
    assert_eq!(result.artifact.as_ref(), last.artifacts.first());

    let task = sent(&mut client, at_once("count", r#"{"to": 5, "delayMs": 100}"#)).await;
    let subscribe =
        |id: &str| by("alice", v10::SubscribeToTaskRequest { id: id.into(), ..Default::default() });
    // Dropped at once: the task does not end.
    drop(client.subscribe_to_task(subscribe(&task.id)).await.unwrap());
    let followed = events(client.subscribe_to_task(subscribe(&task.id)).await.unwrap().into_inner()).await;
    let (Some(Payload::Task(first)), Some(Payload::Task(last))) = (followed.first(), followed.last()) else {
        panic!("{followed:?}")
    };
    assert_eq!((&first.id, state(last)), (&task.id, v10::TaskState::Completed));
    let (code, failure) = refused(client.subscribe_to_task(subscribe(&task.id)).await);
    assert_eq!((code, failure.error), (Code::FailedPrecondition, A2aError::UnsupportedOperation));

    let mut old = client_v03(&fixture);
    let request = by("alice", message_v03("count", r#"{"to": 1, "delayMs": 0}"#));
    let mut stream = old.send_streaming_message(request).await.unwrap().into_inner();
    let mut last = None;
    while let Some(event) = stream.message().await.unwrap() {
        last = event.payload;
    }
    let Some(v03::stream_response::Payload::StatusUpdate(last)) = last else { panic!("{last:?}") };
    assert!(last.r#final);
}

#[tokio::test]
async fn the_host_selects_the_server_or_else_the_default_agent_does() {
    let mut inputs = Inputs { default_agent: "demo".into(), ..speaking() };
    let listed = |server: &str, hosts: &[&str], inputs: &mut Inputs| {
        let found = inputs.servers.iter_mut().find(|known| known.server.name == server).unwrap();
        found.edge.hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
    };
    listed("policy", &["policy.example.com"], &mut inputs);
    let both = Fixture::of(assemble(inputs));
    let task = sent(&mut client(&both, "demo.example.com"), message("echo", "hi")).await;
    assert_eq!(state(&task), v10::TaskState::Completed);
    let mut policy = client(&both, "policy.example.com:443");
    let task = sent(&mut policy, message("policy.open", "{}")).await;
    assert_eq!(state(&task), v10::TaskState::Completed);
    let (code, failure) = refused(policy.send_message(by("alice", message("echo", "hi"))).await);
    assert_eq!(
        (code, failure.violations[0].field.as_str()),
        (Code::InvalidArgument, "message.metadata.skill")
    );

    let none = Fixture::of(assemble(speaking()));
    let unknown = client(&none, HOST).get_task(by("alice", get("t"))).await.unwrap_err();
    assert_eq!((unknown.code(), unknown.message()), (Code::Unimplemented, "no such server"));
}

#[tokio::test]
async fn refusals_are_statuses_with_the_reasons_of_the_other_bindings() {
    let fixture = fixture();
    let mut client = client(&fixture, HOST);
    let missing = client.get_task(Request::new(get("t"))).await.unwrap_err();
    assert_eq!(missing.code(), Code::Unauthenticated);
    assert!(missing.metadata().contains_key("www-authenticate"), "{missing:?}");

    let task = sent(&mut client, message("echo", "hi")).await;
    let (code, hidden) = refused(client.get_task(by("bob", get(&task.id))).await);
    assert_eq!((code, hidden.error), (Code::NotFound, A2aError::TaskNotFound));
    let tenant = v10::GetTaskRequest { tenant: "acme".into(), ..get(&task.id) };
    let (code, tenant) = refused(client.get_task(by("alice", tenant)).await);
    assert_eq!((code, tenant.violations[0].field.as_str()), (Code::InvalidArgument, "tenant"));
    let push = v10::TaskPushNotificationConfig {
        task_id: task.id.clone(),
        url: "https://a/b".into(),
        ..Default::default()
    };
    let (code, push) = refused(client.create_task_push_notification_config(by("alice", push)).await);
    assert_eq!((code, push.error), (Code::FailedPrecondition, A2aError::PushNotificationNotSupported));
    let mut other = by("alice", get(&task.id));
    other.metadata_mut().insert("a2a-version", "0.3".parse().unwrap());
    let (code, other) = refused(client.get_task(other).await);
    assert_eq!((code, other.error), (Code::FailedPrecondition, A2aError::VersionNotSupported));

    let large = client.send_message(by("alice", message("echo", &"x".repeat(2 << 20)))).await.unwrap_err();
    assert_eq!(large.code(), Code::ResourceExhausted);
    let fixture = Fixture::remembering(snapshot(), 16 << 20);
    let mut client = self::client(&fixture, HOST);
    let mut many = message("echo", "hi");
    many.message.as_mut().unwrap().parts = vec![v10::Part::default(); 400_000];
    let (code, many) = refused(client.send_message(by("alice", many)).await);
    assert_eq!(code, Code::InvalidArgument);
    assert!(many.metadata.contains(&("reason".into(), "body_too_large".into())), "{many:?}");
}

#[tokio::test]
async fn limits_are_statuses_that_say_when_to_try_again() {
    let fixture = Fixture::of(assemble(Inputs { default_agent: "policy".into(), ..speaking() }));
    let mut client = client(&fixture, HOST);
    for _ in 0..2 {
        sent(&mut client, message("policy.few", "{}")).await;
    }
    let limited = client.send_message(by("alice", message("policy.few", "{}"))).await.unwrap_err();
    assert_eq!(failure(&limited).error, A2aError::RateLimited);
    assert_eq!(limited.code(), Code::ResourceExhausted);
    assert!(limited.metadata().contains_key("retry-after"), "{limited:?}");
    let (code, scoped) = refused(client.send_message(by("alice", message("policy.scoped", "{}"))).await);
    assert_eq!((code, scoped.error), (Code::PermissionDenied, A2aError::PermissionDenied));
}

#[tokio::test]
async fn what_is_no_message_of_a_method_is_refused_with_a_status() {
    let fixture = fixture();
    let bearer = format!("Bearer {}", token("alice"));
    let whole = write_frame(&get("t").encode_to_vec());
    let compressed = [&[1_u8][..], &whole[1..]].concat();
    let grpc = "application/grpc";
    for (method, media_type, body, code) in [
        ("GetTask", grpc, whole.clone(), 5),
        ("GetTask", "application/grpc+proto", whole.clone(), 5),
        ("GetTask", "application/grpc+json", whole.clone(), 3),
        ("Nothing", grpc, whole.clone(), 12),
        ("GetTask", grpc, compressed, 12),
        ("GetTask", grpc, Vec::new(), 3),
        ("GetTask", grpc, whole[..4].to_vec(), 3),
        ("GetTask", grpc, [whole.clone(), whole.clone()].concat(), 3),
        ("GetTask", grpc, write_frame(b"\xff"), 3),
    ] {
        let headers = [("authorization", bearer.as_str()), ("content-type", media_type), ("te", "trailers")];
        let path = format!("/lf.a2a.v1.A2AService/{method}");
        let answer = fixture.send_body(Method::POST, &path, &headers, Body::from(body)).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, ""), "{method} {media_type}");
        assert_eq!(answer.headers["grpc-status"], code.to_string().as_str(), "{method} {media_type}");
        assert_eq!(answer.headers["content-type"], grpc);
        assert!(answer.headers.contains_key("grpc-status-details-bin"), "{method} {media_type}");
    }
}
