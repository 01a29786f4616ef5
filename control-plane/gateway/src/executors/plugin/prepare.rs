//! Tells the runtimes which plugins a snapshot has, so that a worker waits before the first call does, and which
//! it has no more.
//!
//! Keeps true: a later snapshot replaces what an earlier one still asks for; a version is drained after its
//! successor is ready and nobody can ask for it any more; no call waits for any of this.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_proto::snapshot::Primitive;
use asp_proto::snapshot::runtime::Mode;
use asp_proto::supervisor::{DrainRequest, EnsurePluginRequest, PluginRef, RuntimeHints};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Code;

use super::runtimes::{Runtime, Runtimes};
use crate::call::bounds::lifetime_bound;
use crate::executors::plugin::reference::{plugin_ref, stdio_ref};

/// How many plugins are prepared at a time: starting workers costs the machine that also serves calls.
const AT_A_TIME: usize = 2;
/// Starting a worker may take this long.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Between two attempts at a runtime that does not answer.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// After a snapshot: for calls that were resolved in the one before, on this gateway and on others.
const DRAIN_AFTER: Duration = Duration::from_secs(10);
/// Beyond the longest call of a version that is drained.
const DRAIN_SLACK: Duration = Duration::from_secs(10);

/// A plugin's id and version.
type Key = (String, String);
/// The plugins that runtimes were told of and that were not drained since.
type Known = Arc<Mutex<HashMap<Key, Told>>>;

/// What is being prepared.
#[derive(Default)]
pub(super) struct Preparing {
    current: Mutex<CancellationToken>,
    known: Known,
}

/// A plugin of a snapshot.
#[derive(Clone)]
struct Told {
    runtime: Arc<Runtime>,
    plugin: PluginRef,
    hints: RuntimeHints,
    /// How long a call of it may run.
    longest: Duration,
    ready: bool,
}

impl Preparing {
    /// Begins to prepare the plugins of a snapshot, and to drain those that it has no more.
    pub(super) fn begin(&self, runtimes: &Arc<Runtimes>, tasks: &TaskTracker, primitives: &[Primitive]) {
        let stop = CancellationToken::new();
        std::mem::replace(&mut *self.current.lock(), stop.clone()).cancel();
        let wanted = wanted(runtimes, primitives);
        let (new, gone) = {
            let mut known = self.known.lock();
            let gone: Vec<Key> = known.keys().filter(|key| !wanted.contains_key(*key)).cloned().collect();
            for (key, told) in wanted {
                known.entry(key).or_insert(told);
            }
            let new: Vec<Key> =
                known.iter().filter(|(_, told)| !told.ready).map(|(key, _)| key.clone()).collect();
            (new, gone)
        };
        let Ok(handle) = Handle::try_current() else { return };
        if new.is_empty() && gone.is_empty() {
            return;
        }
        let known = self.known.clone();
        let work = async move { stop.run_until_cancelled(converge(known, new, gone)).await };
        tasks.spawn_on(work, &handle);
    }

    pub(super) fn stop(&self) {
        self.current.lock().cancel();
    }
}

async fn converge(known: Known, new: Vec<Key>, gone: Vec<Key>) {
    let new: Vec<&Key> = new.iter().filter(|key| !gone.contains(key)).collect();
    let known = &known;
    futures::stream::iter(new)
        .for_each_concurrent(AT_A_TIME, |key| async move {
            let Some(told) = known.lock().get(key).cloned() else { return };
            ensure(&told).await;
            if let Some(told) = known.lock().get_mut(key) {
                told.ready = true;
            }
        })
        .await;
    if gone.is_empty() {
        return;
    }
    tokio::time::sleep(DRAIN_AFTER).await;
    for key in gone {
        let Some(told) = known.lock().remove(&key) else { continue };
        drain(&told).await;
    }
}

/// Lets the calls of a version end and its workers go.
async fn drain(told: &Told) {
    let Some(mut client) = told.runtime.client() else { return };
    let limit = told.longest + DRAIN_SLACK;
    let request = DrainRequest {
        plugin: Some(told.plugin.clone()),
        graceful: true,
        deadline: prost_types::Duration::try_from(limit).ok(),
    };
    let id = &told.plugin.id;
    let version = &told.plugin.version;
    match tokio::time::timeout(limit + DRAIN_SLACK, client.drain(request)).await {
        Ok(Ok(_)) => tracing::info!(plugin = %id, %version, "plugin version drained"),
        Ok(Err(status)) => {
            tracing::warn!(plugin = %id, %version, reason = status.message(), "the runtime did not drain a plugin version that is no longer in the snapshot; its workers stay until they are idle")
        }
        Err(_) => {
            tracing::warn!(plugin = %id, %version, "a plugin version that is no longer in the snapshot is still draining: its workers finish their calls first")
        }
    }
}

/// Each plugin once, with the runtime of its language; one without a runtime is told to whoever calls it.
fn wanted(runtimes: &Runtimes, primitives: &[Primitive]) -> HashMap<Key, Told> {
    let mut wanted: HashMap<Key, Told> = HashMap::new();
    for primitive in primitives {
        let (plugin, hints) = match primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref()) {
            Some(Mode::Plugin(plugin)) => plugin_ref(primitive, plugin),
            Some(Mode::McpStdio(target)) => stdio_ref(primitive, target),
            _ => continue,
        };
        let Some(runtime) = runtimes.get(&plugin.language).cloned() else { continue };
        let longest = lifetime_bound(primitive, true);
        let told = wanted.entry((plugin.id.clone(), plugin.version.clone())).or_insert(Told {
            runtime,
            plugin,
            hints,
            longest,
            ready: false,
        });
        told.longest = told.longest.max(longest);
    }
    wanted
}

/// Asks until the runtime answers.
async fn ensure(told: &Told) {
    let Told { runtime, plugin, hints, .. } = told;
    let request = EnsurePluginRequest {
        plugin: Some(plugin.clone()),
        hints: Some(hints.clone()),
        prewarm: true,
        ..EnsurePluginRequest::default()
    };
    loop {
        if let Some(mut client) = runtime.client() {
            let asked = tokio::time::timeout(TIMEOUT, client.ensure_plugin(request.clone())).await;
            match asked {
                Ok(Ok(answer)) => {
                    runtime.heard(None);
                    for warning in answer.into_inner().warnings {
                        tracing::warn!(plugin = %plugin.id, version = %plugin.version, %warning, "a plugin is ready, and its runtime warns of something that its owner should mend");
                    }
                    return;
                }
                Ok(Err(status)) if status.code() != Code::Unavailable => {
                    runtime.heard(None);
                    tracing::warn!(plugin = %plugin.id, version = %plugin.version, reason = status.message(), "a plugin cannot run on its runtime: calls of its primitives are refused as not available until it is mended");
                    return;
                }
                Ok(Err(status)) => runtime.heard(Some(&status)),
                Err(_) => {}
            }
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}
