//! Which plugins of the snapshot in force can run, as their runtimes have said.
//!
//! Owns: what was asked of which runtime and what came of it, for the plugins of a snapshot and for those that wait
//! to be drained. Refuses: a verdict of its own; a plugin that nobody has answered for yet may run. Keeps true: only
//! what a runtime named as impossible is hidden (I-10), and only until it says otherwise; what one spec asks for in
//! vain says nothing of what another asks for under the same id; the question costs a call no lock. Bound: the plugins
//! of two snapshots.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use asp_proto::supervisor::{PluginRef, RuntimeHints};
use parking_lot::Mutex;

use super::runtimes::Runtime;
use crate::execution::Availability;

/// A plugin of a snapshot and its runtime.
#[derive(Clone)]
pub(super) struct Known {
    pub runtime: Arc<Runtime>,
    pub plugin: PluginRef,
    pub hints: RuntimeHints,
    /// How long a call of it may run.
    pub longest: Duration,
    pub state: Availability,
    /// In no snapshot any more: its workers go soon.
    pub gone: bool,
}

/// What a runtime goes by when it drains: its own address, a plugin's id and version.
type Installed = (*const Runtime, String, String);

impl Known {
    fn installed(&self) -> Installed {
        (Arc::as_ptr(&self.runtime), self.plugin.id.clone(), self.plugin.version.clone())
    }
}

/// The plugins that runtimes were told of and that were not drained since, by all that a spec says of one: specs may
/// pin different packages of one id and version, and only one of these is installed.
#[derive(Default)]
pub(super) struct KnownPlugins {
    plugins: Mutex<HashMap<PluginRef, Known>>,
    /// Those of them that no runtime can run.
    impossible: ArcSwap<HashSet<PluginRef>>,
    /// How often they changed.
    changes: AtomicU64,
}

impl KnownPlugins {
    /// A snapshot has these. What was heard of one stays true while the snapshot says the same of it.
    pub(super) fn replace(&self, wanted: HashMap<PluginRef, Known>) {
        let mut plugins = self.plugins.lock();
        // One that is wanted with another pin is not drained: that would end its successor's calls as well.
        let installed: HashSet<Installed> = wanted.values().map(Known::installed).collect();
        plugins.retain(|plugin, known| {
            known.gone = !wanted.contains_key(plugin);
            !known.gone || !installed.contains(&known.installed())
        });
        for (plugin, known) in wanted {
            match plugins.get_mut(&plugin) {
                Some(there) => there.longest = known.longest,
                None => drop(plugins.insert(plugin, known)),
            }
        }
        self.publish(&plugins);
    }

    /// Takes note of an answer; what it was before, where it changes something.
    pub(super) fn learn(&self, plugin: &PluginRef, state: Availability) -> Option<Availability> {
        let mut plugins = self.plugins.lock();
        // The snapshot may have it no more by now.
        let known = plugins.get_mut(plugin)?;
        if known.state == state {
            return None;
        }
        let before = std::mem::replace(&mut known.state, state);
        self.publish(&plugins);
        Some(before)
    }

    /// Whether no runtime can run it. It is named only where there is one that none can run.
    pub(super) fn is_impossible(&self, plugin: impl FnOnce() -> Option<PluginRef>) -> bool {
        let impossible = self.impossible.load();
        !impossible.is_empty() && plugin().is_some_and(|plugin| impossible.contains(&plugin))
    }

    /// Changes whenever other plugins are impossible than before.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(super) fn state(&self, plugin: &PluginRef) -> Availability {
        self.plugins.lock().get(plugin).map_or(Availability::Unheard, |known| known.state.clone())
    }

    /// The plugins of a runtime that are to be asked for.
    pub(super) fn open(&self, runtime: &Arc<Runtime>) -> Vec<Known> {
        let plugins = self.plugins.lock();
        let open = |known: &&Known| !known.gone && known.state != Availability::Ready;
        plugins.values().filter(|known| Arc::ptr_eq(&known.runtime, runtime)).filter(open).cloned().collect()
    }

    /// Forgets a plugin of a runtime that no snapshot has any more; `None` when there is none left.
    pub(super) fn take_gone(&self, runtime: &Arc<Runtime>) -> Option<Known> {
        let mut plugins = self.plugins.lock();
        let gone = |known: &&Known| known.gone && Arc::ptr_eq(&known.runtime, runtime);
        let plugin = plugins.values().find(gone).map(|known| known.plugin.clone())?;
        plugins.remove(&plugin)
    }

    fn publish(&self, plugins: &HashMap<PluginRef, Known>) {
        let impossible = plugins
            .iter()
            .filter(|(_, known)| !known.gone && matches!(known.state, Availability::Impossible(_)));
        let impossible: HashSet<PluginRef> = impossible.map(|(plugin, _)| plugin.clone()).collect();
        // Most often none is, and none was.
        if *self.impossible.load_full() != impossible {
            self.impossible.store(Arc::new(impossible));
            self.changes.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::runtimes::{RuntimeTarget, Runtimes};
    use super::*;

    fn wanted(runtime: &Arc<Runtime>, plugins: &[(&str, &str)]) -> HashMap<PluginRef, Known> {
        let known = |(version, digest): &(&str, &str)| {
            let plugin = PluginRef {
                id: "sweep".into(),
                version: (*version).into(),
                artifact_sha256: (*digest).into(),
                ..PluginRef::default()
            };
            let known = Known {
                runtime: Arc::clone(runtime),
                plugin: plugin.clone(),
                hints: RuntimeHints::default(),
                longest: Duration::ZERO,
                state: Availability::Unheard,
                gone: false,
            };
            (plugin, known)
        };
        plugins.iter().map(known).collect()
    }

    #[tokio::test]
    async fn a_version_is_drained_when_the_last_spec_of_it_is_gone_and_not_when_its_pin_changes() {
        let target =
            RuntimeTarget { languages: vec!["python".into()], url: "unix:/nowhere".into(), peer: None };
        let runtimes = Runtimes::new(vec![target]).unwrap();
        let runtime = runtimes.get("python").unwrap();
        let plugins = KnownPlugins::default();
        plugins.replace(wanted(runtime, &[("1.0.0", "a"), ("1.0.0", "b")]));
        plugins.replace(wanted(runtime, &[("1.0.0", "b")]));
        assert!(plugins.take_gone(runtime).is_none(), "the runtime drains by id and version");
        plugins.replace(wanted(runtime, &[("1.0.0", "c")]));
        assert!(plugins.take_gone(runtime).is_none(), "the pin changed");
        plugins.replace(wanted(runtime, &[("1.1.0", "c")]));
        assert_eq!(plugins.take_gone(runtime).unwrap().plugin.version, "1.0.0");
        assert!(plugins.take_gone(runtime).is_none());
    }
}
