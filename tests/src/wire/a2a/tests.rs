//! Messages that fit the official definitions, and messages that do not.

use prost::Message as _;
use protox::prost_reflect::DynamicMessage;
use serde_json::json;
use tonic::metadata::{MetadataMap, MetadataValue};

use super::super::reader::{Part, Reader};
use super::*;

const TASK: &str = "7";

fn request(definitions: &AgentDefinitions, line: &str, body: &Value) -> AgentRequest {
    let mut reader = Reader::requests();
    reader.push(format!("{line} HTTP/1.1\r\n\r\n").as_bytes());
    let Some(Part::Head(head)) = reader.next(false).unwrap() else { panic!("no head: {line}") };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    definitions.request(&head, body.as_bytes()).unwrap_or_else(|| panic!("not of A2A: {line}"))
}

/// The problems of a request, as `place: rule`.
fn wrong(request: &AgentRequest) -> Vec<String> {
    request.problems.iter().map(|problem| format!("{}: {}", problem.pointer, problem.error)).collect()
}

fn rpc(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

#[test]
fn every_method_of_both_versions_is_known_over_each_binding() {
    let definitions = AgentDefinitions::read().unwrap();
    let count = |wanted: &str| definitions.served().filter(|(form, _)| *form == wanted).count();
    let forms = [RPC_10, REST_10, GRPC_10, RPC_03, REST_03, GRPC_03, CARD];
    assert_eq!(forms.map(count), [11, 11, 11, 10, 10, 10, 1]);
}

#[test]
fn a_request_over_rest_is_its_path_its_query_and_its_body() {
    let definitions = AgentDefinitions::read().unwrap();
    let send = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}});
    let send_03 = json!({"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hello"}]}});
    let in_words = json!({"message":
        {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hello"}]}});
    let hook = json!({"name": "n", "pushNotificationConfig": {"id": "c", "url": "https://example.com"}});
    let whole = json!({"configId": "c", "config": hook});
    let (none, empty) = (Value::Null, json!({}));
    for (line, body, form, method) in [
        ("POST /demo/a2a/message:send", &send, REST_10, "SendMessage"),
        ("POST /demo/a2a/message:stream", &send, REST_10, "SendStreamingMessage"),
        ("GET /demo/a2a/tasks/7?historyLength=2", &none, REST_10, "GetTask"),
        ("GET /demo/a2a/tasks?statusTimestampAfter=2026-10-01T00%3A00%3A00Z", &none, REST_10, "ListTasks"),
        ("POST /demo/a2a/tasks/7:cancel", &empty, REST_10, "CancelTask"),
        ("GET /demo/a2a/tasks/7:subscribe", &none, REST_10, "SubscribeToTask"),
        ("POST /demo/a2a/tasks/7:subscribe", &none, REST_10, "SubscribeToTask"),
        ("GET /demo/a2a/extendedAgentCard", &none, REST_10, "GetExtendedAgentCard"),
        ("POST /demo/a2a/v1/message:send", &send_03, REST_03, "SendMessage"),
        ("POST /demo/a2a/v1/message:send", &in_words, REST_03, "SendMessage"),
        ("GET /demo/a2a/v1/tasks/7?historyLength=2", &none, REST_03, "GetTask"),
        ("GET /demo/a2a/v1/tasks/7:subscribe", &none, REST_03, "TaskSubscription"),
        (
            "POST /demo/a2a/v1/tasks/7/pushNotificationConfigs?configId=c",
            &hook,
            REST_03,
            "CreateTaskPushNotificationConfig",
        ),
        (
            "POST /demo/a2a/v1/tasks/7/pushNotificationConfigs",
            &whole,
            REST_03,
            "CreateTaskPushNotificationConfig",
        ),
        ("GET /demo/a2a/v1/card", &none, REST_03, "GetAgentCard"),
    ] {
        let read = request(&definitions, line, body);
        assert_eq!((read.form, read.method.as_str()), (form, method), "{line}");
        assert_eq!(wrong(&read), [""; 0], "{line}");
    }
}

#[test]
fn a_wrong_request_has_the_place_and_the_rule() {
    let definitions = AgentDefinitions::read().unwrap();
    let message = |part: Value| json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [part]}});
    let send = "POST /demo/a2a/message:send";
    let endpoint = "POST /demo/a2a";
    for (line, body, problem) in [
        (send, json!({}), ": lf.a2a.v1.SendMessageRequest.message is REQUIRED"),
        (send, message(json!({"text": 1})), "/message/parts/0/text: this is not a string"),
        (
            send,
            message(json!({"text": "a", "url": "b"})),
            "/message/parts/0: 2 members of the oneof lf.a2a.v1.Part.content",
        ),
        (
            send,
            message(json!({"kind": "text", "text": "a"})),
            "/message/parts/0/kind: lf.a2a.v1.Part has no such member",
        ),
        (send, message(json!({"raw": "a b"})), "/message/parts/0/raw: this is not base64"),
        ("GET /demo/a2a/tasks?pageSize=many", Value::Null, "/pageSize: this is not an integer"),
        (endpoint, rpc("GetTask", &json!({})), "/params: lf.a2a.v1.GetTaskRequest.id is REQUIRED"),
        (endpoint, rpc("nonexistent/method", &json!({})), ": no version has this method"),
    ] {
        let read = request(&definitions, line, &body);
        assert!(wrong(&read).contains(&problem.to_owned()), "{line} {body}: {:?}", wrong(&read));
    }
    let read = request(&definitions, endpoint, &rpc("tasks/get", &json!({})));
    assert!(!read.problems.is_empty() && read.form == RPC_03, "{:?}", wrong(&read));
}

#[test]
fn an_answer_is_held_against_what_was_asked() {
    let definitions = AgentDefinitions::read().unwrap();
    let asked = |method: &str| request(&definitions, "POST /demo/a2a", &rpc(method, &json!({})));
    let places = |method: &str, answer: &Value| -> Vec<String> {
        let answer = definitions.answer(&asked(method), 200, answer);
        answer.problems.into_iter().map(|problem| problem.pointer).collect()
    };
    let result = |result: Value| json!({"jsonrpc": "2.0", "id": 1, "result": result});
    let task = json!({"id": TASK, "status": {"state": "TASK_STATE_WORKING", "timestamp": "2026-10-01T00:00:00.000Z"}});
    assert_eq!(places("GetTask", &result(task.clone())), [""; 0]);
    assert_eq!(places("SendMessage", &result(json!({"task": task.clone()}))), [""; 0]);
    assert!(!places("SendMessage", &result(task)).is_empty(), "a bare task");
    let zoned = json!({"id": TASK, "status": {"state": "TASK_STATE_WORKING", "timestamp": "2026-10-01T00:00:00+02:00"}});
    assert_eq!(places("GetTask", &result(zoned)), ["/result/status/timestamp"]);
    let list = json!({"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0});
    assert_eq!(places("ListTasks", &result(list)), [""; 0]);
    assert_eq!(places("ListTasks", &result(json!({}))).len(), 3, "required, and shown up to a bound");
    let old = json!({"kind": "task", "id": TASK, "contextId": "c", "status": {"state": "working"}});
    assert_eq!(places("tasks/get", &result(old.clone())), [""; 0]);
    assert_eq!(places("message/send", &result(old)), [""; 0]);
    let wrong =
        json!({"kind": "task", "id": TASK, "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}});
    assert_eq!(places("message/send", &result(wrong)), ["/result/status/state"]);
}

#[test]
fn errors_of_1_0_have_details_that_name_their_messages() {
    let definitions = AgentDefinitions::read().unwrap();
    let info = json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND",
        "domain": "a2a-protocol.org", "metadata": {"taskId": TASK}});
    let over_rpc = |data: Value| {
        let asked = request(&definitions, "POST /demo/a2a", &rpc("GetTask", &json!({"id": TASK})));
        let error =
            json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "no", "data": data}});
        definitions.answer(&asked, 200, &error).problems.len()
    };
    assert_eq!(over_rpc(json!([info])), 0);
    assert_eq!(over_rpc(info.clone()), 1, "an object");
    assert_eq!(over_rpc(json!([{"reason": "TASK_NOT_FOUND"}])), 1, "without its type");
    let asked = request(&definitions, "GET /demo/a2a/tasks/7", &Value::Null);
    let error = json!({"error": {"code": 404, "status": "NOT_FOUND", "message": "no", "details": [info]}});
    assert!(definitions.answer(&asked, 404, &error).problems.is_empty());
    assert!(!definitions.answer(&asked, 404, &json!({"detail": "no"})).problems.is_empty());
}

#[test]
fn a_message_of_a_call_is_held_against_its_definition() {
    let definitions = AgentDefinitions::read().unwrap();
    let places = |path: &str, result: &[u8]| -> Vec<String> {
        let (answer, _) = definitions.call_result(&definitions.call(path).unwrap(), result);
        answer.problems.iter().map(|problem| format!("{}: {}", problem.pointer, problem.error)).collect()
    };
    let path = |method: &str| format!("/lf.a2a.v1.A2AService/{method}");
    assert_eq!(places(&path("GetTask"), b"\x0a\x017\x1a\x02\x08\x03"), [""; 0]);
    assert_eq!(places(&path("ListTasks"), b""), [""; 0], "the last page of none");
    assert_eq!(places("/a2a.v1.A2AService/GetTask", b"\x0a\x017"), [""; 0], "0.3 requires nothing");
    for (method, result, problem) in [
        ("GetTask", b"\x0a\x017".as_slice(), "/status: lf.a2a.v1.Task.status is REQUIRED"),
        ("GetTask", b"\x0a\x017\x1a\0", "/status/state: lf.a2a.v1.TaskStatus.state is REQUIRED"),
        ("GetTask", b"\x0a\x017\x1a\x02\x08\x4d", "/status/state: 77 is no value of lf.a2a.v1.TaskState"),
        ("GetTask", b"\x0a\x017\x1a\x02\x08\x03\x98\x06\x01", ": lf.a2a.v1.Task has no field 99"),
        ("SendMessage", b"", ": no member of the oneof lf.a2a.v1.SendMessageResponse.payload"),
    ] {
        assert_eq!(places(&path(method), result), [problem]);
    }
    let mut request = definitions.call(&path("GetTask")).unwrap();
    assert_eq!((request.form, request.method.as_str()), (GRPC_10, "GetTask"));
    definitions.call_message(&mut request, b"");
    assert_eq!(wrong(&request), ["/id: lf.a2a.v1.GetTaskRequest.id is REQUIRED"]);
    assert!(definitions.call("/grpc.health.v1.Health/Check").is_none());
}

#[test]
fn the_status_of_a_call_has_a_code_and_details_of_that_code() {
    let definitions = AgentDefinitions::read().unwrap();
    let status = |code: &'static str, details: &str| {
        let definition = definitions.pool.get_message_by_name("google.rpc.Status").unwrap();
        let text = format!("code: 5 message: 'no' details {{ type_url: '{details}' value: '' }}");
        let bytes = DynamicMessage::parse_text_format(definition, &text).unwrap().encode_to_vec();
        let mut headers = MetadataMap::new();
        headers.insert("grpc-status", MetadataValue::from_static(code));
        headers.insert_bin("grpc-status-details-bin", MetadataValue::from_bytes(&bytes));
        definitions.call_error(&headers.into_headers()).map(|answer| answer.problems.len())
    };
    let info = "type.googleapis.com/google.rpc.ErrorInfo";
    assert_eq!(status("0", info), None, "success");
    assert_eq!(status("5", info), Some(0));
    assert_eq!(status("7", info), Some(1), "two codes");
    assert_eq!(status("5", "type.googleapis.com/unknown"), Some(1));
    assert_eq!(status("17", info), Some(1), "no code");
}
