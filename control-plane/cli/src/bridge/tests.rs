//! Messages when the server fails.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Requests received: the method of HTTP or of the message (or all of a message that not every parser reads), and the session.
type RequestLog = Arc<Mutex<Vec<(String, String)>>>;

/// Returns status, session and body of the response to a method in a session.
type Says = dyn Fn(&str, &str) -> (u16, Option<String>, String) + Send + Sync;

/// Starts a server on a free port.
async fn server(says: Arc<Says>) -> (ServerEndpoint, RequestLog) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/demo/mcp", listener.local_addr().unwrap()).parse().unwrap();
    let seen = RequestLog::default();
    let all = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(one(stream, Arc::clone(&says), Arc::clone(&all)));
        }
    });
    (ServerEndpoint { url, credential: Credential::None }, seen)
}

/// Answers one request of a connection, then closes it.
async fn one(mut stream: TcpStream, says: Arc<Says>, seen: RequestLog) {
    let mut request = Vec::new();
    let (head, body) = loop {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).await.unwrap();
        request.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = header(head, "content-length").parse().unwrap_or(0);
        if body.len() >= length {
            break (head.to_owned(), body.to_owned());
        }
    };
    let message: Value = serde_json::from_str(&body).unwrap_or_default();
    let verb = head.split(' ').next().unwrap_or_default();
    let verb = match header(&head, "last-event-id") {
        "" if message.is_null() && !body.is_empty() => body.clone(),
        "" => verb.to_owned(),
        last => format!("{verb} {last}"),
    };
    let method = message.get("method").and_then(Value::as_str).map_or(verb, str::to_owned);
    let session = header(&head, SESSION_ID).to_owned();
    seen.lock().push((method.clone(), session.clone()));
    let (status, opened, body) = says(&method, &session);
    let body = body.replace("ID", &message.get("id").cloned().unwrap_or_default().to_string());
    let opened = opened.map(|session| format!("{SESSION_ID}: {session}\r\n")).unwrap_or_default();
    // A stream has no length: it ends when the connection closes.
    let (kind, length) = match body.starts_with("id: ") {
        true => ("text/event-stream", String::new()),
        false => ("application/json", format!("content-length: {}\r\n", body.len())),
    };
    let answer = format!(
        "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-type: {kind}\r\n{opened}{length}\r\n{body}"
    );
    let _ = stream.write_all(answer.as_bytes()).await;
}

const SESSION_ID: &str = "mcp-session-id";

fn header<'h>(head: &'h str, name: &str) -> &'h str {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value.trim())
}

fn bridge(place: ServerEndpoint) -> (Arc<Bridge>, mpsc::Receiver<String>) {
    let (out, answers) = mpsc::channel(OUTGOING);
    (Arc::new(Bridge::new(place, out).unwrap()), answers)
}

async fn answer(answers: &mut mpsc::Receiver<String>) -> Value {
    let line = tokio::time::timeout(Duration::from_secs(30), answers.recv()).await.expect("an answer");
    serde_json::from_str(&line.unwrap()).unwrap()
}

fn request(id: u64, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

const RESULT: &str = r#"{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2025-11-25"}}"#;

#[tokio::test]
async fn a_session_that_is_lost_is_opened_anew_and_is_as_it_was() {
    let opened = AtomicUsize::new(0);
    let last = Arc::new(Mutex::new(String::new()));
    let current = Arc::clone(&last);
    let (place, seen) = server(Arc::new(move |method, session| match method {
        "initialize" => {
            let session = format!("s{}", opened.fetch_add(1, Ordering::Relaxed));
            current.lock().clone_from(&session);
            (200, Some(session), RESULT.to_owned())
        }
        "GET" => (405, None, String::new()),
        _ if session != *current.lock() => (404, None, String::new()),
        "notifications/initialized" => (202, None, String::new()),
        _ => (200, None, RESULT.to_owned()),
    }))
    .await;
    let (bridge, mut answers) = bridge(place);
    take(&bridge, request(1, "initialize", json!({}))).await;
    answer(&mut answers).await;
    take(&bridge, json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string()).await;
    let uri = |uri: &str| json!({"uri": uri});
    let before = [
        request(2, "logging/setLevel", json!({"level": "info"})),
        request(3, "resources/subscribe", uri("a:1")),
        request(4, "resources/subscribe", uri("a:2")),
        request(5, "resources/unsubscribe", uri("a:1")),
    ];
    for message in before {
        take(&bridge, message).await;
        answer(&mut answers).await;
    }
    last.lock().clear();
    let known = seen.lock().len();
    take(&bridge, request(6, "tools/list", json!({}))).await;
    let listed = answer(&mut answers).await;
    assert_eq!((&listed["id"], listed.get("error")), (&json!(6), None), "{listed}");
    let expected = [
        ("tools/list", "s0"),
        ("initialize", ""),
        ("notifications/initialized", "s1"),
        ("logging/setLevel", "s1"),
        ("resources/subscribe", "s1"),
        ("tools/list", "s1"),
    ];
    let mut after: Vec<(String, String)> = seen.lock().iter().skip(known).cloned().collect();
    after.retain(|(method, _)| method != "GET");
    assert_eq!(after, expected.map(|(method, session)| (method.to_owned(), session.to_owned())));
}

#[tokio::test]
async fn what_is_no_message_and_what_has_no_id_is_an_answer_to_its_request() {
    let (place, _) = server(Arc::new(|method, _| match method {
        "tools/list" => (502, None, "<html>".to_owned()),
        _ => (401, None, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"no"}}"#.to_owned()),
    }))
    .await;
    let (bridge, mut answers) = bridge(place);
    take(&bridge, request(1, "tools/list", json!({}))).await;
    let said = answer(&mut answers).await;
    assert_eq!((&said["id"], &said["error"]["data"]["reason"]), (&json!(1), &json!("upstream_unavailable")));
    take(&bridge, request(2, "tools/call", json!({}))).await;
    let said = answer(&mut answers).await;
    assert_eq!((&said["id"], &said["error"]["code"]), (&json!(2), &json!(-32001)), "{said}");
    for (line, code) in [("{", -32700), ("3", -32600), ("\"a\"", -32600)] {
        take(&bridge, line.to_owned()).await;
        assert_eq!(answer(&mut answers).await["error"]["code"], code, "{line}");
    }
}

/// Starts a server whose call stream breaks; `back` answers a client that resumes after an event.
async fn breaking(back: fn(&str) -> (u16, String)) -> (Arc<Bridge>, mpsc::Receiver<String>, RequestLog) {
    let (place, seen) = server(Arc::new(move |method, _| match method {
        "initialize" => (200, Some("s".to_owned()), RESULT.to_owned()),
        "tools/call" => {
            (200, None, "id: e1\ndata:\n\nid: e2\ndata: {\"n\":1}\n\nid: e3\ndata: {\"n".to_owned())
        }
        _ => match method.strip_prefix("GET ") {
            Some(last) => {
                let (status, body) = back(last);
                (status, None, body)
            }
            None => (405, None, String::new()),
        },
    }))
    .await;
    let (bridge, mut answers) = bridge(place);
    take(&bridge, request(1, "initialize", json!({}))).await;
    answer(&mut answers).await;
    take(&bridge, request(2, "tools/call", json!({}))).await;
    (bridge, answers, seen)
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_gone_on_with_after_the_last_event_that_came() {
    let (_bridge, mut answers, seen) = breaking(|last| match last {
        "e2" => (200, "id: e3\nretry: 1\ndata: {\"n\":2}\n\n".to_owned()),
        "e3" => (503, String::new()),
        _ => (400, String::new()),
    })
    .await;
    assert_eq!(answer(&mut answers).await, json!({"n": 1}));
    assert_eq!(answer(&mut answers).await, json!({"n": 2}));
    // Resumptions without progress are bounded.
    let last = answer(&mut answers).await;
    assert_eq!((&last["id"], &last["error"]["data"]["reason"]), (&json!(2), &json!("outcome_unknown")));
    let gets = seen.lock().iter().filter(|(method, _)| method == "GET e3").count();
    assert_eq!(gets, 8, "so often it is tried");
    assert!(seen.lock().iter().all(|(method, session)| method == "initialize" || session == "s"));
}

#[tokio::test]
async fn what_is_not_kept_any_more_is_told_as_unknown_and_what_was_cancelled_is_not_told() {
    let (_bridge, mut answers, _) = breaking(|_| (400, String::new())).await;
    assert_eq!(answer(&mut answers).await, json!({"n": 1}));
    let last = answer(&mut answers).await;
    assert_eq!((&last["id"], &last["error"]["data"]["reason"]), (&json!(2), &json!("outcome_unknown")));
    let (bridge, mut answers, _) = breaking(|_| (204, String::new())).await;
    assert_eq!(answer(&mut answers).await, json!({"n": 1}));
    take(&bridge, request(3, "nothing", json!({}))).await;
    assert_eq!(answer(&mut answers).await["id"], 3);
}

/// Invariant I-14.
#[tokio::test]
async fn an_id_beyond_64_bits_comes_back_as_it_was_written() {
    let id = "340282366920938463463374607431768211455";
    let null = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}"#;
    for body in [null, "<h1>Bad Request</h1>"] {
        let (place, _seen) = server(Arc::new(move |_, _| (400, None, body.to_owned()))).await;
        let (bridge, mut answers) = bridge(place);
        for meta in [json!({}), json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"})] {
            let params = json!({"name": "t", "arguments": {}, "_meta": meta});
            let call = request(7, "tools/call", params).replace("\"id\":7", &format!("\"id\":{id}"));
            take(&bridge, call).await;
            let line = tokio::time::timeout(Duration::from_secs(30), answers.recv()).await;
            let line = line.expect("an answer").unwrap();
            assert!(line.contains(&format!("\"id\":{id}")), "{line}");
        }
    }
}

#[tokio::test]
async fn each_refused_call_has_its_id_and_no_page_of_a_proxy_is_a_message() {
    let null = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}"#;
    for (body, message) in [(null, "no"), ("<h1>Bad Request</h1>", "answered 400 without a message")] {
        let (place, _seen) = server(Arc::new(move |_, _| (400, None, body.to_owned()))).await;
        let (bridge, mut answers) = bridge(place);
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
        let call = request(7, "tools/call", json!({"name": "t", "arguments": {}, "_meta": meta}));
        // Some clients start with a byte order mark.
        take(&bridge, format!("\u{feff}{call}")).await;
        let answer = answer(&mut answers).await;
        assert_eq!(answer["id"], 7, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(message), "{answer}");
    }
}

#[tokio::test]
async fn a_message_passes_as_it_was_written_in_both_directions() {
    let half = r#"{"a":"\ud83d","n":340282366920938463463374607431768211456,"a\u0062":1.50}"#;
    let body = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"structuredContent":{half}}}}}"#);
    let sent = body.clone();
    let (place, seen) = server(Arc::new(move |_, _| (200, None, sent.clone()))).await;
    let (bridge, mut answers) = bridge(place);
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"t","arguments":{half},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}}}}"#
    );
    take(&bridge, call.clone()).await;
    let line =
        tokio::time::timeout(Duration::from_secs(30), answers.recv()).await.expect("an answer").unwrap();
    assert_eq!(line.trim_end(), body);
    assert!(seen.lock().iter().any(|(request, _)| *request == call), "{:?}", seen.lock());
}

#[tokio::test]
async fn requests_that_were_read_are_answered_after_the_end_of_the_input() {
    let (place, _seen) = server(Arc::new(|_, _| (200, None, RESULT.to_owned()))).await;
    let (bridge, mut answers) = bridge(place);
    let (input, lines) = mpsc::channel(OUTGOING);
    for id in 1..=3 {
        input.send(Line::Whole(request(id, "tools/list", json!({})))).await.unwrap();
    }
    drop(input);
    tokio::time::timeout(Duration::from_secs(30), serve(&bridge, lines)).await.expect("it ends");
    let mut ids = Vec::new();
    while let Ok(line) = answers.try_recv() {
        let answer: Value = serde_json::from_str(&line).unwrap();
        ids.push(answer["id"].as_u64().unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3]);
}

#[tokio::test]
async fn a_listening_request_does_not_outlast_the_input() {
    // It accepts connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/demo/mcp", silent.local_addr().unwrap()).parse().unwrap();
    let (bridge, mut answers) = bridge(ServerEndpoint { url, credential: Credential::None });
    let (input, lines) = mpsc::channel(OUTGOING);
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    let listen = request(1, LISTEN, json!({"notifications": {}, "_meta": meta}));
    input.send(Line::Whole(listen)).await.unwrap();
    drop(input);
    tokio::time::timeout(Duration::from_secs(30), serve(&bridge, lines)).await.expect("it ends");
    assert!(answers.try_recv().is_err(), "nobody reads an answer");
}
