//! Every method of every revision once, through Envoy, so that the recorder on the wire sees each of them with an answer.
//!
//! What comes back is judged by the recorder; here stands only that each step came to the end it should.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{self, Opened, Request, Response};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::tool;
use libtest_mimic::Trial;
use serde_json::{Map, Value, json};

use crate::message::{legacy, modern};
use crate::policy::{admin, caller};
use crate::trial::{Shared, trials};

const LEGACY: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const WATCHED: &str = "demo://about";

trials! { revisions:
    every_method_of_2026_07_28_has_its_answer,
    every_change_is_told_in_every_revision,
    who_listens_is_asked_whether_it_is_there; of_legacy
}

fn of_legacy(shared: &Shared) -> Vec<Trial> {
    let trial = |revision: &'static str| {
        let name = format!("revisions::every_method_of_{revision}_has_its_answer");
        shared.trial(&name, async move |shared: &Shared| {
            handshake(shared.plugin_stack().await?.edge(), revision).await
        })
    };
    LEGACY.map(trial).into()
}

async fn every_method_of_2026_07_28_has_its_answer(shared: &Shared) -> Result<()> {
    let edge = shared.plugin_stack().await?.edge();
    stateless(edge).await?;
    tasks(edge).await
}

async fn who_listens_is_asked_whether_it_is_there(shared: &Shared) -> Result<()> {
    let edge = shared.plugin_stack().await?.edge();
    futures::future::try_join_all(LEGACY.map(|revision| pings(edge, revision))).await.map(|_| ())
}

/// A client with a session.
pub(crate) struct Session {
    edge: SocketAddr,
    target: &'static str,
    token: String,
    headers: Vec<(String, String)>,
}

impl Session {
    pub(crate) async fn open(
        edge: SocketAddr,
        target: &'static str,
        token: &str,
        revision: &str,
    ) -> Result<Session> {
        let mut session = Session { edge, target, token: token.to_owned(), headers: Vec::new() };
        let capabilities = json!({"elicitation": {}, "sampling": {}, "roots": {"listChanged": true}});
        let hello = json!({"protocolVersion": revision, "capabilities": capabilities,
                           "clientInfo": {"name": "script", "version": "1"}});
        let answer = session.send("initialize", hello).await?;
        ensure!(answer.json()?["result"]["protocolVersion"] == *revision, "{}", answer.text());
        let id = answer.header("mcp-session-id").context("a session")?.to_owned();
        session.headers =
            vec![("mcp-session-id".into(), id), ("mcp-protocol-version".into(), revision.into())];
        session.note(json!({"method": "notifications/initialized"})).await?;
        Ok(session)
    }

    fn request(&self, method: &str, params: Value) -> Request {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        addressed(legacy(&self.token, method, params, &headers), self.target, &self.token)
    }

    async fn send(&self, method: &str, params: Value) -> Result<Response> {
        http1::send(self.edge, &self.request(method, params)).await
    }

    /// The result of a request.
    pub(crate) async fn result(&self, method: &str, params: Value) -> Result<Value> {
        let answer = self.send(method, params).await?;
        result(method, &answer)
    }

    /// Sends what has no answer.
    async fn note(&self, mut message: Value) -> Result<()> {
        message["jsonrpc"] = json!("2.0");
        let answer = http1::send(self.edge, &self.with_body(&message)).await?;
        ensure!(answer.status == 202, "{message}: {} {}", answer.status, answer.text());
        Ok(())
    }

    fn with_body(&self, body: &Value) -> Request {
        Request { body: body.to_string().into_bytes(), ..self.request("ping", json!({})) }
    }

    /// Calls a tool that asks one question, and answers it.
    async fn asked(&self, call: Value, question: &str, answer: Value) -> Result<Value> {
        let stream = http1::open(self.edge, &self.request("tools/call", call), question).await?;
        let (stream, text) = stream.event_with(question).await?;
        let asked: Value = serde_json::from_str(&text)?;
        self.note(json!({"id": asked["id"], "result": answer})).await?;
        result(question, &stream.finish().await?)
    }

    /// The stream of what no request causes.
    pub(crate) async fn listen(&self) -> Result<Opened> {
        let mut get = self.request("ping", json!({}));
        (get.method, get.body) = ("GET".into(), Vec::new());
        http1::open(self.edge, &get, "text/event-stream").await
    }
}

/// To another server; nobody signs in where it is open to everybody.
fn addressed(mut request: Request, target: &str, token: &str) -> Request {
    if token.is_empty() {
        request.headers.retain(|(name, _)| name != "authorization");
    }
    Request { target: target.into(), ..request }
}

fn result(what: &str, answer: &Response) -> Result<Value> {
    let message = answer.json().with_context(|| what.to_owned())?;
    let result = message.get("result").with_context(|| format!("{what}: {message}"))?;
    ensure!(result["isError"] != true, "{what}: {message}");
    Ok(result.clone())
}

/// An answer to each kind of question.
fn answer_to(method: &str) -> Value {
    match method {
        "sampling/createMessage" => {
            json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "Paris"}})
        }
        "roots/list" => json!({"roots": [{"uri": "file:///src", "name": "Sources"}]}),
        _ => json!({"action": "accept", "content": {"username": "ada", "email": "ada@example.com",
                                                    "name": "Ada", "confirm": true}}),
    }
}

async fn handshake(edge: SocketAddr, revision: &str) -> Result<()> {
    let client = Session::open(edge, "/conformance/mcp", "", revision).await?;
    for (method, params) in [
        ("ping", json!({})),
        ("logging/setLevel", json!({"level": "debug"})),
        ("tools/list", json!({})),
        ("tools/call", json!({"name": "test_simple_text"})),
        ("tools/call", json!({"name": "test_tool_with_logging"})),
        ("tools/call", json!({"name": "test_tool_with_progress", "_meta": {"progressToken": "p"}})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "test_simple_prompt"})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "test://static-text"})),
        ("resources/subscribe", json!({"uri": "test://watched-resource"})),
        ("resources/unsubscribe", json!({"uri": "test://watched-resource"})),
        ("completion/complete", completion()),
    ] {
        client.result(method, params).await?;
    }
    let mut questions = vec![
        ("test_sampling", json!({"prompt": "the capital of France"}), "sampling/createMessage"),
        ("test_input_required_result_list_roots", json!({}), "roots/list"),
    ];
    if revision >= "2025-06-18" {
        questions.push(("test_elicitation", json!({"message": "Who?"}), "elicitation/create"));
    }
    for (tool, arguments, question) in questions {
        let call = json!({"name": tool, "arguments": arguments});
        client.asked(call, question, answer_to(question)).await.with_context(|| tool.to_owned())?;
    }
    taken_back(&client).await?;
    for (method, params) in [
        ("notifications/roots/list_changed", json!({})),
        ("notifications/progress", json!({"progressToken": "none", "progress": 1})),
        ("notifications/cancelled", json!({"requestId": "none"})),
    ] {
        client.note(json!({"method": method, "params": params})).await?;
    }
    if revision == "2025-03-26" {
        let one = |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
        let answer = http1::send(edge, &client.with_body(&json!([one(1), one(2)]))).await?;
        ensure!(answer.json()?.as_array().is_some_and(|all| all.len() == 2), "{}", answer.text());
    }
    let end = Request { method: "DELETE".into(), ..client.with_body(&Value::Null) };
    let ended = http1::send(edge, &Request { body: Vec::new(), ..end }).await?;
    ensure!(ended.status == 200, "{}", ended.text());
    Ok(())
}

/// A call that its client gives up takes back what it has asked.
async fn taken_back(client: &Session) -> Result<()> {
    let call = json!({"name": "test_sampling", "arguments": {"prompt": "the capital of France"}});
    let request = client.request("tools/call", call);
    let sent: Value = serde_json::from_slice(&request.body)?;
    let stream = http1::open(client.edge, &request, "sampling/createMessage").await?;
    let (stream, text) = stream.event_with("sampling/createMessage").await?;
    let asked: Value = serde_json::from_str(&text)?;
    let given_up = json!({"requestId": sent["id"]});
    client.note(json!({"method": "notifications/cancelled", "params": given_up})).await?;
    let (_, text) = stream.event_with("notifications/cancelled").await?;
    let told: Value = serde_json::from_str(&text)?;
    ensure!(told["params"]["requestId"] == asked["id"], "{told}");
    Ok(())
}

async fn pings(edge: SocketAddr, revision: &str) -> Result<()> {
    let client = Session::open(edge, "/conformance/mcp", "", revision).await?;
    let (_stream, text) = client.listen().await?.event_with("\"ping\"").await?;
    let ping: Value = serde_json::from_str(&text)?;
    client.note(json!({"id": ping["id"], "result": {}})).await
}

fn completion() -> Value {
    json!({"ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
           "argument": {"name": "arg1", "value": "par"}})
}

/// A request of 2026-07-28 to the open server, of a client that can do everything.
fn able(method: &str, params: Value, name: &str) -> Request {
    let meta = params.get("_meta").cloned();
    let named = [("mcp-name", name)];
    let mut request = modern("", method, params, if name.is_empty() { &[] } else { &named });
    let mut body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    body["params"]["_meta"][CAPABILITIES] = json!({"elicitation": {}, "sampling": {}, "roots": {},
                                    "extensions": {"io.modelcontextprotocol/tasks": {}}});
    for (name, value) in meta.as_ref().and_then(Value::as_object).into_iter().flatten() {
        body["params"]["_meta"][name] = value.clone();
    }
    request.body = body.to_string().into_bytes();
    addressed(request, "/conformance/mcp", "")
}

async fn stateless(edge: SocketAddr) -> Result<()> {
    let log = json!({"io.modelcontextprotocol/logLevel": "debug"});
    for (method, params, name) in [
        ("server/discover", json!({}), ""),
        ("tools/list", json!({}), ""),
        ("tools/call", json!({"name": "test_simple_text"}), "test_simple_text"),
        ("tools/call", json!({"name": "test_tool_with_logging", "_meta": log}), "test_tool_with_logging"),
        (
            "tools/call",
            json!({"name": "test_tool_with_progress", "_meta": {"progressToken": 1}}),
            "test_tool_with_progress",
        ),
        ("prompts/list", json!({}), ""),
        ("prompts/get", json!({"name": "test_simple_prompt"}), "test_simple_prompt"),
        ("resources/list", json!({}), ""),
        ("resources/templates/list", json!({}), ""),
        ("resources/read", json!({"uri": "test://static-text"}), "test://static-text"),
        ("completion/complete", completion(), ""),
    ] {
        result(method, &http1::send(edge, &able(method, params, name)).await?)?;
    }
    for (tool, arguments) in [
        ("test_input_required_result_elicitation", json!({})),
        ("test_input_required_result_sampling", json!({})),
        ("test_input_required_result_list_roots", json!({})),
    ] {
        let call = json!({"name": tool, "arguments": arguments});
        let asked = result(tool, &http1::send(edge, &able("tools/call", call.clone(), tool)).await?)?;
        let mut again = call;
        again["requestState"] = asked["requestState"].clone();
        again["inputResponses"] = answers(&asked["inputRequests"])?;
        let done = result(tool, &http1::send(edge, &able("tools/call", again, tool)).await?)?;
        ensure!(done["resultType"] == "complete", "{tool}: {done}");
    }
    let cancel = able("notifications/cancelled", json!({"requestId": 1}), "");
    let mut body: Value = serde_json::from_slice(&cancel.body)?;
    body.as_object_mut().context("an object")?.remove("id");
    let told = http1::send(edge, &Request { body: body.to_string().into_bytes(), ..cancel }).await?;
    ensure!(told.status == 202, "{}", told.text());
    Ok(())
}

/// An answer to each question.
fn answers(asked: &Value) -> Result<Value> {
    let asked = asked.as_object().context("questions")?;
    let answer = |request: &Value| answer_to(request["method"].as_str().unwrap_or_default());
    Ok(Value::Object(asked.iter().map(|(id, request)| (id.clone(), answer(request))).collect::<Map<_, _>>()))
}

async fn tasks(edge: SocketAddr) -> Result<()> {
    let begin = |name: &'static str, arguments: Value| async move {
        let call = able("tools/call", json!({"name": name, "arguments": arguments}), name);
        let task = result(name, &http1::send(edge, &call).await?)?;
        ensure!(task["resultType"] == "task", "{name}: {task}");
        Ok(task["taskId"].as_str().context("an id")?.to_owned())
    };
    let of = |method: &'static str, id: String, extra: Value| async move {
        let mut params = json!({"taskId": id});
        params.as_object_mut().context("an object")?.extend(extra.as_object().cloned().unwrap_or_default());
        result(method, &http1::send(edge, &able(method, params, &id)).await?)
    };
    let task = begin("confirm_delete", json!({"filename": "a.txt"})).await?;
    let filter = json!({"notifications": {"taskIds": [task]}});
    let told = http1::open(edge, &able("subscriptions/listen", filter, ""), "input_required").await?;
    let asked = of("tasks/get", task.clone(), json!({})).await?;
    of("tasks/update", task, json!({"inputResponses": answers(&asked["inputRequests"])?})).await?;
    told.until("completed").await?;
    let long = begin("slow_compute", json!({"seconds": 60})).await?;
    of("tasks/cancel", long, json!({})).await?;
    Ok(())
}

/// Each list and a resource change, and clients of all revisions are told.
async fn every_change_is_told_in_every_revision(_: &Shared) -> Result<()> {
    let stack = Stack::start(Options::repository()?).await?;
    let token = caller(&stack, "revisions").await?;
    let mut streams = Vec::new();
    for revision in LEGACY {
        let session = Session::open(stack.edge(), "/demo/mcp", &token, revision).await?;
        session.result("resources/subscribe", json!({"uri": WATCHED})).await?;
        streams.push((revision, session.listen().await?));
    }
    let filter = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true,
                        "resourcesListChanged": true, "resourceSubscriptions": [WATCHED]}});
    let listen = modern(&token, "subscriptions/listen", filter, &[]);
    streams.push(("2026-07-28", http1::open(stack.edge(), &listen, "acknowledged").await?));
    let hidden = |name: &str| {
        json!({"target": {"type": "user", "idOrPattern": "*"},
               "primitive": {"name": name, "protocol": "mcp"}, "allowed": false})
    };
    for (name, told) in [
        ("clock", "notifications/tools/list_changed"),
        ("greeting", "notifications/prompts/list_changed"),
        ("item", "notifications/resources/list_changed"),
    ] {
        admin(&stack, "PUT", "/api/policy/orgs/revisions/bindings?force=true", &hidden(name).to_string())
            .await?;
        streams = all_told(streams, told).await?;
    }
    let mut files = Vec::new();
    for file in std::fs::read_dir(tool::root()?.join("primitives/demo"))? {
        let path = file?.path();
        let text = std::fs::read_to_string(&path)?;
        let changed = text.replace("one small primitive", "a small primitive");
        // Another server lists it too, in the version that it has.
        let text = if changed == text { text } else { changed.replace("version: 1.0.0", "version: 1.0.1") };
        let name = path.file_name().and_then(|name| name.to_str()).context("a name")?;
        files.push(json!({"path": format!("demo/{name}"), "text": text}));
    }
    admin(&stack, "PUT", "/api/registry/servers/demo", &json!({"files": files}).to_string()).await?;
    all_told(streams, "notifications/resources/updated").await?;
    stack.stop(&[]).await
}

async fn all_told(streams: Vec<(&'static str, Opened)>, what: &str) -> Result<Vec<(&'static str, Opened)>> {
    let mut told = Vec::new();
    for (revision, stream) in streams {
        told.push((revision, stream.until(what).await.with_context(|| format!("{revision}: {what}"))?));
    }
    Ok(told)
}
