//! Statistics of plugins and workers, for MetricsStream every `EVERY` and for Health on request.
//!
//! Owns the names of these statistics (README.md lists them). Keeps true: workers are queried in parallel to their
//! calls, all at once and for a limited time, and no text from a worker becomes a name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use asp_launcher::Stats;
use asp_proto::plugin as wire;
use asp_proto::plugin::tool_plugin_client::ToolPluginClient;
use asp_proto::supervisor::MetricsEvent;
use prost_types::{Struct, Value};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::plugin::manifest::Mode;
use crate::pool::Pool;
use crate::ppp::{fields, milliseconds, number};
use crate::telemetry::metrics::{Metrics, event};
use crate::telemetry::totals::{ResourceUse, Totals};
use crate::telemetry::vitals::Vitals;
use crate::worker::Worker;

const EVERY: Duration = Duration::from_secs(5);
/// Maximum number of workers that Health lists, of all plugins together, so that its answer stays far below a message's
/// 4 MiB.
const LISTED: usize = 1024;
/// Time limit for a worker's answer; a busy event loop may miss it, and is queried again for the next sample.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Maximum size of an answer, which usually has a few hundred bytes.
const MAX_ANSWER: usize = 64 << 10;

/// Samples all pools periodically; never returns.
pub async fn run(metrics: Metrics, all_pools: impl Fn() -> Vec<Arc<Pool>>) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let pools = all_pools();
        let workers = pools.iter().flat_map(|pool| pool.workers());
        futures::future::join_all(workers.map(refresh)).await;
        if metrics.has_subscribers() {
            pools.iter().for_each(|pool| emit_samples(&metrics, pool));
        }
    }
}

/// Returns the first events of MetricsStream: the current state.
pub fn now(pools: &[Arc<Pool>]) -> Vec<MetricsEvent> {
    pools.iter().map(|pool| sample(pool, &readings(pool))).collect()
}

/// Returns the plugins for Health.
pub fn plugins(pools: &[Arc<Pool>]) -> StatFields {
    let mut room = LISTED;
    let described = pools.iter().map(|pool| {
        let readings = readings(pool);
        let mut stats = plugin(pool, &readings);
        let listed = readings.iter().take(room).map(|reading| {
            let mut stats = reading.stats();
            stats.insert("id".to_owned(), reading.worker.id.as_str().into());
            Value::from(stats)
        });
        stats.insert("worker_list".to_owned(), listed.collect::<Vec<_>>().into());
        room = room.saturating_sub(readings.len());
        (pool.key.to_string(), Value::from(stats))
    });
    described.collect()
}

/// One sample of one worker.
struct WorkerSample {
    worker: Arc<Worker>,
    stats: Stats,
    vitals: Vitals,
}

pub type StatFields = BTreeMap<String, Value>;

async fn refresh(worker: Arc<Worker>) {
    if let Some(reported) = ask(&worker).await {
        worker.observed.update(&reported);
    }
}

/// Queries a worker; `None` if it does not answer. A server on standard input and output cannot be queried.
async fn ask(worker: &Worker) -> Option<wire::Vitals> {
    let channel = worker.channel.clone()?;
    let mut client = ToolPluginClient::new(channel).max_decoding_message_size(MAX_ANSWER);
    let answer = timeout(ANSWER_WITHIN, client.health(worker.request(()))).await;
    answer.ok()?.ok()?.into_inner().vitals
}

fn emit_samples(metrics: &Metrics, pool: &Pool) {
    let readings = readings(pool);
    let key = pool.key.to_string();
    for reading in &readings {
        let labels = [("plugin", key.as_str()), ("worker", reading.worker.id.as_str())];
        metrics.emit("worker_sample", labels, Struct { fields: reading.stats() });
    }
    metrics.send(sample(pool, &readings));
}

fn sample(pool: &Pool, readings: &[WorkerSample]) -> MetricsEvent {
    let key = pool.key.to_string();
    let labels = [("plugin", key.as_str()), ("language", language(pool))];
    event("plugin_sample", labels, Struct { fields: plugin(pool, readings) })
}

/// Returns the language as `PluginRef` names it.
fn language(pool: &Pool) -> &'static str {
    let manifest = &pool.plan.plugin.manifest;
    match (manifest.mode, manifest.language) {
        (Mode::McpStdio, _) | (Mode::Plugin, None) => "mcp-stdio",
        (Mode::Plugin, Some(language)) => language.name(),
    }
}

fn readings(pool: &Pool) -> Vec<WorkerSample> {
    let read = |worker: Arc<Worker>| WorkerSample {
        stats: worker.stats(),
        vitals: worker.observed.vitals(),
        worker,
    };
    pool.workers().into_iter().map(read).collect()
}

impl WorkerSample {
    fn stats(&self) -> StatFields {
        let stats = &self.stats;
        let worker = &self.worker;
        let latency = worker.observed.latency();
        let mut stats = fields([
            ("age_ms", milliseconds(worker.observed.age())),
            ("cpu_ms", number(stats.cpu_ms)),
            ("rss_bytes", number(stats.rss_bytes)),
            ("memory_bytes", number(stats.memory_bytes)),
            ("pids", number(stats.pids)),
            ("active", number(worker.session.open_calls() as u64)),
            ("calls", number(latency.count())),
            ("latency", latency.value()),
        ])
        .fields;
        add(&mut stats, &self.vitals);
        stats
    }
}

/// Adds the measurements that the interpreter reported.
fn add(stats: &mut StatFields, vitals: &Vitals) {
    let gc_ms = vitals.gc_time.map(|time| time.as_secs_f64() * 1000.0);
    let reported = [
        ("heap_used_bytes", vitals.heap_used_bytes.map(number)),
        ("heap_limit_bytes", vitals.heap_limit_bytes.map(number)),
        ("heap_blocks", vitals.heap_blocks.map(number)),
        ("gc_count", vitals.gc_count.map(number)),
        ("gc_ms", gc_ms.map(Value::from)),
    ];
    stats.extend(reported.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
}

/// Returns the statistics of a plugin version: those of its pool, and sums over its workers.
fn plugin(pool: &Pool, readings: &[WorkerSample]) -> StatFields {
    let state = pool.stats();
    let living = readings.iter().map(|reading| ResourceUse::of(&reading.stats, &reading.vitals));
    let totals = pool.totals.lock().with(living);
    let sum = |of: fn(&WorkerSample) -> u64| number(readings.iter().map(of).sum::<u64>());
    let mut stats = fields([
        ("language", language(pool).into()),
        ("workers", number(state.workers as u64)),
        ("starting", number(state.starting as u64)),
        ("active", number(state.active as u64)),
        ("queued", number(state.queued as u64)),
        ("starts", number(totals.starts)),
        ("crashes", number(state.crashes)),
        ("crash_causes", causes(&totals)),
        ("host_failures", number(state.host_failures)),
        ("admitted_warm", number(state.admitted_warm)),
        ("admitted_cold", number(state.admitted_cold)),
        ("breaker", state.breaker.into()),
        ("quarantined_s", number(state.quarantined.map_or(0, |rest| rest.as_secs().max(1)))),
        ("tenants_off", number(state.tenants_off as u64)),
        ("draining", state.draining.into()),
        ("cpu_ms", number(totals.used.cpu_ms)),
        ("rss_bytes", sum(|reading| reading.stats.rss_bytes)),
        ("memory_bytes", sum(|reading| reading.stats.memory_bytes)),
        ("latency", totals.latency.value()),
    ])
    .fields;
    let reported = Vitals {
        heap_used_bytes: reported_sum(readings, |vitals| vitals.heap_used_bytes),
        heap_limit_bytes: reported_sum(readings, |vitals| vitals.heap_limit_bytes),
        heap_blocks: reported_sum(readings, |vitals| vitals.heap_blocks),
        gc_count: Some(totals.used.gc_count),
        gc_time: Some(totals.used.gc_time),
    };
    add(&mut stats, &reported);
    stats
}

/// Returns the sum over the workers that report the value; `None` if none does.
fn reported_sum(readings: &[WorkerSample], of: fn(&Vitals) -> Option<u64>) -> Option<u64> {
    readings.iter().filter_map(|reading| of(&reading.vitals)).reduce(u64::saturating_add)
}

fn causes(totals: &Totals) -> Value {
    let causes = totals.crashes.iter().map(|(cause, count)| ((*cause).to_owned(), number(*count)));
    Value::from(causes.collect::<StatFields>())
}
