//! Follows what the runtimes tell of their plugins (MetricsStream), for this gateway's own metrics.
//!
//! Refuses: any part in a call; a runtime that tells nothing, or nonsense, costs figures and nothing else. Keeps
//! true: each runtime is listened to by one task, which tries again for ever and is quiet about it: calls tell of
//! a runtime that does not answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use asp_proto::supervisor::{MetricsEvent, MetricsStreamRequest};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::figures::json;
use super::{Client, Runtime, Runtimes};
use crate::executors::plugin::reference::language_name;
use crate::telemetry::metrics::plugins::{PluginMetrics, PluginSample};

/// The event that has what the metrics need.
const EVENT: &str = "plugin_sample";
/// Between two attempts; the figures are older than that anyway.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Listeners to the runtimes; they end with this.
#[derive(Default)]
pub(in super::super) struct Watching {
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// Begins to listen. Needs a running tokio runtime.
pub(in super::super) fn begin(runtimes: &Runtimes, metrics: &Arc<PluginMetrics>) -> Watching {
    let listen = |runtime: &Arc<Runtime>| {
        let follow = follow(Arc::clone(runtime), Arc::clone(metrics));
        AbortOnDropHandle::new(tokio::spawn(follow))
    };
    Watching { _tasks: runtimes.all.iter().map(listen).collect() }
}

async fn follow(runtime: Arc<Runtime>, metrics: Arc<PluginMetrics>) {
    loop {
        let client = runtime.client.lock().clone();
        listen(client, &runtime.languages, &metrics).await;
        metrics.listening(&runtime.languages, false);
        sleep(AGAIN_AFTER).await;
    }
}

/// Listens until the stream ends, however it ends.
async fn listen(mut client: Client, languages: &[String], metrics: &PluginMetrics) {
    let filter = BTreeMap::from([("name".to_owned(), EVENT.to_owned())]);
    let Ok(answer) = client.metrics_stream(MetricsStreamRequest { filter }).await else { return };
    metrics.listening(languages, true);
    let mut events = answer.into_inner();
    while let Ok(Some(event)) = events.message().await {
        if event.name == EVENT {
            take(event, metrics);
        }
    }
}

fn take(event: MetricsEvent, metrics: &PluginMetrics) {
    let label = |name: &str| event.labels.get(name).map(String::as_str).unwrap_or_default();
    let plugin = label("plugin");
    let language = label("language");
    let figures = json(event.fields.clone().unwrap_or_default());
    match (language_name(language), serde_json::from_value::<PluginSample>(figures)) {
        (Some(language), Ok(sample)) => metrics.hear(plugin, language, sample),
        _ => tracing::debug!(plugin, language, "a runtime's sample is not understood"),
    }
}
