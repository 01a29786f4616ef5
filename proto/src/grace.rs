//! Grace periods of a cancelled call, for gateways and runtimes.
//!
//! Owns every time that passes between a cancel and the end of what runs the call. Keeps true: the page for operators
//! (`docs/operations.md`, "What a cancel does, and when") states the same names and times.

use std::time::Duration;

/// Time in which a backend returns by itself after a cancel or at the deadline; then the pipeline drops it, and the caller
/// has its answer.
pub const BACKEND_STOPS_WITHIN: Duration = Duration::from_millis(100);

/// Time in which a worker ends a cancelled call; then the runtime kills it.
pub const WORKER_STOPS_WITHIN: Duration = Duration::from_secs(2);

/// Maximum extension of [`WORKER_STOPS_WITHIN`] while another call blocks the worker's stream: a call whose gateway reads
/// nothing for this long is given up. A gateway gives up a store that does not answer sooner than this.
pub const MAX_STALL: Duration = Duration::from_secs(15);

/// Time in which a call that is asked to yield saves its state and does so.
pub const CALL_YIELDS_WITHIN: Duration = Duration::from_secs(10);

/// Time in which a runtime ends a previous execution of a call: after a stall the worker has its grace once more.
pub const EXECUTION_STOPS_WITHIN: Duration = MAX_STALL.saturating_add(WORKER_STOPS_WITHIN.saturating_mul(3));

/// Timeout of one request that tells a service or an upstream MCP server of a cancel, or of the end of a session.
pub const CANCEL_REQUEST_WITHIN: Duration = Duration::from_secs(2);

/// Time for which a gateway or runtime that stops lets its calls run; Kubernetes kills it after 30 s.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(25);

/// Time in which the remaining calls of a gateway end after it has cancelled them, at the end of its drain.
pub const LAST_CALLS_END_WITHIN: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_for_operators_has_every_grace_period() {
        let periods = [
            ("BACKEND_STOPS_WITHIN", BACKEND_STOPS_WITHIN),
            ("WORKER_STOPS_WITHIN", WORKER_STOPS_WITHIN),
            ("MAX_STALL", MAX_STALL),
            ("CALL_YIELDS_WITHIN", CALL_YIELDS_WITHIN),
            ("EXECUTION_STOPS_WITHIN", EXECUTION_STOPS_WITHIN),
            ("CANCEL_REQUEST_WITHIN", CANCEL_REQUEST_WITHIN),
            ("DRAIN_LIMIT", DRAIN_LIMIT),
            ("LAST_CALLS_END_WITHIN", LAST_CALLS_END_WITHIN),
        ];
        let page = include_str!("../../docs/operations.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        for (name, time) in periods {
            let seconds = time.as_secs_f64();
            let time =
                if seconds < 1.0 { format!("{} ms", time.as_millis()) } else { format!("{seconds} s") };
            let row = format!("| `{name}` | {time} |");
            assert!(rows.iter().any(|line| line.starts_with(&row)), "docs/operations.md has no row {row}");
        }
        let here = include_str!("grace.rs").lines().filter(|line| line.starts_with("pub const ")).count();
        assert_eq!(here, periods.len(), "this test does not know every grace period");
    }
}
