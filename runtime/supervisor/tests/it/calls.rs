//! Tests of calls that succeed.

use asp_proto::plugin::client_message::Payload as In;
use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::plugin::{ContentChunk, GetPromptRequest, GetPromptResponse, InitRequest};
use asp_proto::plugin::{Ping, ReadResourceRequest};
use asp_proto::supervisor::tunnel_event::Type;
use asp_proto::supervisor::{CloseTunnelRequest, EnsurePluginRequest};
use asp_runtime_client::runtimes::metrics;
use prost::Message;
use serde_json::json;

use super::harness::{Said, output, reference, start};

#[tokio::test]
async fn a_call_is_answered_and_its_worker_is_used_again() {
    let stack = start(&[("echo", json!({}))]).await;
    let said = stack.call("echo", "one", &json!({"text": "hello"})).await;
    assert!(said.iter().any(|said| said.is_event(Type::AllocationStarted)), "a cold start: {said:?}");
    assert!(said.iter().any(|said| said.is_event(Type::TunnelReady)));
    assert_eq!(output(&said).unwrap()["text"], "hello");
    assert!(
        said[said.len() - 2].is_event(Type::TunnelClosed) && matches!(said.last(), Some(Said::End(None)))
    );
    let said = stack.call("echo", "two", &json!({"text": "again"})).await;
    assert!(said[0].is_event(Type::TunnelReady), "a warm start: {said:?}");
    assert_eq!(output(&said).unwrap()["text"], "again");
    assert_eq!(stack.figure("echo@1.0.0", "workers").await, 1);
    assert_eq!(stack.figure("echo@1.0.0", "admitted_warm").await, 1);
}

#[tokio::test]
async fn the_tunnels_own_init_and_ping_are_answered_by_the_runtime() {
    let stack = start(&[("echo", json!({}))]).await;
    let mut tunnel = stack.tunnel("echo").await;
    tunnel.say(In::Init(InitRequest::default())).await;
    let Said::Message(Out::Init(init)) = tunnel.until_message().await else { panic!() };
    assert!(init.ok && init.caps["shim"] == "ppp_worker/1", "the worker's caps: {init:?}");
    assert!(
        !init.caps.contains_key("boast"),
        "what is too long is not kept for each call of a worker's life"
    );
    tunnel.say(In::Ping(Ping { nonce: "7".into() })).await;
    assert!(matches!(tunnel.until_message().await, Said::Message(Out::Pong(pong)) if pong.nonce == "7"));
    tunnel.invoke("one", &json!({"text": "x"})).await;
    assert!(output(&tunnel.rest().await).is_some());
}

#[tokio::test]
async fn a_question_is_answered_through_the_tunnel() {
    let stack = start(&[("echo", json!({}))]).await;
    let mut tunnel = stack.tunnel("echo").await;
    tunnel.invoke("one", &json!({"mode": "ask"})).await;
    let asked = tunnel.until_message().await;
    assert!(matches!(&asked, Said::Message(Out::Elicitation(asked)) if asked.elicitation_id == "age"));
    tunnel.answer("one", "age", &json!({"age": 42})).await;
    assert_eq!(output(&tunnel.rest().await).unwrap(), json!({"age": 42}));
}

#[tokio::test]
async fn many_calls_share_a_worker_and_none_gets_anothers_events() {
    let stack = start(&[("echo", json!({"pool": {"max": 1, "concurrency": 4}}))]).await;
    let calls = (0..20).map(|number| {
        let stack = &stack;
        async move {
            let id = format!("call-{number}");
            let said = stack.call("echo", &id, &json!({"mode": "slow", "ms": number})).await;
            assert_eq!(output(&said).unwrap(), json!({"slept": number}), "{said:?}");
            for message in said {
                if let Said::Message(Out::Progress(progress)) = message {
                    assert_eq!(progress.request_id, id);
                }
            }
        }
    });
    futures::future::join_all(calls).await;
    assert_eq!(stack.figure("echo@1.0.0", "workers").await, 1);
}

#[tokio::test]
async fn artifact_bytes_arrive_in_order() {
    let stack = start(&[("echo", json!({}))]).await;
    let said = stack.call("echo", "one", &json!({"mode": "artifact"})).await;
    let bytes: usize = said
        .iter()
        .filter_map(|said| match said {
            Said::Message(Out::ArtifactData(piece)) => Some(piece.data.len()),
            _ => None,
        })
        .sum();
    assert!(bytes == 3000 && output(&said).is_some(), "{said:?}");
}

#[tokio::test]
async fn resources_are_read_and_prompts_are_got() {
    let stack = start(&[("echo", json!({}))]).await;
    let mut tunnel = stack.tunnel("echo").await;
    let request =
        ReadResourceRequest { uri: "test://x".into(), request_id: "one".into(), ..Default::default() };
    tunnel.frame(&request).await;
    let said = tunnel.rest().await;
    let chunks: Vec<ContentChunk> = said
        .iter()
        .filter_map(|said| match said {
            Said::Other(any) => Some(ContentChunk::decode(any.value.as_slice()).unwrap()),
            _ => None,
        })
        .collect();
    assert_eq!(chunks.len(), 3, "{said:?}");
    let mut tunnel = stack.tunnel("echo").await;
    let request = GetPromptRequest { name: "greet".into(), request_id: "two".into(), ..Default::default() };
    tunnel.frame(&request).await;
    let said = tunnel.rest().await;
    let prompt = said.iter().find_map(|said| match said {
        Said::Other(any) => Some(GetPromptResponse::decode(any.value.as_slice()).unwrap()),
        _ => None,
    });
    assert_eq!(prompt.unwrap().description, "greet");
    let mut tunnel = stack.tunnel("echo").await;
    let missing = ReadResourceRequest {
        uri: "test://missing".into(),
        request_id: "three".into(),
        ..Default::default()
    };
    tunnel.frame(&missing).await;
    assert!(tunnel.rest().await.iter().any(|said| said.failed() == Some("NOT_FOUND")));
}

#[tokio::test]
async fn closing_a_tunnel_says_what_it_cost() {
    let stack = start(&[("echo", json!({}))]).await;
    let mut tunnel = stack.tunnel("echo").await;
    tunnel.invoke("one", &json!({"mode": "slow", "ms": 60})).await;
    tunnel.rest().await;
    let request = CloseTunnelRequest { tunnel_id: tunnel.id.clone(), reason: String::new() };
    let closed = stack.client.clone().close_tunnel(request.clone()).await.unwrap().into_inner();
    let stats = metrics::json(closed.stats.unwrap());
    assert!(stats["duration_ms"].as_f64().unwrap() >= 60.0, "{stats}");
    for field in ["rss_max", "bytes_in", "bytes_out"] {
        assert!(stats[field].as_f64().unwrap() > 0.0, "{field}: {stats}");
    }
    let again = stack.client.clone().close_tunnel(request).await;
    assert_eq!(again.unwrap_err().code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn a_prewarmed_plugin_has_its_worker_before_the_first_call() {
    let stack = start(&[("echo", json!({"pool": {"min": 1}}))]).await;
    let request =
        EnsurePluginRequest { plugin: Some(reference("echo")), prewarm: true, ..Default::default() };
    let ensured = stack.client.clone().ensure_plugin(request).await.unwrap().into_inner();
    assert_eq!(ensured.isolation_level, 3);
    super::harness::eventually("a warm worker", || async {
        let health = stack.health().await;
        health["plugins"]["echo@1.0.0"]["workers"] == json!(1)
            && health["plugins"]["echo@1.0.0"]["starting"] == json!(0)
    })
    .await;
    let said = stack.call("echo", "one", &json!({})).await;
    assert!(said[0].is_event(Type::TunnelReady), "{said:?}");
}

#[tokio::test]
async fn a_worker_has_exactly_the_environment_of_the_contract() {
    let stack = start(&[("echo", json!({}))]).await;
    let said = stack.call("echo", "one", &json!({"mode": "environment"})).await;
    let output = output(&said).unwrap();
    let mut variables: Vec<&str> =
        output["variables"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    variables.sort_unstable();
    assert_eq!(variables, super::probes::ENVIRONMENT);
}
