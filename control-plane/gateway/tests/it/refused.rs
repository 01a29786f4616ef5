//! Foreign, forged and expired ids get byte for byte the answer of an unknown id (I-10): cursors,
//! request states, tasks and sessions, as tables.

use asp_call::call::principal::principal;
use asp_call::seal::Purpose;
use asp_protocols::request_state::RequestState;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::plugin::{asks_name, modern};
use crate::registry::caller;
use crate::runtime::{Runtime, Script, Worker};
use crate::support::{Answer, Fixture, Legacy, Modern, now, snapshot, token};

/// Everything that a caller can tell answers apart by; their trace is the request's own.
fn said(answer: &Answer) -> (StatusCode, Vec<(String, String)>, String) {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = answer.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    (answer.status, headers, answer.text.clone())
}

/// A sealed text with one letter changed, at several places, and parts of it.
fn forged(sealed: &str) -> Vec<String> {
    let mut forged = Vec::new();
    for place in [0, sealed.len() / 3, sealed.len() / 2, sealed.len() - 2] {
        let letter = if sealed.as_bytes()[place] == b'A' { "B" } else { "A" };
        let mut changed = sealed.to_owned();
        changed.replace_range(place..=place, letter);
        forged.push(changed);
    }
    let half = &sealed[..sealed.len() / 2];
    forged.extend([half.to_owned(), format!("{sealed}{half}"), format!("{sealed}="), String::new()]);
    forged
}

/// A cursor of `list` on `server` for a user, as the gateway itself seals it.
fn cursor(fixture: &Fixture, list: &str, server: &str, user: &str) -> String {
    let context = [list, server, "dev", "acme", user].join("\u{0}");
    fixture.gateway.sealer.seal(Purpose::Cursor, context.as_bytes(), &1_u64.to_be_bytes()).unwrap()
}

#[tokio::test]
async fn a_cursor_opens_its_own_list_for_its_own_user_and_no_other() {
    let fixture = Fixture::new();
    let legacy = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
    let own = cursor(&fixture, "tools", "demo", "alice");
    let mut foreign = vec![
        ("another list's", cursor(&fixture, "prompts", "demo", "alice")),
        ("another server's", cursor(&fixture, "tools", "policy", "alice")),
        ("another user's", cursor(&fixture, "tools", "demo", "bob")),
        ("another gateway's", cursor(&Fixture::sealed_with(snapshot(), 8), "tools", "demo", "alice")),
    ];
    foreign.extend(forged(&own).into_iter().map(|cursor| ("a forged one", cursor)));
    let list = |cursor: &str| Modern::new("demo", &token("alice"), "tools/list", json!({"cursor": cursor}));
    let pages = [
        list(&own).send(&fixture).await.json(),
        legacy.request(2, "tools/list", json!({"cursor": own})).await.json(),
    ];
    for page in pages {
        // It begins after the first tool.
        assert_eq!(page["result"]["tools"][0]["name"], "clock", "{page}");
    }
    let unknown = said(&list("nothing").send(&fixture).await);
    let unknown_before = said(&legacy.request(3, "tools/list", json!({"cursor": "nothing"})).await);
    assert!(unknown.2.contains("-32602") && unknown_before.2.contains("-32602"), "{}", unknown.2);
    for (whose, cursor) in foreign {
        assert_eq!(said(&list(&cursor).send(&fixture).await), unknown, "{whose}: {cursor}");
        let answer = legacy.request(3, "tools/list", json!({"cursor": cursor})).await;
        assert_eq!(said(&answer), unknown_before, "{whose}: {cursor}");
    }
}

/// A retry of `policy.wipe` with a state.
fn retry(server: &str, user: &str, arguments: Value, state: &str) -> Modern {
    let accept = json!({"asp.approve": {"action": "accept", "content": {"approve": true}}});
    let params = json!({"name": "policy.wipe", "arguments": arguments, "requestState": state,
                        "inputResponses": accept});
    Modern::new(server, &token(user), "tools/call", params).capabilities(json!({"elicitation": {}}))
}

/// Alice's state of `wipe` at `policy`, as the gateway itself would have sealed it with another moment of its end.
fn ending_at(fixture: &Fixture, state: &str, arguments: &Value, unix_seconds: u64) -> String {
    let params = json!({"name": "policy.wipe", "arguments": arguments});
    let digest = RequestState::digest("tools/call", Some(&params.into()));
    let context = [&principal(&caller("alice"))[..], &digest[..], b"policy"].concat();
    let mut plain = fixture.gateway.sealer.open(Purpose::RequestState, &context, state).unwrap();
    plain[16..24].copy_from_slice(&unix_seconds.to_be_bytes());
    fixture.gateway.sealer.seal(Purpose::RequestState, &context, &plain).unwrap()
}

#[tokio::test]
async fn a_request_state_goes_on_with_its_own_request_and_is_spent_once() {
    let fixture = Fixture::new();
    let arguments = json!({"message": "gone"});
    let params = json!({"name": "policy.wipe", "arguments": arguments});
    let first = Modern::new("policy", &token("alice"), "tools/call", params);
    let asked = first.capabilities(json!({"elicitation": {}})).send(&fixture).await.json();
    let state = asked["result"]["requestState"].as_str().unwrap().to_owned();
    let unknown = |server: &'static str, user: &'static str, arguments: Value| {
        let fixture = fixture.clone();
        async move { said(&retry(server, user, arguments, "nothing").send(&fixture).await) }
    };
    let nothing = unknown("policy", "alice", arguments.clone()).await;
    assert!(nothing.2.contains("-32602"), "{}", nothing.2);
    for state in forged(&state) {
        let answer = retry("policy", "alice", arguments.clone(), &state).send(&fixture).await;
        assert_eq!(said(&answer), nothing, "{state}");
    }
    let others = [
        ("policy", "bob", arguments.clone(), "another user"),
        ("demo", "alice", arguments.clone(), "another server"),
        ("policy", "alice", json!({"message": "more"}), "other arguments"),
    ];
    for (server, user, arguments, what) in others {
        let answer = retry(server, user, arguments.clone(), &state).send(&fixture).await;
        assert_eq!(said(&answer), unknown(server, user, arguments).await, "{what}");
    }
    let other_key = Fixture::sealed_with(snapshot(), 8);
    let elsewhere = retry("policy", "alice", arguments.clone(), &state).send(&other_key).await;
    assert_eq!(said(&elsewhere), nothing, "a gateway with another key");
    for over in [0, now() - 1] {
        let state = ending_at(&fixture, &state, &arguments, over);
        let answer = retry("policy", "alice", arguments.clone(), &state).send(&fixture).await;
        assert_eq!(said(&answer), nothing, "over at {over}");
    }
    // Its own user may send it again, as one does whose answer was lost: the call has run once, and says the same.
    let lasting = ending_at(&fixture, &state, &arguments, now() + 60);
    let done = retry("policy", "alice", arguments.clone(), &lasting).send(&fixture).await;
    assert_eq!(done.json()["result"]["isError"], false, "{}", done.text);
    fixture.gateway.flush().await;
    let ran = fixture.audit.events().len();
    let again = retry("policy", "alice", arguments.clone(), &state).send(&fixture).await;
    assert_eq!(again.json()["result"], done.json()["result"]);
    fixture.gateway.flush().await;
    assert_eq!(fixture.audit.events().len(), ran, "it has not run again");
    for (server, user, arguments) in [("policy", "bob", arguments.clone()), ("policy", "alice", json!({}))] {
        let answer = retry(server, user, arguments.clone(), &state).send(&fixture).await;
        assert_eq!(said(&answer), unknown(server, user, arguments).await, "replayed by {user}");
    }
}

#[tokio::test]
async fn a_task_of_another_is_refused_in_the_bytes_of_none() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        while worker.next().await.is_some() {}
    }));
    let fixture = Fixture::with(snapshot(), 7, runtime.runtimes());
    let can = json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    let begun = modern("sweep", json!({})).capabilities(can.clone()).send(&fixture).await.json();
    let task = begun["result"]["taskId"].as_str().unwrap().to_owned();
    let of_task = |server: &str, user: &str, method: &str, id: &str| {
        let params = json!({"taskId": id, "inputResponses": {}});
        Modern::new(server, &token(user), method, params).with("mcp-name", id).capabilities(can.clone())
    };
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        for (server, user) in [("plugins", "bob"), ("demo", "alice"), ("demo", "bob")] {
            let none = Uuid::now_v7().to_string();
            let unknown = said(&of_task(server, user, method, &none).send(&fixture).await);
            assert!(unknown.2.contains("-32602"), "{}", unknown.2);
            for id in [task.as_str(), "nothing", &task.to_uppercase(), &task[..30]] {
                let answer = said(&of_task(server, user, method, id).send(&fixture).await);
                assert_eq!(answer, unknown, "{method} by {user} at {server}: {id}");
            }
        }
    }
    let own = of_task("plugins", "alice", "tasks/get", &task).send(&fixture).await.json();
    assert_eq!(own["result"]["taskId"], *task, "{own}");
}

#[tokio::test]
async fn a_session_of_another_is_refused_in_the_bytes_of_none() {
    let fixture = Fixture::new();
    let own = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
    let ended = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
    let other_key = Fixture::sealed_with(snapshot(), 8);
    let elsewhere = Legacy::connect(&other_key, "demo", "alice", "2025-11-25", json!({})).await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let ask = |method: Method, server: &'static str, user: &'static str, session: String| {
        let fixture = fixture.clone();
        let ping = ping.clone();
        async move {
            let bearer = format!("Bearer {}", token(user));
            let headers = [
                ("authorization", bearer.as_str()),
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
                ("mcp-session-id", session.as_str()),
                ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ];
            let body = if method == Method::POST { ping.as_str() } else { "" };
            said(&fixture.send(method, &format!("/{server}/mcp"), &headers, body).await)
        }
    };
    assert_eq!(ask(Method::DELETE, "demo", "alice", ended.session.clone()).await.0, StatusCode::OK);
    let mut rows = vec![
        ("another user's", "demo", "bob", own.session.clone()),
        ("another server's", "policy", "alice", own.session.clone()),
        ("an ended one", "demo", "alice", ended.session.clone()),
        ("another gateway's", "demo", "alice", elsewhere.session.clone()),
    ];
    // Without its end it is no session either; an empty header is one.
    rows.extend(forged(&own.session).into_iter().map(|session| ("a forged one", "demo", "alice", session)));
    for method in [Method::POST, Method::GET, Method::DELETE] {
        for (what, server, user, session) in &rows {
            let unknown = ask(method.clone(), server, user, "nothing".into()).await;
            assert_eq!(unknown.0, StatusCode::NOT_FOUND);
            let answer = ask(method.clone(), server, user, session.clone()).await;
            assert_eq!(answer, unknown, "{method} with {what}: {session}");
        }
    }
    assert_eq!(own.request(2, "ping", json!({})).await.status, StatusCode::OK, "it is still there");
}
