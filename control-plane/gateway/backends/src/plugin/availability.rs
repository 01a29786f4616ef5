//! Availability of the snapshot's plugins, as each runtime has reported it.
//!
//! Owns: each runtime's last answer, for the plugins of a snapshot and for those that wait to be drained. Refuses:
//! own verdicts; a plugin without an answer yet may run. Keeps true: a plugin is hidden only if every runtime that
//! has answered reported it as impossible (I-10), and only until one reports otherwise; an answer for one spec does
//! not affect another spec with the same id; the lookup takes no lock, except for languages with several runtimes,
//! where it takes a shared one. Bound: the plugins of two snapshots, at each runtime.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use asp_call::execution::Availability;
use asp_proto::plugin::{self as ppp, client_message};
use asp_proto::supervisor::{AllocateWorkerRequest, Context, PluginRef, RuntimeHints};
use asp_runtime_client::runtimes::{Fleet, Runtime, RuntimePermit, Suitability, is_among};
use asp_runtime_client::tunnel::{self, OpenFault, Tunnel, TunnelContext};
use parking_lot::RwLock;
use prost_types::Any;
use tonic::Status;

/// Location of a plugin, and what its workers need for work that belongs to no call.
pub(super) struct PluginLocation {
    pub fleet: Arc<Fleet>,
    /// Known availability of the plugin at the runtimes.
    pub known: Arc<KnownPlugins>,
    pub language: &'static str,
    pub hints: RuntimeHints,
    /// Whether the worker must be a process of its own.
    pub fresh: bool,
    pub closing: TunnelContext,
}

impl PluginLocation {
    /// Returns the request for a worker, the context of its work, and the message that initializes the worker. It has no
    /// credential, because there is no call that could renew one.
    pub(super) fn request(
        &self,
        plugin: PluginRef,
        tenant: &str,
        request_id: &str,
        primitive: &str,
    ) -> (AllocateWorkerRequest, ppp::Context, Any) {
        let ctx = Context {
            tenant_id: tenant.to_owned(),
            correlation_id: request_id.to_owned(),
            mcp_request_id: request_id.to_owned(),
            primitive: primitive.to_owned(),
            ..Context::default()
        };
        let request = AllocateWorkerRequest {
            plugin: Some(plugin),
            ctx: Some(ctx),
            hints: Some(self.hints.clone()),
            force_fresh_process: self.fresh,
            ..AllocateWorkerRequest::default()
        };
        let ctx = ppp::Context { tenant_id: tenant.to_owned(), ..ppp::Context::default() };
        let init = ppp::InitRequest { ctx: Some(ctx.clone()), ..ppp::InitRequest::default() };
        (request, ctx, tunnel::pack(client_message::Payload::Init(init)))
    }

    /// Opens a tunnel at the best runtime, in whose load it counts as a call while the permit is held.
    pub(super) async fn open(
        &self,
        plugin: &PluginRef,
        request: AllocateWorkerRequest,
        messages: [Any; 2],
    ) -> Result<(Tunnel, RuntimePermit), OpenFault> {
        let taken = self.known.choose(&self.fleet, plugin, None, &[]);
        let taken = taken.ok_or_else(|| OpenFault::Lost(Status::unavailable("no runtime is available")))?;
        let account = self.closing.account(self.language);
        let (tunnel, _) = Tunnel::open(Arc::clone(&taken), account, request, messages, None).await?;
        Ok((tunnel, taken))
    }
}

/// Describes why no tunnel opened.
pub(super) fn unopened(fault: &OpenFault) -> String {
    match fault {
        OpenFault::Rejected(rejection) => format!("no worker: {rejection}"),
        OpenFault::Lost(status) => status.message().to_owned(),
    }
}

/// Requirements of a plugin in a snapshot.
#[derive(Clone)]
pub(super) struct PluginNeeds {
    pub hints: RuntimeHints,
    /// Maximum duration of a call.
    pub longest: Duration,
}

/// A plugin that one runtime is to prepare or to drain.
#[derive(Clone)]
pub(super) struct RuntimePlugin {
    pub plugin: PluginRef,
    pub wanted: PluginNeeds,
    pub state: Availability,
}

struct Entry {
    wanted: PluginNeeds,
    /// Whether the plugin is in no snapshot any more: its workers will be drained.
    gone: bool,
    at: Vec<RuntimeEntry>,
}

/// The plugin at one runtime.
struct RuntimeEntry {
    runtime: Arc<Runtime>,
    state: Availability,
    /// The runtime's own metrics say that it refuses the plugin's calls.
    refuses: bool,
}

impl RuntimeEntry {
    fn new(runtime: &Arc<Runtime>) -> RuntimeEntry {
        RuntimeEntry { runtime: runtime.clone(), state: Availability::Unheard, refuses: false }
    }

    fn is_of(&self, runtime: &Runtime) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.runtime), runtime)
    }

    fn suits(&self) -> Suitability {
        match &self.state {
            Availability::Impossible(_) => Suitability::Impossible,
            Availability::Troubled(_) => Suitability::Troubled,
            _ if self.refuses => Suitability::Troubled,
            Availability::Ready => Suitability::Ready,
            Availability::Unheard => Suitability::Unheard,
        }
    }
}

impl Entry {
    fn at(&self, runtime: &Runtime) -> Option<&RuntimeEntry> {
        self.at.iter().find(|at| at.is_of(runtime))
    }

    fn at_mut(&mut self, runtime: &Runtime) -> Option<&mut RuntimeEntry> {
        self.at.iter_mut().find(|at| at.is_of(runtime))
    }

    /// Returns the combined state: the best one at any runtime.
    fn state(&self) -> Availability {
        let best =
            |wanted: fn(&Availability) -> bool| self.at.iter().map(|at| &at.state).find(|it| wanted(it));
        let best = best(|state| *state == Availability::Ready)
            .or_else(|| best(|state| matches!(state, Availability::Troubled(_))))
            .or_else(|| best(|state| matches!(state, Availability::Impossible(_))));
        best.cloned().unwrap_or(Availability::Unheard)
    }
}

type Entries = HashMap<PluginRef, Entry>;
/// Key by which a runtime drains: its own address, and a plugin's id and version.
type InstallationKey = (*const Runtime, String, String);

/// Plugins that runtimes were asked to prepare and that are not drained yet. The key is everything that a spec states
/// about a plugin: specs may pin different packages of one id and version, and only one of these is installed.
#[derive(Default)]
pub(super) struct KnownPlugins {
    plugins: RwLock<Entries>,
    /// Plugins that no runtime can run.
    impossible: ArcSwap<HashSet<PluginRef>>,
    /// Number of changes of `impossible`.
    changes: AtomicU64,
}

/// Effect of an answer.
#[derive(Debug, PartialEq)]
pub(super) struct AnswerEffect {
    /// The runtime's previous answer.
    pub before: Availability,
    /// Whether a runtime can run the plugin, as far as known.
    pub is_offered: bool,
}

impl KnownPlugins {
    /// Replaces the plugins of the snapshot. An answer for a plugin stays valid while the snapshot states the same
    /// about it.
    pub(super) fn replace(&self, mut wanted: HashMap<PluginRef, PluginNeeds>, runtimes: &[Arc<Runtime>]) {
        let mut plugins = self.plugins.write();
        for (plugin, entry) in plugins.iter_mut() {
            match wanted.remove(plugin) {
                Some(wanted) => (entry.wanted, entry.gone) = (wanted, false),
                None => entry.gone = true,
            }
        }
        let new = wanted.into_iter();
        plugins.extend(new.map(|(plugin, wanted)| (plugin, Entry { wanted, gone: false, at: Vec::new() })));
        for (plugin, entry) in plugins.iter_mut().filter(|(_, entry)| !entry.gone) {
            let running = runtimes.iter().filter(|runtime| runtime.runs(&plugin.language));
            for runtime in running {
                if entry.at(runtime).is_none() {
                    entry.at.push(RuntimeEntry::new(runtime));
                }
            }
        }
        // A plugin that is wanted with another pin is not drained: that would end its successor's calls as well.
        let there = plugins.iter().filter(|(_, entry)| !entry.gone);
        let installed: HashSet<InstallationKey> =
            there.flat_map(|(plugin, entry)| entry.at.iter().map(|at| installed(plugin, at))).collect();
        for (plugin, entry) in plugins.iter_mut().filter(|(_, entry)| entry.gone) {
            entry.at.retain(|at| !installed.contains(&self::installed(plugin, at)));
        }
        plugins.retain(|_, entry| !entry.gone || !entry.at.is_empty());
        self.publish(&plugins);
    }

    /// Replaces the set of runtimes.
    pub(super) fn members(&self, runtimes: &[Arc<Runtime>]) {
        let mut plugins = self.plugins.write();
        for (plugin, entry) in plugins.iter_mut() {
            entry.at.retain(|at| is_among(&at.runtime, runtimes));
            let new = runtimes.iter().filter(|runtime| !entry.gone && runtime.runs(&plugin.language));
            let new: Vec<RuntimeEntry> =
                new.filter(|runtime| entry.at(runtime).is_none()).map(RuntimeEntry::new).collect();
            entry.at.extend(new);
        }
        plugins.retain(|_, entry| !entry.gone || !entry.at.is_empty());
        self.publish(&plugins);
    }

    /// Records a runtime's answer and returns its effect, if it changes anything.
    pub(super) fn learn(
        &self,
        runtime: &Runtime,
        plugin: &PluginRef,
        state: Availability,
    ) -> Option<AnswerEffect> {
        let mut plugins = self.plugins.write();
        // The plugin may have left the snapshot since.
        let entry = plugins.get_mut(plugin)?;
        let was_offered = !matches!(entry.state(), Availability::Impossible(_));
        let at = entry.at_mut(runtime)?;
        if at.state == state {
            return None;
        }
        let before = std::mem::replace(&mut at.state, state);
        let is_offered = !matches!(entry.state(), Availability::Impossible(_));
        if is_offered != was_offered {
            self.publish(&plugins);
        }
        Some(AnswerEffect { before, is_offered })
    }

    /// Marks the plugins that were ready at a runtime as unknown, because the runtime may have been restarted: they
    /// are asked for again.
    pub(super) fn mark_unknown(&self, runtime: &Runtime) {
        let mut plugins = self.plugins.write();
        let ready = plugins.values_mut().filter_map(|entry| entry.at_mut(runtime));
        for at in ready.filter(|at| at.state == Availability::Ready) {
            at.state = Availability::Unheard;
        }
    }

    /// Records whether the runtime's metrics say that it refuses the calls of `name`, a plugin's `<id>@<version>`;
    /// without a name, for all plugins.
    pub(super) fn refuses(&self, runtime: &Runtime, name: Option<&str>, refuses: bool) {
        let mut plugins = self.plugins.write();
        for (plugin, entry) in plugins.iter_mut() {
            if name.is_none_or(|name| name.rsplit_once('@') == Some((&plugin.id, &plugin.version)))
                && let Some(at) = entry.at_mut(runtime)
            {
                at.refuses = refuses;
            }
        }
    }

    /// Chooses a runtime for a call of the plugin: `own` if it is still a member and takes calls, and none of
    /// `refused`.
    pub(super) fn choose(
        &self,
        fleet: &Fleet,
        plugin: &PluginRef,
        own: Option<&Arc<Runtime>>,
        refused: &[Arc<Runtime>],
    ) -> Option<RuntimePermit> {
        if let Some(only) = fleet.only() {
            return refused.is_empty().then(|| RuntimePermit::of(only));
        }
        let plugins = self.plugins.read();
        let entry = plugins.get(plugin);
        let suits = |runtime: &Runtime| {
            let at = entry.and_then(|entry| entry.at(runtime));
            at.map_or(Suitability::Unheard, RuntimeEntry::suits)
        };
        fleet.choose(own, refused, suits)
    }

    /// Whether no runtime can run the plugin. The closure is called only if there are such plugins at all.
    pub(super) fn is_impossible(&self, plugin: impl FnOnce() -> Option<PluginRef>) -> bool {
        let impossible = self.impossible.load();
        !impossible.is_empty() && plugin().is_some_and(|plugin| impossible.contains(&plugin))
    }

    /// Returns a number that changes whenever the set of impossible plugins changes.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(super) fn state(&self, plugin: &PluginRef) -> Availability {
        self.plugins.read().get(plugin).map_or(Availability::Unheard, Entry::state)
    }

    /// Returns the plugins that a runtime is to be asked for.
    pub(super) fn open(&self, runtime: &Runtime) -> Vec<RuntimePlugin> {
        let plugins = self.plugins.read();
        let there = plugins.iter().filter(|(_, entry)| !entry.gone);
        let known = there.filter_map(|(plugin, entry)| {
            let at = entry.at(runtime).filter(|at| at.state != Availability::Ready)?;
            Some(RuntimePlugin {
                plugin: plugin.clone(),
                wanted: entry.wanted.clone(),
                state: at.state.clone(),
            })
        });
        known.collect()
    }

    /// Removes a plugin that is in no snapshot any more from a runtime and returns it; `None` if there is none left.
    pub(super) fn take_gone(&self, runtime: &Runtime) -> Option<RuntimePlugin> {
        let mut plugins = self.plugins.write();
        let gone = |entry: &Entry| entry.gone && entry.at(runtime).is_some();
        let plugin = plugins.iter().find(|(_, entry)| gone(entry)).map(|(plugin, _)| plugin.clone())?;
        let entry = plugins.get_mut(&plugin)?;
        let state = entry.at(runtime).map_or(Availability::Unheard, |at| at.state.clone());
        entry.at.retain(|at| !at.is_of(runtime));
        let wanted = entry.wanted.clone();
        if entry.at.is_empty() {
            plugins.remove(&plugin);
        }
        Some(RuntimePlugin { plugin, wanted, state })
    }

    fn publish(&self, plugins: &Entries) {
        let is_impossible =
            |entry: &Entry| !entry.gone && matches!(entry.state(), Availability::Impossible(_));
        let impossible = plugins.iter().filter(|(_, entry)| is_impossible(entry));
        let impossible: HashSet<PluginRef> = impossible.map(|(plugin, _)| plugin.clone()).collect();
        // Usually there are none, before and after.
        if *self.impossible.load_full() != impossible {
            self.impossible.store(Arc::new(impossible));
            self.changes.fetch_add(1, Ordering::Release);
        }
    }
}

fn installed(plugin: &PluginRef, at: &RuntimeEntry) -> InstallationKey {
    (Arc::as_ptr(&at.runtime), plugin.id.clone(), plugin.version.clone())
}

#[cfg(test)]
mod tests;
