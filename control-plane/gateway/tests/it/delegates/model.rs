//! A model of the platform's answers.

use std::collections::BTreeMap;
use std::time::Duration;

use asp_backends::delegate::endpoint::{EndpointKey, Endpoints};
use asp_proto::plugin::Completed;
use asp_proto::plugin::server_message::Payload;
use asp_proto::snapshot::{Protocol, ProxyOpenai, SpecLimit};
use http::Method;
use serde_json::{Value, json};

use super::{Model, Once, asks, audited, read, said, sweep, told, with_delegate, with_openai};
use crate::runtime::{Runtime, Script, Worker, json_of};
use crate::support::{Fixture, denied_to_alice, snapshot, token};

#[tokio::test]
async fn a_client_without_a_model_is_no_hindrance() {
    let model = Model::saying("```json\n{\"label\": \"high\"}\n```").await;
    let (answer, fixture) = Once::of(snapshot(), model.endpoints()).run().await;
    let text = "```json\n{\"label\": \"high\"}\n```";
    assert_eq!(
        answer.unwrap(),
        json!({"json": {"label": "high"}, "text": text, "model": "small-1", "stopReason": "endTurn"})
    );
    let (headers, body) = model.asked.lock()[0].clone();
    assert_eq!(
        body,
        json!({"model": "small", "max_tokens": 64, "messages": [
            {"role": "system", "content": "Answer in JSON."},
            {"role": "user", "content": "{\"text\":\"hello\"}"}]})
    );
    assert_eq!(headers["authorization"], "Bearer k3y");
    for absent in ["cookie", "x-forwarded-for", "mcp-session-id", "traceparent"] {
        assert!(!headers.contains_key(absent), "{absent} went to the model");
    }

    let events = audited(&fixture, "call.delegation").await;
    assert_eq!(events.len(), 1);
    let event = &events[0];
    let expected = json!({"delegate": "plugins.label@1.0.0", "by": "model", "outcome": "ok",
                          "tokensIn": 11, "tokensOut": 3});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&event[name], value, "{event}");
    }
    assert!(event["ms"].is_u64() && event["user"] == "alice" && event["primitive"] == "sweep@1.0.0");
    assert!(!event.to_string().contains("hello") && !event.to_string().contains("high"), "{event}");
    let metrics = fixture.gateway.pipeline.internals().metrics.encode();
    for line in [
        "asp_delegations_total{by=\"model\",outcome=\"ok\"} 1",
        "asp_delegation_tokens_total{direction=\"in\"} 11",
        "asp_delegation_tokens_total{direction=\"out\"} 3",
        "asp_delegation_duration_seconds_count{by=\"model\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is missing");
    }
}

#[tokio::test]
async fn the_tokens_of_a_model_are_the_cost_of_a_failed_task_that_reports_none() {
    let cost = "https://proto-labs.ai/a2a/ext/cost-v1";
    let model = Model::saying("{\"label\": \"high\"}").await;
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let input = json!({"text": "hello"});
        worker.say(asks(&invoke.request_id, "d-1", &input, Duration::ZERO)).await;
        told(&mut worker).await;
        let content = json_of(&json!([{"type": "text", "text": "no"}]));
        let request_id = invoke.request_id.clone();
        let failed = Completed { request_id, content, is_error: true, ..Completed::default() };
        worker.say(Payload::Completed(failed)).await;
    }));
    let fixture = Fixture::with_models(crate::a2a::snapshot(), 7, runtime.runtimes(), model.endpoints());
    let bearer = format!("Bearer {}", token("alice"));
    let headers =
        [("authorization", bearer.as_str()), ("content-type", "application/json"), ("a2a-extensions", cost)];
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {
        "messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"skill": "sweep", "arguments": {}}}]}}});
    let answer = fixture.send(Method::POST, "/plugins/a2a", &headers, &body.to_string()).await;
    let task = answer.json()["result"]["task"].clone();
    let reported = &task["artifacts"][0]["metadata"][cost];
    assert_eq!(reported["usage"], json!({"input_tokens": 11, "output_tokens": 3}), "{task}");
    assert_eq!((&reported["success"], reported["durationMs"].is_u64()), (&json!(false), true), "{task}");
}

#[tokio::test]
async fn who_answers_is_decided_by_client_spec_and_operator() {
    let sampling = json!({"sampling": {}});
    // (client can sample, spec prefers the platform, there is an endpoint) → who
    let rows = [
        (false, false, true, "model"),
        (false, true, true, "model"),
        (true, true, true, "model"),
        (true, false, true, "client"),
        (true, true, false, "client"),
        (true, false, false, "client"),
        (false, false, false, "unsupported"),
        (false, true, false, "unsupported"),
    ];
    for (can, prefers, has, expected) in rows {
        let model = Model::saying("1").await;
        let endpoints = if has { model.endpoints() } else { Endpoints::default() };
        let snapshot = with_delegate(|delegate| delegate.prefer_platform = prefers);
        let capabilities = if can { sampling.clone() } else { json!({}) };
        if expected == "client" {
            let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
                let invoke = worker.begin(&[]).await;
                worker.say(asks(&invoke.request_id, "d-1", &json!("x"), Duration::ZERO)).await;
                told(&mut worker).await;
            }));
            let fixture = Fixture::with_models(snapshot, 7, runtime.runtimes(), endpoints);
            let result = sweep(capabilities).send(&fixture).await.json()["result"].clone();
            assert_eq!(result["resultType"], "input_required", "{can} {prefers} {has}: {result}");
        } else {
            let once = Once { capabilities, ..Once::of(snapshot, endpoints) };
            let (answer, _) = once.run().await;
            match expected {
                "model" => assert_eq!(answer.unwrap()["json"], 1),
                word => assert_eq!(answer.unwrap_err(), word),
            }
        }
        assert_eq!(model.requests(), usize::from(expected == "model"), "{can} {prefers} {has}");
    }
}

/// A plugin's substitute for an input is not checked against the delegate's schema, and the operator pays for it.
#[tokio::test]
async fn a_conversation_reaches_a_model_of_the_platforms_only_where_the_spec_lets_it() {
    let schema = r#"{"type": "integer"}"#;
    for (prefers, schema, answered) in
        [(false, schema, false), (true, schema, false), (false, "", false), (true, "", true)]
    {
        let model = Model::saying("1").await;
        let snapshot = with_delegate(|delegate| {
            delegate.sampling_tools = true;
            delegate.prefer_platform = prefers;
            delegate.input_schema = schema.into();
        });
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| async move {
            let invoke = worker.begin(&[]).await;
            let message = json!({"role": "user", "content": {"type": "text", "text": "no integer"}});
            let mut asked = asks(&invoke.request_id, "d-1", &json!(1), Duration::ZERO);
            if let Payload::Delegation(asked) = &mut asked {
                asked.conversation = json_of(&json!({"messages": [message]}));
            }
            worker.say(asked).await;
            let told = told(&mut worker).await;
            let expected = if answered { "" } else { "unsupported" };
            worker.complete(&invoke, &json!({"ok": told.error == expected})).await;
        }));
        let fixture = Fixture::with_models(snapshot, 7, runtime.runtimes(), model.endpoints());
        let result = sweep(json!({})).send(&fixture).await.json()["result"].clone();
        assert_eq!(result["structuredContent"], json!({"ok": true}), "{prefers} {schema}: {result}");
        assert_eq!(model.requests(), usize::from(answered), "{prefers} {schema}");
    }
}

#[tokio::test]
async fn a_specs_endpoint_has_its_own_model_headers_and_key() {
    let model = Model::saying("hi").await;
    let openai = ProxyOpenai {
        api_key_name: "corp".into(),
        temperature: Some(0.25),
        max_tokens: 7,
        headers: [("x-team".to_owned(), "legal".to_owned())].into(),
        json_schema: true,
        ..ProxyOpenai::default()
    };
    let mut snapshot = with_openai(&model, openai);
    let schema = r#"{"type":"string"}"#;
    snapshot.primitives.iter_mut().find(|p| p.id == super::DELEGATE).unwrap().output_schema = schema.into();
    let key = EndpointKey {
        origin: "http://llm.internal".into(),
        key: "c0rp".into(),
        primitives: vec!["*".into()],
    };
    let endpoints = Endpoints { keys: BTreeMap::from([("corp".to_owned(), key)]), ..Endpoints::default() };
    let (answer, _) = Once::of(snapshot, endpoints).run().await;
    assert_eq!(answer.unwrap()["text"], "hi");
    let (headers, body) = model.asked.lock()[0].clone();
    assert_eq!(
        (&headers["authorization"], &headers["x-team"]),
        (&"Bearer c0rp".parse().unwrap(), &"legal".parse().unwrap())
    );
    assert_eq!(
        (&body["model"], &body["max_tokens"], &body["temperature"]),
        (&json!("own"), &json!(7), &json!(0.25))
    );
    assert_eq!(
        body["response_format"],
        json!({"type": "json_schema",
               "json_schema": {"name": "plugins_label", "schema": {"type": "string"}}})
    );
}

/// Invariant I-12.
#[tokio::test]
async fn a_key_serves_the_delegates_that_the_operator_names() {
    let model = Model::saying("hi").await;
    for (pattern, served) in
        [("plugins/plugins.label", true), ("plugins/*", true), ("other/*", false), ("plugins/other", false)]
    {
        let snapshot =
            with_openai(&model, ProxyOpenai { api_key_name: "corp".into(), ..ProxyOpenai::default() });
        let key = EndpointKey {
            origin: "http://llm.internal".into(),
            key: "c0rp".into(),
            primitives: vec![pattern.into()],
        };
        let endpoints =
            Endpoints { keys: BTreeMap::from([("corp".to_owned(), key)]), ..Endpoints::default() };
        let asked = model.requests();
        let (answer, _) = Once::of(snapshot, endpoints).run().await;
        let requests = model.requests() - asked;
        assert_eq!((answer.is_ok(), requests), (served, usize::from(served)), "{pattern}");
        if !served {
            assert_eq!(answer.unwrap_err(), "refused", "{pattern}: to ask again helps nobody");
        }
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_serve_the_delegate_refuses() {
    let model = Model::saying("hi").await;
    for (pattern, path) in [("other/*", ""), ("*", "/elsewhere")] {
        let mut snapshot = with_openai(&model, ProxyOpenai::default());
        for upstream in &mut snapshot.upstreams {
            if upstream.name == "llm.internal" {
                upstream.primitives = vec![pattern.into()];
                upstream.url.push_str(path);
            }
        }
        let (answer, _) = Once::of(snapshot, Endpoints::default()).run().await;
        assert_eq!(answer.unwrap_err(), "refused", "{pattern} {path}");
    }
    assert_eq!(model.requests(), 0);
}

#[tokio::test]
async fn a_key_is_not_sent_beyond_its_origin() {
    let model = Model::saying("hi").await;
    for (origin, name) in
        [("https://llm.internal", "corp"), ("http://other.internal", "corp"), ("http://llm.internal", "else")]
    {
        let snapshot =
            with_openai(&model, ProxyOpenai { api_key_name: "corp".into(), ..ProxyOpenai::default() });
        let key = EndpointKey { origin: origin.into(), key: "c0rp".into(), primitives: vec!["*".into()] };
        let endpoints = Endpoints { keys: BTreeMap::from([(name.to_owned(), key)]), ..Endpoints::default() };
        let (answer, _) = Once::of(snapshot, endpoints).run().await;
        assert_eq!(answer.unwrap_err(), "refused", "{origin}");
    }
    assert_eq!(model.requests(), 0);
}

#[tokio::test]
async fn the_operators_key_does_not_go_to_a_specs_endpoint() {
    let own = Model::saying("own").await;
    let specs = Model::saying("specs").await;
    let snapshot = with_openai(&specs, ProxyOpenai::default());
    let (answer, _) = Once::of(snapshot, own.endpoints()).run().await;
    assert_eq!(answer.unwrap()["text"], "specs");
    assert!(!specs.asked.lock()[0].0.contains_key("authorization"));
    assert_eq!(own.requests(), 0);
}

#[tokio::test]
async fn policy_and_limits_that_name_a_delegate_hold() {
    let model = Model::saying("1").await;
    let deny = denied_to_alice(super::DELEGATE, Protocol::Mcp);
    let mut denied = snapshot();
    denied.bindings.push(deny);
    let (answer, _) = Once::of(denied, model.endpoints()).run().await;
    assert_eq!(answer.unwrap_err(), "refused");
    assert_eq!(model.requests(), 0);

    let limit = SpecLimit { invocation_count: 2, window_seconds: 3600, concurrent_invocations: 0 };
    let limited = with_delegate(|delegate| delegate.limit = Some(limit));
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let mut heard = Vec::new();
        for n in 0..3 {
            worker.say(asks(&invoke.request_id, &format!("d-{n}"), &json!(n), Duration::ZERO)).await;
            heard.push(read(&told(&mut worker).await).map(|_| ()));
        }
        assert_eq!(heard, [Ok(()), Ok(()), Err("limited".into())]);
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = Fixture::with_models(limited, 7, runtime.runtimes(), model.endpoints());
    let result = sweep(json!({})).send(&fixture).await.json()["result"].clone();
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    assert_eq!(model.requests(), 2);
}

#[tokio::test]
async fn many_are_asked_at_a_time_and_no_more_than_the_bound() {
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let held = gate.clone();
    let model = Model::start(move |_| {
        let held = held.clone();
        async move {
            let _free = held.acquire().await.unwrap();
            said("1")
        }
    })
    .await;
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let gate = gate.clone();
        async move {
            let invoke = worker.begin(&[]).await;
            for n in 0..17 {
                worker.say(asks(&invoke.request_id, &format!("d-{n}"), &json!(n), Duration::ZERO)).await;
            }
            // The one too many is told at once, while the others wait.
            let first = told(&mut worker).await;
            assert_eq!((first.correlation_id.as_str(), first.error.as_str()), ("d-16", "limited"));
            gate.add_permits(16);
            for _ in 0..16 {
                let answer: Value = read(&told(&mut worker).await).unwrap();
                assert_eq!(answer["json"], 1);
            }
            worker.complete(&invoke, &json!({"ok": true})).await;
        }
    }));
    let fixture = Fixture::with_models(snapshot(), 7, runtime.runtimes(), model.endpoints());
    let result = sweep(json!({})).send(&fixture).await.json()["result"].clone();
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    assert_eq!(model.requests(), 16);
}
