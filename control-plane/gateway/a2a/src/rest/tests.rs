use super::*;
use crate::bounds::MAX_ID;
use crate::jsonrpc::AnswerFault;
use crate::model::{
    Message, Part, PartContent, PushConfig, Role, SendConfiguration, SendRequest, SendResult, TaskQuery,
    TaskState, Timestamp,
};

fn decode(method: &str, target: &str, body: &str) -> Result<Request, A2aFailure> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    decode_request(route(method, path).unwrap(), query, body.as_bytes())
}

fn violations(failure: &A2aFailure) -> Vec<String> {
    failure.violations.iter().map(ToString::to_string).collect()
}

#[test]
fn the_examples_of_the_specification_are_read() {
    // A2A 1.0.1, sections 6.5 and 11.4.
    let request = decode("GET", "/tasks?contextId=c295ea44&pageSize=10&historyLength=3", "").unwrap();
    let query = TaskQuery {
        context_id: Some("c295ea44".into()),
        page_size: Some(10),
        history_length: Some(3),
        ..TaskQuery::default()
    };
    assert_eq!(request.operation, Operation::ListTasks(query));
    let target = "/tasks?status=TASK_STATE_WORKING&statusTimestampAfter=2025-11-09T10:30:00Z&includeArtifacts=true&pageToken=a%2Bb";
    let query = TaskQuery {
        status: Some(TaskState::Working),
        status_timestamp_after: Timestamp::parse("2025-11-09T10:30:00Z"),
        include_artifacts: true,
        page_token: Some("a+b".into()),
        ..TaskQuery::default()
    };
    assert_eq!(decode("GET", target, "").unwrap().operation, Operation::ListTasks(query));
    let failure =
        decode("GET", "/tasks?pageSize=150&historyLength=-5&status=TASK_STATE_RUNNING", "").unwrap_err();
    assert_eq!(
        violations(&failure),
        [
            "pageSize: must be between 1 and 100, got 150",
            "status: is not a state of a task",
            "historyLength: must not be negative, got -5",
        ]
    );
    let body = r#"{"message":{"messageId":"uuid","role":"ROLE_USER","parts":[{"text":"Hello"}]},"configuration":{"acceptedOutputModes":["text/plain"]}}"#;
    let Operation::Send(send) = decode("POST", "/message:send", body).unwrap().operation else {
        panic!("{body}")
    };
    assert_eq!(send.configuration.accepted_output_modes, ["text/plain"]);
}

#[test]
fn rest_of_0_3_is_protojson_of_its_protocol_buffers() {
    // Interop bug 3.
    let body = r#"{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"a"},{"file":{"fileWithUri":"u","mimeType":"text/plain"}},{"data":{"data":{"k":1}}}]},"configuration":{"blocking":true,"pushNotification":{"url":"https://a"}}}"#;
    let Operation::Send(send) = decode("POST", "/v1/message:send", body).unwrap().operation else {
        panic!("{body}")
    };
    assert_eq!(send.message.parts.len(), 3);
    assert_eq!(send.message.parts[2].content, PartContent::Data(Json::part(r#"{"k":1}"#)));
    assert!(!send.configuration.return_immediately && send.configuration.push.is_some());
    let lenient = r#"{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"a"}]}}"#;
    assert!(decode("POST", "/v1/message:stream", lenient).is_ok());
    for body in [
        r#"{"url":"https://a"}"#,
        r#"{"pushNotificationConfig":{"url":"https://a"}}"#,
        r#"{"config":{"name":"tasks/other/pushNotificationConfigs/x","pushNotificationConfig":{"url":"https://a","id":"c"}}}"#,
    ] {
        let request = decode("POST", "/v1/tasks/t/pushNotificationConfigs?configId=c", body).unwrap();
        let Operation::CreatePush(config) = request.operation else { panic!("{body}") };
        assert_eq!((config.task_id.as_str(), config.id.as_deref()), ("t", Some("c")), "{body}");
    }
    let (status, body) = encode_error(Generation::V03, &A2aFailure::task_not_found("t"));
    assert_eq!(status, 404);
    assert!(body.starts_with(r#"{"code":-32001,"message":"#), "{body}");
}

#[test]
fn a_resource_name_of_0_3_may_have_two_of_the_longest_ids() {
    let id = "x".repeat(MAX_ID);
    let create = |config: &str| {
        let name = format!("tasks/{id}/pushNotificationConfigs/{config}");
        let body = format!(r#"{{"name":"{name}","pushNotificationConfig":{{"url":"https://a"}}}}"#);
        let target = format!("/v1/tasks/{id}/pushNotificationConfigs");
        decode("POST", &target, &body).map(|request| request.operation)
    };
    let Ok(Operation::CreatePush(config)) = create(&id) else { panic!("it is refused") };
    assert_eq!(config.id.as_deref(), Some(id.as_str()));
    let answer = A2aAnswer::Push(config);
    let body = encode_answer(Generation::V03, &answer);
    let read = decode_answer(OperationKind::CreatePush, Generation::V03, 200, body.as_bytes());
    assert_eq!(read, Ok(answer));
    let failure = create(&format!("{id}x")).unwrap_err();
    assert_eq!(violations(&failure), ["name: must have ids of at most 256 bytes"]);
}

#[test]
fn the_id_of_a_new_push_configuration_is_the_parameter_in_0_3() {
    for (target, body, expected) in [
        (
            "/v1/tasks/t/pushNotificationConfigs?configId=c",
            r#"{"pushNotificationConfig":{"url":"https://a","id":"d"}}"#,
            "c",
        ),
        (
            "/v1/tasks/t/pushNotificationConfigs?configId=",
            r#"{"pushNotificationConfig":{"url":"https://a","id":"d"}}"#,
            "d",
        ),
        (
            "/v1/tasks/t/pushNotificationConfigs",
            r#"{"name":"tasks/t/pushNotificationConfigs/e","pushNotificationConfig":{"url":"https://a"}}"#,
            "e",
        ),
        ("/tasks/t/pushNotificationConfigs?configId=c", r#"{"url":"https://a","id":"d"}"#, "d"),
    ] {
        let Operation::CreatePush(config) = decode("POST", target, body).unwrap().operation else {
            panic!("{target}")
        };
        assert_eq!(config.id.as_deref(), Some(expected), "{target} {body}");
    }
}

#[test]
fn the_path_wins_over_the_body() {
    let cancel = decode("POST", "/tasks/7:cancel", r#"{"id":"8","metadata":{"k":1}}"#).unwrap().operation;
    assert_eq!(cancel, Operation::CancelTask { id: "7".into(), metadata: Some(Json::part(r#"{"k":1}"#)) });
    // An empty body is allowed.
    assert!(decode("POST", "/tasks/7:cancel", " ").is_ok());
    let push =
        decode("POST", "/tasks/7/pushNotificationConfigs", r#"{"taskId":"8","url":"https://a"}"#).unwrap();
    assert!(matches!(push.operation, Operation::CreatePush(PushConfig { task_id, .. }) if task_id == "7"));
    let get = decode("GET", "/tasks/7/pushNotificationConfigs/c?taskId=8&id=d", "").unwrap().operation;
    assert_eq!(get, Operation::GetPush { task_id: "7".into(), id: Some("c".into()) });
    // Interop bug 23.
    assert_eq!(decode("GET", "/acme/tasks/7?tenant=other", "").unwrap().tenant.as_deref(), Some("acme"));
    for (method, path, body) in [
        ("GET", "/tasks/7", ""),
        ("POST", "/tasks/7:cancel", ""),
        ("POST", "/tasks/7:cancel", "{}"),
        ("POST", "/tasks/7:subscribe", r#"{"id":"7"}"#),
        ("POST", "/v1/tasks/7/pushNotificationConfigs", r#"{"url":"https://a"}"#),
        (
            "POST",
            "/message:send",
            r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"a"}]}}"#,
        ),
    ] {
        let tenant = |query: &str| decode(method, &format!("{path}?{query}"), body).unwrap().tenant;
        assert_eq!(tenant("tenant=other").as_deref(), Some("other"), "{method} {path} {body}");
        assert_eq!(tenant("tenant=&tenant=second").as_deref(), Some("second"), "{method} {path} {body}");
        assert_eq!(tenant("tenant="), None, "{method} {path} {body}");
    }
    let subscribe = decode("POST", "/tasks/7:subscribe", r#"{"tenant":"other"}"#).unwrap();
    assert_eq!(subscribe.tenant.as_deref(), Some("other"));
}

#[test]
fn a_client_that_calls_itself_the_agent_is_the_user() {
    for (path, role, parts) in [
        ("/message:send", "ROLE_AGENT", "parts"),
        ("/message:stream", "ROLE_USER", "parts"),
        ("/v1/message:send", "ROLE_AGENT", "content"),
        ("/v1/message:send", "agent", "content"),
    ] {
        let body = format!(r#"{{"message":{{"messageId":"m","role":"{role}","{parts}":[{{"text":"a"}}]}}}}"#);
        let (Operation::Send(send) | Operation::Stream(send)) =
            decode("POST", path, &body).unwrap().operation
        else {
            panic!("{body}")
        };
        assert_eq!(send.message.role, Role::User, "{path} {role}");
    }
}

#[test]
fn a_push_configuration_within_a_request_names_no_tenant() {
    let message = r#""message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"a"}]}"#;
    for (target, body, field) in [
        (
            "/message:send",
            r#""configuration":{"taskPushNotificationConfig":{"url":"https://a","tenant":"b"}}"#,
            "configuration.taskPushNotificationConfig.tenant",
        ),
        (
            "/v1/tasks/t/pushNotificationConfigs",
            r#""config":{"tenant":"b","pushNotificationConfig":{"url":"https://a"}}"#,
            "config.tenant",
        ),
        (
            "/tasks/t/pushNotificationConfigs",
            r#""pushNotificationConfig":{"url":"https://a","tenant":"b"}"#,
            "pushNotificationConfig.tenant",
        ),
    ] {
        let failure = decode("POST", target, &format!("{{{message},{body}}}")).unwrap_err();
        let fields: Vec<&str> = failure.violations.iter().map(|found| found.field.as_str()).collect();
        assert_eq!(fields, [field], "{target}");
    }
}

#[test]
fn faults_are_reported_by_kind() {
    for (method, target, body, error) in [
        ("POST", "/message:send", "{", A2aError::Parse),
        ("POST", "/message:send", r#"{"metadata":{"a":1e400}}"#, A2aError::Parse),
        ("POST", "/message:send", "[]", A2aError::InvalidParams),
        ("POST", "/message:send", "", A2aError::InvalidParams),
        ("GET", "/tasks/7?historyLength=x", "", A2aError::InvalidParams),
        (
            "POST",
            "/v1/tasks/t/pushNotificationConfigs?configId=a%0ab",
            r#"{"url":"https://a"}"#,
            A2aError::InvalidParams,
        ),
    ] {
        assert_eq!(decode(method, target, body).unwrap_err().error, error, "{method} {target} {body}");
    }
}

#[test]
fn a_query_may_name_the_version() {
    for (query, version) in [
        ("A2A-Version=1.0", Some("1.0")),
        ("a=b&a2a-version=0.3", Some("0.3")),
        ("A2A-Version=", Some("")),
        ("a=b", None),
    ] {
        assert_eq!(query_version(query).as_deref(), version, "{query}");
    }
}

#[test]
fn a_server_reads_what_a_client_writes() {
    let parts = vec![Part::from(PartContent::Text("hi".into()))];
    let message = Message { message_id: "m".into(), role: Role::User, parts, ..Message::default() };
    for generation in [Generation::V03, Generation::V10] {
        let configuration = SendConfiguration {
            history_length: Some(2),
            return_immediately: true,
            ..SendConfiguration::default()
        };
        let send = SendRequest { message: message.clone(), configuration, metadata: None };
        let push = PushConfig {
            id: Some("c".into()),
            task_id: "a b/ä".replace('/', ":"),
            url: "https://a".into(),
            ..PushConfig::default()
        };
        let mut operations = vec![
            Operation::Send(send.clone()),
            Operation::Stream(send),
            Operation::GetTask { id: "a b:ä%".into(), history_length: Some(4) },
            Operation::CancelTask { id: "t".into(), metadata: Some(Json::part("{}")) },
            Operation::Subscribe { id: "t".into() },
            Operation::CreatePush(push),
            Operation::GetPush { task_id: "t".into(), id: Some("c".into()) },
            Operation::ListPush { task_id: "t".into(), page_size: Some(5), page_token: Some("a&b".into()) },
            Operation::DeletePush { task_id: "t".into(), id: "c".into() },
            Operation::ExtendedCard,
        ];
        if generation == Generation::V10 {
            let query =
                TaskQuery { page_token: Some("ä+".into()), include_artifacts: true, ..TaskQuery::default() };
            operations.push(Operation::ListTasks(query));
        }
        for operation in operations {
            let tenant = (generation == Generation::V10).then(|| "a".to_owned());
            let request = Request { generation, tenant, operation };
            let RestRequest { method, target, body } = encode_request(&request).unwrap();
            assert_eq!(decode(method, &target, body.as_deref().unwrap_or_default()), Ok(request), "{target}");
        }
    }
}

#[test]
fn a_client_reads_what_a_server_writes() {
    let message = Message { message_id: "m".into(), role: Role::Agent, ..Message::default() };
    for generation in [Generation::V03, Generation::V10] {
        let answer = A2aAnswer::Sent(SendResult::Message(message.clone()));
        let body = encode_answer(generation, &answer);
        assert_eq!(decode_answer(OperationKind::Send, generation, 200, body.as_bytes()), Ok(answer));
        let deleted = encode_answer(generation, &A2aAnswer::Deleted);
        assert_eq!(deleted, "{}");
        for body in ["", "{}", "null"] {
            let answer = decode_answer(OperationKind::DeletePush, generation, 204, body.as_bytes());
            assert_eq!(answer, Ok(A2aAnswer::Deleted), "{body}");
        }
        let event = StreamEvent::Message(message.clone());
        assert_eq!(decode_event(generation, encode_event(generation, &event).as_bytes()), Ok(event));
        let failure = A2aFailure::from(A2aError::UnsupportedOperation);
        let (status, body) = encode_error(generation, &failure);
        let refused = Err(AnswerFault::Refused(failure.clone()));
        assert_eq!(decode_answer(OperationKind::GetTask, generation, status, body.as_bytes()), refused);
    }
    let failure = A2aFailure::from(A2aError::ContentTypeNotSupported);
    let body = encode_error_as(415, Generation::V10, &failure);
    assert!(body.starts_with(r#"{"error":{"code":415,"status":"INVALID_ARGUMENT""#), "{body}");
    let body = A2aFailure::task_not_found("t").to_rest();
    let refused = Err(AnswerFault::Refused(A2aFailure::task_not_found("t")));
    assert_eq!(decode_event(Generation::V10, body.text().as_bytes()), refused);
}
