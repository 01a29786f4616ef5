use asp_json::Json;
use asp_platform::secret::Secret;
use prost::Message as _;

use super::{v03, v10};
use crate::card;
use crate::error::{A2aError, A2aFailure};
use crate::model::{
    Artifact, Base64, Message, Operation, Part, PartContent, PushAuthentication, PushConfig, PushPage,
    Request, Role, SendConfiguration, SendRequest, SendResult, StreamEvent, Task, TaskArtifactUpdate,
    TaskPage, TaskQuery, TaskState, TaskStatus, TaskStatusUpdate, Timestamp,
};
use crate::version::Generation;

fn message(role: Role) -> Message {
    let file = |content| Part {
        media_type: Some("image/png".into()),
        filename: Some("a.png".into()),
        metadata: Some(Json::part(r#"{"k":null}"#)),
        ..Part::from(content)
    };
    Message {
        message_id: "m".into(),
        context_id: Some("c".into()),
        task_id: Some("t".into()),
        role,
        parts: vec![
            Part::from(PartContent::Text("ä".into())),
            file(PartContent::Raw(Base64::of(b"\x00\xff"))),
            file(PartContent::Url("https://a/".into())),
            Part::from(PartContent::Data(Json::part(r#"{"a":null,"b":[1,2.5]}"#))),
            Part::from(PartContent::Data(Json::part("[null]"))),
        ],
        metadata: Some(Json::part(r#"{"x":1}"#)),
        extensions: vec!["urn:x".into()],
        reference_task_ids: Vec::new(),
    }
}

fn events() -> Vec<StreamEvent> {
    let status = |state| TaskStatus {
        state,
        message: Some(message(Role::Agent)),
        timestamp: Some(Timestamp(1_700_000_000_123)),
    };
    let artifact = Artifact {
        artifact_id: "a".into(),
        name: Some("n".into()),
        parts: message(Role::Agent).parts,
        ..Artifact::default()
    };
    let mut events = vec![StreamEvent::Message(message(Role::Agent))];
    for state in TaskState::ALL {
        events.push(StreamEvent::Task(Task {
            id: "t".into(),
            context_id: "c".into(),
            status: status(state),
            artifacts: vec![artifact.clone()],
            history: vec![message(Role::User)],
            metadata: None,
        }));
        events.push(StreamEvent::Status(TaskStatusUpdate {
            task_id: "t".into(),
            context_id: "c".into(),
            status: status(state),
            is_final: state.is_terminal(),
            metadata: Some(Json::part("{}")),
        }));
    }
    events.push(StreamEvent::Artifact(TaskArtifactUpdate {
        task_id: "t".into(),
        context_id: "c".into(),
        artifact,
        append: true,
        last_chunk: true,
        metadata: None,
    }));
    events
}

#[test]
fn events_survive_both_versions() {
    for event in events() {
        let bytes = v10::encode_event(&event).unwrap().encode_to_vec();
        let read = super::generated::lf::a2a::v1::StreamResponse::decode(bytes.as_slice()).unwrap();
        assert_eq!(v10::decode_event(read), Ok(event.clone()));
        let bytes = v03::encode_event(&event).unwrap().encode_to_vec();
        let read = super::generated::a2a::v1::StreamResponse::decode(bytes.as_slice()).unwrap();
        assert_eq!(v03::decode_event(read), Ok(event));
    }
}

fn push() -> PushConfig {
    PushConfig {
        id: Some("p".into()),
        task_id: "t".into(),
        url: "https://a/".into(),
        token: Some(Secret::from("tok")),
        authentication: Some(PushAuthentication {
            schemes: vec!["Bearer".into()],
            credentials: Some(Secret::from("c")),
        }),
    }
}

#[test]
fn answers_survive_both_versions() {
    let result = SendResult::Message(message(Role::Agent));
    assert_eq!(v10::decode_sent(v10::encode_sent(&result).unwrap()), Ok(result.clone()));
    assert_eq!(v03::decode_sent(v03::encode_sent(&result).unwrap()), Ok(result));
    let page = PushPage { configs: vec![push()], next_page_token: String::new() };
    assert_eq!(v10::decode_pushes(v10::encode_pushes(&page)), page);
    assert_eq!(v03::decode_pushes(v03::encode_pushes(&page)), page);
    let tasks = TaskPage {
        tasks: vec![Task { id: "t".into(), status: TaskStatus::default(), ..Task::default() }],
        next_page_token: "n".into(),
        page_size: 1,
        total_size: 2,
    };
    assert_eq!(v10::decode_tasks(v10::encode_tasks(&tasks).unwrap()), tasks);
    let lacking = v10::decode_sent(Default::default()).unwrap_err();
    assert_eq!(lacking.error, A2aError::InvalidAgentResponse);
}

fn send() -> SendRequest {
    let configuration = SendConfiguration {
        accepted_output_modes: vec!["text/plain".into()],
        push: Some(PushConfig { task_id: String::new(), ..push() }),
        history_length: Some(3),
        return_immediately: true,
    };
    SendRequest {
        message: message(Role::User),
        configuration,
        metadata: Some(Json::part(r#"{"skill":"x"}"#)),
    }
}

fn request(generation: Generation, operation: Operation) -> Result<Request, A2aFailure> {
    Ok(Request { generation, tenant: None, operation })
}

#[test]
fn requests_of_1_0_survive() {
    use v10::request as wire;
    let of = |operation| request(Generation::V10, operation);
    assert_eq!(wire::decode_send(wire::encode_send(&send()).unwrap(), false), of(Operation::Send(send())));
    assert_eq!(wire::decode_send(wire::encode_send(&send()).unwrap(), true), of(Operation::Stream(send())));
    for history_length in [None, Some(0), Some(9)] {
        let get = Operation::GetTask { id: "t".into(), history_length };
        assert_eq!(wire::decode_get_task(wire::encode_get_task("t", history_length)), of(get));
    }
    let query = TaskQuery {
        context_id: Some("c".into()),
        status: Some(TaskState::Failed),
        page_size: Some(7),
        page_token: Some("p".into()),
        history_length: Some(0),
        status_timestamp_after: Some(Timestamp(5)),
        include_artifacts: true,
    };
    for query in [query, TaskQuery::default()] {
        assert_eq!(wire::decode_list_tasks(wire::encode_list_tasks(&query)), of(Operation::ListTasks(query)));
    }
    let cancel = wire::encode_cancel_task("t", Some(&Json::part("{}"))).unwrap();
    let metadata = Some(Json::part("{}"));
    assert_eq!(wire::decode_cancel_task(cancel), of(Operation::CancelTask { id: "t".into(), metadata }));
    assert_eq!(
        wire::decode_subscribe(wire::encode_subscribe("t")),
        of(Operation::Subscribe { id: "t".into() })
    );
    assert_eq!(wire::decode_create_push(v10::encode_push(&push())), of(Operation::CreatePush(push())));
    let (task_id, id) = ("t".to_owned(), "p".to_owned());
    let get = Operation::GetPush { task_id: task_id.clone(), id: Some(id.clone()) };
    assert_eq!(wire::decode_get_push(wire::encode_get_push("t", "p")), of(get));
    let list =
        Operation::ListPush { task_id: task_id.clone(), page_size: None, page_token: Some("n".into()) };
    assert_eq!(wire::decode_list_push(wire::encode_list_push("t", Some("n"))), of(list));
    assert_eq!(
        wire::decode_delete_push(wire::encode_delete_push("t", "p")),
        of(Operation::DeletePush { task_id, id })
    );
}

#[test]
fn requests_of_0_3_survive() {
    use v03::request as wire;
    let of = |operation| request(Generation::V03, operation);
    assert_eq!(wire::decode_send(wire::encode_send(&send()).unwrap(), false), of(Operation::Send(send())));
    let get = Operation::GetTask { id: "t".into(), history_length: None };
    assert_eq!(wire::decode_get_task(&wire::encode_get_task("t", None)), of(get));
    let cancel = Operation::CancelTask { id: "t".into(), metadata: None };
    assert_eq!(wire::decode_cancel_task(&wire::encode_cancel_task("t")), of(cancel));
    assert_eq!(
        wire::decode_subscribe(&wire::encode_subscribe("t")),
        of(Operation::Subscribe { id: "t".into() })
    );
    assert_eq!(
        wire::decode_create_push(wire::encode_create_push(&push())),
        of(Operation::CreatePush(push()))
    );
    let (task_id, id) = ("t".to_owned(), "p".to_owned());
    let get = Operation::GetPush { task_id: task_id.clone(), id: Some(id.clone()) };
    assert_eq!(wire::decode_get_push(&wire::encode_get_push("t", "p")), of(get));
    let list = Operation::ListPush { task_id: task_id.clone(), page_size: None, page_token: None };
    assert_eq!(wire::decode_list_push(&wire::encode_list_push("t")), of(list));
    assert_eq!(
        wire::decode_delete_push(&wire::encode_delete_push("t", "p")),
        of(Operation::DeletePush { task_id, id })
    );
}

#[test]
fn a_client_that_calls_itself_the_agent_is_the_user() {
    let sent = SendRequest { message: message(Role::Agent), ..send() };
    let v10 = v10::request::decode_send(v10::request::encode_send(&sent).unwrap(), false);
    assert_eq!(v10, request(Generation::V10, Operation::Send(send())));
    let v03 = v03::request::decode_send(v03::request::encode_send(&sent).unwrap(), true);
    assert_eq!(v03, request(Generation::V03, Operation::Stream(send())));
}

#[test]
fn invalid_requests_are_refused_with_their_fields() {
    let fields = |failure: A2aFailure| -> Vec<String> {
        failure.violations.into_iter().map(|found| found.field).collect()
    };
    let empty = v10::request::decode_send(Default::default(), false).unwrap_err();
    assert_eq!(fields(empty), ["message.message_id", "message.role", "message.parts"]);
    let mut broken = v10::request::encode_send(&send()).unwrap();
    if let Some(message) = &mut broken.message {
        message.parts.push(Default::default());
    }
    if let Some(configuration) = &mut broken.configuration {
        configuration.history_length = Some(-1);
    }
    assert_eq!(
        fields(v10::request::decode_send(broken, true).unwrap_err()),
        ["configuration.history_length", "message.parts"]
    );
    let mut other = v10::request::encode_send(&send()).unwrap();
    let config = other.configuration.as_mut().and_then(|found| found.task_push_notification_config.as_mut());
    config.unwrap().tenant = "other".into();
    let refused = v10::request::decode_send(other, false).unwrap_err();
    assert_eq!(fields(refused), ["configuration.push.tenant"]);
    let mut config = v10::encode_push(&push());
    config.token = "a\r\nb".into();
    assert_eq!(fields(v10::request::decode_create_push(config).unwrap_err()), ["config.token"]);
    let mut list = v10::request::encode_list_tasks(&TaskQuery::default());
    list.page_size = Some(101);
    assert_eq!(fields(v10::request::decode_list_tasks(list).unwrap_err()), ["page_size"]);
    for unknown in [-1, 9, 99] {
        let mut list = v10::request::encode_list_tasks(&TaskQuery::default());
        list.status = unknown;
        assert_eq!(fields(v10::request::decode_list_tasks(list).unwrap_err()), ["status"], "{unknown}");
    }
    assert_eq!(fields(v10::request::decode_get_task(Default::default()).unwrap_err()), ["id"]);
    let mut get = v03::request::encode_get_task("t", None);
    get.name = "t".into();
    assert_eq!(fields(v03::request::decode_get_task(&get).unwrap_err()), ["name"]);
}

#[test]
fn data_that_is_no_json_is_refused() {
    let infinite = || prost_types::Struct {
        fields: [("a".to_owned(), prost_types::Value::from(f64::INFINITY))].into_iter().collect(),
    };
    let mut sent = v10::request::encode_send(&send()).unwrap();
    let kind = prost_types::value::Kind::StructValue(infinite());
    let data = super::generated::lf::a2a::v1::part::Content::Data(prost_types::Value { kind: Some(kind) });
    sent.message.as_mut().unwrap().parts[0].content = Some(data);
    let refused = v10::request::decode_send(sent, false).unwrap_err();
    assert_eq!(refused.violations[0].field, "message.parts");
    let mut sent = v03::request::encode_send(&send()).unwrap();
    let data = super::generated::a2a::v1::DataPart { data: Some(infinite()) };
    let data = super::generated::a2a::v1::part::Part::Data(data);
    sent.request.as_mut().unwrap().content[0].part = Some(data);
    let refused = v03::request::decode_send(sent, false).unwrap_err();
    assert_eq!(refused.violations[0].field, "message.content");
}

#[test]
fn a_card_is_the_same_over_grpc() {
    let text = include_str!("../card/sign/card.json");
    let card = Json::parse(text.trim().as_bytes()).unwrap();
    let v10 = super::card::encode_v10(&card).unwrap();
    assert_eq!((v10.name.as_str(), v10.supported_interfaces.len()), ("Größe ☃ 😀", 3));
    let back = super::card::decode_v10(&v10).unwrap();
    let payload = include_str!("../card/sign/payload.txt");
    assert_eq!(card::canonical(&back).as_deref(), Ok(payload));
    let v03 = super::card::encode_v03(&card).unwrap();
    assert_eq!(
        (v03.url.as_str(), v03.preferred_transport.as_str()),
        ("https://agents.example.org/demo/a2a", "JSONRPC")
    );
    let scopes = v03
        .security
        .first()
        .and_then(|security| security.schemes.get("bearer"))
        .map(|list| list.list.clone());
    assert_eq!(scopes, Some(vec!["demo:call".to_owned()]));
    assert!(super::card::decode_v03(&v03).is_ok());
}
