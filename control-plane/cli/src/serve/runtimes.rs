//! The language runtimes of this process, and their health for the admin API.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

use anyhow::Context;
use asp_call::execution::Availability;
use asp_control::runtimes as port;
use asp_gateway::gateway::Gateway;
use asp_platform::runtime_health::{OffPlugin, RuntimeHealth, RuntimeState};
use asp_runtime_client::runtimes::{RuntimeTarget, Runtimes};
use async_trait::async_trait;
use serde_json::Value;

use super::Process;
use crate::stack::plugins::MissingPlugin;
use crate::stack::runtime::LocalRuntime;

/// Health of the runtimes and plugins, from the gateway's connections and from the gateway in this process.
pub(super) struct Health {
    runtimes: Runtimes,
    gateway: Arc<OnceLock<Weak<Gateway>>>,
    not_installed: Vec<MissingPlugin>,
}

impl Health {
    pub(super) fn of(process: &Process, not_installed: Vec<MissingPlugin>) -> anyhow::Result<Health> {
        Ok(Health { runtimes: open(process)?, gateway: Arc::clone(&process.gateway), not_installed })
    }

    /// Returns each plugin that no runtime can run, by name.
    fn unavailable_plugins(&self) -> BTreeMap<String, OffPlugin> {
        let gateway = self.gateway.get().and_then(Weak::upgrade);
        // An empty org: all servers, whichever orgs they are exposed to.
        let servers = gateway.map(|gateway| gateway.standing("")).unwrap_or_default();
        let mut off = BTreeMap::new();
        for plugin in servers.into_iter().flat_map(|server| server.plugins) {
            let Availability::Impossible(reason) = plugin.availability else { continue };
            let failed = |one: &&MissingPlugin| one.id == plugin.id && one.version == plugin.version;
            let failed = self.not_installed.iter().find(failed);
            let name = format!("{}@{}", plugin.id, plugin.version);
            let off_plugin = OffPlugin {
                name: name.clone(),
                language: plugin.language,
                why: failed.map_or(reason, |failed| failed.why.clone()),
                way_out: failed.map(|failed| failed.remedy.clone()).unwrap_or_default(),
            };
            off.insert(name, off_plugin);
        }
        off
    }
}

#[async_trait]
impl port::Runtimes for Health {
    /// Returns the runtimes with the plugins that are off in each, and an entry for the languages that have none.
    async fn health(&self) -> Vec<RuntimeHealth> {
        let mut runtimes = self.runtimes.health().await;
        let mut homeless: BTreeMap<String, Vec<OffPlugin>> = BTreeMap::new();
        for plugin in self.unavailable_plugins().into_values() {
            let mut has_home = false;
            for runtime in runtimes.iter_mut().filter(|it| it.languages.contains(&plugin.language)) {
                runtime.off.push(plugin.clone());
                has_home = true;
            }
            if !has_home {
                homeless.entry(plugin.language.clone()).or_default().push(plugin);
            }
        }
        runtimes.extend(homeless.into_iter().map(|(language, off)| RuntimeHealth {
            languages: vec![language],
            url: String::new(),
            address: None,
            state: RuntimeState::Absent,
            stats: Value::Null,
            off,
        }));
        runtimes
    }
}

/// Connects to the configured language runtimes and the one that this process starts.
pub(super) fn open(process: &Process) -> anyhow::Result<Runtimes> {
    let settings = &process.settings;
    let own = process.runtime.as_deref().map(LocalRuntime::address);
    // Only this machine's own runtime has the plugins that were built from the directory.
    let both =
        |language: &&String| settings.gateway.runtimes.iter().any(|it| it.languages.contains(language));
    if let Some(language) = own.iter().flat_map(|own| &own.languages).find(both) {
        anyhow::bail!(
            "this process starts a runtime for {language} plugins: leave {language} out of ASP_RUNTIMES"
        );
    }
    let mut targets = Vec::new();
    for address in settings.gateway.runtimes.iter().cloned().chain(own) {
        // The gateway authenticates to a runtime as it does to the control plane.
        let peer = process.certificates.peer.clone().filter(|_| address.url.starts_with("https://"));
        targets.push(RuntimeTarget { languages: address.languages, url: address.url, peer });
    }
    Runtimes::new(targets).context("use the language runtimes")
}
