//! Who looks at what the upstreams list: one session at each upstream of which something was accepted.
//!
//! Keeps true: it lists as a client that can do everything, as `asp import` does, so that what a server lists to some
//! clients only is not taken for removed; what the server asks it refuses. It looks when the server says that a list has
//! changed, when a call opens a session, with a server that says nothing at each call, at most every second, and at least
//! every minute; a call waits a moment for a look where the last one counts no more. After 10 minutes without a call it
//! ends. Bound: one for each URL that specs name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::client::{Client, Fault};
use super::listing::list;
use super::pinned::PinnedItems;

/// How often it is looked at the latest.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How often at most.
const BETWEEN: Duration = Duration::from_secs(1);
/// How long the first call of an upstream waits for the first look, and any call for one where the last is too old.
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// For how long a look counts at an upstream that says nothing of changes.
const STALE: Duration = Duration::from_secs(5);
/// After so long without a call nobody looks any more.
const IDLE: Duration = Duration::from_secs(600);
/// The pause after an upstream could not be looked at.
const PAUSE: Duration = Duration::from_secs(5);
/// Longest handshake and longest look: an upstream that says a little now and then is not waited for.
const LONGEST: Duration = Duration::from_secs(60);

/// The looks at all upstreams of one gateway.
pub(super) struct Watches {
    pub items: Arc<PinnedItems>,
    /// By the URL that specs name and the address that it stands for.
    by_url: Mutex<HashMap<(String, String), Arc<Watch>>>,
    next_id: Arc<AtomicU64>,
}

struct Watch {
    /// Somebody wants it to be looked at.
    wanted: Notify,
    used: Mutex<Instant>,
    is_over: AtomicBool,
    /// The server says by nothing what has changed.
    is_mute: AtomicBool,
    /// When it was looked at last, or could not be.
    looked: watch::Sender<Option<Instant>>,
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Watches {
    pub(super) fn of(items: PinnedItems, next_id: Arc<AtomicU64>) -> Watches {
        Watches { items: Arc::new(items), by_url: Mutex::default(), next_id }
    }

    /// A call goes to the upstream that specs name `url`. Returns when it was looked at once, and not long ago where it
    /// says nothing of changes; `again`: the call opens a session.
    pub(super) async fn enter(&self, url: &str, client: &Client, again: bool) {
        if !self.items.has_pins_of(url) {
            return;
        }
        let (watch, is_new) = {
            let mut by_url = self.by_url.lock();
            by_url.retain(|_, watch| !watch.is_over.load(Ordering::Acquire));
            let key = (url.to_owned(), client.url.to_string());
            match by_url.get(&key) {
                Some(watch) => (watch.clone(), false),
                None => {
                    // An address that it stands for no more is not looked at.
                    by_url.retain(|(of, _), _| of != url);
                    let watch = self.begin(url, client);
                    by_url.insert(key, watch.clone());
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
        if tokio::time::timeout(FIRST_LOOK, looking).await.is_err() {
            // An upstream that cannot be listed cannot be called either; if it can, not every call waits for that.
            watch.looked();
        }
    }

    /// Nobody looks any more.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.by_url.lock());
        drop(all);
    }

    fn begin(&self, url: &str, client: &Client) -> Arc<Watch> {
        let watch = Arc::new(Watch {
            wanted: Notify::new(),
            used: Mutex::new(Instant::now()),
            is_over: AtomicBool::new(false),
            is_mute: AtomicBool::new(false),
            looked: watch::Sender::new(None),
            task: Mutex::default(),
        });
        let looking = Looking {
            watch: Arc::downgrade(&watch),
            url: url.to_owned(),
            client: client.clone(),
            items: self.items.clone(),
            next_id: self.next_id.clone(),
        };
        *watch.task.lock() = Some(AbortOnDropHandle::new(tokio::spawn(looking.run())));
        watch
    }
}

impl Watch {
    fn looked(&self) {
        self.looked.send_replace(Some(Instant::now()));
    }
}

/// The task that looks at one upstream.
struct Looking {
    watch: Weak<Watch>,
    url: String,
    client: Client,
    items: Arc<PinnedItems>,
    next_id: Arc<AtomicU64>,
}

impl Looking {
    async fn run(self) {
        while let Err(fault) = self.look_on().await {
            let Some(watch) = self.watch.upgrade() else { return };
            tracing::debug!(url = self.url, %fault, "what an upstream lists could not be compared with what was accepted of it");
            watch.looked();
            if self.is_over(&watch) {
                return;
            }
            drop(watch);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether nobody needs it any more.
    fn is_over(&self, watch: &Watch) -> bool {
        let is_over = watch.used.lock().elapsed() > IDLE || !self.items.has_pins_of(&self.url);
        if is_over {
            watch.is_over.store(true, Ordering::Release);
        }
        is_over
    }

    /// Looks in one session until nobody needs it any more.
    async fn look_on(&self) -> Result<(), Fault> {
        let everything =
            json!({"elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": true}, "sampling": {}});
        let id = || self.next_id.fetch_add(1, Ordering::Relaxed);
        let too_slow = |_| Fault::Lost("the service takes too long".into());
        let greeting = tokio::time::timeout(LONGEST, self.client.initialize(id(), everything));
        let mut session = greeting.await.map_err(too_slow)??;
        session.listen_to_changes(true).await;
        let changed = session.running.lists_changed();
        loop {
            let next = Instant::now() + BETWEEN;
            let listing = tokio::time::timeout(LONGEST, list(&self.client, &session, id));
            let lists = listing.await.map_err(too_slow)??;
            self.items.learn(&self.url, &lists);
            let Some(watch) = self.watch.upgrade() else { return Ok(()) };
            watch.is_mute.store(!session.tells_of_lists(), Ordering::Release);
            watch.looked();
            if self.is_over(&watch) {
                return Ok(());
            }
            tokio::select! {
                () = changed.notified() => {}
                () = watch.wanted.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            drop(watch);
            tokio::time::sleep_until(next).await;
        }
    }
}
