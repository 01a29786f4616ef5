//! An upstream MCP server that says more than is taken: each bound, just below it and just beyond.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use asp_mcp_client::client::modern::Eras;
use asp_mcp_client::client::proof::Proof;
use asp_mcp_client::client::session::Session;
use asp_mcp_client::client::{Client, ClientFault};
use asp_mcp_client::listing::{Lists, list};
use axum::body::{Body, Bytes, to_bytes};
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;

use super::*;

/// Hang guard.
const PATIENCE: Duration = Duration::from_secs(60);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The result of a request: its method, and how many of that method came before.
type Script = Arc<dyn Fn(&str, usize) -> Option<Value> + Send + Sync>;

async fn upstream(script: impl Fn(&str, usize) -> Option<Value> + Send + Sync + 'static) -> SocketAddr {
    let script: Script = Arc::new(script);
    let asked = Arc::new(Mutex::new(std::collections::HashMap::<String, usize>::new()));
    let router = axum::Router::new().fallback(async move |request: Request| {
        let body = to_bytes(request.into_body(), MIB).await.unwrap();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let method = message["method"].as_str().unwrap_or_default();
        let before = {
            let mut asked = asked.lock();
            let count = asked.entry(method.to_owned()).or_default();
            *count += 1;
            *count - 1
        };
        let greeting = || json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}});
        let result = if method == "initialize" { Some(greeting()) } else { script(method, before) };
        let answer = match result {
            _ if message.get("id").is_none() => return StatusCode::ACCEPTED.into_response(),
            Some(result) => json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
            None => {
                json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})
            }
        };
        axum::Json(answer).into_response()
    });
    serve(router).await
}

async fn session(address: SocketAddr) -> (Client, Session) {
    let url = format!("http://{address}/mcp").parse().unwrap();
    let client = Client {
        http: reqwest::Client::new(),
        url,
        tasks: Arc::default(),
        eras: Eras::default(),
        proof: Proof::default(),
    };
    let session = client.initialize(json!({})).await.unwrap();
    (client, session)
}

async fn listed(
    script: impl Fn(&str, usize) -> Option<Value> + Send + Sync + 'static,
) -> Result<Lists, ClientFault> {
    let (client, session) = session(upstream(script).await).await;
    tokio::time::timeout(PATIENCE, list(&client, &session)).await.unwrap()
}

fn is_lost(result: &Result<Lists, ClientFault>, why: &str) -> bool {
    matches!(result, Err(ClientFault::Lost(said)) if said.contains(why))
}

#[tokio::test]
async fn a_hundred_pages_of_a_list_are_followed_and_no_more() {
    for (pages, is_whole) in [(100, true), (101, false)] {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let found = listed(move |method, page| {
            (method == "tools/list").then(|| {
                counted.fetch_add(1, Ordering::Relaxed);
                match page + 1 < pages {
                    true => json!({"tools": [{"name": page}], "nextCursor": page.to_string()}),
                    false => json!({"tools": [{"name": page}]}),
                }
            })
        })
        .await;
        assert_eq!(asked.load(Ordering::Relaxed), 100);
        match is_whole {
            true => assert_eq!(found.unwrap().tools.len(), 100),
            false => assert!(is_lost(&found, "more than 100 pages"), "{:?}", found.err()),
        }
    }
}

#[tokio::test]
async fn a_list_ends_with_a_cursor_that_is_empty_null_or_the_one_before() {
    for (next, pages) in [(json!(""), 1), (json!(null), 1), (json!("again"), 2)] {
        let lists = listed(move |method, page| {
            (method == "tools/list").then(|| json!({"tools": [{"name": page}], "nextCursor": next}))
        });
        assert_eq!(lists.await.unwrap().tools.len(), pages);
    }
}

#[tokio::test]
async fn a_list_that_a_server_does_not_say_it_has_is_refused_in_any_words() {
    for (can, is_listed) in [(json!({"tools": {}, "prompts": null}), true), (json!({}), false)] {
        for (status, body) in [
            (200, json!({"error": {"code": -32603, "message": "Method not found"}})),
            (400, json!({"error": "unknown method"})),
            (405, json!(null)),
            (501, json!(null)),
        ] {
            let said = can.clone();
            let router = axum::Router::new().fallback(async move |request: Request| {
                let body_of = to_bytes(request.into_body(), MIB).await.unwrap();
                let message: Value = serde_json::from_slice(&body_of).unwrap_or_default();
                let result = match message["method"].as_str() {
                    Some("initialize") => {
                        json!({"protocolVersion": "2025-11-25", "capabilities": said, "serverInfo": {}})
                    }
                    Some("tools/list") => json!({"tools": [{"name": "a"}]}),
                    Some("prompts/list" | "resources/list" | "resources/templates/list") => {
                        let mut refusal = body.clone();
                        if refusal.is_object() {
                            refusal["id"] = message["id"].clone();
                        }
                        return (StatusCode::from_u16(status).unwrap(), axum::Json(refusal)).into_response();
                    }
                    _ => return StatusCode::ACCEPTED.into_response(),
                };
                axum::Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
            });
            let (client, session) = session(serve(router).await).await;
            let lists = list(&client, &session).await;
            assert_eq!(lists.is_ok_and(|lists| lists.tools.len() == 1), is_listed, "{status} {can}");
        }
    }
}

#[tokio::test]
async fn ten_thousand_items_of_a_list_are_taken_and_no_more() {
    for (items, is_whole) in [(10_000, true), (10_001, false)] {
        let page = move |method: &str, _| {
            (method == "prompts/list").then(|| json!({"prompts": vec![json!({}); items]}))
        };
        let found = listed(page).await;
        match is_whole {
            true => assert_eq!(found.unwrap().prompts.len(), items),
            false => assert!(is_lost(&found, "more than 10000 items"), "{:?}", found.err()),
        }
    }
}

/// A zero takes two bytes on the wire and those of a `Value` here.
#[tokio::test]
async fn all_lists_of_a_server_together_take_so_much_memory_and_no_more() {
    let zeros = MIB * 64 / size_of::<Value>() / 2;
    for (more, is_whole) in [(-64, true), (64, false)] {
        let count = zeros.checked_add_signed(more).unwrap();
        let found = listed(move |method, _| match method {
            "tools/list" => Some(json!({"tools": [vec![0; count]]})),
            "resources/list" => Some(json!({"resources": [vec![0; count]]})),
            _ => None,
        })
        .await;
        assert_eq!(found.is_ok(), is_whole, "{:?}", found.err());
        assert!(is_whole || is_lost(&found, "all lists take more than"));
    }
}

#[tokio::test]
async fn a_page_has_four_mebibytes_and_no_more() {
    for (size, is_whole) in [(4 * MIB - KIB, true), (4 * MIB, false)] {
        let found =
            listed(move |method, _| (method == "tools/list").then(|| json!({"tools": ["x".repeat(size)]})))
                .await;
        assert_eq!(found.is_ok(), is_whole, "{:?}", found.err());
        assert!(is_whole || is_lost(&found, "too large"));
    }
}

#[tokio::test]
async fn an_answer_has_sixteen_mebibytes_and_no_more() {
    for (size, is_whole) in [(16 * MIB - KIB, true), (16 * MIB, false)] {
        let said = move |method: &str, _| (method == "tools/call").then(|| json!({"text": "x".repeat(size)}));
        let (client, session) = session(upstream(said).await).await;
        match client.request(&session, client.alone("tools/call", json!({}))).await {
            Ok(result) => assert!(is_whole && result["text"].as_str().unwrap().len() == size),
            Err(ClientFault::Lost(why)) => assert!(!is_whole && why.contains("too large"), "{why}"),
            Err(fault) => panic!("{fault}"),
        }
    }
}

/// An upstream with sessions, each of which may listen to what `says` gives, event by event. How many streams were
/// opened, and how many of them its client has closed.
async fn speaking(
    says: impl Fn(usize) -> Option<String> + Clone + Send + Sync + 'static,
) -> (SocketAddr, watch::Receiver<(usize, usize)>) {
    struct Open(Arc<watch::Sender<(usize, usize)>>);
    impl Drop for Open {
        fn drop(&mut self) {
            self.0.send_modify(|(_, closed)| *closed += 1);
        }
    }
    let (sender, streams) = watch::channel((0, 0));
    let sender = Arc::new(sender);
    let sessions = Arc::new(AtomicUsize::new(0));
    let router = axum::Router::new().fallback(async move |request: Request| -> Response {
        if request.method() == http::Method::GET {
            sender.send_modify(|(opened, _)| *opened += 1);
            let open = Open(sender.clone());
            let says = says.clone();
            let events = futures::stream::unfold((0, open), move |(number, open)| {
                let said = says(number);
                async move {
                    let Some(said) = said else { return std::future::pending().await };
                    Some((Ok::<_, std::io::Error>(Bytes::from(said)), (number + 1, open)))
                }
            });
            return ([("content-type", "text/event-stream")], Body::from_stream(events)).into_response();
        }
        let body = to_bytes(request.into_body(), MIB).await.unwrap();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}),
            "tools/call" => json!({"content": [], "structuredContent": {"ok": true}}),
            _ => return StatusCode::ACCEPTED.into_response(),
        };
        let id = format!("s{}", sessions.fetch_add(1, Ordering::Relaxed));
        let answer = axum::Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
        ([("mcp-session-id", id)], answer).into_response()
    });
    (serve(router).await, streams)
}

fn fixture(address: SocketAddr) -> Fixture {
    let mut snapshot = via_mcp(&["echo"], address);
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.output_schema.clear();
    }
    Fixture::of(snapshot)
}

async fn calls(client: &Legacy) -> Value {
    let params = json!({"name": "echo", "arguments": {"message": "m"}});
    client.request(2, "tools/call", params).await.json()
}

/// An event of that size.
fn event(size: usize) -> String {
    let notification =
        json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"x": "x".repeat(size)}});
    format!("data: {notification}\n\n")
}

/// Returns the number of events of that size that were read from a stream before it was closed.
async fn heard_of(size: usize, only_one: bool) -> usize {
    let read = Arc::new(AtomicUsize::new(0));
    let counted = read.clone();
    let (address, mut streams) = speaking(move |number| {
        (number == 0 || !only_one).then(|| {
            counted.fetch_max(number + 1, Ordering::Relaxed);
            event(size)
        })
    })
    .await;
    let fixture = fixture(address);
    let client = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
    assert_eq!(calls(&client).await["result"]["structuredContent"], json!({"ok": true}));
    tokio::time::timeout(PATIENCE, streams.wait_for(|(_, closed)| *closed > 0)).await.unwrap().unwrap();
    // The call's session is as good as before.
    assert_eq!(calls(&client).await["result"]["structuredContent"], json!({"ok": true}));
    read.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_stream_of_what_a_server_says_by_itself_is_closed_at_an_event_that_is_too_large() {
    assert_eq!(heard_of(300 * KIB, true).await, 1);
}

#[tokio::test]
async fn a_stream_of_what_a_server_says_by_itself_is_closed_where_it_says_too_much_in_a_minute() {
    let read = heard_of(200 * KIB, false).await;
    assert!(read >= 20, "{read} events of 200 KiB are not yet 4 MiB");
}

#[tokio::test]
async fn so_many_sessions_are_listened_to_and_the_calls_of_others_go_on_all_the_same() {
    const LISTENERS: usize = 256;
    let (address, mut streams) = speaking(|_| None).await;
    let fixture = fixture(address);
    let mut clients = Vec::new();
    // One user alone has no more sessions than that.
    for user in ["alice", "bob"].into_iter().cycle().take(LISTENERS + 4) {
        let client = Legacy::connect(&fixture, "demo", user, "2025-11-25", json!({})).await;
        assert_eq!(calls(&client).await["result"]["structuredContent"], json!({"ok": true}));
        clients.push(client);
    }
    let all = streams.wait_for(|(opened, _)| *opened >= LISTENERS);
    tokio::time::timeout(PATIENCE, all).await.unwrap().unwrap();
    assert_eq!(*streams.borrow(), (LISTENERS, 0));
}
