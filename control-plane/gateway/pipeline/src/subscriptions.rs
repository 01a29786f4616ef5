//! Subscriptions to changes: one hub for legacy sessions and for `subscriptions/listen` of MCP 2026-07-28.
//!
//! Owns: the subscribers of one replica, and their evaluation when a snapshot comes into force or the runnable
//! primitives change. Refuses: delivery; a stream takes the pending notices when its client reads.
//!
//! Keeps true: a subscriber is notified of a list only if its own caller's view of it has changed, and of a resource
//! only if the caller can see it; callers with the same policy are evaluated once; a burst of snapshots is one
//! evaluation; a caller that may no longer see the server, or whose token is revoked, gets no further notice, and its
//! streams end, even if they were being opened at that moment; streams of dead tokens end before any evaluation. A
//! plugin's notice about a resource reaches only its caller's org, an upstream's reaches every subscriber.
//!
//! Bounds: subscribers, the resources they watch and their streams by user, org and in all (`table`), and within each
//! subscriber (`subscriber`); notices of plugins and upstreams by number, of each server and in all. Pending notices
//! are lost with their replica, and if others of the same user need the place while the subscriber has no stream:
//! clients list and subscribe again when a session is new to a replica (I-3).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use asp_call::call::principal::owner;
use asp_call::execution::{ResourceListener, ResourceSubscription};
use asp_call::telemetry::metrics::RevocationStage;
use asp_edge::Caller;
use asp_platform::quota::Counts;
use asp_proto::snapshot::Protocol;
use asp_snapshot::{ListedPrimitive, Snapshot};
use parking_lot::Mutex;

use crate::pipeline::Pipeline;
use crate::pipeline::entitlement::ServerView;
use crate::pipeline::passes::Passes;
pub use asp_call::quota_table::{Quota, Quotas};

pub mod stream;
pub mod subscriber;
mod table;
mod views;

pub use stream::ChangeStream;
use subscriber::{MAX_TEXT, Profile, Stamp, Subscriber, TooManyResources};
use table::SubscriberTable;
pub use table::{CapacityError, SubscriptionBounds};
use views::Views;

/// Maximum number of resources reported as changed by plugins and upstreams between two deliveries: of all servers, and
/// of one server, which leaves as many to the others.
const MAX_CHANGED: usize = 2048;
const MAX_CHANGED_OF_SERVER: usize = MAX_CHANGED / 2;
/// Minimum interval between two deliveries of plugins' notices.
const BETWEEN: Duration = Duration::from_millis(100);
/// Number of subscribers and watched resources evaluated before the task yields.
const AT_A_TIME: usize = 256;
/// Number of subscribers checked for dead tokens before the task yields.
const TOKENS_AT_A_TIME: usize = 1024;
/// Time without a stream after which a session is forgotten here.
const IDLE: Duration = Duration::from_secs(3600);
/// Time after which a stream is closed if its client does not read its pending notices.
const STALLED: Duration = Duration::from_secs(60);

/// The subscribers of one replica.
pub struct Subscriptions {
    /// Weak reference for its own tasks.
    own: Weak<Subscriptions>,
    /// Resources that plugins and upstreams reported as changed since the last delivery.
    changed: Mutex<PendingChanges>,
    pipeline: Arc<Pipeline>,
    table: Mutex<SubscriberTable>,
    /// The snapshot in force; set before the subscribers are evaluated by it.
    snapshot: ArcSwapOption<Snapshot>,
    /// The state of the last evaluation; locked during an evaluation.
    evaluated: tokio::sync::Mutex<Option<LastEvaluation>>,
    /// Passes that end the streams of dead tokens.
    revocations: Passes,
    /// Whether the replica is leaving and accepts no more subscribers.
    left: AtomicBool,
}

/// URIs by server and org; without an org, for all orgs.
type Resources = HashMap<(String, Option<String>), HashSet<String>>;

#[derive(Default)]
struct PendingChanges {
    resources: Resources,
    count: usize,
    /// Number of resources by server.
    by_server: Counts<String>,
    /// Whether a task is delivering them.
    is_told: bool,
    /// Whether some were dropped, which is logged once.
    is_over: bool,
}

struct LastEvaluation {
    snapshot: Arc<Snapshot>,
    /// See [`asp_call::execution::Backends::offers_changed`].
    offers: u64,
}

impl Subscriptions {
    pub fn new(pipeline: Arc<Pipeline>, bounds: SubscriptionBounds) -> Arc<Subscriptions> {
        Arc::new_cyclic(|own| Subscriptions {
            own: own.clone(),
            changed: Mutex::default(),
            pipeline,
            table: Mutex::new(SubscriberTable::new(bounds)),
            snapshot: ArcSwapOption::empty(),
            evaluated: tokio::sync::Mutex::default(),
            revocations: Passes::default(),
            left: AtomicBool::new(false),
        })
    }

    /// Returns the subscriber with this id, created if there is none: one of `server` for `caller`, who was evaluated
    /// by `snapshot`.
    pub fn subscriber(
        &self,
        id: [u8; 16],
        profile: Profile,
        snapshot: &Arc<Snapshot>,
        caller: &Arc<Caller>,
    ) -> Result<Arc<Subscriber>, CapacityError> {
        let known = self.table.lock().subscribers.touch(&id).cloned();
        if let Some(known) = known {
            if known.present(caller, snapshot.revision) {
                self.catch_up(&known, None);
            }
            return Ok(known);
        }
        let mut views = Views::of(&self.pipeline, snapshot);
        let stamp = Stamp { revision: snapshot.revision, offers: views.offers };
        let lists = views.view(&profile, caller, &[]).map_or([0; 3], |seen| seen.lists);
        let made = Arc::new(Subscriber::new(id, profile, caller.clone(), (stamp, lists)));
        let mut table = self.table.lock();
        // A concurrent request of the same session may have added one, which already has the streams.
        if let Some(known) = table.subscribers.touch(&id) {
            return Ok(known.clone());
        }
        table.add(&made, owner(caller))?;
        drop(table);
        if self.left.load(Ordering::Acquire) {
            self.end_this(&made);
            return Err(CapacityError);
        }
        self.catch_up(&made, Some(snapshot));
        Ok(made)
    }

    /// Returns the subscriber with this id, if there is one.
    pub fn find(&self, id: &[u8; 16]) -> Option<Arc<Subscriber>> {
        self.table.lock().subscribers.get(id).cloned()
    }

    /// Ends a subscriber and its streams.
    pub fn end(&self, id: &[u8; 16]) {
        if let Some(subscriber) = self.find(id) {
            self.end_this(&subscriber);
        }
    }

    fn end_this(&self, subscriber: &Subscriber) {
        subscriber.end();
        self.table.lock().remove(subscriber);
    }

    /// Starts to watch a resource; `digest` is of the primitive behind it.
    pub fn watch(&self, subscriber: &Subscriber, uri: &str, digest: u64) -> Result<(), TooManyResources> {
        self.table.lock().watch(subscriber, uri, digest)?;
        if let Some(snapshot) = self.snapshot.load_full() {
            self.follow(&snapshot, subscriber, uri);
        }
        Ok(())
    }

    /// Subscribes to changes at the backend behind the resource.
    fn follow(&self, snapshot: &Snapshot, subscriber: &Subscriber, uri: &str) {
        let name = &subscriber.profile.server;
        let Some(server) = snapshot.server(name) else { return };
        let followed = server.resource(uri).and_then(|(entry, _)| {
            let primitive = &entry.primitive;
            let listener: Weak<dyn ResourceListener> = self.own.clone();
            let caller = subscriber.caller();
            let (user, org) = (owner(&caller).user, caller.org.as_str());
            let subscribed =
                ResourceSubscription { snapshot, user, org, server: name, primitive, uri, listener };
            self.pipeline.follow_resource(subscribed)
        });
        subscriber.follow(uri, followed);
    }

    pub fn unwatch(&self, subscriber: &Subscriber, uri: &str) {
        self.table.lock().unwatch(subscriber, uri);
    }

    /// Ends every stream, because the replica leaves.
    pub fn end_all(&self) {
        self.left.store(true, Ordering::Release);
        for subscriber in self.all() {
            self.end_this(&subscriber);
        }
    }

    /// Returns the number of subscribers.
    pub fn len(&self) -> usize {
        self.table.lock().subscribers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts a snapshot in force: ends the streams of dead tokens and evaluates the subscribers, in tasks of their own.
    pub fn apply(self: &Arc<Self>, snapshot: &Arc<Snapshot>) {
        self.snapshot.store(Some(snapshot.clone()));
        self.end_revoked();
        self.evaluate();
    }

    /// Ends the streams whose tokens are dead in the snapshot in force. It does not wait for evaluations, because dead
    /// tokens are cheap to find and the worst to miss.
    fn end_revoked(self: &Arc<Self>) {
        if self.is_empty() {
            return;
        }
        let Some(mut pass) = self.revocations.request() else { return };
        let hub = self.clone();
        tokio::spawn(async move {
            while pass.begin() {
                let Some(snapshot) = hub.snapshot.load_full() else { continue };
                for some in hub.all().chunks(TOKENS_AT_A_TIME) {
                    some.iter().for_each(|subscriber| hub.end_revoked_streams(subscriber, &snapshot));
                    tokio::task::yield_now().await;
                }
            }
        });
    }

    /// Evaluates the subscribers again if the runnable primitives have changed. It does not wait for a running
    /// evaluation: the next call notices changes made during it.
    pub fn reevaluate(self: &Arc<Self>) {
        let offers = self.pipeline.offers_stamp();
        let last = self.evaluated.try_lock();
        let is_new = last.is_ok_and(|last| last.as_ref().is_none_or(|last| last.offers != offers));
        if is_new {
            self.evaluate();
        }
    }

    /// Forgets idle sessions, and closes streams whose clients do not read; run periodically.
    pub fn sweep(&self) {
        for subscriber in self.all() {
            subscriber.close_stalled(STALLED);
            if subscriber.is_idle(IDLE) {
                self.end_this(&subscriber);
            }
        }
    }

    /// Delivers plugins' notices until there are none left. Each pass visits every subscriber, so its cost does not
    /// grow with the number of notices.
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

    fn tell_one(&self, subscriber: &Subscriber, snapshot: &Snapshot, resources: &Resources) {
        let caller = subscriber.caller();
        let server = &subscriber.profile.server;
        let all = [None, Some(caller.org.clone())];
        let all: Vec<&HashSet<String>> =
            all.into_iter().filter_map(|org| resources.get(&(server.clone(), org))).collect();
        let Some(server) = snapshot.server(server).filter(|_| !all.is_empty()) else { return };
        let mut view = ServerView::of(snapshot, server, &caller, Protocol::Mcp);
        let mut is_seen =
            |entry: &Arc<ListedPrimitive>| view.shows(entry) && self.pipeline.offers(server, entry);
        for uris in all {
            // A notice about a template whose plugin lists its resources concerns the list.
            let mut lists = uris.iter().filter_map(|uri| server.listing_template(uri));
            if lists.any(&mut is_seen) {
                subscriber.resources_listed();
            }
            subscriber.updated(uris, |uri| server.resource(uri).is_some_and(|(entry, _)| is_seen(&entry)));
        }
    }

    fn all(&self) -> Vec<Arc<Subscriber>> {
        self.table.lock().subscribers.values().cloned().collect()
    }

    fn evaluate(self: &Arc<Self>) {
        if self.is_empty() {
            return;
        }
        let hub = self.clone();
        tokio::spawn(async move {
            let mut evaluated = hub.evaluated.lock().await;
            let Some(snapshot) = hub.snapshot.load_full() else { return };
            let mut views = Views::of(&hub.pipeline, &snapshot);
            let offers = views.offers;
            let is_done =
                |last: &LastEvaluation| Arc::ptr_eq(&last.snapshot, &snapshot) && last.offers == offers;
            if evaluated.as_ref().is_some_and(is_done) {
                return;
            }
            let mut done = 0;
            for subscriber in hub.all() {
                done += hub.evaluate_one(&subscriber, &mut views);
                if done >= AT_A_TIME {
                    done = 0;
                    tokio::task::yield_now().await;
                }
            }
            drop(views);
            *evaluated = Some(LastEvaluation { snapshot, offers });
        });
    }

    /// Applies changes in force since `evaluated` to the subscriber and to the resources it has started to watch.
    pub fn catch_up(&self, subscriber: &Subscriber, evaluated: Option<&Arc<Snapshot>>) {
        let Some(snapshot) = self.snapshot.load_full() else { return };
        let mut views = Views::of(&self.pipeline, &snapshot);
        let is_same = evaluated.is_some_and(|evaluated| Arc::ptr_eq(evaluated, &snapshot));
        if !is_same || subscriber.stamp().offers != views.offers {
            self.evaluate_one(subscriber, &mut views);
        }
    }

    /// Evaluates a subscriber; returns the amount of work, as the number of views compared.
    fn evaluate_one(&self, subscriber: &Subscriber, views: &mut Views<'_>) -> usize {
        let snapshot = views.snapshot;
        let stamp = Stamp { revision: snapshot.revision, offers: views.offers };
        // A subscriber that was shown a newer snapshot is neither ended nor notified by this one.
        if stamp.revision < subscriber.stamp().revision {
            return 1;
        }
        self.end_revoked_streams(subscriber, snapshot);
        let uris = subscriber.watched();
        match views.view(&subscriber.profile, &subscriber.caller(), &uris) {
            Some(seen) => {
                let others = subscriber.show(stamp, seen.lists, |uri| seen.resource(uri));
                others.iter().for_each(|uri| self.follow(snapshot, subscriber, uri));
            }
            None => self.end_this(subscriber),
        }
        1 + uris.len()
    }

    /// Ends the subscriber's streams whose own tokens are dead, unless it was shown a newer snapshot.
    fn end_revoked_streams(&self, subscriber: &Subscriber, snapshot: &Snapshot) {
        if snapshot.revision < subscriber.stamp().revision {
            return;
        }
        subscriber.end_streams_of(|caller| {
            let Some(notice) = snapshot.revocation(caller) else { return false };
            let metrics = self.pipeline.metrics();
            metrics.revocations.observe(RevocationStage::Stream, notice.since_ms);
            true
        });
    }
}

impl PendingChanges {
    /// Adds a changed resource; false if a limit is reached.
    fn add(&mut self, server: &str, org: Option<&str>, uri: &str) -> bool {
        let own = self.by_server.get(server);
        if self.count >= MAX_CHANGED || own >= MAX_CHANGED_OF_SERVER || uri.len() > MAX_TEXT {
            return false;
        }
        let key = (server.to_owned(), org.map(str::to_owned));
        if self.resources.entry(key).or_default().insert(uri.to_owned()) {
            self.count += 1;
            self.by_server.add(server.to_owned(), 1);
        }
        true
    }

    /// Takes the pending resources; `None` if there are none, and delivery stops.
    fn take(&mut self) -> Option<Resources> {
        self.count = 0;
        self.by_server = Counts::default();
        self.is_over = false;
        self.is_told = !self.resources.is_empty();
        self.is_told.then(|| std::mem::take(&mut self.resources))
    }
}

impl ResourceListener for Subscriptions {
    fn offers_changed(&self) {
        if let Some(own) = self.own.upgrade() {
            own.reevaluate();
        }
    }

    fn leads_to(&self, server: &str, uri: &str, primitive: &str) -> bool {
        let Some(snapshot) = self.snapshot.load_full() else { return false };
        let Some(server) = snapshot.server(server) else { return false };
        let is_this = |entry: &ListedPrimitive| entry.primitive.id == primitive;
        server.listing_template(uri).is_some_and(|entry| is_this(entry))
            || server.resource(uri).is_some_and(|(entry, _)| is_this(&entry))
    }

    fn changed(&self, server: &str, org: &str, uri: &str) {
        self.note(server, Some(org), uri);
    }

    fn changed_for_all(&self, server: &str, uri: &str) {
        self.note(server, None, uri);
    }
}

impl Subscriptions {
    fn note(&self, server: &str, org: Option<&str>, uri: &str) {
        let mut changed = self.changed.lock();
        if !changed.add(server, org, uri) {
            if !std::mem::replace(&mut changed.is_over, true) {
                tracing::warn!(
                    server,
                    org,
                    "plugins or upstreams of a server reported too many changed resources at once, or one with too long a URI; clients are not notified of the excess: report fewer"
                );
            }
            return;
        }
        if !std::mem::replace(&mut changed.is_told, true)
            && let Some(own) = self.own.upgrade()
        {
            tokio::spawn(async move { own.tell().await });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant I-4.
    #[test]
    fn what_one_server_says_of_resources_leaves_room_to_others() {
        let mut changed = PendingChanges::default();
        let noted =
            (0..MAX_CHANGED).filter(|n| changed.add("loud", Some("acme"), &format!("r://{n}"))).count();
        assert_eq!(noted, MAX_CHANGED_OF_SERVER);
        assert!(!changed.add("loud", None, "r://other"), "whichever org it is for");
        assert!(changed.add("other", None, "r://1"));
        assert!(changed.take().is_some_and(|told| told.len() == 2));
        assert!(changed.add("loud", Some("acme"), "r://1"), "once those who subscribed are told");
        assert!(!changed.add("other", None, &"x".repeat(MAX_TEXT + 1)));
    }
}
