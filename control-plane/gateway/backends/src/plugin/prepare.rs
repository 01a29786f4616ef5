//! Prepares the plugins of a snapshot at the runtimes, so that a worker is ready before the first call, drains those
//! that it does not contain any more, and asks again for those that cannot run, because they may be installed later.
//!
//! Keeps true: a later snapshot replaces the open requests of an earlier one; a version is drained after its
//! successor was answered for and no call can ask for it any more; no call waits for any of this; a runtime that does
//! not answer does not delay the others; a new runtime is asked for everything, a removed one for nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_call::call::terms::{MAX_WAITS, lifetime_bound};
use asp_call::execution::Availability;
use asp_mcp_client::lines;
use asp_proto::envelope::LINES;
use asp_proto::snapshot::Primitive;
use asp_proto::supervisor::{DrainRequest, EnsurePluginRequest, PluginRef};
use asp_runtime_client::admission::is_impossible;
use asp_runtime_client::runtimes::{Members, Runtime, Runtimes, keep_for_each};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Code, Status};

use super::availability::{AnswerEffect, KnownPlugins, PluginNeeds, RuntimePlugin};
use super::reference::{STDIO, run_by};

/// Number of plugins that are prepared at a time: starting workers uses the machine that also serves calls.
const AT_A_TIME: usize = 2;
/// Timeout of starting a worker.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two attempts at a runtime that does not answer.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Interval between two requests for plugins that cannot run: they appear this soon after they were installed.
const ASK_AGAIN: Duration = Duration::from_secs(3);
/// Minimum ratio of a pause to the duration of the requests before it: requests for thousands of plugins that cannot
/// run must not keep the gateway and the runtime busy.
const SPARING: u32 = 9;
/// Maximum pause: otherwise one runtime that hangs would delay for minutes the discovery of new installations.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Delay after a snapshot, for calls that were resolved in the previous one, on this gateway and on others.
const DRAIN_AFTER: Duration = Duration::from_secs(10);
/// Time in addition to the longest call of a version that is drained.
const DRAIN_SLACK: Duration = Duration::from_secs(10);

/// Preparation of the current snapshot's plugins.
#[derive(Default)]
pub(super) struct Preparation {
    current: Mutex<CancellationToken>,
    pub known: Arc<KnownPlugins>,
}

impl Preparation {
    /// Starts to prepare the plugins of a snapshot, and to drain those that it does not contain any more.
    pub(super) fn begin(&self, runtimes: &Runtimes, tasks: &TaskTracker, primitives: &[&Primitive]) {
        let stop = CancellationToken::new();
        std::mem::replace(&mut *self.current.lock(), stop.clone()).cancel();
        let members = runtimes.all();
        self.known.replace(wanted(runtimes, primitives), &members.borrow());
        let Ok(handle) = Handle::try_current() else { return };
        let converging = converge_all(Arc::clone(&self.known), members, tasks.clone());
        tasks.spawn_on(async move { stop.run_until_cancelled(converging).await }, &handle);
    }

    /// Records that a runtime refused a call of the plugin with a reason that makes it impossible there: if no other
    /// runtime can run the plugin, it is hidden until one can.
    pub(super) fn refused(&self, runtime: &Runtime, plugin: &PluginRef, reason: &str) {
        learn(&self.known, runtime, plugin, Availability::Impossible(reason.to_owned()));
    }

    pub(super) fn stop(&self) {
        self.current.lock().cancel();
    }
}

impl Drop for Preparation {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Prepares the plugins at all runtimes, following changes of the set, until this is dropped.
async fn converge_all(known: Arc<KnownPlugins>, all: watch::Receiver<Members>, tasks: TaskTracker) {
    let begin = |runtime: &Arc<Runtime>| {
        let stop = CancellationToken::new();
        let until = stop.clone().drop_guard();
        let one = converge(Arc::clone(&known), runtime.clone());
        tasks.spawn(async move { stop.run_until_cancelled(one).await });
        until
    };
    keep_for_each(all, |members| known.members(members), begin, |_| {}).await;
}

/// Prepares the plugins of one runtime, as long as the snapshot is in force.
async fn converge(known: Arc<KnownPlugins>, runtime: Arc<Runtime>) {
    let answered = CancellationToken::new();
    let draining = async {
        answered.cancelled().await;
        tokio::time::sleep(DRAIN_AFTER).await;
        while let Some(plugin) = known.take_gone(&runtime) {
            drain(&runtime, &plugin).await;
        }
    };
    tokio::join!(keep_asking(&known, &runtime, &answered), draining);
}

/// Asks for every plugin until the runtime has it ready. Never ends, because a call may find that one is not ready
/// any more.
async fn keep_asking(known: &KnownPlugins, runtime: &Runtime, answered: &CancellationToken) {
    loop {
        let began = Instant::now();
        let ask = |plugin: RuntimePlugin| async move {
            if let Some(state) = ensure(runtime, &plugin).await {
                learn(known, runtime, &plugin.plugin, state);
            }
        };
        futures::stream::iter(known.open(runtime)).for_each_concurrent(AT_A_TIME, ask).await;
        let unheard = known.open(runtime).iter().any(|plugin| plugin.state == Availability::Unheard);
        if !unheard {
            answered.cancel();
        }
        tokio::time::sleep(pause(unheard, began.elapsed())).await;
    }
}

/// Returns the pause after requests that took so long. A runtime that has not answered for a plugin is asked again
/// soon, because its operator waits for that.
fn pause(unheard: bool, took: Duration) -> Duration {
    match unheard {
        true => took.clamp(RETRY_AFTER, ASK_AGAIN),
        false => ASK_AGAIN.max(took.saturating_mul(SPARING).min(LONGEST_PAUSE)),
    }
}

/// Records an answer, and logs its effect.
fn learn(known: &KnownPlugins, runtime: &Runtime, plugin: &PluginRef, state: Availability) {
    let Some(AnswerEffect { before, is_offered }) = known.learn(runtime, plugin, state.clone()) else {
        return;
    };
    let PluginRef { id, version, .. } = plugin;
    let runtime = runtime.name();
    match state {
        Availability::Impossible(reason) if is_offered => {
            tracing::warn!(plugin = %id, %version, runtime, %reason, "a plugin cannot run on one of its language's runtimes: its calls go to the others; this runtime is asked again every few seconds");
        }
        Availability::Impossible(reason) => {
            tracing::warn!(plugin = %id, %version, runtime, %reason, "a plugin cannot run on its runtime: its primitives are hidden, and unknown to callers, until this is fixed; the runtime is asked again every few seconds");
        }
        Availability::Troubled(reason) if !matches!(before, Availability::Troubled(_)) => {
            tracing::warn!(plugin = %id, %version, runtime, %reason, "a plugin is not ready on its runtime: its primitives stay listed, and calls that no other runtime takes are refused with the reason");
        }
        Availability::Ready if before != Availability::Unheard => {
            tracing::info!(plugin = %id, %version, runtime, "a plugin that could not run can run again; its primitives are listed");
        }
        Availability::Ready | Availability::Troubled(_) | Availability::Unheard => {}
    }
}

/// Drains a version: its calls end and its workers exit.
async fn drain(runtime: &Runtime, known: &RuntimePlugin) {
    let Some(mut client) = runtime.client() else { return };
    let limit = known.wanted.longest + DRAIN_SLACK;
    let request = DrainRequest {
        plugin: Some(known.plugin.clone()),
        graceful: true,
        deadline: prost_types::Duration::try_from(limit).ok(),
    };
    let id = &known.plugin.id;
    let version = &known.plugin.version;
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

/// Returns each plugin once, without those of a language without a runtime.
fn wanted(runtimes: &Runtimes, primitives: &[&Primitive]) -> HashMap<PluginRef, PluginNeeds> {
    let mut wanted: HashMap<PluginRef, PluginNeeds> = HashMap::new();
    for primitive in primitives {
        let Some((plugin, hints)) = run_by(primitive) else { continue };
        if runtimes.get(&plugin.language).is_none() {
            continue;
        }
        let longest = lifetime_bound(primitive, MAX_WAITS);
        let known = wanted.entry(plugin).or_insert(PluginNeeds { hints, longest });
        known.longest = known.longest.max(longest);
    }
    wanted
}

/// Asks once; `None` if there was no answer.
async fn ensure(runtime: &Runtime, known: &RuntimePlugin) -> Option<Availability> {
    let RuntimePlugin { plugin, wanted, .. } = known;
    let request = EnsurePluginRequest {
        plugin: Some(plugin.clone()),
        hints: Some(wanted.hints.clone()),
        prewarm: true,
        lines: (plugin.language == STDIO).then(lines::protocol),
        ..EnsurePluginRequest::default()
    };
    let mut client = runtime.client()?;
    let asked = tokio::time::timeout(TIMEOUT, client.ensure_plugin(request)).await.ok()?;
    match asked {
        Ok(answer) => {
            runtime.record_result(None);
            Some(ready(plugin, &answer.into_inner().features))
        }
        Err(status) if status.code() == Code::Unavailable => {
            runtime.record_result(Some(&status));
            None
        }
        Err(status) => {
            runtime.record_result(None);
            Some(verdict(&status))
        }
    }
}

/// Interprets an answer of EnsurePlugin: a runtime may be too old for the plugin.
fn ready(plugin: &PluginRef, features: &[String]) -> Availability {
    if plugin.language == STDIO && !features.iter().any(|feature| feature == LINES) {
        let why = "outdated: for stdio servers, this gateway needs a runtime of version 0.3.0 or later";
        return Availability::Impossible(why.into());
    }
    Availability::Ready
}

/// Interprets a refusal of EnsurePlugin: FAILED_PRECONDITION carries a reason of the contract; everything else is
/// trouble.
fn verdict(status: &Status) -> Availability {
    let reason = status.message().to_owned();
    if status.code() == Code::FailedPrecondition && is_impossible(&reason) {
        Availability::Impossible(reason)
    } else {
        Availability::Troubled(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_spares_the_runtime_and_ends_soon_after_one_that_hung() {
        let seconds = Duration::from_secs;
        assert_eq!((pause(true, seconds(0)), pause(false, seconds(0))), (RETRY_AFTER, ASK_AGAIN));
        assert_eq!(pause(false, seconds(2)), seconds(18));
        assert_eq!((pause(true, TIMEOUT), pause(false, TIMEOUT)), (ASK_AGAIN, LONGEST_PAUSE));
    }

    #[test]
    fn a_runtime_that_takes_no_lines_runs_plugins_and_no_stdio_server() {
        let plugin = |language: &str| PluginRef { language: language.into(), ..PluginRef::default() };
        let lines = [LINES.to_owned()];
        assert_eq!(ready(&plugin(STDIO), &lines), Availability::Ready);
        assert_eq!(ready(&plugin("python"), &[]), Availability::Ready);
        let Availability::Impossible(why) = ready(&plugin(STDIO), &[]) else { panic!("it is outdated") };
        assert!(why.starts_with("outdated: "), "{why}");
    }

    #[test]
    fn only_what_an_operator_must_mend_makes_a_plugin_impossible() {
        for reason in
            ["language_absent: no java", "isolation: 3", "not_installed: x@1", "digest_mismatch: other"]
        {
            let heard = verdict(&Status::failed_precondition(reason));
            assert_eq!(heard, Availability::Impossible(reason.into()));
            // A runtime whose words are another protocol's is not believed.
            let heard = verdict(&Status::internal(reason));
            assert_eq!(heard, Availability::Troubled(reason.into()));
        }
        for reason in ["draining: x", "quarantined: x", "host_trouble: x", "overload: x", "tomorrow: x", ""] {
            let heard = verdict(&Status::failed_precondition(reason));
            assert_eq!(heard, Availability::Troubled(reason.into()));
        }
    }
}
