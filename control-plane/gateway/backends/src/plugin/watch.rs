//! Follows the runtimes' reports about their plugins (MetricsStream), for this gateway's own metrics and its choice
//! between runtimes.
//!
//! Refuses: any part in a call; a runtime that reports nothing, or nonsense, costs only metrics. Keeps true: one task
//! listens to each runtime, retries for ever and does not log failures: calls report a runtime that does not answer.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use asp_call::telemetry::metrics::plugins::{PluginMetrics, PluginSample};
use asp_proto::supervisor::{MetricsEvent, MetricsStreamRequest};
use asp_runtime_client::runtimes::metrics::json;
use asp_runtime_client::runtimes::{Members, Runtime, Runtimes, keep_for_each};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::availability::KnownPlugins;
use super::reference::language_name;

/// Name of the event that the metrics need.
const EVENT: &str = "plugin_sample";
/// Interval between two attempts; the metrics are older than that anyway.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of plugins of a runtime; the runtime's own limit.
const MAX_PLUGINS: usize = 512;

/// Recipients of the reports.
#[derive(Clone)]
struct Hearers {
    metrics: Arc<PluginMetrics>,
    known: Arc<KnownPlugins>,
}

/// Starts to listen, until the handle is dropped. Needs a running tokio runtime.
pub(super) fn begin(
    runtimes: &Runtimes,
    metrics: &Arc<PluginMetrics>,
    known: &Arc<KnownPlugins>,
) -> AbortOnDropHandle<()> {
    let hearers = Hearers { metrics: metrics.clone(), known: known.clone() };
    AbortOnDropHandle::new(tokio::spawn(follow_all(runtimes.all(), hearers)))
}

async fn follow_all(all: watch::Receiver<Members>, hearers: Hearers) {
    let begin = |runtime: &Arc<Runtime>| {
        hearers.metrics.added(runtime.name(), runtime.languages());
        AbortOnDropHandle::new(tokio::spawn(follow(runtime.clone(), hearers.clone())))
    };
    keep_for_each(all, |_| {}, begin, |runtime| hearers.metrics.remove_runtime(runtime.name())).await;
}

async fn follow(runtime: Arc<Runtime>, hearers: Hearers) {
    let mut was_heard = false;
    loop {
        was_heard |= listen(&runtime, &hearers, was_heard).await;
        hearers.metrics.listening(runtime.name(), false);
        // Its last reports are void; its connection shows whether it answers.
        hearers.known.refuses(&runtime, None, false);
        runtime.waiting(0);
        sleep(AGAIN_AFTER).await;
    }
}

/// Listens until the stream ends, however it ends; returns whether a stream was opened.
async fn listen(runtime: &Runtime, hearers: &Hearers, was_heard: bool) -> bool {
    let filter = BTreeMap::from([("name".to_owned(), EVENT.to_owned())]);
    let asked = runtime.any_client().metrics_stream(MetricsStreamRequest { filter }).await;
    // Calls find out by themselves that it does not answer.
    let Ok(answer) = asked else { return false };
    runtime.lives();
    if was_heard {
        // It may be a restarted process, which has no workers yet.
        hearers.known.mark_unknown(runtime);
    }
    hearers.metrics.listening(runtime.name(), true);
    let mut events = answer.into_inner();
    let mut told = HashMap::new();
    while let Ok(Some(event)) = events.message().await {
        runtime.lives();
        if event.name == EVENT {
            take(event, runtime, hearers, &mut told);
        }
    }
    true
}

/// A runtime's last report about a plugin.
#[derive(Clone, Copy, Default)]
struct PluginReport {
    waiting: u64,
    refuses: bool,
}

fn take(event: MetricsEvent, runtime: &Runtime, hearers: &Hearers, told: &mut HashMap<String, PluginReport>) {
    let label = |name: &str| event.labels.get(name).map(String::as_str).unwrap_or_default();
    let plugin = label("plugin");
    let language = label("language");
    let sample = json(event.fields.clone().unwrap_or_default());
    match (language_name(language), serde_json::from_value::<PluginSample>(sample)) {
        (Some(language), Ok(sample)) => {
            note(plugin, &sample, runtime, hearers, told);
            hearers.metrics.hear(runtime.name(), plugin, language, sample);
        }
        _ => tracing::debug!(
            plugin,
            language,
            runtime = runtime.name(),
            "a runtime's sample could not be read"
        ),
    }
}

/// Records what the choice between runtimes needs from a sample.
fn note(
    plugin: &str,
    sample: &PluginSample,
    runtime: &Runtime,
    hearers: &Hearers,
    told: &mut HashMap<String, PluginReport>,
) {
    if told.len() >= MAX_PLUGINS && !told.contains_key(plugin) {
        told.retain(|_, said| said.refuses || said.waiting > 0);
        if told.len() >= MAX_PLUGINS {
            return;
        }
    }
    let refuses = sample.draining || sample.quarantined_s > 0 || sample.breaker == "open";
    let said = PluginReport { waiting: sample.queued, refuses };
    let before = told.insert(plugin.to_owned(), said).unwrap_or_default();
    if before.refuses != refuses {
        hearers.known.refuses(runtime, Some(plugin), refuses);
    }
    if before.waiting != sample.queued {
        let waiting: u64 = told.values().map(|said| said.waiting).sum();
        runtime.waiting(usize::try_from(waiting).unwrap_or(usize::MAX));
    }
}
