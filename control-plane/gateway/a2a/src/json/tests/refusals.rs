//! Faults of messages and parameters, each with its field.

use super::*;

fn faults(kind: OperationKind, text: &str, dialect: Dialect) -> Vec<String> {
    let read = read_value(text, |object| read_operation(kind, object, dialect, PathIds::default()));
    read.err().unwrap_or_default().iter().map(FieldViolation::to_string).collect()
}

#[test]
fn invalid_messages_are_refused_with_their_fields() {
    let v10 = |part: &str| {
        let text = format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{part}]}}}}"#);
        faults(OperationKind::Send, &text, Dialect::V10)
    };
    assert_eq!(v10(r#"{"text":"a"}"#), Vec::<String>::new());
    let one_of = "message.parts[0]: must have exactly one of text, raw, url, data";
    for part in
        ["{}", r#"{"text":"a","url":"b"}"#, r#"{"kind":"file","file":{"uri":"u"}}"#, r#"{"text":null}"#]
    {
        assert_eq!(v10(part).first().map(String::as_str), Some(one_of), "{part}");
    }
    for (part, fault) in [
        (r#"{"text":7}"#, "message.parts[0].text: must be a string"),
        (r#"{"raw":"?"}"#, "message.parts[0].raw: must be base64"),
        (r#"{"url":""}"#, "message.parts[0].url: is required"),
        (r#"{"url":"a\nb"}"#, "message.parts[0].url: must not have control characters"),
        (r#"{"text":"a","metadata":[]}"#, "message.parts[0].metadata: must be an object"),
        ("7", "message.parts[0]: must be an object"),
    ] {
        assert_eq!(v10(part).first().map(String::as_str), Some(fault), "{part}");
    }
    assert_eq!(faults(OperationKind::Send, "{}", Dialect::V10), ["message: is required"]);
    let empty = r#"{"message":{"parts":[]},"configuration":{"historyLength":-1}}"#;
    assert_eq!(
        faults(OperationKind::Send, empty, Dialect::V10),
        [
            "message.messageId: is required",
            "message.role: is required",
            "message.parts: must have at least one valid part",
            "configuration.historyLength: must not be negative, got -1",
        ]
    );
    let many = format!(
        r#"{{"message":{{"messageId":"m","role":"user","parts":[{}]}}}}"#,
        vec![r#"{"kind":"text","text":"a"}"#; 257].join(",")
    );
    assert_eq!(
        faults(OperationKind::Send, &many, Dialect::V03).first().map(String::as_str),
        Some("message.parts: must have at most 256 elements")
    );
    for (part, fault) in [
        (r#"{"kind":"text"}"#, "message.parts[0].text: is required"),
        (r#"{"kind":"video"}"#, "message.parts[0].kind: must be text, file or data"),
        (r#"{"type":"video","text":"a"}"#, "message.parts[0].kind: must be text, file or data"),
        (r#"{"kind":"file"}"#, "message.parts[0].file: is required"),
        (
            r#"{"kind":"file","file":{"uri":"u","bytes":"aGk="}}"#,
            "message.parts[0].file: must have exactly one of uri, bytes",
        ),
        (r#"{"kind":"data","data":5}"#, "message.parts[0].data: must be an object"),
        (r#"{"kind":"data"}"#, "message.parts[0].data: is required"),
    ] {
        let text = format!(r#"{{"message":{{"messageId":"m","role":"user","parts":[{part}]}}}}"#);
        assert_eq!(
            faults(OperationKind::Send, &text, Dialect::V03).first().map(String::as_str),
            Some(fault),
            "{part}"
        );
    }
}

#[test]
fn a_fault_over_rest_of_0_3_names_the_field_of_its_protocol_buffers() {
    let first = |content: &str| {
        let text = format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER",{content}}}}}"#);
        faults(OperationKind::Send, &text, Dialect::Proto03).first().cloned()
    };
    assert_eq!(first(r#""content":[{"text":"a"}]"#), None);
    for (content, fault) in [
        (r#""metadata":{}"#, "message.content: must have at least one valid part"),
        (r#""content":[]"#, "message.content: must have at least one valid part"),
        (r#""parts":[]"#, "message.parts: must have at least one valid part"),
        (r#""content":{"text":"a"}"#, "message.content: must be a list"),
        (r#""content":[7]"#, "message.content[0]: must be an object"),
        (r#""content":[{}]"#, "message.content[0]: must have exactly one of text, file, data"),
        (
            r#""content":[{"text":"a","file":{}}]"#,
            "message.content[0]: must have exactly one of text, file, data",
        ),
        (
            r#""content":[{"file":{"fileWithUri":"u","fileWithBytes":"aGk="}}]"#,
            "message.content[0].file: must have exactly one of fileWithUri, fileWithBytes",
        ),
        (
            r#""content":[{"file":{"fileWithBytes":"?"}}]"#,
            "message.content[0].file.fileWithBytes: must be base64",
        ),
        (r#""content":[{"data":{"data":[]}}]"#, "message.content[0].data.data: must be an object"),
        (r#""content":[{"kind":"video"}]"#, "message.content[0].kind: must be text, file or data"),
    ] {
        assert_eq!(first(content).as_deref(), Some(fault), "{content}");
    }
}

#[test]
fn invalid_parameters_are_refused_with_their_fields() {
    let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(257));
    for (kind, text, dialect, found) in [
        (OperationKind::GetTask, "{}", Dialect::V10, "id: is required"),
        (OperationKind::GetTask, r#"{"id":""}"#, Dialect::V03, "id: is required"),
        (OperationKind::GetTask, r#"{"id":7}"#, Dialect::V10, "id: must be a string"),
        (
            OperationKind::GetTask,
            r#"{"id":"a","historyLength":-5}"#,
            Dialect::V10,
            "historyLength: must not be negative, got -5",
        ),
        (OperationKind::GetTask, long.as_str(), Dialect::V10, "id: must have at most 256 bytes"),
        (
            OperationKind::ListTasks,
            r#"{"pageSize":0}"#,
            Dialect::V10,
            "pageSize: must be between 1 and 100, got 0",
        ),
        (
            OperationKind::ListTasks,
            r#"{"pageSize":101}"#,
            Dialect::V10,
            "pageSize: must be between 1 and 100, got 101",
        ),
        (
            OperationKind::ListTasks,
            r#"{"status":"TASK_STATE_RUNNING"}"#,
            Dialect::V10,
            "status: is not a state of a task",
        ),
        (
            OperationKind::ListTasks,
            r#"{"statusTimestampAfter":"x"}"#,
            Dialect::V10,
            "statusTimestampAfter: must be a time as in RFC 3339",
        ),
        (OperationKind::CreatePush, r#"{"url":"https://a"}"#, Dialect::V10, "taskId: is required"),
        (OperationKind::CreatePush, r#"{"taskId":"t"}"#, Dialect::V10, "url: is required"),
        (OperationKind::GetPush, r#"{"taskId":"t"}"#, Dialect::V10, "id: is required"),
        (OperationKind::DeletePush, r#"{"id":"t"}"#, Dialect::V03, "pushNotificationConfigId: is required"),
        (
            OperationKind::ListPush,
            r#"{"taskId":"t","pageSize":-1}"#,
            Dialect::V10,
            "pageSize: must not be negative, got -1",
        ),
    ] {
        assert_eq!(faults(kind, text, dialect), [found], "{text}");
    }
    // 0.3 may leave the configuration's id out.
    assert_eq!(faults(OperationKind::GetPush, r#"{"id":"t"}"#, Dialect::V03), Vec::<String>::new());
}

#[test]
fn line_breaks_never_reach_a_header() {
    for member in [r#""token":"a\r\nb""#, r#""url":"https://a\n""#, r#""id":"a\u0000""#] {
        let url = if member.contains("url") { "" } else { r#","url":"https://a""# };
        let text = format!(r#"{{"taskId":"t",{member}{url}}}"#);
        let found = faults(OperationKind::CreatePush, &text, Dialect::V10);
        assert!(
            found.first().is_some_and(|fault| fault.ends_with("control characters")),
            "{text}: {found:?}"
        );
    }
    for authentication in [r#"{"scheme":"Bearer\n"}"#, r#"{"scheme":"Bearer","credentials":"x\r\nY: z"}"#] {
        let text = format!(r#"{{"taskId":"t","url":"https://a","authentication":{authentication}}}"#);
        let found = faults(OperationKind::CreatePush, &text, Dialect::V10);
        assert!(
            found.first().is_some_and(|fault| fault.ends_with("control characters")),
            "{text}: {found:?}"
        );
    }
}
