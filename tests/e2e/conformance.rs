//! The fixtures of the official conformance suite: exactly what it documents, in both eras, where the suite itself takes
//! any answer of the kind.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{self, Request, Response};
use serde_json::{Value, json};

use crate::message::{legacy, modern};
use crate::trial::{Shared, trials};

const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const SILENCE: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";
/// What a request asks for that shows progress.
const TOKEN: &str = "of-the-suite";

trials! { conformance:
    fixtures_answer_what_the_suite_documents,
    lists_name_every_fixture_as_the_suite_documents_it,
    progress_comes_in_order_before_the_result,
    log_lines_come_in_order_before_the_result,
    what_was_asked_is_in_the_answer,
}

async fn fixtures_answer_what_the_suite_documents(shared: &Shared) -> Result<()> {
    in_both_eras(shared, fixtures).await
}

async fn lists_name_every_fixture_as_the_suite_documents_it(shared: &Shared) -> Result<()> {
    in_both_eras(shared, lists).await
}

async fn progress_comes_in_order_before_the_result(shared: &Shared) -> Result<()> {
    in_both_eras(shared, progress).await
}

async fn log_lines_come_in_order_before_the_result(shared: &Shared) -> Result<()> {
    in_both_eras(shared, log_lines).await
}

/// A client of one era. Nobody signs in: the server is open, in development mode alone.
struct Client {
    edge: SocketAddr,
    /// Of a legacy session.
    session: Option<String>,
}

async fn in_both_eras(shared: &Shared, check: impl AsyncFn(&Client) -> Result<()>) -> Result<()> {
    let edge = shared.plugin_stack().await?.edge();
    for client in [Client { edge, session: None }, Client::legacy(edge, json!({})).await?] {
        let era = if client.session.is_some() { "legacy" } else { "2026-07-28" };
        check(&client).await.context(era)?;
    }
    Ok(())
}

fn open(mut request: Request) -> Request {
    request.headers.retain(|(header, _)| header != "authorization");
    request.target = "/conformance/mcp".into();
    request
}

impl Client {
    async fn legacy(edge: SocketAddr, capabilities: Value) -> Result<Client> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "raw", "version": "1"}});
        let answer = http1::send(edge, &open(legacy("", "initialize", params, &[]))).await?;
        let session = answer.header("mcp-session-id").context("initialize answers with a session")?;
        Ok(Client { edge, session: Some(session.into()) })
    }

    fn request(&self, method: &str, params: Value) -> Request {
        let Some(session) = &self.session else {
            let name =
                ["name", "uri"].into_iter().find_map(|name| params.get(name)?.as_str()).map(str::to_owned);
            // What the tests say in `_meta` is added to what every request of the era says.
            let said = params.get("_meta").cloned();
            let named: Vec<_> = name.iter().map(|name| ("mcp-name", name.as_str())).collect();
            let mut request = modern("", method, params, &named);
            if let Some(Value::Object(said)) = said
                && let Ok(mut body) = serde_json::from_slice::<Value>(&request.body)
                && let Some(meta) = body.pointer_mut("/params/_meta").and_then(Value::as_object_mut)
            {
                meta.extend(said);
                request.body = body.to_string().into_bytes();
            }
            return open(request);
        };
        let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
        open(legacy("", method, params, &headers))
    }

    /// All messages of the response, the answer last.
    async fn messages(&self, method: &str, params: Value) -> Result<Vec<Value>> {
        messages(&http1::send(self.edge, &self.request(method, params)).await?)
    }

    async fn result(&self, method: &str, params: Value) -> Result<Value> {
        let mut said = self.messages(method, params).await?;
        let answer = said.pop().context("no message came")?;
        let result = answer.get("result").cloned();
        result.with_context(|| answer.to_string())
    }
}

fn messages(response: &Response) -> Result<Vec<Value>> {
    let text = response.text();
    if !response.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
        return Ok(vec![response.json()?]);
    }
    // An event without data says where the stream is.
    let said = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    said.filter(|data| !data.is_empty()).map(|data| Ok(serde_json::from_str(data)?)).collect()
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn resource(uri: &str, kind: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}})
}

fn image() -> Value {
    json!({"type": "image", "data": PIXEL, "mimeType": "image/png"})
}

async fn fixtures(client: &Client) -> Result<()> {
    for (name, is_error, content) in tools() {
        let result = client.result("tools/call", json!({"name": name})).await.context(name)?;
        ensure!(result["content"] == content && result["isError"] == is_error, "{name}: {result}");
    }
    for (name, arguments, messages) in prompts() {
        let params = json!({"name": name, "arguments": arguments});
        let result = client.result("prompts/get", params).await.context(name)?;
        ensure!(result["messages"] == messages, "{name}: {result}");
    }
    for (uri, contents) in resources() {
        let result = client.result("resources/read", json!({"uri": uri})).await.context(uri)?;
        ensure!(result["contents"] == json!([contents]), "{uri}: {result}");
    }
    let unknown = "test://nonexistent-resource";
    let answer = client.messages("resources/read", json!({"uri": unknown})).await?;
    let [answer] = answer.as_slice() else { anyhow::bail!("{answer:?}") };
    let code = if client.session.is_some() { -32002 } else { -32602 };
    ensure!(answer["error"]["code"] == code && answer["error"]["data"]["uri"] == unknown, "{answer}");
    ensure!(answer.get("result").is_none(), "{answer}");
    for (argument, value, offered) in [
        ("arg2", "", json!(["first", "second"])),
        ("arg2", "s", json!(["second", "first"])),
        ("arg2", "se", json!(["second"])),
        ("arg1", "pa", json!(["paris", "park", "party"])),
    ] {
        let reference = json!({"type": "ref/prompt", "name": "test_prompt_with_arguments"});
        let params = json!({"ref": reference, "argument": {"name": argument, "value": value}});
        let result = client.result("completion/complete", params).await.context(argument)?;
        ensure!(result["completion"]["values"] == offered, "{argument} {value}: {result}");
    }
    Ok(())
}

fn tools() -> Vec<(&'static str, bool, Value)> {
    let embedded =
        resource("test://embedded-resource", "text/plain", "This is an embedded resource content.");
    let mixed =
        resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#);
    vec![
        ("test_simple_text", false, json!([text("This is a simple text response for testing.")])),
        ("test_image_content", false, json!([image()])),
        ("test_audio_content", false, json!([{"type": "audio", "data": SILENCE, "mimeType": "audio/wav"}])),
        ("test_embedded_resource", false, json!([embedded])),
        ("test_multiple_content_types", false, json!([text("Multiple content types test:"), image(), mixed])),
        ("test_error_handling", true, json!([text("This tool intentionally returns an error for testing")])),
    ]
}

fn prompts() -> Vec<(&'static str, Value, Value)> {
    let user = |content: Value| json!({"role": "user", "content": content});
    let uri = "test://example-resource";
    let embedded = resource(uri, "text/plain", "Embedded resource content for testing.");
    vec![
        ("test_simple_prompt", json!({}), json!([user(text("This is a simple prompt for testing."))])),
        (
            "test_prompt_with_arguments",
            json!({"arg1": "hello", "arg2": "world"}),
            json!([user(text("Prompt with arguments: arg1='hello', arg2='world'"))]),
        ),
        (
            "test_prompt_with_embedded_resource",
            json!({"resourceUri": uri}),
            json!([user(embedded), user(text("Please process the embedded resource above."))]),
        ),
        (
            "test_prompt_with_image",
            json!({}),
            json!([user(image()), user(text("Please analyze the image above."))]),
        ),
    ]
}

fn resources() -> Vec<(&'static str, Value)> {
    let made_up =
        |id: &str| format!(r#"{{"id": "{id}", "templateTest": true, "data": "Data for ID: {id}"}}"#);
    let of_template = |id: &str| {
        let uri = format!("test://template/{id}/data");
        json!({"uri": uri, "mimeType": "application/json", "text": made_up(id)})
    };
    vec![
        (
            "test://static-text",
            json!({"uri": "test://static-text", "mimeType": "text/plain",
                   "text": "This is the content of the static text resource."}),
        ),
        (
            "test://static-binary",
            json!({"uri": "test://static-binary", "mimeType": "image/png", "blob": PIXEL}),
        ),
        (
            "test://watched-resource",
            json!({"uri": "test://watched-resource", "mimeType": "text/plain",
                   "text": "Watched resource content."}),
        ),
        ("test://template/123/data", of_template("123")),
        ("test://template/a-b/data", of_template("a-b")),
    ]
}

/// Names, addresses and kinds of all fixtures, and the one schema that the suite only looks for members in.
async fn lists(client: &Client) -> Result<()> {
    let tools = client.result("tools/list", json!({})).await?;
    let tools = tools["tools"].as_array().context("tools")?;
    for (name, ..) in self::tools() {
        let tool = tools.iter().find(|tool| tool["name"] == name).context(name)?;
        ensure!(tool["description"].is_string() && tool["inputSchema"]["type"] == "object", "{tool}");
    }
    let tool = tools.iter().find(|tool| tool["name"] == "json_schema_2020_12_tool").context("the schema")?;
    ensure!(tool["inputSchema"] == schema(), "{tool}");
    let prompts = client.result("prompts/list", json!({})).await?;
    let prompts = prompts["prompts"].as_array().context("prompts")?;
    for (name, arguments, _) in self::prompts() {
        let prompt = prompts.iter().find(|prompt| prompt["name"] == name).context(name)?;
        let listed = prompt["arguments"].as_array().cloned().unwrap_or_default();
        let named: Vec<&str> = listed.iter().filter_map(|argument| argument["name"].as_str()).collect();
        let mut given: Vec<&str> =
            arguments.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        given.sort_unstable();
        ensure!(named == given && listed.iter().all(|argument| argument["required"] == true), "{prompt}");
    }
    let resources = client.result("resources/list", json!({})).await?;
    let resources = resources["resources"].as_array().context("resources")?;
    for (uri, contents) in self::resources() {
        let listed = resources.iter().find(|resource| resource["uri"] == uri);
        // What a template makes up is listed nowhere.
        let is_made_up = uri.starts_with("test://template/");
        ensure!(listed.is_none() == is_made_up, "{uri}: {listed:?}");
        let kind = listed.map_or(&contents["mimeType"], |listed| &listed["mimeType"]);
        ensure!(*kind == contents["mimeType"], "{listed:?}");
    }
    let templates = client.result("resources/templates/list", json!({})).await?;
    let template = json!("test://template/{id}/data");
    let templates = templates["resourceTemplates"].as_array().context("templates")?;
    let listed = templates.iter().find(|listed| listed["uriTemplate"] == template).context("the template")?;
    ensure!(listed["mimeType"] == "application/json", "{listed}");
    Ok(())
}

fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}}
        }},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"}
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false
    })
}

async fn progress(client: &Client) -> Result<()> {
    let params = json!({"name": "test_tool_with_progress", "_meta": {"progressToken": TOKEN}});
    let said = client.messages("tools/call", params).await?;
    let (answer, told) = said.split_last().context("no message came")?;
    ensure!(answer["result"]["content"] == json!([text("Reported progress.")]), "{answer}");
    // Where it waits for a worker is told before it runs, without a total.
    let told = told.iter().filter(|message| message["params"].get("total").is_some());
    let told: Vec<&Value> = told.collect();
    let expected: Vec<Value> = [0, 50, 100]
        .into_iter()
        .map(|percent| {
            let params = json!({"progressToken": TOKEN, "progress": percent, "total": 100,
                                "message": format!("Completed step {percent} of 100")});
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        })
        .collect();
    let same = told.len() == expected.len()
        && told.iter().zip(&expected).all(|(told, expected)| same_numbers(told, expected));
    ensure!(same, "{told:?}");
    Ok(())
}

/// Whether two values differ in nothing but how their numbers are written.
fn same_numbers(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same_numbers(a, b)))
        }
        _ => a == b,
    }
}

async fn log_lines(client: &Client) -> Result<()> {
    let wants = json!({"io.modelcontextprotocol/logLevel": "info"});
    let params = json!({"name": "test_tool_with_logging", "_meta": wants});
    let said = client.messages("tools/call", params).await?;
    let (answer, told) = said.split_last().context("no message came")?;
    ensure!(
        answer["result"]["content"] == json!([text("Tool with logging executed successfully")]),
        "{answer}"
    );
    let lines: Vec<&Value> = told.iter().filter(|said| said["method"] == "notifications/message").collect();
    let data: Vec<&Value> = lines.iter().map(|line| &line["params"]["data"]).collect();
    let expected = ["Tool execution started", "Tool processing data", "Tool execution completed"];
    ensure!(data == expected, "{lines:?}");
    ensure!(lines.iter().all(|line| line["params"]["level"] == "info"), "{lines:?}");
    Ok(())
}

/// What the suite answers to what it is asked, and takes any text for: in the legacy era, whose stream it is asked on.
async fn what_was_asked_is_in_the_answer(shared: &Shared) -> Result<()> {
    let edge = shared.plugin_stack().await?.edge();
    let client = Client::legacy(edge, json!({"sampling": {}, "elicitation": {}})).await?;
    let form = json!({"type": "object", "required": ["username", "email"], "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"}}});
    let filled = json!({"username": "ada", "email": "ada@example.com"});
    let rows = [
        (
            json!({"name": "test_elicitation", "arguments": {"message": "Who?"}}),
            "elicitation/create",
            json!({"message": "Who?", "requestedSchema": form}),
            json!({"action": "accept", "content": filled}),
            r#"Elicitation completed: action=accept, content={"username": "ada", "email": "ada@example.com"}"#,
        ),
        (
            json!({"name": "test_sampling", "arguments": {"prompt": "2 and 2?"}}),
            "sampling/createMessage",
            json!({"maxTokens": 100, "messages": [{"role": "user", "content": text("2 and 2?")}]}),
            json!({"role": "assistant", "model": "m", "content": text("4")}),
            "LLM response: 4",
        ),
    ];
    for (call, method, asked, answer, expected) in rows {
        let opened = http1::open(edge, &client.request("tools/call", call), "\r\n\r\n").await?;
        let (opened, question) = opened.event_with(method).await?;
        let question: Value = serde_json::from_str(&question)?;
        ensure!(question["method"] == method && question["params"] == asked, "{question}");
        let mut reply = client.request("", Value::Null);
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": answer});
        reply.body = answer.to_string().into_bytes();
        let taken = http1::send(edge, &reply).await?;
        ensure!(taken.status == 202, "{} {}", taken.status, taken.text());
        let said = messages(&opened.finish().await?)?;
        let last = said.last().context("no message came")?;
        ensure!(last["result"]["content"] == json!([text(expected)]), "{last}");
    }
    Ok(())
}
