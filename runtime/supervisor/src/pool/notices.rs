//! Notices of a pool to operators: log lines, events of MetricsStream, and the totals of starts and crashes.
//!
//! Keeps true: every end of a worker and every quarantine is reported once, with its consequence for calls.

use std::time::Duration;

use super::Pool;
use super::scheduler::QuarantineScope;
use crate::cause::Cause;
use crate::plugin::manifest::Limits;
use crate::ppp::{fields, number};
use crate::worker::{Death, Worker};

impl Pool {
    pub(super) fn note_quarantine(&self, quarantined: QuarantineScope) {
        let plugin = self.key.to_string();
        match quarantined {
            QuarantineScope::Nobody => {}
            QuarantineScope::Plugin => {
                tracing::error!(
                    runtime = true,
                    plugin,
                    "a plugin is quarantined: its workers crashed too often, and its calls are refused for a while; find \
                     why they crashed, and fix the plugin or return to an earlier version"
                );
                self.machine.metrics.emit("plugin_quarantined", [("plugin", plugin.as_str())], fields([]));
            }
            QuarantineScope::Tenant { tenant, rest } => {
                let seconds = rest.as_secs();
                tracing::warn!(
                    runtime = true,
                    plugin,
                    tenant,
                    seconds,
                    "a tenant's calls crash a plugin's workers and are refused for a while, unlike those of other tenants; \
                     inspect its calls and fix the plugin"
                );
                let labels = [("plugin", plugin.as_str()), ("tenant", tenant.as_str())];
                self.machine.metrics.emit(
                    "tenant_quarantined",
                    labels,
                    fields([("seconds", number(seconds))]),
                );
            }
        }
    }

    pub(super) fn note_start(&self, worker: &Worker, took: Duration) {
        self.totals.lock().starts += 1;
        let plugin = self.key.to_string();
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        tracing::info!(
            runtime = true,
            plugin,
            worker = worker.id,
            took_ms,
            "a worker started and accepts calls"
        );
        let labels = [("plugin", plugin.as_str()), ("worker", worker.id.as_str())];
        self.machine.metrics.emit("worker_started", labels, fields([("took_ms", number(took_ms))]));
    }

    /// Reports a failed start. It is not the plugin's fault, and the calls are refused with that reason.
    pub(super) fn note_host_trouble(&self, why: &str) {
        let plugin = self.key.to_string();
        tracing::error!(
            runtime = true,
            plugin,
            why,
            "this machine could not start a worker; waiting calls are refused, and the next call retries; provide \
             what the machine lacks"
        );
        self.machine.metrics.emit(
            "host_trouble",
            [("plugin", plugin.as_str())],
            fields([("why", why.into())]),
        );
    }

    pub(super) fn note_end(&self, worker: &str, death: &Death) {
        let plugin = self.key.to_string();
        let lived_ms = u64::try_from(death.lived.as_millis()).unwrap_or(u64::MAX);
        let labels = [("plugin", plugin.as_str()), ("worker", worker)];
        match death.cause {
            None => {
                tracing::info!(runtime = true, plugin, worker, lived_ms, "a worker stopped as requested");
                self.machine.metrics.emit("worker_gone", labels, fields([("lived_ms", number(lived_ms))]));
            }
            Some(cause) if !cause.is_crash() => {
                let name = cause.name();
                let why = cause.to_string();
                tracing::warn!(
                    runtime = true,
                    plugin,
                    worker,
                    lived_ms,
                    cause = name,
                    why,
                    "a worker was stopped; no call was lost by it, and another one starts when needed"
                );
                let details = fields([("lived_ms", number(lived_ms)), ("cause", name.into())]);
                self.machine.metrics.emit("worker_gone", labels, details);
            }
            Some(cause) => {
                *self.totals.lock().crashes.entry(cause.name()).or_default() += 1;
                let calls = death.calls;
                let remedy = remedy(cause, &self.plan.plugin.manifest.limits).unwrap_or_default();
                tracing::warn!(runtime = true, plugin, worker, lived_ms, calls, cause = %cause, remedy, "a worker crashed");
                let details = fields([
                    ("lived_ms", number(lived_ms)),
                    ("cause", cause.name().into()),
                    ("calls", number(calls as u64)),
                ]);
                self.machine.metrics.emit("worker_crashed", labels, details);
            }
        }
    }
}

/// Returns the limit behind the cause of a crash with the key of the spec that sets it, or how to prevent it; `None` if
/// nothing is known.
fn remedy(cause: Cause, limits: &Limits) -> Option<String> {
    let key = |name: &str, value: String| Some(format!("{name} of its spec is {value}"));
    match cause {
        Cause::Oom => key("runtime.resources.memory", size(limits.memory_bytes)),
        Cause::Limit("processes") => key("runtime.resources.pids", limits.pids.to_string()),
        Cause::Limit("processor time") => key("runtime.resources.cpu", format!("{}m", limits.cpu_millis)),
        Cause::Limit("disk space" | "artifact bytes") => {
            key("runtime.resources.disk", size(limits.disk_bytes))
        }
        Cause::Deadline => key("capabilities.maxRuntimeSeconds", limits.max_runtime_seconds.to_string()),
        Cause::Wedged => {
            Some("a handler that computes or waits on the event loop blocks it: use a thread".to_owned())
        }
        _ => None,
    }
}

/// Returns a size as a spec writes it.
fn size(bytes: u64) -> String {
    match bytes % (1 << 20) {
        0 => format!("{}Mi", bytes >> 20),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_named_with_the_key_that_sets_it() {
        let limits = Limits { memory_bytes: 64 << 20, disk_bytes: 1000, ..Limits::default() };
        for (cause, text) in [
            (Cause::Oom, "runtime.resources.memory of its spec is 64Mi"),
            (Cause::Limit("disk space"), "runtime.resources.disk of its spec is 1000"),
            (Cause::Limit("processes"), "runtime.resources.pids of its spec is 64"),
            (Cause::Limit("processor time"), "runtime.resources.cpu of its spec is 1000m"),
            (Cause::Deadline, "capabilities.maxRuntimeSeconds of its spec is 60"),
        ] {
            assert_eq!(remedy(cause, &limits).as_deref(), Some(text), "{cause}");
        }
        assert_eq!(remedy(Cause::Exit(1), &limits), None);
    }
}
