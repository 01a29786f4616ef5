//! The operator's named secrets that a worker gets (ADR 16).
//!
//! Keeps true: a worker holds a secret only if its primitives ask for it, the operator lists them as its users, and no worker of
//! another pool could read it.

use std::collections::BTreeMap;

use asp_launcher::Level;
use asp_platform::secret::Secret;
use asp_proto::supervisor::PluginRef;

use super::Machine;
use crate::plugin::installed::Plugin;

/// Maximum number of missing secrets that are logged: each is logged once.
const MAX_REPORTED: usize = 1_000;

impl Machine {
    /// Returns the secrets that the called primitive asks for and may use, sorted. Logs the others: its code runs without them.
    pub fn granted_secrets(&self, plugin: &Plugin, wanted: &PluginRef) -> Vec<String> {
        let user = wanted.called_as.as_str();
        let asked = || plugin.secrets_of(&wanted.primitive);
        let granted = match may_hold_secrets(self.probe.own_user, self.level) {
            true => self.settings.secrets.granted(user, asked()),
            false => Vec::new(),
        };
        let is_missing = |name: &&str| !user.is_empty() && !granted.iter().any(|granted| granted == name);
        asked().filter(is_missing).for_each(|name| self.report_missing_secret(plugin, user, name));
        granted
    }

    /// Logs once that a primitive runs without a secret that it asks for.
    fn report_missing_secret(&self, plugin: &Plugin, primitive: &str, entry: &str) {
        let mut reported = self.missing_secrets.lock();
        if reported.len() >= MAX_REPORTED || !reported.insert((primitive.to_owned(), entry.to_owned())) {
            return;
        }
        let why = match self.settings.secrets.get(entry) {
            _ if !may_hold_secrets(self.probe.own_user, self.level) => "workers share a user on this machine",
            None => "the file has no secret of this name",
            Some(_) => "the entry's `for` does not name the primitive",
        };
        tracing::warn!(
            plugin = %plugin.name(),
            list = "ASP_SECRETS",
            entry,
            primitive,
            why,
            "a primitive runs without a secret that it asks for"
        );
    }

    /// Returns the values of granted secrets, by name.
    pub fn secret_values(&self, granted: &[String]) -> BTreeMap<String, Secret> {
        let value = |name: &String| Some((name.clone(), self.settings.secrets.get(name)?.clone()));
        granted.iter().filter_map(value).collect()
    }
}

/// Whether a worker may receive secrets: below level 3, workers of one user can read each other's environment and memory.
pub(super) fn may_hold_secrets(own_user: bool, level: Level) -> bool {
    own_user || level >= Level::L3
}
