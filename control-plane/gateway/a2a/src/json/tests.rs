use asp_json::Json;
use asp_json::kinds::KINDS;
use asp_platform::secret::Secret;

use super::answer::{read_answer, read_stream_event, write_answer, write_stream_event};
use super::request::{PathIds, read_operation, write_operation};
use super::*;
use crate::model::{
    A2aAnswer, Artifact, Base64, Message, Operation, OperationKind, Part, PartContent, PushAuthentication,
    PushConfig, PushPage, Role, SendConfiguration, SendRequest, SendResult, StreamEvent, Task,
    TaskArtifactUpdate, TaskPage, TaskQuery, TaskState, TaskStatus, TaskStatusUpdate, Timestamp,
};

mod refusals;

const DIALECTS: [Dialect; 3] = [Dialect::V10, Dialect::V03, Dialect::Proto03];

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap()
}

/// A message with a part of each kind, as all dialects can say it.
fn message() -> Message {
    let file = |content| Part {
        media_type: Some("image/png".into()),
        filename: Some("a.png".into()),
        metadata: Some(json(r#"{"k":1}"#)),
        ..Part::from(content)
    };
    Message {
        message_id: "m1".into(),
        context_id: Some("c1".into()),
        task_id: Some("t1".into()),
        role: Role::User,
        parts: vec![
            PartContent::Text("<b>é\u{2028}</b>".into()).into(),
            file(PartContent::Raw(Base64::of(b"\x00\xff"))),
            file(PartContent::Url("https://example.org/a.png".into())),
            PartContent::Data(json(r#"{"skill":"x","n":1e400}"#)).into(),
            PartContent::Data(json("[1,null]")).into(),
            Part { metadata: Some(json(r#"{"k":1}"#)), ..PartContent::Data(json("null")).into() },
        ],
        metadata: Some(json(r#"{"urn:x":{"a":1.50}}"#)),
        extensions: vec!["urn:x".into()],
        reference_task_ids: Vec::new(),
    }
}

#[test]
fn a_message_is_kept_with_its_texts() {
    let kept = message().to_json();
    assert_eq!(Message::of_json(&kept), Some(message()));
    assert!(kept.text().contains(r#"{"a":1.50}"#), "{}", kept.text());
    assert_eq!(Message::of_json(&json("7")), None);
}

fn artifact() -> Artifact {
    Artifact {
        artifact_id: "a1".into(),
        name: Some("report".into()),
        description: Some("the report".into()),
        parts: message().parts,
        metadata: Some(json("{}")),
        extensions: vec!["urn:y".into()],
    }
}

fn status(state: TaskState) -> TaskStatus {
    let message = Message { role: Role::Agent, ..message() };
    TaskStatus { state, message: Some(message), timestamp: Some(Timestamp(1_700_000_000_123)) }
}

fn task(state: TaskState) -> Task {
    Task {
        id: "t1".into(),
        context_id: "c1".into(),
        status: status(state),
        artifacts: vec![artifact()],
        history: vec![message()],
        metadata: Some(json(r#"{"generation":3}"#)),
    }
}

fn push(schemes: &[&str]) -> PushConfig {
    PushConfig {
        id: Some("p1".into()),
        task_id: "t1".into(),
        url: "https://example.org/hook".into(),
        token: Some(Secret::from("tok")),
        authentication: Some(PushAuthentication {
            schemes: schemes.iter().map(|scheme| (*scheme).to_owned()).collect(),
            credentials: Some(Secret::from("cred")),
        }),
    }
}

fn events() -> Vec<StreamEvent> {
    let states = TaskState::ALL.into_iter();
    let tasks = states.clone().map(|state| StreamEvent::Task(task(state)));
    let updates = states.map(|state| {
        StreamEvent::Status(TaskStatusUpdate {
            task_id: "t1".into(),
            context_id: "c1".into(),
            status: status(state),
            is_final: state.is_terminal(),
            metadata: Some(json(r#"{"k":null}"#)),
        })
    });
    let artifacts = [(false, false), (true, false), (true, true)].map(|(append, last_chunk)| {
        StreamEvent::Artifact(TaskArtifactUpdate {
            task_id: "t1".into(),
            context_id: "c1".into(),
            artifact: artifact(),
            append,
            last_chunk,
            metadata: None,
        })
    });
    tasks.chain(updates).chain(artifacts).chain([StreamEvent::Message(message())]).collect()
}

#[test]
fn events_survive_in_every_dialect() {
    for dialect in DIALECTS {
        for event in events() {
            let text = write_stream_event(&event, dialect);
            assert!(!text.contains('\n'), "one line: {text}");
            assert_eq!(read_stream_event(&text, dialect), Ok(event), "{dialect:?} {text}");
        }
    }
}

#[test]
fn answers_survive_in_every_dialect() {
    for dialect in DIALECTS {
        let schemes: &[&str] = if dialect == Dialect::V10 { &["Bearer"] } else { &["Bearer", "Basic"] };
        let pushes = PushPage { configs: vec![push(schemes), push(schemes)], next_page_token: String::new() };
        let tasks = TaskPage {
            tasks: vec![task(TaskState::Working)],
            next_page_token: "n".into(),
            page_size: 1,
            total_size: 9,
        };
        for (kind, answer) in [
            (OperationKind::Send, A2aAnswer::Sent(SendResult::Task(task(TaskState::Completed)))),
            (OperationKind::Send, A2aAnswer::Sent(SendResult::Message(message()))),
            (OperationKind::GetTask, A2aAnswer::Task(task(TaskState::Canceled))),
            (OperationKind::CancelTask, A2aAnswer::Task(task(TaskState::Canceled))),
            (OperationKind::ListTasks, A2aAnswer::Tasks(tasks)),
            (OperationKind::CreatePush, A2aAnswer::Push(push(schemes))),
            (OperationKind::GetPush, A2aAnswer::Push(push(schemes))),
            (OperationKind::ListPush, A2aAnswer::Pushes(pushes)),
            (OperationKind::ListPush, A2aAnswer::Pushes(PushPage::default())),
            (OperationKind::DeletePush, A2aAnswer::Deleted),
            (OperationKind::ExtendedCard, A2aAnswer::Card(json(r#"{"name":"A"}"#))),
        ] {
            let text = write_answer(&answer, dialect);
            assert_eq!(read_answer(kind, &text, dialect), Ok(answer), "{dialect:?} {text}");
        }
    }
}

fn operations(dialect: Dialect) -> Vec<Operation> {
    let schemes: &[&str] = if dialect == Dialect::V10 { &["Bearer"] } else { &["Bearer", "Basic"] };
    let configured = |return_immediately| SendConfiguration {
        accepted_output_modes: vec!["text/plain".into()],
        push: Some(PushConfig { task_id: String::new(), ..push(schemes) }),
        history_length: Some(3),
        return_immediately,
    };
    let send = |configuration| SendRequest {
        message: message(),
        configuration,
        metadata: Some(json(r#"{"skill":"x"}"#)),
    };
    let query = TaskQuery {
        context_id: Some("c".into()),
        status: Some(TaskState::Canceled),
        page_size: Some(100),
        page_token: Some("p".into()),
        history_length: Some(0),
        status_timestamp_after: Some(Timestamp(5)),
        include_artifacts: true,
    };
    let mut all = vec![
        Operation::Send(send(SendConfiguration::default())),
        Operation::Send(send(configured(true))),
        Operation::Stream(send(configured(false))),
        Operation::GetTask { id: "t1".into(), history_length: Some(7) },
        Operation::GetTask { id: "t1".into(), history_length: None },
        Operation::CancelTask { id: "t1".into(), metadata: Some(json("{}")) },
        Operation::Subscribe { id: "t1".into() },
        Operation::CreatePush(push(schemes)),
        Operation::GetPush { task_id: "t1".into(), id: Some("p1".into()) },
        Operation::ListPush { task_id: "t1".into(), page_size: Some(3), page_token: Some("p".into()) },
        Operation::DeletePush { task_id: "t1".into(), id: "p1".into() },
        Operation::ExtendedCard,
    ];
    if dialect == Dialect::V10 {
        all.push(Operation::ListTasks(query));
        all.push(Operation::ListTasks(TaskQuery::default()));
        all.push(Operation::GetTask { id: "t1".into(), history_length: Some(0) });
    }
    all
}

#[test]
fn requests_survive_in_every_dialect() {
    for dialect in DIALECTS {
        for operation in operations(dialect) {
            let text = writer::object(|writer| write_operation(writer, &operation, dialect, false));
            let read = read_value(&text, |object| {
                read_operation(operation.kind(), object, dialect, PathIds::default())
            });
            assert_eq!(read, Ok(operation), "{dialect:?} {text}");
        }
    }
}

#[test]
fn both_spellings_of_every_field_are_read() {
    for dialect in DIALECTS {
        for event in events() {
            let text = write_stream_event(&event, dialect);
            assert_eq!(read_stream_event(&in_snake_case(&text), dialect), Ok(event), "{dialect:?}");
        }
    }
}

/// Rewrites the names of these fields; the data used here has none of them.
fn in_snake_case(text: &str) -> String {
    let mut found = text.to_owned();
    for name in [
        "messageId",
        "contextId",
        "taskId",
        "artifactId",
        "mediaType",
        "mimeType",
        "fileWithUri",
        "fileWithBytes",
        "lastChunk",
        "statusUpdate",
        "artifactUpdate",
    ] {
        let snake: String = name
            .chars()
            .flat_map(|c| c.is_uppercase().then_some('_').into_iter().chain(c.to_lowercase()))
            .collect();
        found = found.replace(&format!("\"{name}\":"), &format!("\"{snake}\":"));
    }
    found
}

#[test]
fn data_and_metadata_pass_as_written() {
    // I-14
    for kind in &KINDS {
        let text = kind.text;
        let part = format!(r#"{{"data":{text},"metadata":{}}}"#, kind.object());
        let sent = format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{part}]}}}}"#);
        let event = read_stream_event(&sent, Dialect::V10).unwrap();
        assert_eq!(write_stream_event(&event, Dialect::V10), sent, "{}", kind.name);
        let object = kind.object();
        let sent = format!(
            r#"{{"kind":"message","messageId":"m","role":"user","parts":[{{"kind":"data","data":{object},"metadata":{object}}}]}}"#
        );
        let event = read_stream_event(&sent, Dialect::V03).unwrap();
        assert_eq!(write_stream_event(&event, Dialect::V03), sent, "{}", kind.name);
    }
}

#[test]
fn each_dialect_has_its_own_shape() {
    // Interop bugs 3, 15, 21.
    let event = StreamEvent::Task(Task {
        id: "t".into(),
        context_id: "c".into(),
        status: TaskStatus {
            state: TaskState::Canceled,
            message: Some(Message {
                message_id: "m".into(),
                role: Role::Agent,
                parts: vec![
                    PartContent::Text("<ä>".into()).into(),
                    PartContent::Raw(Base64::of(b"hi")).into(),
                    PartContent::Data(json("5")).into(),
                ],
                ..Message::default()
            }),
            timestamp: Some(Timestamp(0)),
        },
        ..Task::default()
    });
    let time = "1970-01-01T00:00:00.000Z";
    for (dialect, expected) in [
        (
            Dialect::V10,
            format!(
                r#"{{"task":{{"id":"t","contextId":"c","status":{{"state":"TASK_STATE_CANCELED","message":{{"messageId":"m","role":"ROLE_AGENT","parts":[{{"text":"<ä>"}},{{"raw":"aGk="}},{{"data":5}}]}},"timestamp":"{time}"}}}}}}"#
            ),
        ),
        (
            Dialect::V03,
            format!(
                r#"{{"kind":"task","id":"t","contextId":"c","status":{{"state":"canceled","message":{{"kind":"message","messageId":"m","role":"agent","parts":[{{"kind":"text","text":"<ä>"}},{{"kind":"file","file":{{"bytes":"aGk="}}}},{{"kind":"data","data":{{"value":5}},"metadata":{{"data_part_compat":true}}}}]}},"timestamp":"{time}"}}}}"#
            ),
        ),
        (
            Dialect::Proto03,
            format!(
                r#"{{"task":{{"id":"t","contextId":"c","status":{{"state":"TASK_STATE_CANCELLED","message":{{"messageId":"m","role":"ROLE_AGENT","content":[{{"text":"<ä>"}},{{"file":{{"fileWithBytes":"aGk="}}}},{{"data":{{"data":{{"value":5}}}},"metadata":{{"data_part_compat":true}}}}]}},"timestamp":"{time}"}}}}}}"#
            ),
        ),
    ] {
        assert_eq!(write_stream_event(&event, dialect), expected);
    }
}

#[test]
fn readers_are_lenient_where_the_protocol_is() {
    let read = |text: &str, dialect| match read_stream_event(text, dialect) {
        Ok(StreamEvent::Message(message)) => message,
        other => panic!("{text}: {other:?}"),
    };
    // Unknown fields, unknown names of enums, numbers of enums, nulls.
    let text = r#"{"message":{"messageId":"m","role":2,"x":[{}],"taskId":null,"parts":[{"text":"a","data":null,"y":1}]}}"#;
    let message = read(text, Dialect::V10);
    assert_eq!((message.role, message.task_id), (Role::Agent, None));
    assert_eq!(message.parts, [Part::from(PartContent::Text("a".into()))]);
    assert_eq!(
        read(r#"{"message":{"messageId":"m","role":"ROLE_OTHER"}}"#, Dialect::V10).role,
        Role::Unspecified
    );
    let null =
        read(r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":null}]}}"#, Dialect::V10);
    assert_eq!(null.parts, [Part::from(PartContent::Data(json("null")))]);
    // REST of 0.3 in JSON-RPC's form, and base64 for URLs.
    let text = r#"{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"file","file":{"bytes":"-_8"}}]}"#;
    assert_eq!(read(text, Dialect::Proto03).parts, [Part::from(PartContent::Raw(Base64::of(b"\xfb\xff")))]);
    let text =
        r#"{"msg":{"messageId":"m","role":"ROLE_USER","content":[{"kind":"text","text":"a"},{"data":{}}]}}"#;
    assert_eq!(
        read(text, Dialect::Proto03).parts,
        [Part::from(PartContent::Text("a".into())), Part::from(PartContent::Data(json("{}")))]
    );
    // A 0.3 part without kind, or with its earlier name.
    for part in [r#"{"text":""}"#, r#"{"type":"text","text":""}"#] {
        let text = format!(r#"{{"kind":"message","messageId":"m","role":"user","parts":[{part}]}}"#);
        assert_eq!(read(&text, Dialect::V03).parts, [Part::from(PartContent::Text(String::new()))]);
    }
}

#[test]
fn names_of_older_drafts_are_read() {
    // Interop bugs 13 and 14.
    for name in [
        "taskPushNotificationConfig",
        "pushNotificationConfig",
        "pushNotification",
        "push_notification_config",
    ] {
        let text = format!(
            r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"a"}}]}},"configuration":{{"{name}":{{"url":"https://a"}}}}}}"#
        );
        let read = read_value(&text, |object| {
            read_operation(OperationKind::Send, object, Dialect::V10, PathIds::default())
        });
        let Ok(Operation::Send(send)) = read else { panic!("{text}") };
        assert_eq!(send.configuration.push.map(|push| push.url).as_deref(), Some("https://a"), "{name}");
    }
    for text in [
        r#"{"taskId":"t","url":"https://a","id":"c"}"#,
        r#"{"taskId":"t","pushNotificationConfig":{"url":"https://a","id":"c"}}"#,
        r#"{"name":"tasks/t/pushNotificationConfigs/c","pushNotificationConfig":{"url":"https://a"}}"#,
        r#"{"parent":"tasks/t","configId":"c","config":{"pushNotificationConfig":{"url":"https://a"}}}"#,
    ] {
        let read = read_value(text, |object| {
            read_operation(OperationKind::CreatePush, object, Dialect::Proto03, PathIds::default())
        });
        let Ok(Operation::CreatePush(config)) = read else { panic!("{text}: {read:?}") };
        assert_eq!((config.task_id.as_str(), config.id.as_deref()), ("t", Some("c")), "{text}");
    }
}

#[test]
fn an_answer_waits_unless_its_dialect_says_otherwise() {
    let send = |configuration: &str, dialect| {
        let role = if dialect == Dialect::V03 { "user" } else { "ROLE_USER" };
        let text = format!(
            r#"{{"message":{{"messageId":"m","role":"{role}","parts":[{{"text":"a"}}]}}{configuration}}}"#
        );
        let read = read_value(&text, |object| {
            read_operation(OperationKind::Send, object, dialect, PathIds::default())
        });
        let Ok(Operation::Send(send)) = read else { panic!("{text}") };
        (send.configuration.return_immediately, send.configuration.history_length)
    };
    for dialect in DIALECTS {
        assert_eq!(send("", dialect), (false, None), "{dialect:?}");
    }
    let empty = r#","configuration":{}"#;
    assert!(!send(empty, Dialect::V10).0);
    assert!(!send(empty, Dialect::V03).0);
    assert!(send(empty, Dialect::Proto03).0, "`false` is not written in ProtoJSON");
    assert!(send(r#","configuration":{"returnImmediately":true}"#, Dialect::V10).0);
    assert!(send(r#","configuration":{"blocking":false}"#, Dialect::V03).0);
    assert!(!send(r#","configuration":{"blocking":true}"#, Dialect::Proto03).0);
    // Interop bug 18: 0 is no history, but in protocol buffers of 0.3 it is nothing said.
    let zero = r#","configuration":{"historyLength":0}"#;
    assert_eq!(send(zero, Dialect::V10).1, Some(0));
    assert_eq!(send(zero, Dialect::V03).1, Some(0));
    assert_eq!(send(zero, Dialect::Proto03).1, None);
}

#[test]
fn a_page_of_tasks_has_every_member() {
    // Interop bug 24.
    let empty =
        write_answer(&A2aAnswer::Tasks(TaskPage { page_size: 50, ..TaskPage::default() }), Dialect::V10);
    assert_eq!(empty, r#"{"tasks":[],"nextPageToken":"","pageSize":50,"totalSize":0}"#);
    let bare = Task { id: "t".into(), context_id: "c".into(), ..Task::default() };
    assert!(!write_answer(&A2aAnswer::Task(bare), Dialect::V10).contains("artifacts"));
    let unspecified = r#"{"status":"TASK_STATE_UNSPECIFIED"}"#;
    let read = read_value(unspecified, |object| {
        read_operation(OperationKind::ListTasks, object, Dialect::V10, PathIds::default())
    });
    assert_eq!(read, Ok(Operation::ListTasks(TaskQuery::default())));
}

#[test]
fn an_agent_that_answers_something_else_is_reported() {
    for (kind, text) in [
        (OperationKind::Send, r#"{"statusUpdate":{"taskId":"t","status":{}}}"#),
        (OperationKind::Send, "{}"),
        (OperationKind::Send, "7"),
        (OperationKind::GetTask, r#"{"status":{}}"#),
        (OperationKind::GetTask, r#"{"id":"t"}"#),
        (OperationKind::ListTasks, r#"{"tasks":{}}"#),
        (OperationKind::CreatePush, "{}"),
        (OperationKind::ListPush, "null"),
    ] {
        assert!(read_answer(kind, text, Dialect::V10).is_err(), "{text}");
    }
}
