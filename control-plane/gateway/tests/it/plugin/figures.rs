//! Metrics that a gateway exports from the reports of its runtimes.

use asp_proto::supervisor::MetricsEvent;
use prost_types::value::Kind;

use super::{fixture, until_async};
use crate::runtime::{Runtime, Script, figures};
use crate::support::Fixture;

pub(super) fn sample(plugin: &str, language: &str, members: &[(&str, Kind)]) -> MetricsEvent {
    let labels = [("plugin", plugin), ("language", language)];
    MetricsEvent {
        name: "plugin_sample".into(),
        labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        fields: Some(figures(members)),
        ..MetricsEvent::default()
    }
}

async fn metrics(fixture: &Fixture) -> String {
    fixture.send(http::Method::GET, "/metrics", &[], "").await.text
}

#[tokio::test]
async fn a_gateway_asks_again_until_its_runtime_tells_and_ignores_nonsense() {
    let runtime = Runtime::start(Script::of(|_, _| async {}));
    let fixture = fixture(&runtime);
    until_async("the first listener is refused", async || !runtime.told.listeners.lock().is_empty()).await;
    let text = |text: &str| Kind::StringValue(text.into());
    *runtime.told.events.lock() = vec![
        sample("wrong@1.0.0", "python", &[("queued", text("many"))]),
        sample("other@1.0.0", "cobol", &[("queued", Kind::NumberValue(1.0))]),
        MetricsEvent { name: "call".into(), ..sample("call@1.0.0", "python", &[]) },
        sample(
            "sweep@1.0.0",
            "python",
            &[("queued", Kind::NumberValue(7.0)), ("cpu_ms", Kind::NumberValue(1500.0))],
        ),
    ];
    let at = format!(r#"runtime="unix:{}""#, runtime.socket.display());
    let of = format!(r#"{{plugin="sweep@1.0.0",language="python",{at}}}"#);
    let queued = format!("asp_worker_queue_depth{of} 7");
    until_async("the runtime is heard", async || metrics(&fixture).await.contains(&queued)).await;
    let told = metrics(&fixture).await;
    let cpu = format!("asp_worker_process_cpu_seconds_total{of} 1.5");
    let up = format!(r#"asp_runtime_up{{languages="python",{at}}} 1"#);
    assert!(told.contains(&cpu) && told.contains(&up), "{told}");
    for nonsense in ["wrong@", "other@", "call@", "cobol"] {
        assert!(!told.contains(nonsense), "{nonsense}: {told}");
    }
    assert_eq!(runtime.told.listeners.lock()[0].filter["name"], "plugin_sample");
}
