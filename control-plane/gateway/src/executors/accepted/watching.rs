//! Who looks at what the upstreams list: one task for each upstream of which something was accepted.
//!
//! Keeps true: it looks when the upstream says that a list has changed, when a call opens a session, with one that says
//! nothing at each call, at most every second, and at least every minute; a call waits a moment for a look where the last one
//! counts no more. After 10 minutes without a call it ends. Bound: one for each upstream that specs name, of a
//! package one for each server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::lists::Lists;
use super::pinned::{PinnedItems, is_same_package};

/// How often it is looked at the latest.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How often at most.
const BETWEEN: Duration = Duration::from_secs(1);
/// For how long a look counts at an upstream that says nothing of changes.
const STALE: Duration = Duration::from_secs(5);
/// After so long without a call nobody looks any more.
const IDLE: Duration = Duration::from_secs(600);
/// The pause after an upstream could not be looked at.
const PAUSE: Duration = Duration::from_secs(5);
/// Longest look, with the handshake where it needs one: an upstream that says a little now and then is not waited for.
const LONGEST: Duration = Duration::from_secs(60);

/// How one upstream is looked at.
#[async_trait]
pub(in crate::executors) trait Looks: Send + 'static {
    /// What it lists now. `Err`: why nobody knows; the next look begins from the start.
    async fn look(&mut self) -> Result<Looked, String>;

    /// Returns when it says that a list has changed, for as long as it can.
    async fn changed(&mut self);
}

/// What an upstream lists.
pub(in crate::executors) struct Looked {
    pub lists: Lists,
    /// It says when that changes.
    pub tells_of_changes: bool,
}

/// The looks at the upstreams of one kind of one gateway.
pub(in crate::executors) struct Watches {
    pub items: Arc<PinnedItems>,
    /// How long a call waits for the first look, and for one where the last is too old.
    patience: Duration,
    /// By the name that pins go by, and what it stands for now.
    by_name: Mutex<HashMap<(String, String), Arc<Watch>>>,
}

/// An upstream that a call goes to.
pub(in crate::executors) struct Upstream<'a> {
    /// What its pins go by.
    pub name: &'a str,
    /// What that stands for now: of a name that stands for something else by now, the former is looked at no more.
    pub place: &'a str,
    /// It is to be looked at again, because the call opens a session.
    pub again: bool,
}

struct Watch {
    /// Somebody wants it to be looked at.
    wanted: Notify,
    used: Mutex<Instant>,
    is_over: AtomicBool,
    /// The upstream says by nothing what has changed.
    is_mute: AtomicBool,
    /// When it was looked at last, or could not be.
    looked: watch::Sender<Option<Instant>>,
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Watches {
    /// `patience`: how long a call waits for a look.
    pub(in crate::executors) fn of(items: Arc<PinnedItems>, patience: Duration) -> Watches {
        Watches { items, patience, by_name: Mutex::default() }
    }

    /// A call goes to the upstream; `looks` is how it is looked at. Returns when it was looked at once, and not long ago
    /// where it says nothing of changes.
    pub(in crate::executors) async fn enter<L: Looks>(
        &self,
        upstream: Upstream<'_>,
        looks: impl FnOnce() -> L,
    ) {
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
                    let watch = begin(name, looks(), &self.items);
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
        let mut looked = watch.looked.subscribe();
        let looking = looked.wait_for(|looked| looked.is_some_and(counts));
        if tokio::time::timeout(self.patience, looking).await.is_err() {
            // An upstream that cannot be listed cannot be called either; if it can, not every call waits for that.
            watch.looked();
        }
    }

    /// A process of a package has said to a call that it lists otherwise than before. It says so once, and other servers may share
    /// it.
    pub(in crate::executors) fn changed(&self, name: &str) {
        let by_name = self.by_name.lock();
        let of_package = by_name.iter().filter(|((of, _), _)| is_same_package(of, name));
        of_package.for_each(|(_, watch)| watch.wanted.notify_one());
    }

    /// Nobody looks any more.
    pub(in crate::executors) fn clear(&self) {
        let all = std::mem::take(&mut *self.by_name.lock());
        drop(all);
    }
}

fn begin<L: Looks>(name: &str, looks: L, items: &Arc<PinnedItems>) -> Arc<Watch> {
    let watch = Arc::new(Watch {
        wanted: Notify::new(),
        used: Mutex::new(Instant::now()),
        is_over: AtomicBool::new(false),
        is_mute: AtomicBool::new(false),
        looked: watch::Sender::new(None),
        task: Mutex::default(),
    });
    let looking =
        Looking { watch: Arc::downgrade(&watch), name: name.to_owned(), looks, items: items.clone() };
    *watch.task.lock() = Some(AbortOnDropHandle::new(tokio::spawn(looking.run())));
    watch
}

impl Watch {
    fn looked(&self) {
        self.looked.send_replace(Some(Instant::now()));
    }
}

/// The task that looks at one upstream.
struct Looking<L> {
    watch: Weak<Watch>,
    name: String,
    looks: L,
    items: Arc<PinnedItems>,
}

impl<L: Looks> Looking<L> {
    /// Looks until nobody needs it any more.
    async fn run(mut self) {
        loop {
            let next = Instant::now() + BETWEEN;
            let snapshot = self.items.snapshot();
            let look = tokio::time::timeout(LONGEST, self.looks.look()).await;
            let look = look.unwrap_or_else(|_| Err("it takes too long".into()));
            let Some(watch) = self.watch.upgrade() else { return };
            let failed = match look {
                Ok(Looked { lists, tells_of_changes }) => {
                    self.items.learn(&self.name, &lists, snapshot);
                    watch.is_mute.store(!tells_of_changes, Ordering::Release);
                    false
                }
                Err(fault) => {
                    tracing::debug!(upstream = self.name, %fault, "what an upstream lists could not be compared with what was accepted of it");
                    true
                }
            };
            watch.looked();
            if self.is_over(&watch) {
                return;
            }
            if failed {
                drop(watch);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            tokio::select! {
                () = self.looks.changed() => {}
                () = watch.wanted.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            drop(watch);
            tokio::time::sleep_until(next).await;
        }
    }

    /// Whether nobody needs it any more.
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
    use crate::executors::accepted::pinned::package;

    /// Reports the server of each look.
    struct Reporting {
        server: &'static str,
        looks: mpsc::Sender<&'static str>,
    }

    #[async_trait]
    impl Looks for Reporting {
        async fn look(&mut self) -> Result<Looked, String> {
            self.looks.send(self.server).await.map_err(|error| error.to_string())?;
            Ok(Looked { lists: Lists::default(), tells_of_changes: true })
        }

        async fn changed(&mut self) {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_package_that_has_changed_is_looked_at_for_each_server_that_runs_it() {
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
        let (looks, mut looked) = mpsc::channel(8);
        for (server, target) in run {
            let name = package(server, &primitive(target), target);
            let upstream = Upstream { name: &name, place: &name, again: false };
            watches.enter(upstream, || Reporting { server, looks: looks.clone() }).await;
            assert_eq!(looked.recv().await, Some(server));
        }
        let told = Instant::now();
        watches.changed(&package("crm", &primitive(&shared), &shared));
        let mut again = [looked.recv().await, looked.recv().await];
        again.sort_unstable();
        assert_eq!(again, [Some("crm"), Some("shop")]);
        assert!(told.elapsed() < LOOK_EVERY, "as soon as it was told");
    }
}
