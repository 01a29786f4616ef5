//! Fields of log lines about a call: call, plugin, worker, org, and the caller's trace.
//!
//! Keeps true: a trace id is logged only if it is valid (W3C Trace Context section 3.2.2); values from a gateway are
//! truncated; a line costs nothing while its level is off.

use std::collections::BTreeMap;
use std::time::Duration;

use asp_proto::plugin::Context;

use super::AttachedTunnel;
use crate::worker::Worker;
use crate::worker::call::CallEnd;

/// Maximum length of a logged id in bytes.
const MAX_ID: usize = 128;
const TRACE_DIGITS: usize = 32;
const SPAN_DIGITS: usize = 16;

/// Logs a line about a call.
macro_rules! line {
    ($level:ident, $subject:expr, $($field:ident,)* $text:literal) => {{
        let LogSubject { call, plugin, worker, org, trace, span } = $subject;
        tracing::$level!(runtime = true, call, plugin, worker, org, trace, span, $($field,)* $text);
    }};
}

/// A call as its log lines identify it.
#[derive(Debug, Default)]
pub(super) struct LogSubject {
    call: String,
    plugin: String,
    worker: String,
    org: String,
    trace: String,
    span: String,
}

impl LogSubject {
    /// `request_id`, `context` and `attrs` are those of the request.
    pub(super) fn of(
        worker: &Worker,
        attached: &AttachedTunnel,
        request_id: &str,
        context: Option<&Context>,
        attrs: &BTreeMap<String, String>,
    ) -> LogSubject {
        let (trace, span) = attrs.get("traceparent").and_then(|value| parent(value)).unwrap_or_default();
        LogSubject {
            call: cut(request_id),
            plugin: attached.ticket.pool().key.to_string(),
            worker: worker.id.clone(),
            org: context.map(|context| cut(&context.tenant_id)).unwrap_or_default(),
            trace: trace.to_owned(),
            span: span.to_owned(),
        }
    }

    pub(super) fn log_end(&self, end: CallEnd, took: Duration) {
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        match end {
            CallEnd::Answered => line!(debug, self, took_ms, "a call ended"),
            CallEnd::Crashed(cause) => {
                let cause = cause.name();
                line!(warn, self, took_ms, cause, "a call was lost with its worker");
            }
        }
    }

    /// Logs that the call is cancelled, and why.
    pub(super) fn log_cancel(&self, reason: &str) {
        let reason = cut(reason);
        line!(info, self, reason, "a call was cancelled; its worker has a short grace to end it");
    }

    /// Logs that the call ignored its cancellation.
    pub(super) fn ignored_cancellation(&self) {
        line!(
            warn,
            self,
            "a call ignored its cancellation, so its worker is killed with all its calls; the plugin should honor it"
        );
    }
}

/// Returns trace id and span id of a `traceparent`.
fn parent(value: &str) -> Option<(&str, &str)> {
    let mut parts = value.split('-');
    let _version = parts.next()?;
    let trace = parts.next()?;
    let span = parts.next()?;
    let hex = |text: &str, digits: usize| {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        text.len() == digits && text.bytes().all(is_hex) && text.bytes().any(|byte| byte != b'0')
    };
    (hex(trace, TRACE_DIGITS) && hex(span, SPAN_DIGITS)).then_some((trace, span))
}

fn cut(text: &str) -> String {
    text.get(..text.floor_char_boundary(MAX_ID)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_trace_is_logged_as_one() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let span = "b7ad6b7169203331";
        assert_eq!(parent(&format!("00-{trace}-{span}-01")), Some((trace, span)));
        for text in [
            String::new(),
            trace.to_owned(),
            format!("00-{trace}"),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{span}0-01"),
        ] {
            assert_eq!(parent(&text), None, "{text}");
        }
    }
}
