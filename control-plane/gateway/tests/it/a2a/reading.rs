//! Messages that tools of the server read: a router chooses the skill, a filler finds the arguments, and a model answers both.

use asp_backends::delegate::endpoint::Endpoints;
use asp_proto::snapshot::{GatewaySnapshot, Protocol};
use asp_registry::{Inputs, Source, assemble, check};
use asp_runtime_client::runtimes::Runtimes;
use serde_json::{Value, json};

use super::questions::reply;
use super::{Client, completed, message_id};
use crate::delegates::{Model, said};
use crate::support::{Fixture, Modern, denied_to_alice, inputs, token};

const COST: &str = "https://proto-labs.ai/a2a/ext/cost-v1";

const SERVER: &str = "apiVersion: asp/v1\nname: desk\ntitle: Desk\ndescription: For tests.\nversion: 1.0.0\n\
    protocols: [a2a, mcp]\nsessions: both\ndefaultExposure: allow\nauth: {schemes: [jwt], issuers: [dev]}\n\
    a2a: {router: desk/desk.route, filler: desk/desk.fill}\n\
    primitives: [{ref: desk/desk.pay}, {ref: desk/desk.find}, {ref: desk/desk.secret}, {ref: desk/desk.route}, {ref: desk/desk.fill}]\n";

fn tool(id: &str, schema: &str, rest: &str) -> Source {
    let text = format!(
        "id: desk.{id}\nname: Sample\ntype: tool\nversion: 1.0.0\nowner: t@example.com\nsummary: A sample.\ntags: [test]\n\
         primitiveSchema: {{input_schema: {schema}}}\n{rest}\n"
    );
    Source { path: format!("desk/{id}.yaml"), text }
}

/// A tool that a model answers.
fn reader(id: &str, delegate: &str) -> [Source; 2] {
    let rest = format!(
        "mutation: read_only\nsecurity: {{riskClass: low}}\nprimitiveDependencies: {{delegations: [{{id: desk.{delegate}}}]}}\n\
         runtime: {{mode: builtin, entrypoint: ask_delegate}}"
    );
    let text = format!(
        "id: desk.{delegate}\nname: Sample\ntype: delegate\nversion: 1.0.0\nowner: t@example.com\nsummary: A sample.\n\
         primitiveSchema: {{sampling: {{systemPrompt: Read., maxTokens: 64}}}}\n"
    );
    [tool(id, "{type: object}", &rest), Source { path: format!("desk/{delegate}.yaml"), text }]
}

/// An agent with two skills that the tests' users may call, one that needs a scope, and both readers.
fn desk() -> GatewaySnapshot {
    let two = "{type: object, required: [message, amount], properties: {message: {type: string}, amount: {type: integer}}}";
    let one = "{type: object, required: [message], properties: {message: {type: string}}}";
    let low = "security: {riskClass: low}\nruntime: {mode: builtin, entrypoint: echo}";
    let scoped = low.replace("low}", "low, auth: {type: jwt, scopes: ['x:read']}}");
    let mut sources = vec![
        Source { path: "desk/server.yaml".into(), text: SERVER.into() },
        tool("pay", two, &format!("mutation: non_idempotent\n{low}")),
        tool("find", one, &format!("mutation: read_only\n{low}")),
        tool("secret", one, &format!("mutation: read_only\n{scoped}")),
    ];
    sources.extend(reader("route", "choose"));
    sources.extend(reader("fill", "extract"));
    let report = check(&sources);
    assert!(report.faults.is_empty(), "{:#?}", report.faults);
    let servers = report.catalog.unwrap().servers;
    assemble(Inputs { servers, ..inputs() })
}

fn fixture(model: &Model) -> Fixture {
    Fixture::with_models(desk(), 7, Runtimes::none(), model.endpoints())
}

fn text(text: &str, metadata: Value) -> Value {
    json!({"message": {"messageId": message_id(), "role": "ROLE_USER", "parts": [{"text": text}],
        "metadata": metadata}})
}

/// Inputs that the model has got, in order.
fn asked(model: &Model) -> Vec<Value> {
    let asked = model.asked.lock();
    let inputs = asked.iter().map(|(_, body)| body["messages"][1]["content"].as_str().unwrap());
    inputs.map(|input| serde_json::from_str(input).unwrap()).collect()
}

/// The schema of the answer that a task waits for.
fn form(task: &Value) -> &Value {
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task}");
    &task["status"]["message"]["parts"][1]["data"]["schema"]
}

const REPLIES: [&str; 4] = [
    r#"{"skill": "desk.pay"}"#,
    r#"{"arguments": {"message": "acme", "amount": 7, "other": 1}}"#,
    r#"{"skill": "desk.find"}"#,
    r#"{"skill": "desk.find"}"#,
];

#[tokio::test]
async fn a_text_is_read_once_by_calls_of_its_sender_on_behalf_of_its_task() {
    let model = Model::start(|number| async move { said(REPLIES[number]) }).await;
    let fixture = fixture(&model);
    let client = Client::of(&fixture, "desk");
    let mut params = text("pay acme seven", json!({}));
    let answer = client.with("a2a-extensions", COST).call("SendMessage", params.clone()).await;
    let task = answer.json()["result"]["task"].clone();
    completed(&task, &json!({"message": "acme"}));
    let metadata = &task["metadata"];
    let read = json!({"asp/skill": "desk.pay", "asp/routedBy": "desk.route", "asp/filledBy": "desk.fill"});
    for (name, value) in read.as_object().unwrap() {
        assert_eq!(metadata[name], *value, "{metadata}");
    }
    assert_eq!(task["history"][0]["parts"], params["message"]["parts"], "the message is as it was sent");
    let usage = &task["artifacts"][0]["metadata"][COST]["usage"];
    assert_eq!(*usage, json!({"input_tokens": 22, "output_tokens": 6}), "{task}");

    let inputs = asked(&model);
    let [to_route, to_fill] = inputs.as_slice() else { panic!("{inputs:?}") };
    let skills = to_route["skills"].as_array().unwrap().iter().map(|skill| skill["id"].as_str().unwrap());
    assert_eq!(skills.collect::<Vec<_>>(), ["desk.pay", "desk.find"], "only what the caller may call");
    assert_eq!(to_route["message"], "pay acme seven");
    assert_eq!(
        (&to_fill["message"], &to_fill["skill"]["id"]),
        (&json!("pay acme seven"), &json!("desk.pay"))
    );
    assert_eq!(to_fill["schema"]["required"], json!(["message", "amount"]));

    fixture.gateway.flush().await;
    let events = fixture.audit.events();
    let events = events.iter().map(|found| serde_json::from_str::<Value>(&found.event).unwrap());
    let of_readers = events.filter(|event| event["primitive"] != "desk.pay@1.0.0").collect::<Vec<_>>();
    assert_eq!(of_readers.len(), 6, "each reader began, asked and finished: {of_readers:?}");
    for event in &of_readers {
        assert_eq!((&event["parent"], &event["user"]), (&task["id"], &json!("alice")), "{event}");
    }

    // Another gateway has no model: it finds the task before it would read the message.
    let other = fixture.with_stores(desk(), |stores| {
        stores.active = fixture.active.clone();
        stores.ledger = fixture.ledger.clone();
    });
    for gateway in [&fixture, &other] {
        let again = Client::of(gateway, "desk").result("SendMessage", params.clone()).await["task"].clone();
        assert_eq!((&again["id"], &again["metadata"]["asp/skill"]), (&task["id"], &json!("desk.pay")));
    }
    assert_eq!(model.requests(), 2);
    params["message"]["parts"] = json!([{"text": "find somebody"}]);
    for _ in 0..2 {
        let other = client.result("SendMessage", params.clone()).await["task"].clone();
        completed(&other, &json!({"message": "find somebody"}));
        assert_ne!(other["id"], task["id"], "the id with other content is another message");
    }
    assert_eq!(model.requests(), 3, "it is read once as well");

    let streamed = client.call("SendStreamingMessage", text("tea", json!({}))).await.events();
    let first = &streamed[0]["result"]["task"];
    let last = &streamed.last().unwrap()["result"]["task"];
    completed(last, &json!({"message": "tea"}));
    for task in [first, last] {
        assert_eq!(task["metadata"]["asp/skill"], "desk.find", "{task}");
        assert_eq!(task["metadata"].get("asp/filledBy"), None, "the text is the argument itself");
    }
}

/// A client that repeats a message after a short timeout.
#[tokio::test]
async fn a_message_that_comes_again_while_it_is_read_is_read_once() {
    let model = Model::start(|number| async move { said(REPLIES[number]) }).await;
    let fixture = fixture(&model);
    let client = Client::of(&fixture, "desk");
    let params = text("pay acme seven", json!({}));
    let sent = [0, 1, 2].map(|_| client.result("SendMessage", params.clone()));
    let tasks = futures::future::join_all(sent).await;
    for task in &tasks {
        completed(&task["task"], &json!({"message": "acme"}));
        assert_eq!(task["task"]["id"], tasks[0]["task"]["id"]);
    }
    assert_eq!(model.requests(), 2);
}

/// Sends a text without a skill, which is refused with the skills of the agent.
async fn refused(fixture: &Fixture, why: &str) {
    let answer = Client::of(fixture, "desk").call("SendMessage", text("pay acme seven", json!({}))).await;
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], -32602, "{why}: {error}");
    let details = error["data"].as_array().unwrap();
    let skills = details.iter().find_map(|detail| detail["metadata"]["skills"].as_str()).unwrap();
    assert_eq!(skills, r#"["desk.pay","desk.find","desk.secret"]"#, "{why}");
}

/// Invariant I-10.
#[tokio::test]
async fn without_a_choice_among_the_skills_of_the_caller_the_message_is_refused_with_the_list() {
    for answer in [
        "desk.pay",
        r#"{"skill": null}"#,
        r#"{"chosen": "desk.pay"}"#,
        r#"{"skill": "desk.secret"}"#,
        r#"{"skill": "desk.route"}"#,
        r#"["desk.pay"]"#,
    ] {
        let model = Model::saying(answer).await;
        refused(&fixture(&model), answer).await;
        assert_eq!(model.requests(), 1, "{answer}");
    }
    let model = Model::saying(r#"{"skill": "desk.pay"}"#).await;
    refused(&Fixture::with_models(desk(), 7, Runtimes::none(), Endpoints::default()), "no model").await;
    let mut denied = desk();
    denied.bindings.push(denied_to_alice("desk.route", Protocol::A2a));
    refused(&Fixture::with_models(denied, 7, Runtimes::none(), model.endpoints()), "policy").await;
    let mut others = model.endpoints();
    if let Some(endpoint) = &mut others.default {
        endpoint.primitives = vec!["other/*".into()];
    }
    refused(&Fixture::with_models(desk(), 7, Runtimes::none(), others), "an operator list").await;
    assert_eq!(model.requests(), 0);
}

#[tokio::test]
async fn what_a_filler_does_not_find_is_asked_for() {
    let named = || text("pay acme seven", json!({"skill": "desk.pay"}));
    let model = Model::saying(r#"{"arguments": {"message": "acme", "amount": "seven"}}"#).await;
    let fixture_of_some = fixture(&model);
    let client = Client::of(&fixture_of_some, "desk");
    let task = client.result("SendMessage", named()).await["task"].clone();
    assert_eq!(form(&task)["required"], json!(["amount"]), "what does not fit is not taken");
    let answer = reply(&task, &json!([{"data": {"amount": 7}}]));
    let ended = client.result("SendMessage", answer).await["task"].clone();
    completed(&ended, &json!({"message": "acme"}));
    let metadata = &ended["metadata"];
    assert_eq!((&metadata["asp/filledBy"], metadata.get("asp/skill")), (&json!("desk.fill"), None));
    assert_eq!(model.requests(), 1);

    let model = Model::saying("sorry").await;
    let fixture_of_none = fixture(&model);
    let client = Client::of(&fixture_of_none, "desk");
    let task = client.result("SendMessage", named()).await["task"].clone();
    assert_eq!(form(&task)["required"], json!(["message", "amount"]), "{task}");
    assert_eq!(task["metadata"].get("asp/filledBy"), None, "{task}");
    assert_eq!(model.requests(), 1);

    let found = client.result("SendMessage", text("tea", json!({"skill": "desk.find"}))).await;
    completed(&found["task"], &json!({"message": "tea"}));
    let data = super::message("desk.pay", json!({"message": "tea", "amount": 1}));
    completed(&client.result("SendMessage", data).await["task"], &json!({"message": "tea"}));
    assert_eq!(model.requests(), 1, "neither was to be read");
}

#[tokio::test]
async fn a_tool_is_answered_by_its_delegate_over_any_protocol() {
    let call = async |answer: &'static str| {
        let model = Model::saying(answer).await;
        let params = json!({"name": "desk.route", "arguments": {"message": "hi"}});
        let sent = Modern::new("desk", &token("alice"), "tools/call", params).send(&fixture(&model)).await;
        assert_eq!(asked(&model), [json!({"message": "hi"})]);
        sent.json()["result"].clone()
    };
    let answered = call(r#"{"skill": "desk.pay"}"#).await;
    let object: Value = serde_json::from_str(answered["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!((object, &answered["isError"]), (json!({"skill": "desk.pay"}), &json!(false)), "{answered}");
    let failed = call("desk.pay").await;
    assert_eq!(failed["isError"], true, "{failed}");
}
