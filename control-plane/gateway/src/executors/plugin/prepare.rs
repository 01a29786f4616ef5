//! Tells the runtimes which plugins a snapshot has, so that a worker waits before the first call does.
//!
//! Keeps true: a later snapshot replaces what an earlier one still asks for; no call waits for any of this.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use asp_proto::snapshot::Primitive;
use asp_proto::snapshot::runtime::Mode;
use asp_proto::supervisor::{EnsurePluginRequest, PluginRef, RuntimeHints};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Code;

use super::runtimes::{Runtime, Runtimes};
use super::{plugin_ref, stdio_ref};

/// How many plugins are prepared at a time: starting workers costs the machine that also serves calls.
const AT_A_TIME: usize = 2;
/// Starting a worker may take this long.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Between two attempts at a runtime that does not answer.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What is being prepared.
#[derive(Default)]
pub(super) struct Preparing {
    current: Mutex<CancellationToken>,
}

impl Preparing {
    /// Begins to prepare the plugins of a snapshot.
    pub(super) fn begin(&self, runtimes: &Arc<Runtimes>, tasks: &TaskTracker, primitives: &[Primitive]) {
        let stop = CancellationToken::new();
        std::mem::replace(&mut *self.current.lock(), stop.clone()).cancel();
        let wanted = wanted(runtimes, primitives);
        let Ok(handle) = Handle::try_current() else { return };
        if wanted.is_empty() {
            return;
        }
        let work = async move {
            let all = futures::stream::iter(wanted)
                .for_each_concurrent(AT_A_TIME, |(runtime, request)| async move {
                    ensure(&runtime, request).await
                });
            stop.run_until_cancelled(all).await;
        };
        tasks.spawn_on(work, &handle);
    }

    pub(super) fn stop(&self) {
        self.current.lock().cancel();
    }
}

/// Each plugin once, with the runtime of its language; one without a runtime is told to whoever calls it.
fn wanted(runtimes: &Runtimes, primitives: &[Primitive]) -> Vec<(Arc<Runtime>, EnsurePluginRequest)> {
    let mut seen = HashSet::new();
    let mut wanted = Vec::new();
    for primitive in primitives {
        let (plugin, hints) = match primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref()) {
            Some(Mode::Plugin(plugin)) => plugin_ref(primitive, plugin),
            Some(Mode::McpStdio(target)) => stdio_ref(primitive, target),
            _ => continue,
        };
        let Some(runtime) = runtimes.get(&plugin.language) else { continue };
        if seen.insert((plugin.id.clone(), plugin.version.clone())) {
            wanted.push((runtime.clone(), request(plugin, hints)));
        }
    }
    wanted
}

fn request(plugin: PluginRef, hints: RuntimeHints) -> EnsurePluginRequest {
    EnsurePluginRequest { plugin: Some(plugin), hints: Some(hints), prewarm: true, ..Default::default() }
}

/// Asks until the runtime answers.
async fn ensure(runtime: &Runtime, request: EnsurePluginRequest) {
    let plugin = request.plugin.clone().unwrap_or_default();
    loop {
        if let Some(mut client) = runtime.client() {
            let asked = tokio::time::timeout(TIMEOUT, client.ensure_plugin(request.clone())).await;
            match asked {
                Ok(Ok(answer)) => {
                    runtime.heard(None);
                    for warning in answer.into_inner().warnings {
                        tracing::warn!(plugin = %plugin.id, version = %plugin.version, %warning, "plugin is ready, with a warning");
                    }
                    return;
                }
                Ok(Err(status)) if status.code() != Code::Unavailable => {
                    runtime.heard(None);
                    tracing::warn!(plugin = %plugin.id, version = %plugin.version, reason = status.message(), "plugin cannot run");
                    return;
                }
                Ok(Err(status)) => runtime.heard(Some(&status)),
                Err(_) => {}
            }
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}
