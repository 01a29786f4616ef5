//! Which plugins of the snapshot in force can run, as their runtimes have said.
//!
//! Owns: what was asked of which runtime and what came of it, for the plugins of a snapshot and for those that wait
//! to be drained. Refuses: a verdict of its own; a plugin that nobody has answered for yet may run. Keeps true: only
//! what a runtime named as impossible is hidden (I-10), and only until it says otherwise; the question costs a call
//! no lock. Bound: the plugins of two snapshots.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use asp_proto::supervisor::{PluginRef, RuntimeHints};
use parking_lot::Mutex;

use super::runtimes::Runtime;
use crate::execution::Availability;

/// A plugin's id and version.
pub(super) type Key = (String, String);

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

impl Known {
    pub(super) fn key(&self) -> Key {
        key(&self.plugin)
    }
}

pub(super) fn key(plugin: &PluginRef) -> Key {
    (plugin.id.clone(), plugin.version.clone())
}

/// The plugins that runtimes were told of and that were not drained since.
#[derive(Default)]
pub(super) struct KnownPlugins {
    plugins: Mutex<HashMap<Key, Known>>,
    /// Those of them that no runtime can run.
    impossible: ArcSwap<HashSet<Key>>,
}

impl KnownPlugins {
    /// A snapshot has these. What was heard of one stays true while the snapshot says the same of it.
    pub(super) fn replace(&self, wanted: HashMap<Key, Known>) {
        let mut plugins = self.plugins.lock();
        for (key, known) in plugins.iter_mut() {
            known.gone = !wanted.contains_key(key);
        }
        for (key, known) in wanted {
            match plugins.get_mut(&key) {
                Some(there) if there.plugin == known.plugin => there.longest = known.longest,
                _ => drop(plugins.insert(key, known)),
            }
        }
        self.publish(&plugins);
    }

    /// Takes note of an answer; what it was before, where it changes something.
    pub(super) fn learn(&self, plugin: &PluginRef, state: Availability) -> Option<Availability> {
        let mut plugins = self.plugins.lock();
        // The snapshot may say something else of it by now.
        let known = plugins.get_mut(&key(plugin)).filter(|known| known.plugin == *plugin)?;
        if known.state == state {
            return None;
        }
        let before = std::mem::replace(&mut known.state, state);
        self.publish(&plugins);
        Some(before)
    }

    /// Whether no runtime can run it, by its id and version.
    pub(super) fn is_impossible(&self, key: impl FnOnce() -> Option<Key>) -> bool {
        let impossible = self.impossible.load();
        !impossible.is_empty() && key().is_some_and(|key| impossible.contains(&key))
    }

    pub(super) fn state(&self, key: &Key) -> Availability {
        self.plugins.lock().get(key).map_or(Availability::Unheard, |known| known.state.clone())
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
        let key = plugins.values().find(gone).map(Known::key)?;
        plugins.remove(&key)
    }

    fn publish(&self, plugins: &HashMap<Key, Known>) {
        let impossible = plugins
            .iter()
            .filter(|(_, known)| !known.gone && matches!(known.state, Availability::Impossible(_)));
        let impossible: HashSet<Key> = impossible.map(|(key, _)| key.clone()).collect();
        // Most often none is, and none was.
        if *self.impossible.load_full() != impossible {
            self.impossible.store(Arc::new(impossible));
        }
    }
}
