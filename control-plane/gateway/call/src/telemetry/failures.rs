//! One log line for each failed call, and for each request that is refused before its call starts, over every protocol
//! (I-2): the trace in a client's error finds it.
//!
//! Refuses: users, argument and result values, URIs of resources. Keeps true: the level names the side at fault, ERROR
//! for the platform, WARN for a service or a runtime, INFO for the caller; one org gets at most [`BURST`] lines for one
//! reason at once, and then one every [`LINE_EVERY`]; the others are counted and reported once a minute; at most
//! [`MAX_SOURCES`] orgs and reasons are counted separately.

use std::collections::HashMap;
use std::time::Duration;

use asp_edge::{Cause, Trace};
use asp_proto::snapshot::Primitive;
use asp_proto::snapshot::runtime::Mode;
use asp_snapshot::protocol::protocol_name;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::call::Call;
use crate::call::content::META_CODE;
use crate::call::outcome::{Outcome, Output, Refusal};

/// Lines of one org for one reason at once: a failure that concerns many calls is over by then, or is known.
const BURST: u32 = 100;
/// Interval of further lines. With 1 KiB a line, a caller that fails all day writes 30 MB for each reason.
const LINE_EVERY: Duration = Duration::from_secs(3);
/// Maximum number of orgs and reasons with lines of their own; beyond it all orgs share the lines of a reason.
const MAX_SOURCES: usize = 4096;
/// Maximum length of a text of a service or plugin, in bytes.
const MAX_TEXT: usize = 512;
/// Reason of a tool's own error, which is a result.
const TOOL_ERROR: &str = "tool_error";
/// Code of a plugin's failure that its author did not intend, such as an exception.
const UNEXPECTED: &str = "INTERNAL";

/// The log of failed calls.
#[derive(Default)]
pub struct FailureLog(Mutex<HashMap<FailureSource, Allowance>>);

/// Org and reason of failures; the org is empty for unknown callers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FailureSource {
    org: String,
    reason: &'static str,
}

/// Lines that one source may write.
struct Allowance {
    lines: u32,
    /// Time up to which lines were added.
    refilled: Instant,
    left_out: u64,
}

/// A request that was refused before its call started.
pub struct RequestRefusal<'a> {
    pub trace: Trace,
    /// Org of the caller; empty if the caller is unknown.
    pub org: &'a str,
    pub path: &'a str,
    pub reason: &'static str,
    /// Fault of a token that a trusted issuer signed.
    pub cause: Option<Cause>,
}

/// Side at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultSide {
    Platform,
    Upstream,
    Caller,
}

/// The parts of a failure that differ by outcome.
struct FailureSummary {
    side: FaultSide,
    reason: &'static str,
    error: Option<String>,
}

/// Logs a failed call at a level, which `tracing` needs as a constant.
macro_rules! log_failure {
    ($level:ident, $call:ident, $outcome:ident, $failure:ident) => {{
        let target = ExecutionTarget::of(&$call.entry.primitive);
        tracing::$level!(
            trace = %$call.trace,
            call = %$call.id,
            org = $call.caller.org,
            server = $call.server.message.name,
            primitive = $call.entry.primitive.id,
            version = $call.entry.primitive.version,
            protocol = protocol_name($call.protocol),
            upstream = target.upstream,
            runtime = target.runtime,
            reason = $failure.reason,
            outcome = $outcome.state().as_str(),
            error = $failure.error,
            cause = $call.failure_cause(),
            "call failed"
        )
    }};
}

impl FailureLog {
    /// Logs the outcome of a call if it is a failure that this gateway reports.
    pub fn ended(&self, call: &Call, outcome: &Outcome) {
        if call.ownership.continued.is_set() {
            return;
        }
        let Some(failure) = FailureSummary::of(call, outcome) else { return };
        if !self.admits(&call.caller.org, failure.reason) {
            return;
        }
        match failure.side {
            FaultSide::Platform => log_failure!(error, call, outcome, failure),
            FaultSide::Upstream => log_failure!(warn, call, outcome, failure),
            FaultSide::Caller => log_failure!(info, call, outcome, failure),
        }
    }

    /// Logs a request that was refused before its call started.
    pub fn refused(&self, refused: &RequestRefusal<'_>) {
        let &RequestRefusal { trace, org, path, reason, cause } = refused;
        if !self.admits(org, reason) {
            return;
        }
        let path = bounded(path);
        match cause {
            Some(cause) => {
                tracing::warn!(%trace, org, path, reason, %cause, "token signed by a trusted issuer was refused with 401");
            }
            None => tracing::info!(%trace, org, path, reason, "request was refused before its call started"),
        }
    }

    /// Logs how many failures were left out since the last report, and forgets sources that have been quiet.
    pub fn report_left_out(&self) {
        let now = Instant::now();
        self.0.lock().retain(|source, allowance| {
            if allowance.left_out > 0 {
                let FailureSource { org, reason } = source;
                let left_out = std::mem::take(&mut allowance.left_out);
                tracing::warn!(
                    org,
                    reason,
                    left_out,
                    "failures were not logged one by one because of their number; the audit has each call"
                );
            }
            !allowance.is_whole(now)
        });
    }

    /// Takes a line of the source; false if it has none left.
    fn admits(&self, org: &str, reason: &'static str) -> bool {
        let now = Instant::now();
        let mut sources = self.0.lock();
        let mut source = FailureSource { org: org.to_owned(), reason };
        if sources.len() >= MAX_SOURCES && !sources.contains_key(&source) {
            source.org.clear();
        }
        let entry = sources.entry(source);
        entry.or_insert(Allowance { lines: BURST, refilled: now, left_out: 0 }).take(now)
    }
}

impl Allowance {
    fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        match self.lines.checked_sub(1) {
            Some(rest) => {
                self.lines = rest;
                true
            }
            None => {
                self.left_out += 1;
                false
            }
        }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.refilled).as_secs() / LINE_EVERY.as_secs();
        let gained = u32::try_from(passed).unwrap_or(BURST).min(BURST);
        self.lines = self.lines.saturating_add(gained).min(BURST);
        self.refilled = match self.lines {
            BURST => now,
            _ => self.refilled + LINE_EVERY * gained,
        };
    }

    fn is_whole(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.lines == BURST
    }
}

impl FailureSummary {
    /// Returns the failure of a call; `None` for a result, and for a call that its caller cancelled.
    fn of(call: &Call, outcome: &Outcome) -> Option<FailureSummary> {
        match outcome {
            Outcome::Done { output, .. } if !output.is_error() => None,
            Outcome::Refused(Refusal::Cancelled) => None,
            // A cause is noted if the result itself is at fault.
            Outcome::Done { output, .. } => {
                Some(FailureSummary::of_tool_error(output, call.failure_cause().is_some()))
            }
            Outcome::Refused(refusal) => Some(FailureSummary {
                side: side_at_fault(refusal, call.is_shortened()),
                reason: refusal.reason().as_str(),
                error: text(refusal),
            }),
        }
    }

    /// Returns the failure that a tool reports as its result.
    fn of_tool_error(output: &Output, has_cause: bool) -> FailureSummary {
        let code = failure_code(output);
        let side = match has_cause || code == Some(UNEXPECTED) {
            true => FaultSide::Upstream,
            false => FaultSide::Caller,
        };
        let error = code.map(|code| format!("code {}", bounded(code)));
        FailureSummary { side, reason: TOOL_ERROR, error }
    }
}

/// Returns the code that a plugin, or a service that hosts calls, gave its failure.
fn failure_code(output: &Output) -> Option<&str> {
    match output {
        Output::Tool { meta, .. } => meta.get(META_CODE)?.view().as_str(),
        _ => None,
    }
}

/// Returns the side at fault. `is_shortened`: the caller chose the deadline.
fn side_at_fault(refusal: &Refusal, is_shortened: bool) -> FaultSide {
    match refusal {
        Refusal::Internal(_) | Refusal::InvalidOutput { .. } => FaultSide::Platform,
        Refusal::Upstream(_) | Refusal::Declined(_) | Refusal::OutcomeUnknown => FaultSide::Upstream,
        Refusal::Deadline if !is_shortened => FaultSide::Upstream,
        Refusal::Relayed { .. } if refusal.reason() == asp_edge::Reason::UpstreamUnavailable => {
            FaultSide::Upstream
        }
        _ => FaultSide::Caller,
    }
}

/// Returns the text for the log, without values that the caller or the upstream sent.
fn text(refusal: &Refusal) -> Option<String> {
    match refusal {
        Refusal::UnknownResource { .. } | Refusal::PagesFirst { .. } => None,
        Refusal::InvalidArguments { pointer, .. } => {
            Some(format!("argument {} does not fit", bounded(pointer)))
        }
        Refusal::Relayed { code, .. } => {
            Some(format!("the upstream answered with the JSON-RPC error {code}"))
        }
        refusal => Some(bounded(&refusal.to_string()).to_owned()),
    }
}

fn bounded(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or(text)
}

/// Executor of a primitive's calls; neither is set for the gateway itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ExecutionTarget<'a> {
    /// Host and port of the service.
    pub(super) upstream: Option<&'a str>,
    /// Language of the plugin runtime.
    pub(super) runtime: Option<&'a str>,
}

impl ExecutionTarget<'_> {
    pub(super) fn of(primitive: &Primitive) -> ExecutionTarget<'_> {
        let upstream = primitive.service_url().and_then(authority);
        let runtime = match primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref()) {
            Some(Mode::Plugin(plugin)) => Some(plugin.language.as_str()),
            Some(Mode::McpStdio(_)) => Some("mcp-stdio"),
            _ => None,
        };
        ExecutionTarget { upstream, runtime }
    }
}

/// Returns host and port of a URL or URL template.
fn authority(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split(['/', '?', '#']).next()?;
    authority.rsplit('@').next()
}

#[cfg(test)]
mod tests {
    use asp_json::Members;
    use asp_proto::snapshot::{Plugin, ProxyHttp, Runtime};
    use serde_json::Value;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_one_org_and_reason_is_bounded_and_counted_and_hides_nobody_elses() {
        let log = FailureLog::default();
        let logged = (0..1000).filter(|_| log.admits("acme", "invalid_params")).count();
        assert_eq!(logged, 100);
        assert!(log.admits("acme", "deadline") && log.admits("globex", "invalid_params"));
        tokio::time::advance(Duration::from_secs(60)).await;
        let logged = (0..1000).filter(|_| log.admits("acme", "invalid_params")).count();
        assert_eq!(logged, 20, "a line every three seconds");
        let left_out = |log: &FailureLog| log.0.lock().values().map(|source| source.left_out).sum::<u64>();
        assert_eq!(left_out(&log), 900 + 980);
        log.report_left_out();
        assert_eq!(left_out(&log), 0);
        assert_eq!(log.0.lock().len(), 1, "quiet sources are forgotten");
        tokio::time::advance(LINE_EVERY * BURST).await;
        log.report_left_out();
        assert!(log.0.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_sources_is_bounded() {
        let log = FailureLog::default();
        for org in 0..2 * MAX_SOURCES {
            log.admits(&org.to_string(), "deadline");
        }
        assert_eq!(log.0.lock().len(), MAX_SOURCES + 1);
        assert!(log.admits("0", "deadline"), "who was counted before keeps its own lines");
    }

    #[test]
    fn the_level_names_the_side_at_fault() {
        let relayed = |code| Refusal::Relayed { code, message: "secret".into(), data: None };
        for (refusal, expected) in [
            (Refusal::Internal("a fault of ours".into()), FaultSide::Platform),
            (Refusal::Upstream("the service answered 503".into()), FaultSide::Upstream),
            (Refusal::Declined("the service does not offer this".into()), FaultSide::Upstream),
            (Refusal::OutcomeUnknown, FaultSide::Upstream),
            (Refusal::Deadline, FaultSide::Upstream),
            (relayed(-32000), FaultSide::Upstream),
            (relayed(-32602), FaultSide::Caller),
            (Refusal::Unknown, FaultSide::Caller),
            (Refusal::Limited { limit: "user", retry_after_ms: 1 }, FaultSide::Caller),
        ] {
            assert_eq!(side_at_fault(&refusal, false), expected, "{refusal}");
        }
        assert_eq!(side_at_fault(&Refusal::Deadline, true), FaultSide::Caller, "the caller asked for it");
    }

    #[test]
    fn an_exception_of_a_plugin_is_its_own_fault_and_a_tools_error_is_for_its_caller() {
        let output = |code: &str| Output::Tool {
            content: Vec::new(),
            structured: None,
            is_error: true,
            meta: Members::from_iter([(META_CODE, Value::from(code))]),
            more: Members::default(),
        };
        for (output, has_cause, expected) in [
            (output("INTERNAL"), false, FaultSide::Upstream),
            (output("NO_QUOTA"), false, FaultSide::Caller),
            (Output::tool_error("no such order"), false, FaultSide::Caller),
            (Output::tool_error("a result that does not fit"), true, FaultSide::Upstream),
        ] {
            let failure = FailureSummary::of_tool_error(&output, has_cause);
            assert_eq!((failure.side, failure.reason), (expected, "tool_error"), "{output:?}");
        }
    }

    #[test]
    fn values_of_callers_and_upstreams_are_not_logged() {
        let secret = || "secret".to_owned();
        for refusal in [
            Refusal::InvalidArguments { pointer: "/pin".into(), message: secret() },
            Refusal::Relayed { code: 7, message: secret(), data: None },
            Refusal::UnknownResource { uri: secret() },
        ] {
            assert!(!text(&refusal).unwrap_or_default().contains("secret"), "{refusal}");
        }
        let long = text(&Refusal::Upstream("é".repeat(MAX_TEXT))).unwrap();
        assert_eq!(long.len(), MAX_TEXT);
    }

    #[test]
    fn a_target_is_a_service_or_a_runtime_without_credentials() {
        let of = |mode| Primitive { runtime: Some(Runtime { mode: Some(mode) }), ..Primitive::default() };
        let url = "https://user:pass@a.example.com:8443/x/{id}?q=1".to_owned();
        let service = of(Mode::ProxyHttp(ProxyHttp { url, ..ProxyHttp::default() }));
        assert_eq!(ExecutionTarget::of(&service).upstream, Some("a.example.com:8443"));
        let plugin = of(Mode::Plugin(Plugin { language: "python".into(), ..Plugin::default() }));
        assert_eq!(ExecutionTarget::of(&plugin).runtime, Some("python"));
        assert_eq!(ExecutionTarget::of(&Primitive::default()), ExecutionTarget::default());
    }
}
