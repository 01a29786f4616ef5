//! Cost of metrics and spans: the same plain calls of a builtin tool before two gateways. One sends no spans and nobody
//! reads its metrics; the other sends the spans of every call to a collector, and its metrics are read each second.
//!
//! Keeps true: both get calls at one rate, at which no span waits so long that it is dropped; what is compared are two turns
//! one after the other, and which is first changes from pair to pair.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::spread::cell;
use asp_e2e::stack::Options;
use asp_e2e::tool::Build;
use asp_e2e::{http1, wait};
use serde::Serialize;
use tokio::task::JoinHandle;

use crate::chain::{SERVER, TOOL};
use crate::first_day::sink::Sink;
use crate::goal::Goal;
use crate::load::Pace;
use crate::loops::{self, Cell, Figure, gateway_cpu};
use crate::measurement::{self, Measurement, Phase, Place};
use crate::path::Path;
use crate::plan::Plan;
use crate::progress::say;
use crate::rows::requests;
use crate::traffic::{Caller, Shape, Traffic};

const OFF: &str = "telemetry off";
const ON: &str = "telemetry on";
/// Gateway CPU of a call with telemetry, in parts of that of one without.
const COST: f64 = 1.03;
/// Share of the calls whose spans must come: the figure of a gateway that drops them is none.
const SEEN: f64 = 0.99;
/// Pairs of turns in a run, which begins with gateways afresh.
const PAIRS: u32 = 2;
/// Calls a second at most: the spans of 8,192 calls wait for the sender, which looks once a second.
const MOST_RATE: f64 = 4000.0;
/// Time between two readings of the metrics.
const EVERY: Duration = Duration::from_secs(1);

/// Figures of both sides.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Telemetry {
    /// Raw figures, in the order they were taken; pairs of turns have one number of a run.
    pub measurements: Vec<Measurement>,
    pub rate: f64,
    pub connections: usize,
    /// Calls to the gateways with telemetry, those whose span came to the collector, and all spans that came.
    pub calls: u64,
    pub seen: u64,
    pub spans: u64,
    /// Requests that brought them, and readings of the metrics.
    pub requests: u64,
    pub scrapes: u64,
}

/// A gateway behind its Envoy, and who calls it.
struct Side {
    row: &'static str,
    path: Path,
    callers: Vec<Caller>,
}

pub(crate) async fn measure(plan: &Plan) -> Result<Telemetry> {
    let mut found = Telemetry { connections: plan.connections, ..Telemetry::default() };
    for run in 1..=plan.runs {
        let sink = Sink::start()?;
        let off = Side::start(plan, OFF, ("OTEL_SDK_DISABLED", "true".into())).await?;
        let on = Side::start(plan, ON, ("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url())).await?;
        if run == 1 {
            let capacity = off.capacity(plan).await?;
            found.rate = (capacity * plan.fraction).min(MOST_RATE);
        }
        let mut sent = 0;
        for pair in 1..=PAIRS {
            let number = (run - 1) * PAIRS + pair;
            let mut order = [&off, &on];
            if number.is_multiple_of(2) {
                order.reverse();
            }
            for side in order {
                say(&format!("run {run}/{}, pair {pair}/{PAIRS}: {}", plan.runs, side.row));
                let scraper = (side.row == ON).then(|| Scraper::start(side.path.gateway()));
                let (calls, measured) = side.turn(plan, number, found.rate).await?;
                found.measurements.push(measured);
                if let Some(scraper) = scraper {
                    found.scrapes += scraper.done();
                    sent += calls;
                }
            }
        }
        found.count(sent, &sink).await?;
    }
    Ok(found)
}

impl Side {
    async fn start(plan: &Plan, row: &'static str, variable: (&'static str, String)) -> Result<Side> {
        let options = Options { environment: vec![variable], ..Options::of(Build::own()?) };
        let path = Path::start_with(options).await.with_context(|| format!("start the stack, {row}"))?;
        let callers = path.callers(&path.issuer, plan.tokens)?;
        Ok(Side { row, path, callers })
    }

    /// Requests per second in a closed loop.
    async fn capacity(&self, plan: &Plan) -> Result<f64> {
        let pace = Pace::Closed { length: plan.saturation };
        Ok(self.take(plan, 0, (Phase::Saturation, pace)).await?.requests_per_second)
    }

    /// Calls that are not measured, and those that are; how many there were in all.
    async fn turn(&self, plan: &Plan, number: u32, rate: f64) -> Result<(u64, Measurement)> {
        let once = |length| {
            let pace = Pace::Open { rate, requests: requests(rate, length) };
            self.take(plan, number, (Phase::Warm, pace))
        };
        let settled = once(plan.settle).await?;
        if let Some(error) = settled.first_error {
            bail!("row {} does not work: {error}", self.row);
        }
        let measured = once(plan.closed).await?;
        Ok((settled.requests + measured.requests, measured))
    }

    async fn take(&self, plan: &Plan, number: u32, phase: (Phase, Pace)) -> Result<Measurement> {
        let place: Place = self.path.behind(self.row, &self.path.edge);
        let taken = measurement::take(number, place, phase, self.traffic(), plan.connections);
        taken.await.with_context(|| format!("row {}", self.row))
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            shape: Shape::Modern,
            target: format!("/{SERVER}/mcp"),
            tool: TOOL,
            authority: self.path.authority(),
            callers: self.callers.clone(),
        }
    }
}

/// Reader of the metrics of a gateway each second, until it is dropped.
struct Scraper {
    task: JoinHandle<()>,
    read: Arc<AtomicU64>,
}

impl Scraper {
    fn start(gateway: SocketAddr) -> Scraper {
        let read = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&read);
        let task = tokio::spawn(async move {
            let mut seconds = tokio::time::interval(EVERY);
            loop {
                seconds.tick().await;
                let answer = http1::get(gateway, "/metrics", &[]).await;
                if answer.is_ok_and(|answer| answer.status == 200) {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Scraper { task, read }
    }

    /// Number of readings so far.
    fn done(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

impl Drop for Scraper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Telemetry {
    /// Adds what came to the collector of a run, in which that many calls were sent; fails if nothing did.
    async fn count(&mut self, sent: u64, sink: &Sink) -> Result<()> {
        let all = || async { (sink.calls() >= sent).then_some(()) };
        // Spans that were dropped never come: the goal says so.
        let _ = wait::until("the spans of all calls come", wait::CONVERGE, all).await;
        ensure!(sink.calls() > 0, "the collector got no span of a call in {} requests", sink.requests());
        self.calls += sent;
        self.seen += sink.calls().min(sent);
        self.spans += sink.spans();
        self.requests += sink.requests();
        ensure!(self.scrapes > 0, "the metrics were never read");
        Ok(())
    }

    fn share(&self) -> f64 {
        self.seen as f64 / self.calls.max(1) as f64
    }

    fn cell(&self, row: &'static str) -> Cell {
        Cell { row, connections: self.connections }
    }

    /// Returns the goal; none unless both were measured.
    pub(crate) fn judge(&self) -> Vec<Goal> {
        let taken = self.measurements.as_slice();
        let ratio = loops::ratio((self.cell(ON), taken), (self.cell(OFF), taken), gateway_cpu);
        let goal = ratio.map(|ratio| Goal {
            goal: format!(
                "a plain call with metrics and OTLP on: at most {COST} of the gateway CPU of one without"
            ),
            met: ratio.median <= COST && self.share() >= SEEN,
            figures: format!(
                "{} of it; spans of {:.1} % of the calls came",
                ratio.text(3),
                self.share() * 100.0
            ),
        });
        goal.into_iter().collect()
    }

    /// Writes the section.
    pub(crate) fn render(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n## A plain call with and without telemetry\n")?;
        writeln!(
            text,
            "`tools/call` of 2026-07-28 of builtin `{TOOL}` behind Envoy with the filter, {:.0} a second over {} \
             connections. Without: no spans, and nobody reads the metrics, which are counted all the same. With: spans of \
             every call by OTLP to a collector of the bench, and `/metrics` read each second. CPU in us per request; the \
             ratio is that within each pair of turns.\n",
            self.rate, self.connections
        )?;
        writeln!(
            text,
            "| row | p50 us | p99 us | gateway CPU | gateway CPU of `{OFF}` |\n|---|---|---|---|---|"
        )?;
        let taken = self.measurements.as_slice();
        for row in [OFF, ON] {
            let of = |figure: Figure, decimals| cell(self.cell(row).over_runs(taken, figure), decimals);
            let ratio = loops::ratio((self.cell(row), taken), (self.cell(OFF), taken), gateway_cpu);
            writeln!(
                text,
                "| `{row}` | {} | {} | {} | {} |",
                of(|one| Some(one.p50_us), 0),
                of(|one| Some(one.p99_us), 0),
                of(gateway_cpu, 1),
                cell(ratio, 3),
            )?;
        }
        writeln!(
            text,
            "\n{} spans in {} requests came to the collector, of {} of {} calls; the metrics were read {} times.",
            self.spans, self.requests, self.seen, self.calls, self.scrapes
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::tests::measured;

    fn found(on: f64, seen: u64) -> Telemetry {
        let measurements = vec![measured(1, OFF, 16, 100.0), measured(1, ON, 16, on)];
        Telemetry { measurements, connections: 16, calls: 1000, seen, ..Telemetry::default() }
    }

    #[test]
    fn a_call_may_cost_so_much_if_its_spans_came() {
        let met = |on, seen| found(on, seen).judge().iter().map(|goal| goal.met).collect::<Vec<_>>();
        assert_eq!(met(103.0, 990), [true]);
        assert_eq!(met(103.2, 1000), [false]);
        assert_eq!(met(90.0, 989), [false], "a gateway that drops spans is cheap for nothing");
        assert!(Telemetry::default().judge().is_empty());
    }

    #[test]
    fn the_table_has_the_ratio() {
        let mut text = String::new();
        found(102.0, 1000).render(&mut text).unwrap();
        let line = "| `telemetry on` | 102 (102..102) | 102 (102..102) | 102.0 (102.0..102.0) | 1.020 (1.020..1.020) |";
        assert!(text.contains(line), "{text}");
    }
}
