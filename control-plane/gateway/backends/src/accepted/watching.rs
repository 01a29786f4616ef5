//! Polls of the lists of upstreams: one task for each upstream with accepted items.
//!
//! Keeps true: a task polls when the upstream reports a changed list, when a call opens a session, at each call if
//! the upstream reports no changes, at most every second, and at least every minute; a call waits a moment for a poll
//! if the last one is stale. The task ends after 10 minutes without a call. Bound: one task for each upstream that
//! specs name; for a package, one for each server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use asp_mcp_client::listing::Lists;
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::pinned::{PinnedItems, is_same_package};

/// Maximum interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum interval between two polls.
const BETWEEN: Duration = Duration::from_secs(1);
/// Age from which a poll is stale if the upstream reports no changes.
const STALE: Duration = Duration::from_secs(5);
/// Time without a call after which the task ends.
const IDLE: Duration = Duration::from_secs(600);
/// Pause after a failed poll.
const PAUSE: Duration = Duration::from_secs(5);
/// Timeout of a poll, including the handshake if it needs one: it also ends the wait for an upstream that sends its
/// answer in small pieces.
const LONGEST: Duration = Duration::from_secs(60);

/// Method of polling one upstream.
#[async_trait]
pub(crate) trait Poller: Send + 'static {
    /// Lists the current items. `Err`: the reason of the failure; the next poll starts from the beginning.
    async fn poll(&mut self) -> Result<PollResult, String>;

    /// Returns once the upstream reports a changed list, for as long as it can report.
    async fn changed(&mut self);
}

/// Result of a poll.
pub(crate) struct PollResult {
    pub lists: Lists,
    /// Whether the upstream reports changes of its lists.
    pub tells_of_changes: bool,
}

/// Watches of all upstreams of one kind.
pub(crate) struct Watches {
    pub items: Arc<PinnedItems>,
    /// Maximum time that a call waits for the first poll, or for a new one if the last is stale.
    patience: Duration,
    /// Watches by the name that pins use, and its current location.
    by_name: Mutex<HashMap<(String, String), Arc<Watch>>>,
}

/// The upstream of a call.
pub(crate) struct Upstream<'a> {
    /// Name that its pins use.
    pub name: &'a str,
    /// Current location of the name; if a name moves, its previous location is no longer polled.
    pub place: &'a str,
    /// Whether to poll again, because the call opens a session.
    pub again: bool,
}

struct Watch {
    /// Notified when another poll is wanted.
    wanted: Notify,
    used: Mutex<Instant>,
    is_over: AtomicBool,
    /// Whether the upstream reports no changes.
    is_mute: AtomicBool,
    /// Time of the last poll, successful or not.
    polled: watch::Sender<Option<Instant>>,
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Watches {
    /// Creates the watches. `patience` is the maximum time that a call waits for a poll.
    pub(crate) fn of(items: Arc<PinnedItems>, patience: Duration) -> Watches {
        Watches { items, patience, by_name: Mutex::default() }
    }

    /// Prepares a call to the upstream; `poller` is the method of polling it. Returns after a first poll, and a
    /// recent one if the upstream reports no changes, or after the maximum wait.
    pub(crate) async fn enter<L: Poller>(&self, upstream: Upstream<'_>, poller: impl FnOnce() -> L) {
        let Upstream { name, place, again } = upstream;
        if !self.items.has_pins_of(name) {
            return;
        }
        let (watch, is_new) = {
            let mut by_name = self.by_name.lock();
            by_name.retain(|_, watch| !watch.is_over.load(Ordering::Acquire));
            let key = (name.to_owned(), place.to_owned());
            match by_name.get(&key) {
                Some(watch) => (watch.clone(), false),
                None => {
                    by_name.retain(|(of, _), _| of != name);
                    let watch = begin(name, poller(), &self.items);
                    by_name.insert(key, watch.clone());
                    (watch, true)
                }
            }
        };
        *watch.used.lock() = Instant::now();
        let is_mute = watch.is_mute.load(Ordering::Acquire);
        if !is_new && (again || is_mute) {
            watch.wanted.notify_one();
        }
        let counts = |at: Instant| !is_mute || at.elapsed() < STALE;
        let mut polled = watch.polled.subscribe();
        let polling = polled.wait_for(|polled| polled.is_some_and(counts));
        if tokio::time::timeout(self.patience, polling).await.is_err() {
            // An upstream that cannot be listed usually cannot be called either; if it can, calls do not all wait
            // for the poll.
            watch.polled();
        }
    }

    /// Requests polls of a package, because one of its processes has reported to a call that its lists changed. It
    /// reports that only once, and other servers may share it.
    pub(crate) fn changed(&self, name: &str) {
        let by_name = self.by_name.lock();
        let of_package = by_name.iter().filter(|((of, _), _)| is_same_package(of, name));
        of_package.for_each(|(_, watch)| watch.wanted.notify_one());
    }

    /// Ends all watches.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.by_name.lock());
        drop(all);
    }
}

fn begin<L: Poller>(name: &str, poller: L, items: &Arc<PinnedItems>) -> Arc<Watch> {
    let watch = Arc::new(Watch {
        wanted: Notify::new(),
        used: Mutex::new(Instant::now()),
        is_over: AtomicBool::new(false),
        is_mute: AtomicBool::new(false),
        polled: watch::Sender::new(None),
        task: Mutex::default(),
    });
    let polling =
        WatchTask { watch: Arc::downgrade(&watch), name: name.to_owned(), poller, items: items.clone() };
    *watch.task.lock() = Some(AbortOnDropHandle::new(tokio::spawn(polling.run())));
    watch
}

impl Watch {
    fn polled(&self) {
        self.polled.send_replace(Some(Instant::now()));
    }
}

/// The task that polls one upstream.
struct WatchTask<L> {
    watch: Weak<Watch>,
    name: String,
    poller: L,
    items: Arc<PinnedItems>,
}

impl<L: Poller> WatchTask<L> {
    /// Polls until the upstream is no longer needed.
    async fn run(mut self) {
        loop {
            let began = Instant::now();
            let snapshot = self.items.snapshot();
            let poll = tokio::time::timeout(LONGEST, self.poller.poll()).await;
            let poll = poll.unwrap_or_else(|_| Err("it did not answer in time".into()));
            let Some(watch) = self.watch.upgrade() else { return };
            let failed = match poll {
                Ok(PollResult { lists, tells_of_changes }) => {
                    let items = self.items.clone();
                    let name = self.name.clone();
                    // An upstream can send schemas that take long to compare. Err: the gateway is stopping.
                    let compare = move || items.learn(&name, &lists, snapshot);
                    let _ = tokio::task::spawn_blocking(compare).await;
                    watch.is_mute.store(!tells_of_changes, Ordering::Release);
                    false
                }
                Err(fault) => {
                    tracing::debug!(upstream = self.name, %fault, "an upstream could not be listed, so its items were not compared with the accepted ones");
                    true
                }
            };
            watch.polled();
            if self.is_over(&watch) {
                return;
            }
            if failed {
                drop(watch);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            tokio::select! {
                () = self.poller.changed() => {}
                () = watch.wanted.notified() => {}
                () = tokio::time::sleep_until(began + POLL_INTERVAL) => {}
            }
            drop(watch);
            tokio::time::sleep_until(began + BETWEEN).await;
        }
    }

    /// Whether the upstream is no longer needed.
    fn is_over(&self, watch: &Watch) -> bool {
        let is_over = watch.used.lock().elapsed() > IDLE || !self.items.has_pins_of(&self.name);
        if is_over {
            watch.is_over.store(true, Ordering::Release);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use asp_proto::snapshot::{McpStdio, Primitive, Runtime, runtime::Mode};
    use tokio::sync::mpsc;

    use super::*;
    use crate::accepted::pinned::package;

    /// Poller that reports the server of each poll.
    struct Reporting {
        server: &'static str,
        poller: mpsc::Sender<&'static str>,
    }

    #[async_trait]
    impl Poller for Reporting {
        async fn poll(&mut self) -> Result<PollResult, String> {
            self.poller.send(self.server).await.map_err(|error| error.to_string())?;
            Ok(PollResult { lists: Lists::default(), tells_of_changes: true })
        }

        async fn changed(&mut self) {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_package_that_has_changed_is_polled_for_each_server_that_runs_it() {
        let target = |package: &str| McpStdio {
            package: package.into(),
            tool: "t".into(),
            pin: "p".into(),
            ..McpStdio::default()
        };
        let primitive = |target: &McpStdio| Primitive {
            runtime: Some(Runtime { mode: Some(Mode::McpStdio(target.clone())) }),
            ..Primitive::default()
        };
        let [shared, other] = [target("@a/s@1.0.0"), target("@a/other@1.0.0")];
        let run = [("crm", &shared), ("shop", &shared), ("else", &other)];
        let primitives = run.map(|(server, target)| (server, primitive(target)));
        let items = Arc::new(PinnedItems::default());
        items.replace(primitives.iter().map(|(server, primitive)| (*server, primitive)));
        let watches = Watches::of(items, Duration::from_secs(10));
        let (poller, mut polled) = mpsc::channel(8);
        for (server, target) in run {
            let name = package(server, &primitive(target), target);
            let upstream = Upstream { name: &name, place: &name, again: false };
            watches.enter(upstream, || Reporting { server, poller: poller.clone() }).await;
            assert_eq!(polled.recv().await, Some(server));
        }
        let told = Instant::now();
        watches.changed(&package("crm", &primitive(&shared), &shared));
        let mut again = [polled.recv().await, polled.recv().await];
        again.sort_unstable();
        assert_eq!(again, [Some("crm"), Some("shop")]);
        assert!(told.elapsed() < POLL_INTERVAL, "as soon as it was told");
    }
}
