//! Status of the language runtimes: `GET /api/runtimes`.
//!
//! Owns the form of a runtime's statistics in the admin API. A runtime whose statistics have another form is listed
//! without a report. Keeps true: every list and text is bounded, whatever a runtime sends; a runtime that does not
//! answer delays the request by at most two seconds.

use std::collections::BTreeMap;
use std::sync::Arc;

use asp_platform::runtime_health::{OffPlugin, RuntimeHealth, RuntimeState};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::AdminState;
use super::auth::Admin;
use super::problem::{Problem, Result};

/// Maximum number of plugin versions listed per runtime.
const MAX_PLUGINS: usize = 512;
/// Maximum number of workers listed per runtime, for all its plugins together.
const MAX_WORKERS: usize = 1024;
/// Maximum number of entries in small maps: languages, levels, causes.
const MAX_ENTRIES: usize = 32;
/// Maximum length of a name or message, in bytes.
const MAX_TEXT: usize = 512;

/// A runtime in this control plane's configuration.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeStatus {
    /// Languages for which it is configured.
    languages: Vec<String>,
    /// Configured URL.
    url: String,
    /// Address of the runtime, if the URL's name has several, each of which is a runtime; null if the URL names the
    /// runtime itself.
    address: Option<String>,
    state: Condition,
    /// Report of the runtime; null if it does not answer.
    report: Option<Report>,
    /// Plugins of its languages that are hidden from callers because currently no runtime can run them. Empty if this
    /// process is not a gateway.
    off: Vec<HiddenPlugin>,
}

/// A plugin that is hidden from callers.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Off)]
struct HiddenPlugin {
    /// `<id>@<version>`.
    plugin: String,
    language: String,
    why: String,
    /// Command that shows or fixes it; empty if none is known.
    way_out: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Condition {
    Ready,
    /// Answers, but drains, or has a plugin that is quarantined or whose breaker is open.
    Degraded,
    Unreachable,
    /// No runtime is configured for these languages.
    Absent,
}

/// A runtime's report about itself.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default, rename_all(serialize = "camelCase"))]
#[schema(rename_all = "camelCase")]
struct Report {
    /// `present` or `absent`.
    languages: BTreeMap<String, String>,
    /// Sandbox level of its workers: 1, 2 or 3.
    isolation_level: u32,
    /// Enforcement of workers' limits: `cgroup`, or `sampled` without a control group.
    bounds: String,
    /// Reason why there is no control group; empty if there is one.
    bounds_reason: String,
    /// Reasons why a higher level is not available.
    missing: BTreeMap<String, String>,
    /// Memory limit for all workers together, in bytes.
    memory_budget: u64,
    memory_left: u64,
    max_workers: u64,
    workers_left: u64,
    tunnels: u64,
    draining: bool,
    /// Plugins by `<id>@<version>`.
    plugins: BTreeMap<String, Plugin>,
}

/// Workers, queue and failures of a plugin version. Totals are since the runtime's start.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default, rename_all(serialize = "camelCase"))]
#[schema(rename_all = "camelCase")]
struct Plugin {
    language: String,
    workers: u64,
    starting: u64,
    /// Calls in progress.
    active: u64,
    /// Calls waiting for a worker.
    queued: u64,
    /// Workers that have taken calls.
    starts: u64,
    crashes: u64,
    crash_causes: BTreeMap<String, u64>,
    admitted_warm: u64,
    admitted_cold: u64,
    /// `closed`, `open` or `half_open`.
    breaker: String,
    /// Remaining seconds of quarantine; 0 without one.
    quarantined_s: u64,
    draining: bool,
    #[serde(flatten)]
    used: ResourceUsage,
    latency: Latency,
    worker_list: Vec<Worker>,
}

/// One worker.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default, rename_all(serialize = "camelCase"))]
#[schema(rename_all = "camelCase")]
struct Worker {
    id: String,
    age_ms: u64,
    active: u64,
    calls: u64,
    pids: u64,
    #[serde(flatten)]
    used: ResourceUsage,
    latency: Latency,
}

/// Resource usage of workers; heap and garbage collections if the language reports them.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default, rename_all(serialize = "camelCase"))]
#[schema(as = Used, rename_all = "camelCase")]
struct ResourceUsage {
    cpu_ms: u64,
    rss_bytes: u64,
    memory_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    heap_used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heap_limit_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heap_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gc_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gc_ms: Option<f64>,
}

/// Histogram of the time that calls spent in their worker. `counts` has one element more than `boundsMs`, for slower
/// calls.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default, rename_all(serialize = "camelCase"))]
#[schema(rename_all = "camelCase")]
struct Latency {
    bounds_ms: Vec<u64>,
    counts: Vec<u64>,
    sum_ms: f64,
}

/// Lists the language runtimes, each with its plugins and their workers.
#[utoipa::path(get, path = "/api/runtimes", tag = "status",
    responses((status = 200, body = Vec<RuntimeStatus>), (status = 403, body = Problem)))]
pub async fn list(_admin: Admin, State(state): State<Arc<AdminState>>) -> Result<Json<Vec<RuntimeStatus>>> {
    let runtimes = state.runtimes.health().await;
    Ok(Json(runtimes.into_iter().map(status).collect()))
}

fn status(health: RuntimeHealth) -> RuntimeStatus {
    let RuntimeHealth { languages, url, address, state, stats, off } = health;
    let address = address.map(|address| address.to_string());
    let report = match stats {
        serde_json::Value::Null => None,
        stats => match serde_json::from_value::<Report>(stats) {
            Ok(report) => Some(report.bounded()),
            Err(error) => {
                tracing::warn!(
                    runtime = %url, address, %error,
                    "a runtime's stats cannot be read, so it is listed without them; its version may differ from \
                     this process's"
                );
                None
            }
        },
    };
    let state = match state {
        RuntimeState::Ready | RuntimeState::Unused => Condition::Ready,
        RuntimeState::Degraded => Condition::Degraded,
        RuntimeState::Unreachable => Condition::Unreachable,
        RuntimeState::Absent => Condition::Absent,
    };
    let off = off.into_iter().take(MAX_PLUGINS).map(hidden).collect();
    RuntimeStatus { languages, url, address, state, report, off }
}

fn hidden(plugin: OffPlugin) -> HiddenPlugin {
    let OffPlugin { name, language, why, way_out } = plugin;
    HiddenPlugin { plugin: cut(name), language: cut(language), why: cut(why), way_out: cut(way_out) }
}

impl Report {
    fn bounded(mut self) -> Report {
        bound(&mut self.languages);
        bound(&mut self.missing);
        let mut room = MAX_WORKERS;
        let plugins = std::mem::take(&mut self.plugins).into_iter().take(MAX_PLUGINS);
        self.plugins = plugins.map(|(name, plugin)| (cut(name), plugin.bounded(&mut room))).collect();
        self
    }
}

impl Plugin {
    fn bounded(mut self, room: &mut usize) -> Plugin {
        self.language = cut(self.language);
        self.breaker = cut(self.breaker);
        let causes = self.crash_causes.into_iter().take(MAX_ENTRIES);
        self.crash_causes = causes.map(|(cause, count)| (cut(cause), count)).collect();
        self.latency.bound();
        self.worker_list.truncate(*room);
        *room -= self.worker_list.len();
        for worker in &mut self.worker_list {
            worker.id = cut(std::mem::take(&mut worker.id));
            worker.latency.bound();
        }
        self
    }
}

impl Latency {
    fn bound(&mut self) {
        self.bounds_ms.truncate(MAX_ENTRIES);
        self.counts.truncate(MAX_ENTRIES + 1);
    }
}

fn bound(texts: &mut BTreeMap<String, String>) {
    let entries = std::mem::take(texts).into_iter().take(MAX_ENTRIES);
    *texts = entries.map(|(name, text)| (cut(name), cut(text))).collect();
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(stats: Value) -> Value {
        let health = RuntimeHealth {
            languages: vec!["node".into()],
            url: "unix:/s".into(),
            address: Some("10.0.0.7".parse().unwrap()),
            state: RuntimeState::Ready,
            stats,
            off: vec![OffPlugin {
                name: "a@1".into(),
                why: "x".repeat(2 * MAX_TEXT),
                ..OffPlugin::default()
            }],
        };
        serde_json::to_value(status(health)).unwrap()
    }

    #[test]
    fn a_report_has_the_names_of_the_api_and_leaves_out_what_is_not_told() {
        let worker = json!({"id": "w", "cpu_ms": 5, "gc_ms": 0.5, "heap_used_bytes": 7, "new": {}});
        let plugin = json!({"language": "node", "crash_causes": {"oom": 1}, "worker_list": [worker],
            "latency": {"bounds_ms": [1], "counts": [2, 3], "sum_ms": 9}});
        let shown =
            shown(json!({"isolation_level": 3, "bounds": "sampled", "plugins": {"a@1": plugin}, "new": 1}));
        assert_eq!((&shown["state"], &shown["report"]["isolationLevel"]), (&json!("ready"), &json!(3)));
        assert_eq!((&shown["url"], &shown["address"]), (&json!("unix:/s"), &json!("10.0.0.7")));
        assert_eq!(shown["report"]["bounds"], "sampled");
        let plugin = &shown["report"]["plugins"]["a@1"];
        assert_eq!(plugin["crashCauses"], json!({"oom": 1}));
        assert_eq!(plugin["latency"], json!({"boundsMs": [1], "counts": [2, 3], "sumMs": 9.0}));
        let worker = &plugin["workerList"][0];
        assert_eq!(
            (&worker["cpuMs"], &worker["gcMs"], &worker["heapUsedBytes"]),
            (&json!(5), &json!(0.5), &json!(7))
        );
        assert!(worker.get("heapLimitBytes").is_none(), "{worker}");
    }

    #[test]
    fn what_a_runtime_says_is_bounded_and_nonsense_is_no_report() {
        let workers: Vec<Value> = (0..2 * MAX_WORKERS).map(|n| json!({"id": n.to_string()})).collect();
        let plugins: serde_json::Map<String, Value> =
            (0..2 * MAX_PLUGINS).map(|n| (format!("{n:05}"), json!({"worker_list": workers[..4]}))).collect();
        let report =
            &shown(json!({"plugins": plugins, "missing": {"level3": "é".repeat(MAX_TEXT)}}))["report"];
        let listed = report["plugins"].as_object().unwrap();
        assert_eq!(listed.len(), MAX_PLUGINS);
        let workers = listed.values().map(|plugin| plugin["workerList"].as_array().unwrap().len());
        assert_eq!(workers.sum::<usize>(), MAX_WORKERS);
        let off = &shown(json!({}))["off"];
        assert_eq!((&off[0]["plugin"], off[0]["why"].as_str().unwrap().len()), (&json!("a@1"), MAX_TEXT));
        assert_eq!(report["missing"]["level3"].as_str().unwrap().len(), MAX_TEXT);
        for nonsense in [json!({"plugins": []}), json!({"isolation_level": "three"}), json!(7), Value::Null] {
            assert_eq!(shown(nonsense.clone())["report"], Value::Null, "{nonsense}");
        }
    }
}
