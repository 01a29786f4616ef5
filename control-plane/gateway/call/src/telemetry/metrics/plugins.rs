//! Samples of plugin workers reported by the language runtimes, as Prometheus metrics (`asp_worker_*`).
//!
//! Owns the newest sample of each plugin version at each runtime. Refuses a label that is not a plugin's name, and
//! worker ids as labels, because each worker has a new one. Keeps true: at most `MAX_PLUGINS` are kept for a runtime;
//! one not reported for `STALE` is dropped, as is a removed runtime. All totals are the runtime's since its start, so
//! every gateway of one runtime reports the same: take their maximum, not their sum.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use serde::Deserialize;
use tokio::time::Instant;

/// Maximum number of plugins of one runtime, the same as the runtime's own limit.
const MAX_PLUGINS: usize = 512;
/// Age at which a sample is dropped: four sampling intervals.
const STALE: Duration = Duration::from_secs(20);
/// Longest plugin name, `<id>@<version>` with at most 128 bytes each.
const MAX_NAME: usize = 257;
const MAX_BUCKETS: usize = 64;
/// Causes of `WORKER_CRASHED` (supervisor.proto).
const CAUSES: [&str; 7] = ["exit", "signal", "oom", "wedged", "protocol", "deadline", "limit"];

/// A sample of one plugin version, with the runtime's field names (runtime/supervisor/README.md).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PluginSample {
    pub workers: u64,
    pub starting: u64,
    pub active: u64,
    pub queued: u64,
    pub starts: u64,
    pub crash_causes: BTreeMap<String, u64>,
    /// Starts that failed because the machine lacked resources.
    pub host_failures: u64,
    pub breaker: String,
    pub quarantined_s: u64,
    pub draining: bool,
    pub cpu_ms: u64,
    pub rss_bytes: u64,
    pub heap_used_bytes: Option<u64>,
    pub heap_limit_bytes: Option<u64>,
    pub gc_count: u64,
    pub gc_ms: f64,
    pub latency: LatencySample,
}

/// A histogram: `counts` has one element more than `bounds_ms`, for calls slower than every bound.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LatencySample {
    pub bounds_ms: Vec<u64>,
    pub counts: Vec<u64>,
    pub sum_ms: f64,
}

/// The newest samples of all runtimes.
#[derive(Debug, Default)]
pub struct PluginMetrics(Mutex<RuntimeTable>);

#[derive(Debug, Default)]
struct RuntimeTable {
    /// Samples by runtime, bounded by the configured names and the addresses they resolve to.
    runtimes: BTreeMap<String, RuntimeSamples>,
}

/// The samples of one runtime.
#[derive(Debug, Default)]
struct RuntimeSamples {
    languages: String,
    is_heard: bool,
    plugins: BTreeMap<String, PluginEntry>,
}

#[derive(Debug)]
struct PluginEntry {
    language: &'static str,
    sample: PluginSample,
    at: Instant,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PluginLabels {
    plugin: String,
    language: &'static str,
    runtime: Arc<str>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    plugin: String,
    language: &'static str,
    state: &'static str,
    runtime: Arc<str>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CauseLabels {
    plugin: String,
    language: &'static str,
    cause: &'static str,
    runtime: Arc<str>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RuntimeLabel {
    languages: String,
    runtime: String,
}

impl PluginMetrics {
    /// Stores a runtime's newest sample of a plugin.
    pub fn hear(&self, runtime: &str, plugin: &str, language: &'static str, sample: PluginSample) {
        let now = Instant::now();
        if plugin.is_empty() || plugin.len() > MAX_NAME || !plugin.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return;
        }
        let mut heard = self.0.lock();
        // A sample of a runtime that was just removed is dropped.
        let Some(told) = heard.runtimes.get_mut(runtime) else { return };
        told.plugins.retain(|_, known| now.saturating_duration_since(known.at) < STALE);
        if told.plugins.len() < MAX_PLUGINS || told.plugins.contains_key(plugin) {
            told.plugins.insert(plugin.to_owned(), PluginEntry { language, sample, at: now });
        }
    }

    /// Adds a runtime.
    pub fn added(&self, runtime: &str, languages: &[String]) {
        let told = RuntimeSamples { languages: languages.join("+"), ..RuntimeSamples::default() };
        self.0.lock().runtimes.insert(runtime.to_owned(), told);
    }

    /// Records whether a runtime is reporting.
    pub fn listening(&self, runtime: &str, is_heard: bool) {
        if let Some(told) = self.0.lock().runtimes.get_mut(runtime) {
            told.is_heard = is_heard;
        }
    }

    /// Removes a runtime.
    pub fn remove_runtime(&self, runtime: &str) {
        self.0.lock().runtimes.remove(runtime);
    }

    fn fresh(&self) -> Vec<(PluginLabels, PluginSample)> {
        let now = Instant::now();
        let heard = self.0.lock();
        let mut fresh = Vec::new();
        for (runtime, told) in &heard.runtimes {
            let runtime: Arc<str> = runtime.as_str().into();
            let known =
                told.plugins.iter().filter(|(_, known)| now.saturating_duration_since(known.at) < STALE);
            fresh.extend(known.map(|(plugin, known)| {
                let runtime = runtime.clone();
                let labels = PluginLabels { plugin: plugin.clone(), language: known.language, runtime };
                (labels, known.sample.clone())
            }));
        }
        fresh
    }

    fn up(&self) -> Vec<(RuntimeLabel, f64)> {
        let heard = self.0.lock();
        let up = heard.runtimes.iter().map(|(runtime, told)| {
            let label = RuntimeLabel { languages: told.languages.clone(), runtime: runtime.clone() };
            (label, f64::from(u8::from(told.is_heard)))
        });
        up.collect()
    }
}

// === impl Collector ===

type EncodeResult = Result<(), std::fmt::Error>;
type Samples = [(PluginLabels, PluginSample)];

impl Collector for PluginMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let samples = self.fresh();
        let up = self.up().into_iter();
        gauge(&mut encoder, "asp_runtime_up", "Whether the language runtime reports its metrics", up)?;
        states(&mut encoder, &samples)?;
        memory(&mut encoder, &samples)?;
        totals(&mut encoder, &samples)?;
        durations(&mut encoder, &samples)
    }
}

fn states(encoder: &mut DescriptorEncoder<'_>, samples: &Samples) -> EncodeResult {
    let processes = samples.iter().flat_map(|(labels, sample)| {
        [("ready", sample.workers), ("starting", sample.starting)].map(|(state, count)| {
            let PluginLabels { plugin, language, runtime } = labels.clone();
            (StateLabels { plugin, language, state, runtime }, count as f64)
        })
    });
    gauge(encoder, "asp_worker_processes", "Workers by state", processes)?;
    let of = |figure: fn(&PluginSample) -> f64| each(samples, move |sample| Some(figure(sample)));
    gauge(encoder, "asp_worker_active_calls", "Calls running on workers", of(|sample| sample.active as f64))?;
    gauge(
        encoder,
        "asp_worker_queue_depth",
        "Calls that wait for a worker",
        of(|sample| sample.queued as f64),
    )?;
    let open = of(|sample| if sample.breaker == "closed" || sample.breaker.is_empty() { 0.0 } else { 1.0 });
    gauge(encoder, "asp_worker_breaker_open", "Whether the plugin's breaker refuses calls", open)?;
    let quarantined = of(|sample| if sample.quarantined_s > 0 { 1.0 } else { 0.0 });
    gauge(encoder, "asp_worker_quarantined", "Whether the plugin is quarantined", quarantined)
}

fn memory(encoder: &mut DescriptorEncoder<'_>, samples: &Samples) -> EncodeResult {
    let resident = each(samples, |sample| Some(sample.rss_bytes as f64));
    gauge(encoder, "asp_worker_resident_bytes", "Resident memory of the plugin's workers", resident)?;
    let used = each(samples, |sample| sample.heap_used_bytes.map(|bytes| bytes as f64));
    gauge(encoder, "asp_worker_heap_used_bytes", "Heap in use, for languages that report it", used)?;
    let limit = each(samples, |sample| sample.heap_limit_bytes.map(|bytes| bytes as f64));
    gauge(encoder, "asp_worker_heap_limit_bytes", "Heap limit, for languages that report it", limit)
}

fn totals(encoder: &mut DescriptorEncoder<'_>, samples: &Samples) -> EncodeResult {
    let of = |figure: fn(&PluginSample) -> f64| each(samples, move |sample| Some(figure(sample)));
    counter(encoder, "asp_worker_starts", "Workers that took calls", of(|sample| sample.starts as f64))?;
    let crashes = samples.iter().flat_map(|(labels, sample)| {
        CAUSES.into_iter().filter_map(|cause| {
            let count = *sample.crash_causes.get(cause)?;
            let PluginLabels { plugin, language, runtime } = labels.clone();
            Some((CauseLabels { plugin, language, cause, runtime }, count as f64))
        })
    });
    counter(encoder, "asp_worker_crashes", "Workers that failed, by cause", crashes)?;
    let host = of(|sample| sample.host_failures as f64);
    let help = "Workers that did not start because their machine lacked resources; not crashes of the plugin";
    counter(encoder, "asp_worker_host_failures", help, host)?;
    let cpu = of(|sample| sample.cpu_ms as f64 / 1000.0);
    counter(encoder, "asp_worker_process_cpu_seconds", "CPU time of the plugin's workers", cpu)?;
    let time = of(|sample| sample.gc_ms / 1000.0);
    counter(encoder, "asp_worker_gc_seconds", "Time spent collecting garbage", time)?;
    counter(encoder, "asp_worker_gc_runs", "Garbage collections", of(|sample| sample.gc_count as f64))
}

fn durations(encoder: &mut DescriptorEncoder<'_>, samples: &Samples) -> EncodeResult {
    let name = "asp_worker_call_duration_seconds";
    let help = "Time from getting a worker to the call's end, as measured by the runtime";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (labels, sample) in samples {
        let Some(buckets) = buckets(&sample.latency) else { continue };
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = sample.latency.sum_ms / 1000.0;
        metric.encode_family(labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    Ok(())
}

/// Returns upper bounds in seconds with the calls of each bucket alone; `None` if the sample is not a valid histogram.
fn buckets(latency: &LatencySample) -> Option<Vec<(f64, u64)>> {
    let LatencySample { bounds_ms, counts, .. } = latency;
    let rising = bounds_ms.iter().zip(bounds_ms.iter().skip(1)).all(|(low, high)| low < high);
    if !rising || bounds_ms.is_empty() || counts.len() != bounds_ms.len() + 1 || counts.len() > MAX_BUCKETS {
        return None;
    }
    let bounds = bounds_ms.iter().map(|bound| *bound as f64 / 1000.0).chain([f64::INFINITY]);
    // Capped, so that sums of plausible counts cannot overflow.
    Some(bounds.zip(counts.iter().map(|count| (*count).min(u64::from(u32::MAX) << 16))).collect())
}

fn each<'s>(
    samples: &'s Samples,
    figure: impl Fn(&PluginSample) -> Option<f64> + 's,
) -> impl Iterator<Item = (PluginLabels, f64)> + 's {
    samples.iter().filter_map(move |(labels, sample)| Some((labels.clone(), figure(sample)?)))
}

fn gauge<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (L, f64)>,
) -> EncodeResult {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn counter<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (L, f64)>,
) -> EncodeResult {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in values {
        ConstCounter::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use serde_json::json;

    use super::*;

    fn text(metrics: &Arc<PluginMetrics>) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Arc::clone(metrics)));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    fn sample() -> PluginSample {
        serde_json::from_value(json!({
            "workers": 2, "starting": 1, "active": 3, "queued": 4, "starts": 5, "crash_causes": {"oom": 6, "evil\"": 1},
            "host_failures": 8,
            "breaker": "open", "quarantined_s": 9, "cpu_ms": 1500, "rss_bytes": 1000, "heap_used_bytes": 500,
            "gc_count": 7, "gc_ms": 12.5, "unknown": true,
            "latency": {"bounds_ms": [1, 10], "counts": [1, 2, 3], "sum_ms": 5000},
        }))
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugins_figures_are_told_until_they_are_stale() {
        let metrics = Arc::new(PluginMetrics::default());
        let both = ["node".to_owned(), "java".to_owned()];
        metrics.added("unix:/a", &both);
        metrics.listening("unix:/a", true);
        metrics.added("unix:/b", &both[..1]);
        metrics.hear("unix:/a", "echo@1.0.0", "node", sample());
        metrics.hear("unix:/b", "echo@1.0.0", "node", PluginSample { queued: 11, ..sample() });
        let told = text(&metrics);
        let plugin = r#"plugin="echo@1.0.0",language="node",runtime="unix:/a""#;
        let first = r#"plugin="echo@1.0.0",language="node""#;
        for line in [
            format!("asp_worker_processes{{{first},state=\"ready\",runtime=\"unix:/a\"}} 2"),
            format!("asp_worker_processes{{{first},state=\"starting\",runtime=\"unix:/a\"}} 1"),
            format!("asp_worker_queue_depth{{{plugin}}} 4"),
            format!("asp_worker_breaker_open{{{plugin}}} 1"),
            format!("asp_worker_quarantined{{{plugin}}} 1"),
            format!("asp_worker_heap_used_bytes{{{plugin}}} 500"),
            format!("asp_worker_process_cpu_seconds_total{{{plugin}}} 1.5"),
            format!("asp_worker_gc_seconds_total{{{plugin}}} 0.0125"),
            format!("asp_worker_crashes_total{{{first},cause=\"oom\",runtime=\"unix:/a\"}} 6"),
            format!("asp_worker_host_failures_total{{{plugin}}} 8"),
            format!("asp_worker_call_duration_seconds_sum{{{plugin}}} 5"),
            format!("asp_worker_call_duration_seconds_count{{{plugin}}} 6"),
            format!("asp_worker_call_duration_seconds_bucket{{le=\"0.01\",{plugin}}} 3"),
            format!("asp_worker_call_duration_seconds_bucket{{le=\"+Inf\",{plugin}}} 6"),
            format!("asp_worker_queue_depth{{{first},runtime=\"unix:/b\"}} 11"),
            "asp_runtime_up{languages=\"node+java\",runtime=\"unix:/a\"} 1".to_owned(),
        ] {
            assert!(told.contains(&line), "{line}\n{told}");
        }
        assert!(!told.contains("heap_limit_bytes{") && !told.contains("evil"), "{told}");
        metrics.remove_runtime("unix:/b");
        metrics.hear("unix:/b", "echo@1.0.0", "node", sample());
        assert!(!text(&metrics).contains("unix:/b"));
        tokio::time::advance(STALE).await;
        assert!(!text(&metrics).contains("echo"));
    }

    #[tokio::test(start_paused = true)]
    async fn names_and_their_number_are_bounded_and_no_histogram_is_better_than_a_wrong_one() {
        let metrics = Arc::new(PluginMetrics::default());
        metrics.added("unix:/a", &[]);
        for name in ["", "a b", "é@1", &"x".repeat(MAX_NAME + 1)] {
            metrics.hear("unix:/a", name, "node", sample());
        }
        assert!(metrics.fresh().is_empty());
        for n in 0..=MAX_PLUGINS {
            metrics.hear("unix:/a", &format!("p{n}@1"), "node", sample());
        }
        assert_eq!(metrics.fresh().len(), MAX_PLUGINS);
        for (bounds_ms, counts) in [(vec![], vec![1]), (vec![2, 1], vec![0, 0, 0]), (vec![1], vec![1])] {
            assert_eq!(buckets(&LatencySample { bounds_ms, counts, sum_ms: 0.0 }), None);
        }
    }
}
