//! The language runtimes of this process, and how the admin API asks after them.

use anyhow::Context;
use asp_control::runtimes as port;
use asp_gateway::executors::plugin::runtimes::{RuntimeTarget, Runtimes};
use asp_platform::runtime_health::RuntimeHealth;
use async_trait::async_trait;

use super::Process;
use crate::stack::runtime::LocalRuntime;

/// The gateway's connections, asked for the admin API.
pub(super) struct Health(pub(super) Runtimes);

#[async_trait]
impl port::Runtimes for Health {
    async fn health(&self) -> Vec<RuntimeHealth> {
        self.0.health().await
    }
}

/// The configured language runtimes, and the one that this process starts.
pub(super) fn open(process: &Process) -> anyhow::Result<Runtimes> {
    let settings = &process.settings;
    let own = process.runtime.as_ref().map(LocalRuntime::address);
    let mut targets = Vec::new();
    for address in settings.gateway.runtimes.iter().cloned().chain(own) {
        // The gateway proves itself to a runtime as it does to the control plane.
        let peer = process.peer.clone().filter(|_| address.url.starts_with("https://"));
        targets.push(RuntimeTarget { languages: address.languages, url: address.url, peer });
    }
    Runtimes::new(targets).context("use the language runtimes")
}
