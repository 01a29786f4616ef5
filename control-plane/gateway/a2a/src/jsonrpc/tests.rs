use super::*;
use crate::model::{Message, Operation, Part, PartContent, Role, SendRequest, SendResult, Task, TaskQuery};

fn text_message(role: Role) -> Message {
    Message {
        message_id: "m".into(),
        role,
        parts: vec![Part::from(PartContent::Text("hi".into()))],
        ..Message::default()
    }
}

#[test]
fn every_method_of_both_versions_is_known() {
    for generation in [Generation::V03, Generation::V10] {
        for kind in OperationKind::ALL {
            let name = method_name(generation, kind);
            // 0.3 has no list of tasks over JSON-RPC.
            assert_eq!(name.is_none(), (generation, kind) == (Generation::V03, OperationKind::ListTasks));
            assert_eq!(name.and_then(find_method), name.map(|_| (generation, kind)));
        }
    }
    for name in
        ["", "sendMessage", "tasks/list", "message/Send", "SendMessage ", "tasks/pushNotificationConfig"]
    {
        assert_eq!(find_method(name), None, "{name}");
    }
}

#[test]
fn the_examples_of_the_specifications_are_read() {
    // A2A 1.0.1, sections 9.4 and 6; A2A 0.3.0, section 9.
    for (body, generation, kind) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"u","role":"ROLE_USER","parts":[{"text":"What is the weather today?"}]}}}"#,
            Generation::V10,
            OperationKind::Send,
        ),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"GetTask","params":{"id":"task-uuid","historyLength":10}}"#,
            Generation::V10,
            OperationKind::GetTask,
        ),
        (
            r#"{"jsonrpc":"2.0","id":3,"method":"ListTasks","params":{"contextId":"context-uuid","status":"TASK_STATE_WORKING","pageSize":50,"pageToken":"cursor-token"}}"#,
            Generation::V10,
            OperationKind::ListTasks,
        ),
        (
            r#"{"jsonrpc":"2.0","id":6,"method":"GetExtendedAgentCard"}"#,
            Generation::V10,
            OperationKind::ExtendedCard,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"role":"user","parts":[{"kind":"text","text":"tell me a joke"}],"messageId":"9229e770-767c-417b-a0b0-f0741243c589"},"metadata":{}}}"#,
            Generation::V03,
            OperationKind::Send,
        ),
        (
            r#"{"jsonrpc":"2.0","id":"req-002","method":"message/stream","params":{"message":{"kind":"message","role":"user","parts":[{"kind":"file","file":{"name":"in.png","mimeType":"image/png","bytes":"aGk="}}],"messageId":"m"}}}"#,
            Generation::V03,
            OperationKind::Stream,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tasks/pushNotificationConfig/set","params":{"taskId":"t","pushNotificationConfig":{"url":"https://client.example.com/webhook","token":"secure","authentication":{"schemes":["Bearer"]}}}}"#,
            Generation::V03,
            OperationKind::CreatePush,
        ),
    ] {
        let envelope = read_envelope(body.as_bytes()).unwrap();
        assert_eq!((envelope.generation, envelope.kind), (generation, kind), "{body}");
        let request = decode_request(&envelope).unwrap();
        assert_eq!((request.generation, request.operation.kind()), (generation, kind), "{body}");
    }
}

#[test]
fn faults_come_in_their_order() {
    // Interop bug 20: malformed JSON is -32700.
    for (body, id, error) in [
        ("{", None, A2aError::Parse),
        ("", None, A2aError::Parse),
        (r#"{"jsonrpc":"2.0","id":1}x"#, None, A2aError::Parse),
        ("[]", None, A2aError::InvalidRequest),
        ("7", None, A2aError::InvalidRequest),
        (r#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#, None, A2aError::InvalidRequest),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"GetTask"}"#, None, A2aError::InvalidRequest),
        (r#"{"jsonrpc":"1.0","id":1,"method":"GetTask"}"#, Some("1"), A2aError::InvalidRequest),
        (r#"{"id":1,"method":"GetTask"}"#, Some("1"), A2aError::InvalidRequest),
        (r#"{"jsonrpc":"2.0","id":"a","method":7}"#, Some("\"a\""), A2aError::InvalidRequest),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tasks/list"}"#, Some("1"), A2aError::MethodNotFound),
        (r#"{"jsonrpc":"2.0","id":1.0,"method":"x"}"#, Some("1.0"), A2aError::MethodNotFound),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x","params":7}"#, Some("1"), A2aError::MethodNotFound),
    ] {
        let fault = read_envelope(body.as_bytes()).unwrap_err();
        assert_eq!((fault.id, fault.failure.error), (id, error), "{body}");
    }
    assert_eq!(
        read_envelope(b"{\"jsonrpc\":\"2.0\",\"x\":\"\xff\"}").unwrap_err().failure.error,
        A2aError::Parse
    );
    for params in ["7", "[]", r#""a""#, "{}"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{params}}}"#);
        let failure = decode_request(&read_envelope(body.as_bytes()).unwrap()).unwrap_err();
        assert_eq!(failure.error, A2aError::InvalidParams, "{params}");
        assert_eq!(failure.violations.len(), 1, "{params}");
    }
    // The edge lets as long an id pass.
    let long = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
    for (length, is_repeated) in [(MAX_RPC_ID, true), (MAX_RPC_ID + 1, false)] {
        let id = long(length);
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"GetTask","params":{{"id":"a"}}}}"#);
        let read = read_envelope(body.as_bytes());
        assert_eq!(read.ok().and_then(|request| request.id), is_repeated.then_some(id.as_str()), "{length}");
    }
    let without_id =
        read_envelope(br#"{"jsonrpc":"2.0","method":"GetTask","params":{"id":"a"},"id":null}"#).unwrap();
    assert_eq!(without_id.id, None);
}

#[test]
fn a_response_has_the_form_of_its_version() {
    let task = Task { id: "t".into(), context_id: "c".into(), ..Task::default() };
    let sent = A2aAnswer::Sent(SendResult::Task(task.clone()));
    assert_eq!(
        encode_answer(Some("7"), Generation::V10, &sent),
        r#"{"jsonrpc":"2.0","id":7,"result":{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_UNSPECIFIED"}}}}"#
    );
    assert_eq!(
        encode_answer(Some("\"x\""), Generation::V03, &sent),
        r#"{"jsonrpc":"2.0","id":"x","result":{"kind":"task","id":"t","contextId":"c","status":{"state":"unknown"}}}"#
    );
    assert_eq!(
        encode_answer(None, Generation::V03, &A2aAnswer::Deleted),
        r#"{"jsonrpc":"2.0","id":null,"result":null}"#
    );
    assert_eq!(
        encode_answer(None, Generation::V10, &A2aAnswer::Deleted),
        r#"{"jsonrpc":"2.0","id":null,"result":{}}"#
    );
    let event = StreamEvent::Message(text_message(Role::Agent));
    assert_eq!(
        encode_event(Some("1"), Generation::V10, &event),
        r#"{"jsonrpc":"2.0","id":1,"result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}}"#
    );
    let task = || Task { id: "t".into(), ..Task::default() };
    assert_eq!(
        encode_notification(Generation::V10, task()),
        r#"{"task":{"id":"t","status":{"state":"TASK_STATE_UNSPECIFIED"}}}"#
    );
    assert_eq!(
        encode_notification(Generation::V03, task()),
        r#"{"kind":"task","id":"t","status":{"state":"unknown"}}"#
    );
    assert_eq!(
        encode_error(None, &A2aError::Parse.into()),
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Invalid JSON payload"}}"#
    );
}

#[test]
fn a_server_reads_what_a_client_writes_and_the_reverse() {
    for generation in [Generation::V03, Generation::V10] {
        let send = SendRequest { message: text_message(Role::User), ..SendRequest::default() };
        let tenant = (generation == Generation::V10).then(|| "acme".to_owned());
        let request = Request { generation, tenant, operation: Operation::Send(send) };
        let text = encode_request(3, &request).unwrap();
        let envelope = read_envelope(text.as_bytes()).unwrap();
        assert_eq!(envelope.id, Some("3"));
        assert_eq!(decode_request(&envelope), Ok(request));

        let answer = A2aAnswer::Sent(SendResult::Message(text_message(Role::Agent)));
        let text = encode_answer(Some("3"), generation, &answer);
        assert_eq!(decode_answer(OperationKind::Send, generation, text.as_bytes()), Ok(answer));
        let event = StreamEvent::Message(text_message(Role::Agent));
        let text = encode_event(Some("3"), generation, &event);
        assert_eq!(decode_event(generation, text.as_bytes()), Ok(event));
        let text = encode_answer(Some("3"), generation, &A2aAnswer::Deleted);
        assert_eq!(
            decode_answer(OperationKind::DeletePush, generation, text.as_bytes()),
            Ok(A2aAnswer::Deleted)
        );
        let failure = A2aFailure::task_not_found("t");
        let text = encode_error(Some("3"), &failure);
        let refused = Err(AnswerFault::Refused(failure));
        assert_eq!(decode_answer(OperationKind::GetTask, generation, text.as_bytes()), refused);
    }
    let list = Request {
        generation: Generation::V03,
        tenant: None,
        operation: Operation::ListTasks(TaskQuery::default()),
    };
    assert_eq!(encode_request(1, &list), None);
    for body in ["", "7", "{}", "{\"result\":7}"] {
        let answer = decode_answer(OperationKind::Send, Generation::V10, body.as_bytes());
        assert!(matches!(answer, Err(AnswerFault::Invalid(_))), "{body}");
    }
}
