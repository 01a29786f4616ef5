//! Status of the servers of a development machine, as the gateway and the runtime report it.
//!
//! Keeps true: a caller waits at most half a minute for the runtime's report.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use asp_call::execution::Availability;
use asp_gateway::gateway::Gateway;
use asp_gateway::gateway::standing::ServerStatus;
use asp_platform::runtime_health::RuntimeHealth;
use serde_json::Value;

use crate::stack::ready;
use crate::stack::table::DevMachine;

/// Timeout for the runtime to start and report on each plugin, or to fail for good.
const HEARD_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Reason for giving up the runtime; set once.
pub(super) type RuntimeFailure = Arc<OnceLock<String>>;

/// Returns the status of the servers, and the machine with the reports of its runtimes.
pub(super) async fn status(
    gateway: &Weak<Gateway>,
    died: &RuntimeFailure,
    mut machine: DevMachine,
) -> (Vec<ServerStatus>, DevMachine) {
    let servers = await_reports(gateway, died).await;
    machine.runtime_died = died.get().cloned();
    if let Some(gateway) = gateway.upgrade() {
        gateway.runtimes().await.iter().for_each(|health| add_report(health, &mut machine));
    }
    (servers, machine)
}

/// Returns the servers once the runtime has reported on each of their plugins, has died, or took too long.
async fn await_reports(gateway: &Weak<Gateway>, died: &RuntimeFailure) -> Vec<ServerStatus> {
    let until = tokio::time::Instant::now() + HEARD_WITHIN;
    loop {
        let servers = gateway.upgrade().map(|gateway| gateway.standing(ready::ORG)).unwrap_or_default();
        let mut plugins = servers.iter().flat_map(|server| &server.plugins);
        let waits = plugins.any(|plugin| plugin.availability == Availability::Unheard);
        if !waits || died.get().is_some() || tokio::time::Instant::now() >= until {
            return servers;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Adds to `machine` what a runtime reports that keeps plugins from running.
fn add_report(health: &RuntimeHealth, machine: &mut DevMachine) {
    let members = |name: &str| health.stats.get(name).and_then(Value::as_object).into_iter().flatten();
    for (level, why) in members("missing") {
        machine.missing.insert(level.clone(), why.as_str().unwrap_or_default().to_owned());
    }
    for (name, plugin) in members("plugins") {
        let rest = plugin.get("quarantined_s").and_then(Value::as_f64).unwrap_or_default();
        let number = |name: &str| plugin.get(name).and_then(Value::as_f64).unwrap_or_default();
        let crashes = number("crashes");
        let why = if rest > 0.0 {
            format!("its workers crash or do not start; the next try is in {rest:.0} s")
        } else if crashes > 0.0 && number("workers") < 1.0 {
            format!("its workers crashed {crashes:.0} times and no worker runs")
        } else {
            continue;
        };
        machine.resting.insert(name.clone(), why);
    }
}
