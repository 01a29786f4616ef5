//! Calls by server, primitive and upstream (`asp_calls`, `asp_call_duration_seconds`), within a budget of series.
//!
//! Owns the counts of each listed primitive. The primitive keeps a handle to them while its snapshot lives, so that only
//! its first call takes a lock or allocates. Refuses labels that a client chose: all are from the snapshot. Keeps true: at
//! most `MAX_PRIMITIVES` primitives have counts of their own, and the calls of all others are counted under `other`.
//! Counts that no snapshot uses are dropped when others need their place.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asp_proto::snapshot::Primitive;
use asp_proto::snapshot::runtime::Mode;
use asp_snapshot::ListedPrimitive;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::call::State;
use crate::call::outcome::Outcome;

/// Maximum number of primitives with counts of their own. Each is 22 time series at a gateway: one for each outcome and
/// bucket, the bucket of slower calls, the sum and the count.
const MAX_PRIMITIVES: usize = 1000;
/// Value of all three labels for the primitives beyond that number.
const OTHER: &str = "other";
/// Upper bounds of the buckets, in seconds. A call that waits for a person may last a day.
const SECONDS: [f64; 14] =
    [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0, 86400.0];
/// Values of the label `outcome`, by their index in [`CallCounts::outcomes`].
const OUTCOMES: [&str; 5] = ["ok", "tool_error", "rejected", "cancelled", "failed"];

/// The counts of all primitives.
#[derive(Debug, Default)]
pub(super) struct PrimitiveCalls(Mutex<CountTable>);

#[derive(Debug)]
struct CountTable {
    /// Counts by label, with [`CountTable::other`] under its own labels.
    counts: BTreeMap<CallLabels, Arc<CallCounts>>,
    other: Arc<CallCounts>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CallLabels {
    server: String,
    primitive: String,
    upstream: String,
}

/// Counts of the calls of one primitive.
#[derive(Debug, Default)]
struct CallCounts {
    outcomes: [AtomicU64; OUTCOMES.len()],
    /// Calls by the bucket of their duration; the last one has those slower than every bound.
    buckets: [AtomicU64; SECONDS.len() + 1],
    microseconds: AtomicU64,
}

impl PrimitiveCalls {
    /// Records the end of a call.
    pub(super) fn ended(&self, server: &str, entry: &ListedPrimitive, outcome: &Outcome, took: Duration) {
        let counts = entry.attached.get_or_init(|| -> Arc<dyn Any + Send + Sync> {
            self.0.lock().counts_of(CallLabels::of(server, &entry.primitive))
        });
        if let Some(counts) = counts.downcast_ref::<CallCounts>() {
            counts.add(outcome, took);
        }
    }
}

impl CountTable {
    fn counts_of(&mut self, labels: CallLabels) -> Arc<CallCounts> {
        if let Some(known) = self.counts.get(&labels) {
            return Arc::clone(known);
        }
        if self.is_full() {
            self.counts.retain(|_, counts| Arc::strong_count(counts) > 1);
        }
        match self.is_full() {
            true => Arc::clone(&self.other),
            false => Arc::clone(self.counts.entry(labels).or_default()),
        }
    }

    fn is_full(&self) -> bool {
        // One is `other`.
        self.counts.len() > MAX_PRIMITIVES
    }

    /// Returns the number of listed primitives whose calls are counted under `other`.
    fn folded(&self) -> usize {
        // The table itself has two.
        Arc::strong_count(&self.other).saturating_sub(2)
    }
}

impl Default for CountTable {
    fn default() -> CountTable {
        let other = Arc::<CallCounts>::default();
        CountTable { counts: BTreeMap::from([(CallLabels::other(), Arc::clone(&other))]), other }
    }
}

impl CallLabels {
    fn of(server: &str, primitive: &Primitive) -> CallLabels {
        CallLabels {
            server: server.to_owned(),
            primitive: primitive.id.clone(),
            upstream: upstream(primitive),
        }
    }

    fn other() -> CallLabels {
        CallLabels { server: OTHER.to_owned(), primitive: OTHER.to_owned(), upstream: OTHER.to_owned() }
    }

    fn pairs(&self) -> [(&'static str, &str); 3] {
        [("server", &self.server), ("primitive", &self.primitive), ("upstream", &self.upstream)]
    }
}

/// Returns what runs the calls of a primitive: the origin of a service, the `<id>@<version>` of a plugin's package or a stdio
/// server, as in the label `plugin` of `asp_worker_*`, or `none` for code and texts of the platform.
fn upstream(primitive: &Primitive) -> String {
    if let Some(url) = primitive.service_url() {
        return asp_registry::origin_of(url).to_owned();
    }
    match primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref()) {
        Some(Mode::Plugin(plugin)) => {
            let (id, version) = asp_registry::plugin_package(plugin, &primitive.id, &primitive.version);
            format!("{id}@{version}")
        }
        Some(Mode::McpStdio(target)) => {
            let (id, version) = asp_registry::stdio_package(target, &primitive.version);
            format!("{id}@{version}")
        }
        _ => "none".to_owned(),
    }
}

impl CallCounts {
    fn add(&self, outcome: &Outcome, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = SECONDS.iter().position(|bound| seconds <= *bound).unwrap_or(SECONDS.len());
        let counted = [self.outcomes.get(index_of(outcome)), self.buckets.get(bucket)];
        for count in counted.into_iter().flatten() {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.microseconds.fetch_add(microseconds, Ordering::Relaxed);
    }
}

/// Returns the index of the outcome's name in [`OUTCOMES`].
fn index_of(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Done { output, .. } => usize::from(output.is_error()),
        Outcome::Refused(_) => match outcome.state() {
            State::Rejected => 2,
            State::Cancelled => 3,
            _ => 4,
        },
    }
}

// === impl Collector ===

type EncodeResult = Result<(), fmt::Error>;

impl Collector for PrimitiveCalls {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let table = self.0.lock();
        outcomes(&mut encoder, &table)?;
        durations(&mut encoder, &table)?;
        let help = "Listed primitives whose calls are counted under `other`";
        let metric = encoder.encode_descriptor("asp_call_series_folded", help, None, MetricType::Gauge)?;
        ConstGauge::new(table.folded()).encode(metric)
    }
}

fn outcomes(encoder: &mut DescriptorEncoder<'_>, table: &CountTable) -> EncodeResult {
    let help = "Calls that have ended, by server, primitive, upstream and outcome";
    let mut metric = encoder.encode_descriptor("asp_calls", help, None, MetricType::Counter)?;
    for (labels, counts) in &table.counts {
        let [server, primitive, upstream] = labels.pairs();
        for (outcome, count) in OUTCOMES.into_iter().zip(&counts.outcomes) {
            let labels = [server, primitive, upstream, ("outcome", outcome)];
            ConstCounter::new(count.load(Ordering::Relaxed)).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn durations(encoder: &mut DescriptorEncoder<'_>, table: &CountTable) -> EncodeResult {
    let help = "Time from accepting a call to its outcome, by server, primitive and upstream";
    let name = "asp_call_duration_seconds";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (labels, counts) in &table.counts {
        let bounds = SECONDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> =
            bounds.zip(counts.buckets.iter().map(|count| count.load(Ordering::Relaxed))).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = counts.microseconds.load(Ordering::Relaxed) as f64 / 1e6;
        metric.encode_family(&labels.pairs())?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use asp_proto::snapshot::{Builtin, Listing, McpStdio, Plugin, ProxyHttp, ProxyMcp, Runtime};
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::call::outcome::{Output, Refusal};

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn listed(id: &str, mode: Option<Mode>) -> ListedPrimitive {
        let runtime = mode.map(|mode| Runtime { mode: Some(mode) });
        let primitive = Primitive { id: id.into(), version: "1.2.0".into(), runtime, ..Primitive::default() };
        ListedPrimitive::build(&primitive, &Listing::default()).unwrap()
    }

    fn done(is_error: bool) -> Outcome {
        let output = if is_error { Output::tool_error("no") } else { Output::text("yes") };
        Outcome::Done { output, replayed: false }
    }

    fn text(calls: &Arc<PrimitiveCalls>) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Arc::clone(calls)));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn a_tools_error_is_counted_apart_from_a_success_and_from_a_failure() {
        let calls = Arc::new(PrimitiveCalls::default());
        let url = "https://shop.example.com/orders/{id}".into();
        let orders = listed("orders", Some(Mode::ProxyHttp(ProxyHttp { url, ..ProxyHttp::default() })));
        for (outcome, took) in [
            (done(false), MILLISECOND),
            (done(false), 20 * MILLISECOND),
            (done(true), 20 * MILLISECOND),
            (Outcome::Refused(Refusal::Unknown), MILLISECOND),
            (Outcome::Refused(Refusal::Cancelled), MILLISECOND),
            (Outcome::Refused(Refusal::Upstream("down".into())), Duration::from_secs(100_000)),
        ] {
            calls.ended("shop", &orders, &outcome, took);
        }
        let text = text(&calls);
        let labels = r#"server="shop",primitive="orders",upstream="https://shop.example.com""#;
        let counted = [("ok", 2), ("tool_error", 1), ("rejected", 1), ("cancelled", 1), ("failed", 1)];
        for (outcome, count) in counted {
            let line = format!("asp_calls_total{{{labels},outcome=\"{outcome}\"}} {count}\n");
            assert!(text.contains(&line), "{line}\n{text}");
        }
        for line in [
            format!("asp_call_duration_seconds_bucket{{le=\"0.001\",{labels}}} 3\n"),
            format!("asp_call_duration_seconds_bucket{{le=\"0.025\",{labels}}} 5\n"),
            format!("asp_call_duration_seconds_bucket{{le=\"86400.0\",{labels}}} 5\n"),
            format!("asp_call_duration_seconds_bucket{{le=\"+Inf\",{labels}}} 6\n"),
            format!("asp_call_duration_seconds_count{{{labels}}} 6\n"),
            format!("asp_call_duration_seconds_sum{{{labels}}} 100000.043\n"),
        ] {
            assert!(text.contains(&line), "{line}\n{text}");
        }
    }

    #[test]
    fn the_upstream_is_an_origin_or_a_plugin() {
        let plugin = Mode::Plugin(Plugin::default());
        let shared = Mode::Plugin(Plugin { package: "weather@2.0.0".into(), ..Plugin::default() });
        let stdio = Mode::McpStdio(McpStdio { package: "@scope/files@2.0.0".into(), ..McpStdio::default() });
        let mcp = Mode::ProxyMcp(ProxyMcp { url: "http://wiki:8080/mcp".into(), ..ProxyMcp::default() });
        for (mode, name) in [
            (Some(plugin), "echo@1.2.0"),
            (Some(shared), "weather@2.0.0"),
            (Some(stdio), "scope__files@2.0.0"),
            (Some(mcp), "http://wiki:8080"),
            (Some(Mode::Builtin(Builtin::default())), "none"),
            (None, "none"),
        ] {
            assert_eq!(upstream(&listed("echo", mode).primitive), name);
        }
    }

    #[test]
    fn primitives_beyond_the_budget_are_counted_together_and_those_of_old_snapshots_make_room() {
        let calls = Arc::new(PrimitiveCalls::default());
        let call = |id: &str| {
            let entry = listed(id, None);
            calls.ended("s", &entry, &done(false), MILLISECOND);
            entry
        };
        let mut snapshot: Vec<_> = (0..MAX_PRIMITIVES).map(|number| call(&format!("p{number}"))).collect();
        assert!(text(&calls).contains("asp_call_series_folded 0\n"));
        let folded = [call("one more"), call("and another")];
        calls.ended("s", &folded[0], &done(true), MILLISECOND);
        let other = r#"server="other",primitive="other",upstream="other""#;
        let full = text(&calls);
        assert!(full.contains("asp_call_series_folded 2\n"), "{full}");
        assert!(full.contains(&format!("asp_calls_total{{{other},outcome=\"ok\"}} 2\n")));
        assert!(full.contains(&format!("asp_calls_total{{{other},outcome=\"tool_error\"}} 1\n")));
        assert!(!full.contains("one more"));
        assert_eq!(calls.0.lock().counts.len(), MAX_PRIMITIVES + 1);
        // The next snapshot lists fewer: those that it dropped make room, and one that it lists again continues its counts.
        snapshot.truncate(MAX_PRIMITIVES / 2);
        drop(folded);
        let _new = [call("one more"), call("p0")];
        let text = text(&calls);
        assert!(text.contains("asp_call_series_folded 0\n"));
        for (name, count) in [("one more", 1), ("p0", 2)] {
            let labels = format!(r#"server="s",primitive="{name}",upstream="none",outcome="ok""#);
            assert!(text.contains(&format!("asp_calls_total{{{labels}}} {count}\n")), "{labels}\n{text}");
        }
        assert!(!text.contains(&format!("primitive=\"p{}\"", MAX_PRIMITIVES - 1)));
    }

    #[test]
    fn a_primitive_named_like_the_rest_makes_no_second_series() {
        let calls = PrimitiveCalls::default();
        let named = CallLabels::other();
        let counts = calls.0.lock().counts_of(named);
        assert!(Arc::ptr_eq(&counts, &calls.0.lock().other));
    }
}
