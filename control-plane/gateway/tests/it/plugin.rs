//! Plugins through a scripted runtime: what the wire does, edge cases included; workers come in the
//! end-to-end tests.

use asp_proto::plugin::{
    ArtifactData, ArtifactEmitted, CancelResponse, Checkpoint, DelegationRequested, DeliverUserInput,
    ElicitationRequested, Failed, Progress, ResultChunk, client_message, deliver_user_input::Action,
    server_message::Payload,
};
use asp_proto::supervisor::tunnel_event;
use asp_store::active::ActiveCalls;
use http_body_util::BodyExt;
use prost_types::value::Kind;
use serde_json::{Value, json};
use tonic::Status;

use crate::runtime::{Runtime, Script, Worker, json_of, queued, rejected};
use crate::support::{Answer, Fixture, Legacy, Modern, snapshot, token};

fn fixture(runtime: &Runtime) -> Fixture {
    Fixture::with(snapshot(), 7, runtime.runtimes())
}

async fn sweep(fixture: &Fixture) -> Answer {
    call(fixture, "sweep", json!({})).await
}

async fn call(fixture: &Fixture, name: &str, extra: Value) -> Answer {
    modern(name, extra).send(fixture).await
}

fn modern(name: &str, extra: Value) -> Modern {
    let mut params = json!({"name": name, "arguments": {}});
    for (name, value) in extra.as_object().unwrap() {
        params[name] = value.clone();
    }
    let mut request = Modern::new("plugins", &token("alice"), "tools/call", params);
    request.body["params"]["_meta"]["progressToken"] = "p".into();
    request
}

fn progress(request_id: &str, percent: f64) -> Payload {
    let message = format!("at {percent}");
    Payload::Progress(Progress { request_id: request_id.into(), percent, message, ..Progress::default() })
}

fn asks_name(request_id: &str) -> Payload {
    Payload::Elicitation(ElicitationRequested {
        request_id: request_id.into(),
        elicitation_id: "plugins.name".into(),
        ..ElicitationRequested::default()
    })
}

fn asks_model(request_id: &str) -> Payload {
    Payload::Delegation(DelegationRequested {
        request_id: request_id.into(),
        correlation_id: "d-1".into(),
        delegate_id: "plugins.label".into(),
        input: json_of(&json!({"text": "hello"})),
        ..DelegationRequested::default()
    })
}

async fn user_input(worker: &mut Worker) -> DeliverUserInput {
    match worker.next().await {
        Some(client_message::Payload::UserInput(input)) => input,
        other => panic!("no user input: {other:?}"),
    }
}

/// Waits until `holds`; a hang guard, not an expectation.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let patient = async {
        while !holds() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(std::time::Duration::from_secs(20), patient).await;
    assert!(waited.is_ok(), "{what}");
}

#[tokio::test]
async fn a_call_shows_its_progress_and_its_result_and_gives_its_worker_back() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        assert_eq!((invoke.primitive.as_str(), invoke.version.as_str()), ("sweep", "1.0.0"));
        assert_eq!(invoke.arguments.as_ref().unwrap().value, br#"{"n":1}"#);
        assert_eq!((invoke.mcp_request_id.as_str(), invoke.access_token.as_str()), ("7", ""));
        assert!(invoke.deadline.is_some());
        assert!(invoke.resume.is_none());
        let ctx = invoke.ctx.as_ref().unwrap();
        assert_eq!((ctx.tenant_id.as_str(), ctx.user_id.as_str()), ("acme", "alice"));
        for percent in [18.0, 62.0] {
            worker.say(progress(&invoke.request_id, percent)).await;
        }
        let chunk = ResultChunk {
            request_id: invoke.request_id.clone(),
            text: "part".into(),
            ..ResultChunk::default()
        };
        worker.say(Payload::Chunk(chunk)).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
        // A second result of a worker gone mad changes nothing.
        worker.complete(&invoke, &json!({"ok": false})).await;
    }));
    let fixture = fixture(&runtime);
    let events = sweep(&fixture).await.events();
    let shown: Vec<f64> = events.iter().filter_map(|event| event["params"]["progress"].as_f64()).collect();
    assert_eq!(shown, [18.0, 62.0]);
    let result = &events.last().unwrap()["result"];
    assert_eq!(result["structuredContent"], json!({"ok": true}));
    assert_eq!(result["content"][0]["text"], "part");
    assert_eq!(result["isError"], false);
    fixture.gateway.flush().await;
    assert_eq!(runtime.told.closed.lock()[0].reason, "completed");
    let metrics = fixture.send(http::Method::GET, "/metrics", &[], "").await.text;
    assert!(metrics.contains(r#"asp_worker_cpu_seconds_total{language="python"} 0.25"#), "{metrics}");
    let allocation = runtime.told.allocations.lock()[0].clone();
    let plugin = allocation.plugin.unwrap();
    assert_eq!(
        (plugin.id.as_str(), plugin.language.as_str(), plugin.entrypoint.as_str()),
        ("sweep", "python", "main.py")
    );
    assert!(!allocation.force_fresh_process);
}

#[tokio::test]
async fn a_queued_call_shows_its_place_and_is_invoked_when_it_is_ready() {
    let script = Script::of(|_, mut worker: Worker| async move {
        let Some(client_message::Payload::Init(_)) = worker.next().await else { panic!("no init") };
        let place = [
            ("position", Kind::NumberValue(1.0)),
            ("depth", Kind::NumberValue(4.0)),
            ("eta_ms", Kind::NumberValue(1500.0)),
        ];
        worker.event(tunnel_event::Type::AllocationQueued, "", &place).await;
        worker.event(tunnel_event::Type::AllocationStarted, "", &[]).await;
        worker.event(tunnel_event::Type::TunnelReady, "", &[]).await;
        let Some(client_message::Payload::Invoke(invoke)) = worker.next().await else { panic!("no invoke") };
        worker.say(progress(&invoke.request_id, 50.0)).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    });
    let runtime = Runtime::start(script.admitting(|n| queued(n, 2.0, 4.0)));
    let events = sweep(&fixture(&runtime)).await.events();
    let shown: Vec<(&str, &str)> = events
        .iter()
        .filter_map(|event| {
            let params = &event["params"];
            Some((params["message"].as_str()?, params["_meta"]["asp/phase"].as_str().unwrap_or("")))
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("queued: position 2 of 4", "ADMISSION.QUEUED"),
            ("queued: position 1 of 4, about 1.5 s", "ADMISSION.QUEUED"),
            ("starting", "ADMISSION.STARTED"),
            ("at 50", "")
        ]
    );
    let numbers: Vec<f64> = events.iter().filter_map(|event| event["params"]["progress"].as_f64()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
}

#[tokio::test]
async fn a_refused_allocation_has_the_refusal_of_its_reason() {
    let rows = [
        ("throttled: too many", "rate_limited"),
        ("overload", "rate_limited"),
        ("quarantined", "upstream_unavailable"),
        ("breaker_open: half of the calls failed", "upstream_unavailable"),
        ("draining", "upstream_unavailable"),
    ];
    for (reason, expected) in rows {
        let script = Script::of(|_, _| async {}).admitting(move |_| rejected(reason));
        let runtime = Runtime::start(script);
        let result = sweep(&fixture(&runtime)).await.json()["result"].clone();
        assert_eq!(
            (&result["isError"], &result["_meta"]["asp/reason"]),
            (&json!(true), &json!(expected)),
            "{reason}"
        );
        assert_eq!(result["_meta"].get("asp/retryAfterMs").is_some(), expected == "rate_limited", "{reason}");
    }
    for reason in ["not_installed: sweep 1.0.0", "digest_mismatch", "language_absent", "isolation", "?"] {
        let runtime = Runtime::start(Script::of(|_, _| async {}).admitting(move |_| rejected(reason)));
        let answer = sweep(&fixture(&runtime)).await;
        assert_eq!(answer.reason(), "internal", "{reason}");
        assert!(!answer.text.contains("sweep"), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_late_refusal_ends_a_queued_call() {
    let script = Script::of(|_, worker: Worker| async move {
        worker.event(tunnel_event::Type::AdmissionRejected, "overload: shed", &[]).await;
    });
    let runtime = Runtime::start(script.admitting(|n| queued(n, 1.0, 1.0)));
    let events = call(&fixture(&runtime), "order", json!({})).await.events();
    assert_eq!(events.last().unwrap()["result"]["_meta"]["asp/reason"], "rate_limited");
}

#[tokio::test]
async fn a_runtime_that_is_not_there_is_told_at_once() {
    let runtime = Runtime::start(Script::of(|_, _| async {}));
    std::fs::remove_file(&runtime.socket).unwrap();
    let result = sweep(&fixture(&runtime)).await.json()["result"].clone();
    assert_eq!(result["_meta"]["asp/reason"], "upstream_unavailable");
}

#[tokio::test]
async fn a_failure_is_told_by_its_code() {
    let rows = [
        ("INTERNAL", Some("the disk is full"), "the disk is full"),
        ("QUOTA", Some("no more"), "no more"),
        ("INVALID_OUTPUT", None, "does not fit its output schema"),
        ("INVALID_ARGUMENT", None, "argument /n: too small"),
    ];
    for (code, own, text) in rows {
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| async move {
            let invoke = worker.begin(&[]).await;
            let end = Failed {
                request_id: invoke.request_id,
                code: code.into(),
                message: own.map_or("too small".into(), |own| format!("{own}\n  at secret.py:3")),
                details: json_of(&json!({"pointer": "/n"})),
                ..Failed::default()
            };
            worker.say(Payload::Failed(end)).await;
        }));
        let result = sweep(&fixture(&runtime)).await.json()["result"].clone();
        assert_eq!(result["isError"], true, "{code}: {result}");
        let said = result["content"][0]["text"].as_str().unwrap();
        assert!(said.contains(text) && !said.contains("secret"), "{code}: {said}");
        assert_eq!(result["_meta"].get("asp/code").and_then(Value::as_str), own.map(|_| code));
    }
}

#[tokio::test]
async fn a_result_off_its_schema_is_never_passed_on() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": "yes"})).await;
    }));
    let answer = sweep(&fixture(&runtime)).await;
    assert!(answer.text.contains("does not fit its output schema"), "{}", answer.text);
    assert!(!answer.text.contains("yes"));
}

#[tokio::test]
async fn a_modern_client_answers_the_user_and_the_model_in_one_round() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        worker.say(asks_model(&invoke.request_id)).await;
        let mut seen = Vec::new();
        for _ in 0..2 {
            match worker.next().await {
                Some(client_message::Payload::UserInput(input)) => {
                    assert_eq!((input.action(), input.error.as_str()), (Action::Accept, ""));
                    seen.push(String::from_utf8(input.fields.unwrap().value).unwrap());
                }
                Some(client_message::Payload::DelegationResult(result)) => {
                    assert_eq!((result.correlation_id.as_str(), result.error.as_str()), ("d-1", ""));
                    let value: Value = serde_json::from_slice(&result.result.unwrap().value).unwrap();
                    seen.push(value["json"]["label"].as_str().unwrap().into());
                }
                other => panic!("{other:?}"),
            }
        }
        seen.sort();
        assert_eq!(seen, ["high", r#"{"name":"Ada"}"#]);
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = fixture(&runtime);
    let can = json!({"elicitation": {}, "sampling": {}});
    let answers = json!({
        "plugins.name": {"action": "accept", "content": {"name": "Ada"}},
        "plugins.label": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "{\"label\": \"high\"}"}}});
    let mut state = Value::Null;
    let mut asked = serde_json::Map::new();
    for _round in 0..3 {
        let mut extra = json!({});
        if !state.is_null() {
            let given: serde_json::Map<String, Value> = asked
                .keys()
                .map(|key: &String| (key.clone(), answers[key.trim_end_matches(".2")].clone()))
                .collect();
            extra = json!({"requestState": state, "inputResponses": given});
        }
        let answer = modern("sweep", extra).capabilities(can.clone());
        let answer = with_token(answer).send(&fixture).await;
        let result = last_result(&answer);
        if result["resultType"] == "complete" {
            assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
            return;
        }
        assert_eq!(result["resultType"], "input_required");
        state = result["requestState"].clone();
        asked = result["inputRequests"].as_object().unwrap().clone();
        for (key, request) in &asked {
            if key.starts_with("plugins.name") {
                assert_eq!(request["method"], "elicitation/create");
                assert_eq!(request["params"]["message"], "Which name?");
                assert_eq!(request["params"]["requestedSchema"]["required"], json!(["name"]));
            } else {
                assert_eq!(request["method"], "sampling/createMessage");
                assert_eq!(request["params"]["systemPrompt"], "Answer in JSON.");
                assert_eq!(request["params"]["messages"][0]["content"]["text"], r#"{"text":"hello"}"#);
            }
        }
    }
    panic!("the call did not end");
}

fn with_token(mut request: Modern) -> Modern {
    request.body["params"]["_meta"]["progressToken"] = "p".into();
    request
}

fn last_result(answer: &Answer) -> Value {
    if answer.headers["content-type"] == "text/event-stream" {
        answer.events().last().unwrap()["result"].clone()
    } else {
        answer.json()["result"].clone()
    }
}

/// Reads server-sent events until one is a request of the server.
async fn next_request(body: &mut axum::body::Body) -> Value {
    loop {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let text = String::from_utf8(frame.to_vec()).unwrap();
        if let Some(data) = text.lines().find_map(|line| line.strip_prefix("data: ")) {
            let message: Value = serde_json::from_str(data).unwrap();
            if message.get("id").is_some() {
                return message;
            }
        }
    }
}

#[tokio::test]
async fn a_legacy_client_is_asked_on_its_stream_for_both_kinds() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        assert_eq!(user_input(&mut worker).await.action(), Action::Decline);
        worker.say(asks_model(&invoke.request_id)).await;
        match worker.next().await {
            Some(client_message::Payload::DelegationResult(result)) => {
                assert_eq!(result.error, "failed: User rejected sampling request");
            }
            other => panic!("{other:?}"),
        }
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let can = json!({"elicitation": {}, "sampling": {}});
    let client = Legacy::connect(&fixture(&runtime), "plugins", "alice", "2025-11-25", can).await;
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "sweep", "arguments": {}}});
    let mut body = client.open(&request).await.into_body();
    let asked = next_request(&mut body).await;
    assert_eq!(asked["method"], "elicitation/create");
    let declined = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}});
    assert_eq!(client.post(&declined).await.status.as_u16(), 202);
    let asked = next_request(&mut body).await;
    assert_eq!(asked["method"], "sampling/createMessage");
    assert_eq!(asked["params"]["maxTokens"], 64);
    let refused = json!({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "User rejected sampling request"}});
    assert_eq!(client.post(&refused).await.status.as_u16(), 202);
    assert_eq!(next_request(&mut body).await["result"]["structuredContent"], json!({"ok": true}));
}

#[tokio::test]
async fn a_plugin_is_told_at_once_that_nobody_can_be_asked_and_what_it_may_not_ask() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        assert_eq!(user_input(&mut worker).await.error, "unsupported");
        worker.say(asks_model(&invoke.request_id)).await;
        match worker.next().await {
            Some(client_message::Payload::DelegationResult(result)) => {
                assert_eq!(result.error, "unsupported")
            }
            other => panic!("{other:?}"),
        }
        let other = ElicitationRequested {
            request_id: invoke.request_id.clone(),
            elicitation_id: "gather_missing_policy".into(),
            ..ElicitationRequested::default()
        };
        worker.say(Payload::Elicitation(other)).await;
        assert_eq!(user_input(&mut worker).await.error, "undeclared");
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let result = sweep(&fixture(&runtime)).await.json()["result"].clone();
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
}

#[tokio::test]
async fn a_question_that_expires_fails_the_call_only_if_the_plugin_does_not_go_on() {
    for goes_on in [true, false] {
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| async move {
            let invoke = worker.begin(&[]).await;
            worker.say(asks_name(&invoke.request_id)).await;
            assert_eq!(user_input(&mut worker).await.error, "expired");
            if goes_on {
                worker.complete(&invoke, &json!({"ok": true})).await;
            } else {
                let end =
                    Failed { request_id: invoke.request_id, code: "INTERNAL".into(), ..Failed::default() };
                worker.say(Payload::Failed(end)).await;
            }
        }));
        let can = json!({"elicitation": {}});
        let client = Legacy::connect(&fixture(&runtime), "plugins", "alice", "2025-11-25", can).await;
        let answer = client.request(9, "tools/call", json!({"name": "sweep", "arguments": {}})).await;
        let result = answer.events().last().unwrap()["result"].clone();
        if goes_on {
            assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
        } else {
            assert_eq!(result["content"][0]["text"], "a question to the user was not answered in time");
        }
    }
}

#[tokio::test]
async fn a_cancel_before_readiness_cancels_the_allocation() {
    let script = Script::of(|_, mut worker: Worker| async move { while worker.next().await.is_some() {} });
    let runtime = Runtime::start(script.admitting(|n| queued(n, 1.0, 1.0)));
    let fixture = fixture(&runtime);
    let response = modern("order", json!({})).open(&fixture).await;
    // Closing the response is the cancel of this era.
    drop(response);
    until("the allocation is cancelled", || !runtime.told.cancelled.lock().is_empty()).await;
    assert_eq!(runtime.told.cancelled.lock()[0].tunnel_id, "t-0");
    assert_eq!(runtime.told.cancelled.lock()[0].mcp_request_id, "7");
}

#[tokio::test]
async fn a_cancel_after_readiness_reaches_the_worker_before_its_place_is_closed() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(progress(&invoke.request_id, 1.0)).await;
        let Some(client_message::Payload::Cancel(cancel)) = worker.next().await else { panic!("no cancel") };
        assert_eq!(
            (cancel.request_id.as_str(), cancel.reason.as_str()),
            (invoke.request_id.as_str(), "user_cancel")
        );
        let accepted = CancelResponse {
            request_id: invoke.request_id.clone(),
            accepted: true,
            ..CancelResponse::default()
        };
        worker.say(Payload::Cancel(accepted)).await;
        // Longer than the pipeline waits: the worker's place stays open meanwhile.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        assert!(worker.told.closed.lock().is_empty());
        let end = Failed { request_id: invoke.request_id, code: "CANCELLED".into(), ..Failed::default() };
        worker.say(Payload::Failed(end)).await;
    }));
    let fixture = fixture(&runtime);
    let client = Legacy::connect(&fixture, "plugins", "alice", "2025-11-25", json!({})).await;
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call",
                         "params": {"name": "sweep", "arguments": {}, "_meta": {"progressToken": 1}}});
    let mut body = client.open(&request).await.into_body();
    body.frame().await.unwrap().unwrap();
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}});
    assert_eq!(client.post(&cancel).await.status.as_u16(), 202);
    let rest = body.collect().await.unwrap().to_bytes();
    assert!(!String::from_utf8_lossy(&rest).contains("result"), "no response follows a cancel");
    until("the place is closed", || !runtime.told.closed.lock().is_empty()).await;
}

#[tokio::test]
async fn a_worker_lost_before_delivery_is_replaced_once() {
    for (losses, outcome) in [(1, "ok"), (2, "upstream_unavailable")] {
        let runtime = Runtime::start(Script::of(move |n, mut worker: Worker| async move {
            if n < losses {
                return worker.crash(false).await;
            }
            let invoke = worker.begin(&[]).await;
            worker.complete(&invoke, &json!({"ok": true})).await;
        }));
        let result = call(&fixture(&runtime), "order", json!({})).await.json()["result"].clone();
        match outcome {
            "ok" => assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}"),
            reason => assert_eq!(result["_meta"]["asp/reason"], reason),
        }
    }
}

#[tokio::test]
async fn a_worker_lost_after_delivery_runs_again_only_what_reads() {
    for (name, cut) in [("sweep", false), ("sweep", true), ("order", false), ("order", true)] {
        let runtime = Runtime::start(Script::of(move |n, mut worker: Worker| async move {
            let invoke = worker.begin(&[]).await;
            if n == 0 {
                return if cut {
                    worker.cut(Status::unavailable("gone")).await
                } else {
                    worker.crash(true).await
                };
            }
            assert!(invoke.resume.is_none(), "this plugin saves nothing");
            worker.complete(&invoke, &json!({"ok": true})).await;
        }));
        let result = call(&fixture(&runtime), name, json!({})).await.json()["result"].clone();
        let executions = runtime.told.allocations.lock().len();
        if name == "sweep" {
            assert_eq!((&result["structuredContent"], executions), (&json!({"ok": true}), 2), "{result}");
        } else {
            assert_eq!(
                (&result["_meta"]["asp/reason"], executions),
                (&json!("outcome_unknown"), 1),
                "{result}"
            );
        }
    }
}

#[tokio::test]
async fn a_worker_that_breaks_the_protocol_is_as_good_as_dead() {
    for fault in ["bytes", "type", "request", "empty", "end"] {
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| async move {
            let invoke = worker.begin(&[]).await;
            match fault {
                "bytes" => worker.say_any("asp.plugin.v1.ServerMessage", vec![0xff; 64]).await,
                "type" => worker.say_any("asp.plugin.v1.InvokeRequest", Vec::new()).await,
                "request" => worker.say(progress("another", 1.0)).await,
                "empty" => worker.say_any("asp.plugin.v1.ServerMessage", Vec::new()).await,
                _ => drop(invoke),
            }
            // The gateway gives up the tunnel by itself, whatever follows.
            if fault != "end" {
                while worker.next().await.is_some() {}
            }
        }));
        let result = call(&fixture(&runtime), "order", json!({})).await.json()["result"].clone();
        assert_eq!(result["_meta"]["asp/reason"], "outcome_unknown", "{fault}: {result}");
    }
}

#[tokio::test]
async fn a_resource_and_a_prompt_come_from_their_plugin() {
    use asp_proto::plugin::{
        ContentChunk, GetPromptRequest, GetPromptResponse, PromptMessage, ReadResourceRequest, content_chunk,
    };
    use prost::Message;
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        worker.any().await.unwrap();
        let asked = worker.any().await.unwrap();
        if asked.type_url.ends_with("ReadResourceRequest") {
            let read = ReadResourceRequest::decode(asked.value.as_slice()).unwrap();
            assert_eq!(read.uri, "page://7");
            for text in ["one ", "two"] {
                let data = Some(content_chunk::Data::Text(text.into()));
                let chunk = ContentChunk { uri: read.uri.clone(), mime_type: "text/plain".into(), data };
                worker.say_any("asp.plugin.v1.ContentChunk", chunk.encode_to_vec()).await;
            }
            return worker.event(tunnel_event::Type::TunnelClosed, "", &[]).await;
        }
        let get = GetPromptRequest::decode(asked.value.as_slice()).unwrap();
        assert_eq!(
            (get.name.as_str(), get.arguments.unwrap().value.as_slice()),
            ("advice", &br#"{"topic":"x"}"#[..])
        );
        let message =
            PromptMessage { role: "user".into(), content: json_of(&json!({"type": "text", "text": "Hi"})) };
        let prompt = GetPromptResponse { description: "d".into(), messages: vec![message] };
        worker.say_any("asp.plugin.v1.GetPromptResponse", prompt.encode_to_vec()).await;
    }));
    let fixture = fixture(&runtime);
    let read = Modern::new("plugins", &token("alice"), "resources/read", json!({"uri": "page://7"}));
    let read = read.send(&fixture).await.json();
    assert_eq!(
        read["result"]["contents"],
        json!([{"uri": "page://7", "mimeType": "text/plain", "text": "one two"}])
    );
    let params = json!({"name": "advice", "arguments": {"topic": "x"}});
    let prompt = Modern::new("plugins", &token("alice"), "prompts/get", params).send(&fixture).await.json();
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "Hi");
}

fn checkpoint(request_id: &str, seq: u64, capsule: &[u8]) -> Payload {
    Payload::Checkpoint(Checkpoint { request_id: request_id.into(), seq, capsule: capsule.to_vec() })
}

/// Saves a checkpoint and returns the error of its acknowledgement.
async fn save(worker: &mut Worker, request_id: &str, seq: u64, capsule: &[u8]) -> String {
    worker.say(checkpoint(request_id, seq, capsule)).await;
    match worker.next().await {
        Some(client_message::Payload::CheckpointAck(ack)) => {
            assert_eq!((ack.request_id.as_str(), ack.seq), (request_id, seq));
            ack.error
        }
        other => panic!("no acknowledgement: {other:?}"),
    }
}

#[tokio::test]
async fn a_call_resumes_from_its_checkpoint_with_the_answers_it_was_given() {
    let runtime = Runtime::start(Script::of(|n, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        let id = invoke.request_id.clone();
        match n {
            0 => {
                assert!(invoke.resume.is_none());
                worker.say(text_chunk(&id, "first ")).await;
                assert_eq!(save(&mut worker, &id, 1, b"one").await, "");
                worker.say(asks_name(&id)).await;
                assert_eq!(user_input(&mut worker).await.action(), Action::Accept);
                assert_eq!(save(&mut worker, &id, 3, b"three").await, "");
                assert_eq!(save(&mut worker, &id, 2, b"late").await, "stale");
                assert_eq!(save(&mut worker, &id, 4, &vec![0; 65 << 10]).await, "too_large");
                worker.say(text_chunk(&id, "again ")).await;
                worker.crash(true).await;
            }
            // The whole runtime goes away, before and after it says anything.
            1 => worker.cut(Status::unavailable("killed")).await,
            _ => {
                let resume = invoke.resume.clone().unwrap();
                assert_eq!((resume.seq, resume.capsule.as_slice(), resume.attempt), (3, &b"three"[..], 3));
                assert_eq!(resume.user_inputs.len(), 1);
                assert_eq!(resume.user_inputs[0].fields.as_ref().unwrap().value, br#"{"name":"Ada"}"#);
                assert_eq!(save(&mut worker, &id, 4, b"four").await, "");
                worker.say(text_chunk(&id, "again")).await;
                worker.complete(&invoke, &json!({"ok": true})).await;
            }
        }
    }));
    let fixture = fixture(&runtime);
    let client =
        Legacy::connect(&fixture, "plugins", "alice", "2025-11-25", json!({"elicitation": {}})).await;
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "sweep", "arguments": {}}});
    let mut body = client.open(&request).await.into_body();
    let asked = next_request(&mut body).await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"name": "Ada"}}});
    assert_eq!(client.post(&answer).await.status.as_u16(), 202);
    let result = next_request(&mut body).await["result"].clone();
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    assert_eq!(result["content"][0]["text"], "first again");
    let ids: Vec<String> =
        runtime.told.allocations.lock().iter().map(|a| a.ctx.clone().unwrap().correlation_id).collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| *id == ids[0]));
    fixture.gateway.flush().await;
    let call = uuid::Uuid::parse_str(&ids[0]).unwrap();
    assert_eq!(fixture.active.find(*call.as_bytes()).await.unwrap(), None, "the row goes with the call");
}

fn text_chunk(request_id: &str, text: &str) -> Payload {
    Payload::Chunk(ResultChunk { request_id: request_id.into(), text: text.into(), ..ResultChunk::default() })
}

#[tokio::test]
async fn a_lost_call_waits_for_a_runtime_that_does_not_take_it_at_once() {
    let script = Script::of(|n, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        if n == 0 {
            assert_eq!(save(&mut worker, &invoke.request_id, 1, b"one").await, "");
            return worker.crash(true).await;
        }
        // Refusals are no executions.
        assert_eq!(invoke.resume.as_ref().unwrap().attempt, 2);
        worker.complete(&invoke, &json!({"ok": true})).await;
    });
    let script = script.admitting(|n| match n {
        1 => rejected("overload"),
        2 => rejected("draining"),
        n => crate::runtime::admitted(n),
    });
    let runtime = Runtime::start(script);
    let result = call(&fixture(&runtime), "order", json!({})).await.json()["result"].clone();
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    // One that is quarantined meanwhile is not waited for.
    let script = Script::of(|_, mut worker: Worker| async move {
        worker.begin(&[("checkpoint", "true")]).await;
        worker.crash(true).await;
    });
    let script =
        script.admitting(|n| if n == 0 { crate::runtime::admitted(n) } else { rejected("quarantined") });
    let runtime = Runtime::start(script);
    let result = call(&fixture(&runtime), "order", json!({})).await.json()["result"].clone();
    assert_eq!(result["_meta"]["asp/reason"], "outcome_unknown", "{result}");
}

#[tokio::test]
async fn what_the_store_holds_of_a_call_is_sealed() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        assert_eq!(save(&mut worker, &invoke.request_id, 1, b"a secret of the plugin").await, "");
        // Until the test has looked.
        while worker.next().await.is_some() {}
    }));
    let fixture = fixture(&runtime);
    let request = modern("order", json!({}));
    let response = request.open(&fixture);
    let looking = async {
        until("a worker is allocated", || !runtime.told.allocations.lock().is_empty()).await;
        let id = runtime.told.allocations.lock()[0].ctx.clone().unwrap().correlation_id;
        let call = *uuid::Uuid::parse_str(&id).unwrap().as_bytes();
        loop {
            if let Some(row) = fixture.active.find(call).await.unwrap() {
                return row;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let row = tokio::select! {
        row = looking => row,
        _ = response => panic!("the call ended"),
    };
    assert_eq!((row.org.as_str(), row.plugin.as_str(), row.seq), ("acme", "order@1.0.0", 1));
    assert!(!String::from_utf8_lossy(&row.capsule).contains("secret"));
}

#[tokio::test]
async fn a_question_stays_open_when_its_worker_dies_and_is_asked_once() {
    let runtime = Runtime::start(Script::of(|n, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        if n == 0 {
            return worker.crash(true).await;
        }
        assert_eq!(user_input(&mut worker).await.action(), Action::Accept);
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = fixture(&runtime);
    let client =
        Legacy::connect(&fixture, "plugins", "alice", "2025-11-25", json!({"elicitation": {}})).await;
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "sweep", "arguments": {}}});
    let mut body = client.open(&request).await.into_body();
    let asked = next_request(&mut body).await;
    until("the second worker runs", || runtime.told.allocations.lock().len() == 2).await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"name": "Ada"}}});
    assert_eq!(client.post(&answer).await.status.as_u16(), 202);
    assert_eq!(next_request(&mut body).await["result"]["structuredContent"], json!({"ok": true}));
}

fn artifact_data(request_id: &str, uri: &str, offset: u64, data: &[u8]) -> Payload {
    Payload::ArtifactData(ArtifactData {
        request_id: request_id.into(),
        uri: uri.into(),
        offset,
        data: data.to_vec(),
    })
}

fn artifact(request_id: &str, uri: &str, size: u64) -> ArtifactEmitted {
    ArtifactEmitted {
        request_id: request_id.into(),
        r#type: "csv".into(),
        uri: uri.into(),
        content_type: "text/csv".into(),
        description: "The rows".into(),
        size,
        ..ArtifactEmitted::default()
    }
}

#[tokio::test]
async fn an_artifact_is_linked_in_the_result_and_read_by_its_owner_only() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let (id, uri) = (invoke.request_id.clone(), "report://T1/rows.csv");
        worker.say(artifact_data(&id, uri, 0, b"a,b\n")).await;
        worker.say(artifact_data(&id, uri, 4, b"1,2\n")).await;
        worker.say(Payload::Artifact(artifact(&id, uri, 8))).await;
        worker.say(Payload::Artifact(artifact(&id, "https://example.com/x.csv", 0))).await;
        worker.complete(&invoke, &json!({"ok": true, "report": uri})).await;
    }));
    let fixture = fixture(&runtime);
    let result = sweep(&fixture).await.json()["result"].clone();
    let links: Vec<&Value> = result["content"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|block| block["type"] == "resource_link")
        .collect();
    assert_eq!(links.len(), 2);
    assert_eq!(
        (&links[0]["name"], &links[0]["mimeType"], &links[0]["size"]),
        (&json!("rows.csv"), &json!("text/csv"), &json!(8))
    );
    assert_eq!(links[1]["uri"], "https://example.com/x.csv");
    let uri = links[0]["uri"].as_str().unwrap();
    assert!(uri.starts_with("asp-artifact://") && uri.ends_with("/rows.csv"), "{uri}");
    assert_eq!(result["structuredContent"]["report"], uri);

    let read = |user: &str, server: &str, uri: &str| {
        Modern::new(server, &token(user), "resources/read", json!({"uri": uri}))
    };
    let own = read("alice", "plugins", uri).send(&fixture).await.json();
    assert_eq!(
        own["result"]["contents"],
        json!([{"uri": uri, "mimeType": "text/csv", "text": "a,b\n1,2\n"}])
    );
    let legacy = Legacy::connect(&fixture, "plugins", "alice", "2025-06-18", json!({})).await;
    let own = legacy.request(3, "resources/read", json!({"uri": uri})).await.json();
    assert_eq!(own["result"]["contents"][0]["text"], "a,b\n1,2\n");

    // Hidden and unknown are the same (I-10).
    let nowhere = format!("asp-artifact://{}/rows.csv", "0".repeat(32));
    let unknown = read("alice", "plugins", &nowhere).send(&fixture).await.json()["error"].clone();
    assert_eq!((&unknown["code"], &unknown["data"]["uri"]), (&json!(-32602), &json!(nowhere)));
    let missing = read("alice", "plugins", "nothing://x").send(&fixture).await.json()["error"].clone();
    for (user, server, uri) in [
        ("bob", "plugins", uri),
        ("alice", "policy", uri),
        ("alice", "plugins", &uri.replace("rows", "other")),
    ] {
        let error = read(user, server, uri).send(&fixture).await.json()["error"].clone();
        let as_missing = missing.to_string().replace("nothing://x", uri);
        assert_eq!(error.to_string(), as_missing, "{user} {server}");
    }
}

#[tokio::test]
async fn a_server_whose_plugins_leave_artifacts_says_that_it_has_resources() {
    let runtime = Runtime::start(Script::of(|_, _| async {}));
    let discovered = Modern::new("plugins", &token("alice"), "server/discover", json!({}))
        .send(&fixture(&runtime))
        .await
        .json();
    assert!(discovered["result"]["capabilities"]["resources"].is_object(), "{discovered}");
}

#[tokio::test]
async fn an_artifact_that_is_not_what_it_says_ends_its_worker() {
    for fault in ["gap", "size", "digest", "link"] {
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| async move {
            let invoke = worker.begin(&[]).await;
            let (id, uri) = (invoke.request_id.clone(), "report://T1/x");
            worker.say(artifact_data(&id, uri, 0, b"abc")).await;
            let mut end = artifact(&id, uri, 3);
            match fault {
                "gap" => worker.say(artifact_data(&id, uri, 4, b"d")).await,
                "size" => end.size = 2,
                "digest" => end.sha256 = "0".repeat(64),
                _ => end.uri = "javascript:alert(1)".into(),
            }
            worker.say(Payload::Artifact(end)).await;
            worker.complete(&invoke, &json!({"ok": true})).await;
        }));
        let result = call(&fixture(&runtime), "order", json!({})).await.json()["result"].clone();
        assert_eq!(result["_meta"]["asp/reason"], "outcome_unknown", "{fault}: {result}");
    }
}

#[tokio::test]
async fn the_plugins_of_a_snapshot_are_prepared_before_anybody_calls_them() {
    let runtime = Runtime::start(Script::of(|_, _| async {}));
    let fixture = fixture(&runtime);
    until("every plugin is prepared", || runtime.told.ensured.lock().len() >= 5).await;
    let mut ids: Vec<String> = runtime
        .told
        .ensured
        .lock()
        .iter()
        .map(|request| {
            assert!(request.prewarm);
            let plugin = request.plugin.clone().unwrap();
            format!("{}@{}", plugin.id, plugin.version)
        })
        .collect();
    ids.sort();
    // The repository's own Python plugin, and those of the tests.
    assert_eq!(ids, ["advice@1.0.0", "cdcsr@1.0.1", "order@1.0.0", "page@1.0.0", "sweep@1.0.0"]);
    drop(fixture);
}

#[tokio::test]
async fn a_form_or_a_models_input_beyond_its_bound_is_not_asked() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let properties: serde_json::Map<String, Value> =
            (0..60).map(|n| (n.to_string(), json!({"type": "string", "title": "x".repeat(2000)}))).collect();
        let form = ElicitationRequested {
            request_id: invoke.request_id.clone(),
            elicitation_id: "plugins.name".into(),
            requested_schema: json_of(&json!({"type": "object", "properties": properties})),
            ..ElicitationRequested::default()
        };
        worker.say(Payload::Elicitation(form)).await;
        assert_eq!(user_input(&mut worker).await.error, "too_large");
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let request = modern("sweep", json!({})).capabilities(json!({"elicitation": {}}));
    let result = last_result(&with_token(request).send(&fixture(&runtime)).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
}
