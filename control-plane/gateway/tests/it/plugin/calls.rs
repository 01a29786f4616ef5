//! Admission, events, results and failures of a plugin call.

use asp_proto::envelope::packed;
use asp_proto::plugin::{
    ContentChunk, Failed, GetPromptRequest, GetPromptResponse, PromptMessage, ReadResourceRequest,
    ResultChunk, client_message, content_chunk, server_message::Payload,
};
use asp_proto::snapshot::Primitive;
use asp_proto::snapshot::runtime::Mode;
use asp_proto::supervisor::{AllocateWorkerResponse, tunnel_event};
use asp_runtime_client::runtimes::{RuntimeTarget, Runtimes};
use prost::Message;
use prost_types::Any;
use prost_types::value::Kind;
use serde_json::{Value, json};

use super::{call, fixture, modern, progress, sweep, until};
use crate::runtime::{
    Authority, PYTHON, Runtime, Script, Worker, admitted, completed, json_of, queued, rejected,
    start_with_tls,
};
use crate::support::{Fixture, Modern, snapshot, token};

#[tokio::test]
async fn a_call_that_is_answered_at_once_takes_one_frame_each_way() {
    let runtime = Runtime::start(Script::answering(|work| {
        completed(work, |invoke| json!({"ok": invoke.primitive == "sweep"}))
    }));
    let fixture = fixture(&runtime);
    for _ in 0..2 {
        let answer = sweep(&fixture).await.json();
        assert_eq!(answer["result"]["structuredContent"], json!({"ok": true}));
    }
    fixture.gateway.flush().await;
    assert_eq!(*runtime.told.frames.lock(), 2, "the requests, with their work");
    let metrics = fixture.send(http::Method::GET, "/metrics", &[], "").await.text;
    assert!(metrics.contains(r#"asp_worker_cpu_seconds_total{language="python"} 0.5"#), "{metrics}");
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
        let place = [
            ("position", Kind::NumberValue(1.0)),
            ("depth", Kind::NumberValue(4.0)),
            ("eta_ms", Kind::NumberValue(1500.0)),
        ];
        worker.event(tunnel_event::Type::AllocationQueued, "", &place).await;
        worker.event(tunnel_event::Type::AllocationStarted, "", &[]).await;
        worker.event(tunnel_event::Type::TunnelReady, "", &[]).await;
        // What came with the request for a place found no worker, and comes again.
        let Some(client_message::Payload::Init(_)) = worker.next().await else { panic!("no init") };
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
        // One that drains is waited for a while.
        let result = sweep(&fixture(&runtime)).await.last()["result"].clone();
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
        let result = answer.json()["result"].clone();
        assert_eq!(
            (&result["isError"], &result["_meta"]["asp/reason"]),
            (&json!(true), &json!("upstream_unavailable")),
            "{reason}"
        );
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
        ("INVALID_OUTPUT", None, "does not match its output schema"),
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
async fn a_result_that_is_too_large_is_reported_by_its_size() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let end = Failed {
            request_id: invoke.request_id,
            code: "INVALID_OUTPUT".into(),
            message: "the result has 5000015 bytes, allowed are 4194304".into(),
            ..Failed::default()
        };
        worker.say(Payload::Failed(end)).await;
    }));
    let text = sweep(&fixture(&runtime)).await.text;
    assert!(text.contains("the result has 5000015 bytes, allowed are 4194304"), "{text}");
    assert!(!text.contains("output schema"), "{text}");
}

#[tokio::test]
async fn a_result_off_its_schema_is_never_passed_on() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": "yes"})).await;
    }));
    let answer = sweep(&fixture(&runtime)).await;
    assert!(answer.text.contains("does not match its output schema"), "{}", answer.text);
    assert!(!answer.text.contains("yes"));
}

/// Returns a part of a resource as a plugin sends it.
fn chunk(uri: &str, text: &str) -> Any {
    let data = Some(content_chunk::Data::Text(text.into()));
    packed(&ContentChunk { uri: uri.into(), mime_type: "text/plain".into(), data, ..ContentChunk::default() })
}

fn prompt() -> Any {
    let content = json_of(&json!({"type": "text", "text": "Hi"}));
    let messages = vec![PromptMessage { role: "user".into(), content }];
    packed(&GetPromptResponse { description: "d".into(), messages, ..GetPromptResponse::default() })
}

/// Reads the fixture's resource and gets its prompt.
async fn read_and_get(fixture: &Fixture, contents: &str) {
    let read = Modern::new("plugins", &token("alice"), "resources/read", json!({"uri": "page://7"}));
    let read = read.send(fixture).await.json();
    assert_eq!(
        read["result"]["contents"],
        json!([{"uri": "page://7", "mimeType": "text/plain", "text": contents}])
    );
    let params = json!({"name": "advice", "arguments": {"topic": "x"}});
    let prompt = Modern::new("plugins", &token("alice"), "prompts/get", params).send(fixture).await.json();
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "Hi");
}

#[tokio::test]
async fn a_resource_and_a_prompt_come_from_their_plugin() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        worker.any().await.unwrap();
        let asked = worker.any().await.unwrap();
        if asked.type_url.ends_with("ReadResourceRequest") {
            let read = ReadResourceRequest::decode(asked.value.as_slice()).unwrap();
            assert_eq!(read.uri, "page://7");
            for text in ["one ", "two"] {
                worker.say_packed(chunk(&read.uri, text)).await;
            }
            return worker.event(tunnel_event::Type::TunnelClosed, "", &[]).await;
        }
        let get = GetPromptRequest::decode(asked.value.as_slice()).unwrap();
        assert_eq!(
            (get.name.as_str(), get.arguments.unwrap().value.as_slice()),
            ("advice", &br#"{"topic":"x"}"#[..])
        );
        worker.say_packed(prompt()).await;
    }));
    read_and_get(&fixture(&runtime), "one two").await;
}

#[tokio::test]
async fn a_resource_and_a_prompt_that_are_answered_at_once_take_one_frame_each_way() {
    let runtime =
        Runtime::start(Script::answering(|work| match work.type_url.ends_with("ReadResourceRequest") {
            true => chunk("page://7", "all"),
            false => prompt(),
        }));
    let fixture = fixture(&runtime);
    read_and_get(&fixture, "all").await;
    fixture.gateway.flush().await;
    assert_eq!(*runtime.told.frames.lock(), 2, "the requests, with their work");
}

/// Older runtimes took the work with its request and reported the end of a read separately.
#[tokio::test]
async fn a_resource_whose_end_is_told_apart_is_complete_by_then() {
    let script = Script::of(|n, worker: Worker| async move {
        match n {
            0 => worker.say_packed(chunk("page://7", "all")).await,
            _ => worker.say_packed(prompt()).await,
        }
        worker.closes().await;
    });
    let took = |n| AllocateWorkerResponse { took: true, ..admitted(n) };
    let runtime = Runtime::start(script.admitting(took));
    read_and_get(&fixture(&runtime), "all").await;
}

/// The plugins that the fixture's runtime has to do with, as `id@version` in order.
fn python_plugins() -> Vec<String> {
    let in_python = |primitive: &Primitive| {
        let mode = primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref());
        matches!(mode, Some(Mode::Plugin(plugin)) if plugin.language == PYTHON)
    };
    let primitives = snapshot().primitives;
    let named = primitives.iter().filter(|primitive| in_python(primitive));
    let mut names: Vec<String> =
        named.map(|primitive| format!("{}@{}", primitive.id, primitive.version)).collect();
    names.sort();
    names
}

#[tokio::test]
async fn the_plugins_of_a_snapshot_are_prepared_before_anybody_calls_them() {
    let runtime = Runtime::start(Script::of(|_, _| async {}));
    let fixture = fixture(&runtime);
    let wanted = python_plugins();
    assert!(wanted.contains(&"cdcsr@1.0.1".to_owned()) && wanted.contains(&"advice@1.0.0".to_owned()));
    until("every plugin is prepared", || runtime.told.ensured.lock().len() >= wanted.len()).await;
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
    assert_eq!(ids, wanted);
    drop(fixture);
}

#[tokio::test]
async fn a_runtime_on_the_network_takes_only_gateways_its_authority_knows() {
    let ours = Authority::new();
    let theirs = Authority::new();
    let script = Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    });
    let url = start_with_tls(script.clone(), &ours, "runtime").await;
    // Its authority is right, and it is no runtime.
    let stolen = start_with_tls(script, &ours, "envoy").await;
    for (signer, url, known) in [(&ours, &url, true), (&theirs, &url, false), (&ours, &stolen, false)] {
        let peer = Some(signer.peer("gateway", &ours));
        let target = RuntimeTarget { languages: vec![PYTHON.into()], url: url.clone(), peer };
        let fixture = Fixture::with(snapshot(), 7, Runtimes::new(vec![target]).unwrap());
        let result = sweep(&fixture).await.json()["result"].clone();
        if known {
            assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
        } else {
            assert_eq!(result["_meta"]["asp/reason"], "upstream_unavailable", "{result}");
        }
    }
}

#[tokio::test]
async fn a_version_that_a_snapshot_has_no_more_is_drained_after_the_new_one_is_ready() {
    let runtime = Runtime::start(Script::of(|_, _| async {}));
    let fixture = fixture(&runtime);
    until("every plugin is prepared", || runtime.told.ensured.lock().len() >= python_plugins().len()).await;
    let mut next = snapshot();
    next.revision += 1;
    for primitive in next.primitives.iter_mut().filter(|primitive| primitive.id == "sweep") {
        primitive.version = "1.1.0".into();
    }
    let listings = next.servers.iter_mut().flat_map(|server| &mut server.listings);
    for listing in listings.filter(|listing| listing.id == "sweep") {
        listing.version = "1.1.0".into();
    }
    // The wait before a drain is long; only the clock of the test is in a hurry.
    tokio::time::pause();
    fixture.gateway.apply(next).unwrap();
    until("the old version is drained", || !runtime.told.drained.lock().is_empty()).await;
    let version = |plugin: &Option<asp_proto::supervisor::PluginRef>| plugin.clone().unwrap().version;
    assert_eq!(version(&runtime.told.drained.lock()[0].plugin), "1.0.0");
    assert!(runtime.told.drained.lock()[0].graceful);
    assert!(runtime.told.ensured.lock().iter().any(|request| version(&request.plugin) == "1.1.0"));
    assert_eq!(runtime.told.drained.lock().len(), 1);
}

#[tokio::test]
async fn a_plugin_gets_the_callers_key_and_trace_and_no_token() {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        assert_eq!(invoke.idempotency_key, "k-1");
        assert_eq!(invoke.attrs.get("traceparent").map(String::as_str), Some(trace));
        assert!(!format!("{invoke:?}").contains("eyJ"), "a token went along");
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let mut request = modern("order", json!({}));
    request.body["params"]["_meta"]["asp/idempotencyKey"] = "k-1".into();
    request.body["params"]["_meta"]["traceparent"] = trace.into();
    let fixture = fixture(&runtime);
    for replayed in [Value::Null, json!(true)] {
        let result = request.send(&fixture).await.json()["result"].clone();
        assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
        assert_eq!(result["_meta"]["asp/replayed"], replayed);
    }
    assert_eq!(runtime.told.allocations.lock().len(), 1);
}

#[tokio::test]
async fn a_key_is_free_again_when_no_worker_got_the_call() {
    let script = Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    });
    let runtime = Runtime::start(script.admitting(|n| match n {
        0 => rejected("throttled"),
        n => admitted(n),
    }));
    let mut request = modern("order", json!({}));
    request.body["params"]["_meta"]["asp/idempotencyKey"] = "k-2".into();
    let fixture = fixture(&runtime);
    let refused = request.send(&fixture).await.json()["result"].clone();
    assert_eq!(refused["_meta"]["asp/reason"], "rate_limited");
    let done = request.send(&fixture).await.json()["result"].clone();
    assert_eq!(done["structuredContent"], json!({"ok": true}), "{done}");
}
