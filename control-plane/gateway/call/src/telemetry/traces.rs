//! Spans of calls for a collector, in the terms of OpenTelemetry and its conventions for MCP (`gen_ai.*`, `mcp.*`).
//!
//! Refuses: orgs, users, arguments, results, URIs of resources. Keeps true: a call that is not sampled has no span; a full queue
//! drops spans and delays no call.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asp_edge::Trace;
use asp_proto::snapshot::{Kind, Protocol};
use asp_snapshot::protocol::protocol_name;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::failures::ExecutionTarget;
use super::metrics::Stage;
use crate::call::outcome::Outcome;
use crate::call::span::{CallSpan, PassedStage};
use crate::call::{Call, CallKind};
use crate::clock::since_epoch;

/// Minimum duration of a stage with a span of its own; shorter ones explain nothing.
const SHORTEST: Duration = Duration::from_micros(100);
/// Reason of a tool's own error, which is a result.
const TOOL_ERROR: &str = "tool_error";
/// Reason of a call that its own caller cancelled, which is no error.
const CANCELLED: &str = "cancelled";

/// Choice of the traces that have spans.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Whether the caller's choice counts, if it sent one.
    pub by_parent: bool,
    /// Share of the other traces, from 0 to 1.
    pub ratio: f64,
}

impl Sampling {
    /// Whether calls of the trace have spans; the same at every gateway, because the id decides.
    fn includes(self, trace: &Trace) -> bool {
        if self.by_parent && trace.parent().is_some() {
            return trace.is_sampled();
        }
        let [.., a, b, c, d] = trace.id().to_be_bytes();
        f64::from(u32::from_be_bytes([a, b, c, d])) < self.ratio * (f64::from(u32::MAX) + 1.0)
    }
}

/// Role of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    Internal,
    Server,
    Client,
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedSpan {
    pub trace: u128,
    pub id: u64,
    pub parent: Option<u64>,
    pub name: Cow<'static, str>,
    pub kind: SpanKind,
    /// Unix nanoseconds.
    pub began_ns: u64,
    pub ended_ns: u64,
    pub attributes: Vec<(&'static str, Cow<'static, str>)>,
    /// Whether what it stands for failed.
    pub is_error: bool,
}

/// Makes spans of sampled calls and queues them for a sender.
pub struct Tracer {
    sampling: Sampling,
    queue: mpsc::Sender<Vec<EndedSpan>>,
    dropped: AtomicU64,
}

impl Tracer {
    /// Creates a tracer, and the queue with the spans of at most `capacity` calls.
    pub fn new(sampling: Sampling, capacity: usize) -> (Tracer, mpsc::Receiver<Vec<EndedSpan>>) {
        let (queue, spans) = mpsc::channel(capacity);
        (Tracer { sampling, queue, dropped: AtomicU64::new(0) }, spans)
    }

    /// Starts the span of a new call, if its trace is sampled.
    pub fn begin(&self, call: &mut Call) {
        let trace = call.request.trace;
        if self.sampling.includes(&trace) {
            call.trace_as(CallSpan::new(trace.parent()));
        }
    }

    /// Queues the spans of a call that ends with this outcome.
    pub fn ended(&self, call: &Call, outcome: &Outcome) {
        let Some(span) = &call.span else { return };
        // First, so that calls do not make spans for a collector that takes none.
        let Ok(place) = self.queue.try_reserve() else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let clock = WallClock::now();
        let stages = span.stages();
        let mut spans = Vec::with_capacity(stages.len() + 1);
        spans.push(of_call(call, span, outcome, &clock));
        let is_shown = |stage: &&PassedStage| {
            stage.name == Stage::Execute.as_str() || stage.ended - stage.began >= SHORTEST
        };
        spans.extend(stages.iter().filter(is_shown).map(|stage| of_stage(call, span, stage, &clock)));
        place.send(spans);
    }

    /// Returns the number of calls whose spans were dropped since the last time.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

/// The wall clock at one instant, to convert others.
struct WallClock {
    instant: Instant,
    unix: Duration,
}

impl WallClock {
    fn now() -> WallClock {
        WallClock { instant: Instant::now(), unix: since_epoch() }
    }

    /// Returns the Unix nanoseconds of an instant before this one.
    fn unix_ns(&self, instant: Instant) -> u64 {
        let age = self.instant.saturating_duration_since(instant);
        u64::try_from(self.unix.saturating_sub(age).as_nanos()).unwrap_or(u64::MAX)
    }
}

fn of_call(call: &Call, span: &CallSpan, outcome: &Outcome, clock: &WallClock) -> EndedSpan {
    let primitive = &call.entry.primitive;
    let (name, mut attributes) = operation(call);
    attributes.push(("asp.server", call.server.message.name.clone().into()));
    attributes.push(("asp.primitive.id", primitive.id.clone().into()));
    attributes.push(("asp.primitive.version", primitive.version.clone().into()));
    attributes.push(("asp.protocol", protocol_name(call.protocol).into()));
    attributes.push(("asp.call.id", call.id.to_string().into()));
    attributes.push(("asp.call.outcome", outcome.state().as_str().into()));
    let error = match outcome {
        Outcome::Done { output, .. } => output.is_error().then_some(TOOL_ERROR),
        Outcome::Refused(refusal) => Some(refusal.reason().as_str()),
    };
    attributes.extend(error.map(|reason| ("error.type", reason.into())));
    EndedSpan {
        trace: call.trace.id(),
        id: span.id,
        parent: span.parent,
        name,
        kind: SpanKind::Server,
        began_ns: clock.unix_ns(call.started),
        ended_ns: clock.unix_ns(clock.instant),
        attributes,
        is_error: error.is_some_and(|reason| reason != CANCELLED),
    }
}

/// Returns the name of a call's span, and the attributes of the conventions.
fn operation(call: &Call) -> (Cow<'static, str>, Vec<(&'static str, Cow<'static, str>)>) {
    let is_mcp = call.protocol == Protocol::Mcp;
    let target = if is_mcp { &call.entry.listing.mcp_name } else { &call.entry.primitive.id };
    let (method, member) = match (&call.kind, call.entry.primitive.kind()) {
        (CallKind::Complete(_), _) => ("completion/complete", None),
        (CallKind::List, _) => ("resources/list", None),
        (CallKind::Invoke, Kind::Prompt) => ("prompts/get", Some("gen_ai.prompt.name")),
        (CallKind::Invoke, Kind::Resource | Kind::ResourceTemplate) => ("resources/read", None),
        (CallKind::Invoke, _) => ("tools/call", Some("gen_ai.tool.name")),
    };
    let mut attributes: Vec<(&'static str, Cow<'static, str>)> = Vec::with_capacity(12);
    if method == "tools/call" {
        attributes.push(("gen_ai.operation.name", "execute_tool".into()));
    }
    if is_mcp {
        attributes.push(("mcp.method.name", method.into()));
        attributes.push(("jsonrpc.request.id", call.protocol_request_id.clone().into()));
    }
    let operation = if is_mcp { method } else { "execute_tool" };
    match member {
        Some(member) => {
            attributes.push((member, target.clone().into()));
            (format!("{operation} {target}").into(), attributes)
        }
        None => (operation.into(), attributes),
    }
}

/// Returns the span of a stage. The execution is a request to a service or a runtime, unless the gateway executes itself.
fn of_stage(call: &Call, span: &CallSpan, stage: &PassedStage, clock: &WallClock) -> EndedSpan {
    let is_execution = stage.name == Stage::Execute.as_str();
    let target = ExecutionTarget::of(&call.entry.primitive);
    let mut attributes: Vec<(&'static str, Cow<'static, str>)> = Vec::new();
    if is_execution {
        attributes.extend(target.upstream.map(|upstream| ("server.address", upstream.to_owned().into())));
        attributes.extend(target.runtime.map(|runtime| ("asp.runtime.language", runtime.to_owned().into())));
    }
    EndedSpan {
        trace: call.trace.id(),
        id: if is_execution { span.execution } else { rand::random::<u64>().max(1) },
        parent: Some(span.id),
        name: stage.name.into(),
        kind: if attributes.is_empty() { SpanKind::Internal } else { SpanKind::Client },
        began_ns: clock.unix_ns(stage.began),
        ended_ns: clock.unix_ns(stage.ended),
        attributes,
        is_error: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLED: &[u8] = b"00-0af7651916cd43dd8448eb2180000000-b7ad6b7169203331-01";
    const UNSAMPLED: &[u8] = b"00-0af7651916cd43dd8448eb2180000000-b7ad6b7169203331-00";

    #[test]
    fn the_callers_choice_counts_and_the_ratio_decides_on_other_traces() {
        let yes = Trace::parse(SAMPLED).unwrap();
        let no = Trace::parse(UNSAMPLED).unwrap();
        let own = Trace::new([0x7f; 24]);
        let includes = |by_parent, ratio, trace: &Trace| Sampling { by_parent, ratio }.includes(trace);
        assert!(includes(true, 0.0, &yes) && !includes(true, 1.0, &no));
        assert!(!includes(false, 0.0, &yes) && includes(false, 1.0, &no));
        assert!(includes(true, 1.0, &own) && !includes(true, 0.0, &own));
        // The id's last four bytes are just below and at half of their range.
        assert!(includes(true, 0.5, &own) && !includes(false, 0.5, &yes));
    }

    #[test]
    fn an_instant_is_converted_by_its_age() {
        let clock = WallClock { instant: Instant::now(), unix: Duration::from_secs(100) };
        assert_eq!(clock.unix_ns(clock.instant), 100_000_000_000);
        if let Some(earlier) = clock.instant.checked_sub(Duration::from_millis(5)) {
            assert_eq!(clock.unix_ns(earlier), 99_995_000_000);
        }
    }
}
