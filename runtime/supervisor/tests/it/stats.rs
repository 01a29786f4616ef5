//! Tests of what operators see of plugins and their workers, and of the influence of a worker on it.

use asp_proto::plugin::{Context, InvokeRequest, Json, client_message};
use asp_proto::supervisor::{MetricsEvent, MetricsStreamRequest};
use asp_runtime_client::runtimes::metrics;
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::Streaming;

use super::harness::{PATIENCE, Stack, eventually, output, start};

pub(super) async fn listen(stack: &Stack, name: &str) -> Streaming<MetricsEvent> {
    let filter = [("name".to_owned(), name.to_owned())].into();
    stack.client.clone().metrics_stream(MetricsStreamRequest { filter }).await.unwrap().into_inner()
}

pub(super) async fn next(events: &mut Streaming<MetricsEvent>) -> (MetricsEvent, Value) {
    let event = timeout(PATIENCE, events.message()).await.unwrap().unwrap().unwrap();
    let figures = metrics::json(event.fields.clone().unwrap());
    (event, figures)
}

fn calls(figures: &Value) -> f64 {
    figures["latency"]["counts"].as_array().unwrap().iter().map(|count| count.as_f64().unwrap()).sum()
}

#[tokio::test]
async fn a_listener_hears_at_once_how_plugins_are_and_then_what_their_interpreters_tell() {
    let stack = start(&[("echo", json!({}))]).await;
    stack.call("echo", "one", &json!({})).await;
    eventually("the call is counted", || async {
        let mut events = listen(&stack, "plugin_sample").await;
        calls(&next(&mut events).await.1) == 1.0
    })
    .await;
    let mut events = listen(&stack, "plugin_sample").await;
    let (event, figures) = next(&mut events).await;
    assert_eq!(
        (event.labels["plugin"].as_str(), event.labels["language"].as_str()),
        ("echo@1.0.0", "python")
    );
    assert_eq!(
        (&figures["starts"], &figures["workers"], &figures["queued"]),
        (&json!(1), &json!(1), &json!(0))
    );
    assert!(figures["rss_bytes"].as_f64().unwrap() > 0.0, "{figures}");
    let mut samples = listen(&stack, "worker_sample").await;
    let told = loop {
        let (event, figures) = next(&mut samples).await;
        if event.name == "worker_sample" && figures.get("gc_count").is_some() {
            break figures;
        }
    };
    assert_eq!((&told["heap_used_bytes"], &told["heap_limit_bytes"]), (&json!(1000), &json!(1000)));
    assert_eq!((&told["gc_count"], &told["gc_ms"], &told["calls"]), (&json!(1000), &json!(1), &json!(1)));
}

#[tokio::test]
async fn totals_outlive_the_workers_and_crashes_are_counted_by_cause() {
    let stack = start(&[("echo", json!({}))]).await;
    stack.call("echo", "one", &json!({"mode": "exit"})).await;
    stack.call("echo", "two", &json!({"mode": "exit"})).await;
    let figures = async || stack.health().await["plugins"]["echo@1.0.0"].clone();
    eventually("both are gone", || async {
        let figures = figures().await;
        figures["crash_causes"]["exit"] == json!(2) && figures["workers"] == json!(0)
    })
    .await;
    let figures = figures().await;
    assert_eq!(figures["crashes"], json!(2), "{figures}");
    assert_eq!((&figures["starts"], calls(&figures)), (&json!(2), 2.0), "{figures}");
    assert!(figures["cpu_ms"].as_f64().unwrap() > 0.0, "what dead workers used counts: {figures}");
    assert_eq!(figures["rss_bytes"], json!(0), "what they have now does not");
}

#[tokio::test]
async fn a_worker_that_lies_or_is_silent_hurts_its_own_figures_only() {
    let as_entrypoint = |name: &str| json!({"entrypoint": name});
    let stack =
        start(&[("mute", as_entrypoint("mute.py")), ("liar", as_entrypoint("liar.py")), ("echo", json!({}))])
            .await;
    for id in ["mute", "liar", "echo"] {
        stack.call(id, "one", &json!({})).await;
    }
    let worker = async |plugin: &str| stack.health().await["plugins"][plugin]["worker_list"][0].clone();
    // Workers are queried together, so when one has answered, all have been queried.
    eventually("the honest one is heard", || async {
        worker("echo@1.0.0").await["heap_used_bytes"] == json!(1000)
    })
    .await;
    for plugin in ["mute@1.0.0", "liar@1.0.0"] {
        let figures = worker(plugin).await;
        assert!(figures["id"].is_string() && figures["calls"] == json!(1), "{figures}");
        for name in ["heap_used_bytes", "heap_limit_bytes", "gc_count", "gc_ms"] {
            assert!(figures.get(name).is_none(), "{plugin} {name}: {figures}");
        }
    }
    for id in ["mute", "liar"] {
        assert!(output(&stack.call(id, "two", &json!({})).await).is_some(), "{id} serves on");
    }
}

#[tokio::test]
async fn a_line_about_a_call_names_it_its_org_and_its_trace() {
    let stack = start(&[("echo", json!({}))]).await;
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (request_id, mode, line) in
        [("one", "echo", "a call ended"), ("two", "exit", "a call was lost with its worker")]
    {
        let mut tunnel = stack.tunnel("echo").await;
        let invoke = InvokeRequest {
            ctx: Some(Context { tenant_id: "acme".into(), ..Context::default() }),
            request_id: request_id.into(),
            arguments: Some(Json { value: json!({ "mode": mode }).to_string().into_bytes() }),
            attrs: [("traceparent".to_owned(), traceparent.to_owned())].into(),
            ..InvokeRequest::default()
        };
        tunnel.say(client_message::Payload::Invoke(invoke)).await;
        tunnel.rest().await;
        let line: Value = serde_json::from_str(&stack.log_line(line).await).unwrap();
        for (field, value) in [
            ("call", request_id),
            ("org", "acme"),
            ("plugin", "echo@1.0.0"),
            ("trace", &traceparent[3..35]),
            ("span", &traceparent[36..52]),
        ] {
            assert_eq!(line[field], value, "{field}: {line}");
        }
        assert_eq!(line["worker"].as_str().unwrap().len(), 16, "{line}");
    }
}
