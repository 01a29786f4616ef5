//! Charge of a worker's CPU time to the call that it ran.

use std::sync::Arc;
use std::time::Duration;

use asp_call::execution::Execution;
use asp_platform::worker_usage::Stats;
use asp_runtime_client::admission::Account;

/// Returns an account that also reports the CPU time of its tunnel to the platform.
pub(super) fn to_call(account: Account, execution: &Execution) -> Account {
    let Account { language, usage, tasks } = account;
    let platform = Arc::clone(&execution.platform);
    let call = Arc::clone(&execution.call);
    let usage = Arc::new(move |language: &'static str, stats: &Stats| {
        usage(language, stats);
        let cpu = Duration::try_from_secs_f64(stats.cpu_ms / 1_000.0).unwrap_or_default();
        platform.record_cpu(&call, cpu);
    });
    Account { language, usage, tasks }
}
