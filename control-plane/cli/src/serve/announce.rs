//! Tells when the whole path of `--stack` answers, where it is, and what of it works.
//!
//! Keeps true: `ready` waits for no plugin; the table after it waits a few seconds at most for what the runtime says.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use asp_gateway::execution::Availability;
use asp_gateway::gateway::Gateway;
use asp_gateway::gateway::standing::ServerStanding;
use asp_platform::runtime_health::RuntimeHealth;
use serde_json::Value;

use super::Process;
use crate::packaging::languages::Languages;
use crate::print;
use crate::stack::plugins::NotInstalled;
use crate::stack::table::{self, Cause, Machine};
use crate::stack::{everything, ready};

/// For the runtime to start and to say of each plugin whether it can run, or to die for good.
const HEARD_WITHIN: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Why the runtime that was started is given up; set once.
pub(super) type Died = Arc<OnceLock<String>>;

/// Waits until the path answers, writes `env`, says `ready` and shows the table.
pub(super) fn announce(
    process: &Process,
    not_installed: Vec<NotInstalled>,
    died: Died,
) -> impl Future<Output = anyhow::Result<()>> + 'static {
    let listen = &process.settings.listen;
    let urls = ready::Urls {
        edge: process.public_url.clone(),
        admin: format!("http://{}", SocketAddr::new(listen.admin, process.ports.admin)),
        probe: match process.settings.tls {
            None => format!("http://{}/healthz", SocketAddr::new(listen.bind, process.ports.edge)),
            // Its certificate may be anybody's; Envoy itself says whether its listeners are up.
            Some(_) => format!("http://127.0.0.1:{}/ready", process.ports.envoy_admin),
        },
    };
    let state_dir = process.settings.state_dir.clone();
    let issuer = process.dev_issuer.clone();
    let gateway = process.gateway.get().cloned().unwrap_or_default();
    let mut machine = machine(process, not_installed);
    async move {
        ready::wait(&urls).await?;
        if let Some(issuer) = issuer {
            ready::write_env(&state_dir, &urls, &issuer)?;
        }
        ready::announce(&state_dir, &urls);
        let servers = heard(&gateway, &died).await;
        machine.runtime_died = died.get().cloned();
        if let Some(gateway) = gateway.upgrade() {
            gateway.runtimes().await.iter().for_each(|health| tell(health, &mut machine));
        }
        print::line(&format!("\n{}", table::render(&servers, &machine)));
        Ok(())
    }
}

/// What is known before anything runs.
fn machine(process: &Process, not_installed: Vec<NotInstalled>) -> Machine {
    let stack = process.settings.stack.as_ref();
    let has_runtime = stack.is_some_and(|stack| stack.runtime.is_some());
    let mut absent_hosts = BTreeMap::new();
    if stack.is_none_or(|stack| everything::program(stack, process.ports.everything).is_none()) {
        absent_hosts.insert(
            everything::HOST.to_owned(),
            Cause::new("the sample MCP server is not here (ASP_EVERYTHING_JS, ASP_NODE_BIN)", "make run"),
        );
    }
    Machine {
        public_url: process.public_url.clone(),
        org: ready::ORG.into(),
        root: process.settings.primitives.as_deref().unwrap_or(Path::new(".")).display().to_string(),
        without_runtime: (!has_runtime).then(|| {
            Cause::new("there is no asp-runtime beside asp (ASP_RUNTIME_BIN)", "make build, then make run")
        }),
        absent: Languages::find().absent.into_iter().map(|(name, lacks)| (name.to_owned(), lacks)).collect(),
        not_installed,
        absent_hosts,
        ..Machine::default()
    }
}

/// The servers, when the runtime has answered for each of their plugins, will not any more, or took too long.
async fn heard(gateway: &Weak<Gateway>, died: &Died) -> Vec<ServerStanding> {
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

/// What a runtime says of itself, as far as it keeps plugins from running.
fn tell(health: &RuntimeHealth, machine: &mut Machine) {
    let members = |name: &str| health.stats.get(name).and_then(Value::as_object).into_iter().flatten();
    for (level, why) in members("missing") {
        machine.missing.insert(level.clone(), why.as_str().unwrap_or_default().to_owned());
    }
    for (name, plugin) in members("plugins") {
        let rest = plugin.get("quarantined_s").and_then(Value::as_f64).unwrap_or_default();
        let number = |name: &str| plugin.get(name).and_then(Value::as_f64).unwrap_or_default();
        let crashes = number("crashes");
        let why = if rest > 0.0 {
            format!("its workers crash too often; the next try is in {rest:.0} s")
        } else if crashes > 0.0 && number("workers") < 1.0 {
            format!("its workers have crashed {crashes:.0} times and none runs")
        } else {
            continue;
        };
        machine.resting.insert(name.clone(), why);
    }
}
