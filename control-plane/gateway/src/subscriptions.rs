//! Who is told of what changed: one hub for legacy sessions and for `subscriptions/listen` of MCP 2026-07-28.
//!
//! Owns: the subscribers of one replica, and their evaluation when a snapshot comes into force or what can run changes.
//! Refuses: delivery; a stream takes what there is when its client reads. Keeps true: a subscriber is told of a list only
//! where what its own caller sees in it has changed, and of a resource only where the caller can see that; callers whom
//! policy names alike are evaluated once; a burst of snapshots is one evaluation; who may not see the server any more, or
//! whose token is revoked, is told nothing more, and their streams end. What a plugin says of a
//! resource is told in its caller's org alone. Bound: subscribers by user, org and in all, and each by its own
//! (`subscriber`); what plugins said by number. What a subscriber is owed is forgotten with its replica: clients list and subscribe
//! again when a session is new to a replica (I-3).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use asp_edge::Caller;
use asp_proto::snapshot::{Kind, Protocol};
use asp_snapshot::mcp_revision::Revision;
use asp_snapshot::{Snapshot, VirtualServer};
use parking_lot::Mutex;

use crate::digest;
use crate::execution::ResourceListener;
use crate::pipeline::Pipeline;
use crate::pipeline::entitlement::View;
use crate::shares::{Bounds, Owner, Share, Shares};

pub mod stream;
pub mod subscriber;

pub use stream::Listening;
use subscriber::{Lists, MAX_TEXT, Profile, Subscriber};

/// Most subscribers of one replica: of all, of one org, and of one user. An open stream costs some KiB.
const BOUNDS: Bounds =
    Bounds { whole: Share::of(50_000), of_org: Share::of(25_000), of_user: Share::of(10_000) };
/// Most resources of which plugins may say that they changed before those who subscribed are told.
const MAX_CHANGED: usize = 1024;
/// How often at most those who subscribed are told what plugins said.
const BETWEEN: Duration = Duration::from_millis(100);
/// How many subscribers are evaluated before others get the thread.
const AT_A_TIME: usize = 64;
/// A session that has no stream for this long is forgotten here.
const IDLE: Duration = Duration::from_secs(3600);
/// A stream whose client takes nothing of what waits for it is closed after this long.
const STALLED: Duration = Duration::from_secs(60);

/// The subscribers of one replica.
pub struct Subscriptions {
    /// For the tasks of its own.
    own: Weak<Subscriptions>,
    /// What plugins said of resources since those who subscribed were told last.
    changed: Mutex<Changed>,
    pipeline: Arc<Pipeline>,
    table: Mutex<Shares<Arc<Subscriber>>>,
    /// What is in force; set before the subscribers are evaluated by it.
    snapshot: ArcSwapOption<Snapshot>,
    /// What they were evaluated by last; held while they are.
    evaluated: tokio::sync::Mutex<Option<Evaluated>>,
    /// The replica leaves: nobody subscribes any more.
    left: AtomicBool,
}

#[derive(Default)]
struct Changed {
    /// URIs by server and org.
    resources: HashMap<(String, String), HashSet<String>>,
    count: usize,
    /// A task tells them.
    is_told: bool,
    /// Some are not told, and a log line says so.
    is_over: bool,
}

struct Evaluated {
    snapshot: Arc<Snapshot>,
    /// See [`crate::execution::Executor::offers_changed`].
    offers: u64,
}

/// Its user or org has as many subscribers as it may, or the replica has, or it leaves.
#[derive(Debug)]
pub struct Full;

/// Whom policy rules on alike, and how they are shown it: server, revision, org, targets.
type Class = (String, Revision, String, Vec<usize>);

/// What callers see, evaluated once for those who see the same.
#[derive(Default)]
struct Views {
    by_class: HashMap<Class, Lists>,
}

impl Subscriptions {
    pub fn new(pipeline: Arc<Pipeline>) -> Arc<Subscriptions> {
        Arc::new_cyclic(|own| Subscriptions {
            own: own.clone(),
            changed: Mutex::default(),
            pipeline,
            table: Mutex::new(Shares::new(BOUNDS)),
            snapshot: ArcSwapOption::empty(),
            evaluated: tokio::sync::Mutex::default(),
            left: AtomicBool::new(false),
        })
    }

    /// The subscriber with this id, made where there is none: one of `server` for `caller`, who was evaluated by `snapshot`.
    pub fn subscriber(
        &self,
        id: [u8; 16],
        profile: Profile,
        snapshot: &Arc<Snapshot>,
        caller: &Arc<Caller>,
    ) -> Result<Arc<Subscriber>, Full> {
        let known = self.table.lock().touch(&id).cloned();
        if let Some(known) = known {
            if known.present(caller) {
                self.catch_up(&known, None);
            }
            return Ok(known);
        }
        let lists = snapshot.server(&profile.server).map_or([0; 3], |server| {
            let mut view = View::of(snapshot, server, caller, Protocol::Mcp);
            self.lists(server, &mut view, profile.revision)
        });
        let made = Arc::new(Subscriber::new(id, profile, caller.clone(), lists));
        let mut table = self.table.lock();
        // Another request of the same session may have been faster: its subscriber has the streams.
        if let Some(known) = table.touch(&id) {
            return Ok(known.clone());
        }
        if !table.add(id, owner(caller), made.clone()) {
            return Err(Full);
        }
        drop(table);
        if self.left.load(Ordering::Acquire) {
            self.end(&id);
            return Err(Full);
        }
        self.catch_up(&made, Some(snapshot));
        Ok(made)
    }

    /// The subscriber with this id, where there is one.
    pub fn find(&self, id: &[u8; 16]) -> Option<Arc<Subscriber>> {
        self.table.lock().get(id).cloned()
    }

    /// Ends a subscriber and its streams.
    pub fn end(&self, id: &[u8; 16]) {
        let ended = self.table.lock().remove(id);
        if let Some(subscriber) = ended {
            subscriber.end();
        }
    }

    /// Ends every stream: the replica leaves.
    pub fn end_all(&self) {
        self.left.store(true, Ordering::Release);
        for subscriber in self.all() {
            self.end(&subscriber.id);
        }
    }

    /// How many subscribers there are.
    pub fn len(&self) -> usize {
        self.table.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A snapshot is in force: evaluates the subscribers by it, in a task of its own.
    pub fn apply(self: &Arc<Self>, snapshot: &Arc<Snapshot>) {
        self.snapshot.store(Some(snapshot.clone()));
        self.evaluate();
    }

    /// Evaluates the subscribers again where what can run here has changed. Waits for nothing: while they are evaluated,
    /// the next look sees what has changed meanwhile.
    pub fn look(self: &Arc<Self>) {
        let offers = self.pipeline.executor.offers_changed();
        let last = self.evaluated.try_lock();
        let is_new = last.is_ok_and(|last| last.as_ref().is_none_or(|last| last.offers != offers));
        if is_new {
            self.evaluate();
        }
    }

    /// Forgets sessions that left, and closes streams whose clients do not read; run from time to time.
    pub fn sweep(&self) {
        for subscriber in self.all() {
            subscriber.close_stalled(STALLED);
            if subscriber.is_idle(IDLE) {
                self.end(&subscriber.id);
            }
        }
    }

    /// Tells what plugins said, until they say nothing more: each pass looks at every subscriber, so that how often they
    /// say it costs nothing.
    async fn tell(&self) {
        loop {
            let Some(resources) = self.changed.lock().take() else { return };
            let Some(snapshot) = self.snapshot.load_full() else { continue };
            for some in self.all().chunks(AT_A_TIME) {
                some.iter().for_each(|subscriber| self.tell_one(subscriber, &snapshot, &resources));
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(BETWEEN).await;
        }
    }

    fn tell_one(
        &self,
        subscriber: &Subscriber,
        snapshot: &Snapshot,
        resources: &HashMap<(String, String), HashSet<String>>,
    ) {
        let caller = subscriber.caller();
        let server = &subscriber.profile.server;
        let Some(uris) = resources.get(&(server.clone(), caller.org.clone())) else { return };
        let Some(server) = snapshot.server(server) else { return };
        let mut view = View::of(snapshot, server, &caller, Protocol::Mcp);
        subscriber.updated(uris, |uri| {
            let found = server.resource(uri);
            found.is_some_and(|(entry, _)| view.shows(&entry) && self.pipeline.offers(&entry))
        });
    }

    fn all(&self) -> Vec<Arc<Subscriber>> {
        self.table.lock().values().cloned().collect()
    }

    fn evaluate(self: &Arc<Self>) {
        if self.is_empty() {
            return;
        }
        let hub = self.clone();
        tokio::spawn(async move {
            let mut evaluated = hub.evaluated.lock().await;
            let Some(snapshot) = hub.snapshot.load_full() else { return };
            let offers = hub.pipeline.executor.offers_changed();
            let is_done = |last: &Evaluated| Arc::ptr_eq(&last.snapshot, &snapshot) && last.offers == offers;
            if evaluated.as_ref().is_some_and(is_done) {
                return;
            }
            let mut views = Views::default();
            for some in hub.all().chunks(AT_A_TIME) {
                some.iter().for_each(|subscriber| hub.evaluate_one(subscriber, &snapshot, &mut views));
                tokio::task::yield_now().await;
            }
            *evaluated = Some(Evaluated { snapshot, offers });
        });
    }

    /// What came into force since `evaluated` counts for the subscriber and for what it has come to watch.
    pub fn catch_up(&self, subscriber: &Subscriber, evaluated: Option<&Arc<Snapshot>>) {
        if let Some(snapshot) = self.snapshot.load_full()
            && !evaluated.is_some_and(|evaluated| Arc::ptr_eq(evaluated, &snapshot))
        {
            self.evaluate_one(subscriber, &snapshot, &mut Views::default());
        }
    }

    fn evaluate_one(&self, subscriber: &Subscriber, snapshot: &Snapshot, views: &mut Views) {
        subscriber.end_streams_of(|caller| snapshot.edge.revoked(caller));
        let caller = subscriber.caller();
        let profile = &subscriber.profile;
        let Some(server) = snapshot.server(&profile.server) else { return self.end(&subscriber.id) };
        let mut view = View::of(snapshot, server, &caller, Protocol::Mcp);
        let Some(targets) = view.targets() else { return self.end(&subscriber.id) };
        let class = (profile.server.clone(), profile.revision, caller.org.clone(), targets);
        let lists = views.by_class.entry(class);
        let lists = *lists.or_insert_with(|| self.lists(server, &mut view, profile.revision));
        subscriber.show(snapshot.revision, lists, |uri| {
            let (entry, _) = server.resource(uri)?;
            (view.shows(&entry) && self.pipeline.offers(&entry)).then_some(entry.digest)
        });
    }

    fn lists(&self, server: &VirtualServer, view: &mut View<'_>, revision: Revision) -> Lists {
        let mut lists: Lists = [0; 3];
        for entry in server.entries.iter().filter(|entry| !entry.listing.mcp_name.is_empty()) {
            let list = match entry.primitive.kind() {
                Kind::Tool | Kind::Task => 0,
                Kind::Prompt => 1,
                Kind::Resource | Kind::ResourceTemplate => 2,
                Kind::Elicitation | Kind::Delegate | Kind::Unspecified => continue,
            };
            if let Some(digest) = entry.listed_digest(revision)
                && view.shows(entry)
                && self.pipeline.offers(entry)
                && let Some(so_far) = lists.get_mut(list)
            {
                // The order counts: a list is in order.
                *so_far = so_far.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ digest;
            }
        }
        lists
    }
}

impl Changed {
    /// What is to be told; `None` where that is nothing, and nobody tells it any more.
    fn take(&mut self) -> Option<HashMap<(String, String), HashSet<String>>> {
        self.count = 0;
        self.is_over = false;
        self.is_told = !self.resources.is_empty();
        self.is_told.then(|| std::mem::take(&mut self.resources))
    }
}

impl ResourceListener for Subscriptions {
    fn changed(&self, server: &str, org: &str, uri: &str) {
        let mut changed = self.changed.lock();
        if changed.count >= MAX_CHANGED || uri.len() > MAX_TEXT {
            if !std::mem::replace(&mut changed.is_over, true) {
                tracing::warn!(
                    server,
                    org,
                    "plugins said of too many resources at a time that they changed, or of one with too long a URI: clients are not told of it; say it of fewer"
                );
            }
            return;
        }
        let key = (server.to_owned(), org.to_owned());
        let is_new = changed.resources.entry(key).or_default().insert(uri.to_owned());
        changed.count += usize::from(is_new);
        if !std::mem::replace(&mut changed.is_told, true)
            && let Some(own) = self.own.upgrade()
        {
            tokio::spawn(async move { own.tell().await });
        }
    }
}

/// As with sessions, the client is left out: a user can register any number of them.
fn owner(caller: &Caller) -> Owner {
    Owner {
        user: digest::shortened(&[&caller.issuer, &caller.org, &caller.user]),
        org: digest::shortened(&[&caller.org]),
    }
}
