//! Which gateways there are, and in which Envoy cluster: what EDS serves.
//!
//! A gateway counts from the moment it has a snapshot. A lost stream withdraws nobody: the control plane that
//! cannot hear a gateway does not know whether Envoy can, and Envoy looks at each one's health itself. Keeps true:
//! one that says that it ends is withdrawn at once, and who has come after it at its address stays; one that is lost
//! is forgotten after [`LEASE`], and only while another one of its cluster is heard, for then the loss is not this
//! control plane's own. Whom another control plane on the same store hears counts as heard ([`shared`]). One that does not
//! answer what it is sent on its newest stream is shown as draining while no more than half of its cluster are behind: where more
//! are, what they are sent takes long. A newer stream to another control plane counts, too: what the gateway does not answer here
//! it is sent there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a gateway that is not heard of stays known: longer than any restart of a control plane. Not longer,
/// because somebody else may get its address.
pub const LEASE: Duration = Duration::from_secs(300);
/// How long one that ends is shown as draining before it is left out. Envoy takes it out of rotation at once;
/// left out at once, Envoy would keep it until its health check fails.
pub const DRAINING: Duration = Duration::from_secs(30);
/// Gateways known at once, the lost ones included.
const MAX_ENDPOINTS: usize = 4_096;
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Addresses by cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointSet {
    /// Rises with every change; 0 before the first gateway.
    pub version: u64,
    /// When the first gateway came.
    pub since: Option<Instant>,
    pub clusters: BTreeMap<String, BTreeSet<SocketAddr>>,
    /// Those that end: they finish what they have and get nothing new.
    pub draining: BTreeMap<String, BTreeSet<SocketAddr>>,
}

pub mod shared;

type Key = (String, SocketAddr);

/// One gateway.
#[derive(Clone, Debug)]
enum Member {
    /// Over these streams, at least one; two while a reconnect overlaps. The newest was opened then.
    Heard(BTreeSet<StreamId>, Instant),
    Lost(Instant),
    Leaving(Instant),
}

/// In the order in which gateways joined.
type StreamId = u64;

/// What other control planes on the same store know of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elsewhere {
    Heard,
    /// Since then nobody has heard it.
    Silent(Instant),
    Left(Instant),
}

#[derive(Default)]
struct Members {
    /// Bounded by [`MAX_ENDPOINTS`].
    known: BTreeMap<Key, Member>,
    joined: StreamId,
    /// Bounded as the store is.
    elsewhere: BTreeMap<Key, Elsewhere>,
    /// Those that have left here, and when, until the others are told.
    left: Vec<(Key, Instant)>,
    /// Those of `known` that do not answer what they are sent here, each with its stream.
    behind: BTreeMap<Key, StreamId>,
    /// Those that follow another control plane, as they opened a stream to it later than any to this one. Bounded as the store is.
    follow_others: BTreeSet<Key>,
}

/// What Envoy is told of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Serving,
    Draining,
    Nothing,
}

impl Members {
    fn told(&self, key: &Key) -> Told {
        Members::told_of(self.known.get(key), self.elsewhere.get(key))
    }

    fn told_of(here: Option<&Member>, there: Option<&Elsewhere>) -> Told {
        match (here, there) {
            // Over a stream that was opened later: others may not have read of it yet.
            (Some(Member::Heard(_, opened)), Some(Elsewhere::Left(since))) if opened >= since => {
                Told::Serving
            }
            (_, Some(Elsewhere::Left(since))) if since.elapsed() < DRAINING => Told::Draining,
            (_, Some(Elsewhere::Left(_))) => Told::Nothing,
            (Some(Member::Heard(..)), _) | (_, Some(Elsewhere::Heard)) => Told::Serving,
            (Some(Member::Leaving(_)), _) => Told::Draining,
            (Some(Member::Lost(_)), _) | (None, Some(Elsewhere::Silent(_))) => Told::Serving,
            (None, None) => Told::Nothing,
        }
    }

    /// Leaves out what is past its time.
    fn forget(&mut self) {
        let now = Instant::now();
        let heard = self.heard();
        let is_over =
            |since: Instant, cluster: &String| now.duration_since(since) >= LEASE && heard.contains(cluster);
        self.known.retain(|(cluster, address), member| {
            let over = match member {
                Member::Heard(..) => false,
                Member::Lost(since) => is_over(*since, cluster),
                Member::Leaving(since) => now.duration_since(*since) >= DRAINING,
            };
            if over && matches!(member, Member::Lost(_)) {
                tracing::warn!(
                    %address, cluster,
                    "a gateway has had no stream for its lease while others of its cluster have one: Envoy is told of it \
                     no more. If it runs, let it reach this control plane"
                );
            }
            !over
        });
        self.elsewhere.retain(|(cluster, _), known| match known {
            Elsewhere::Silent(since) => !is_over(*since, cluster),
            Elsewhere::Heard | Elsewhere::Left(_) => true,
        });
        let known = &self.known;
        self.behind.retain(|key, _| known.contains_key(key));
    }

    /// The clusters of which somebody hears one.
    fn heard(&self) -> BTreeSet<String> {
        let here = self.known.iter().filter(|(_, member)| matches!(member, Member::Heard(..)));
        let there = self.elsewhere.iter().filter(|(_, known)| **known == Elsewhere::Heard);
        here.map(|(key, _)| key)
            .chain(there.map(|(key, _)| key))
            .map(|(cluster, _)| cluster.clone())
            .collect()
    }
}

/// The gateways of this control plane.
pub struct Endpoints {
    /// Tells this control plane apart from the others on the same store.
    name: String,
    members: Mutex<Members>,
    set: watch::Sender<Arc<EndpointSet>>,
    /// Somebody has joined or left here.
    news: Notify,
}

impl Endpoints {
    pub fn new() -> Arc<Endpoints> {
        Arc::new(Endpoints {
            name: format!("{:032x}", rand::random::<u128>()),
            members: Mutex::default(),
            set: watch::Sender::default(),
            news: Notify::new(),
        })
    }

    pub fn subscribe(&self) -> watch::Receiver<Arc<EndpointSet>> {
        self.set.subscribe()
    }

    /// Forgets what is past its time until `stop`; run it as a task.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(SWEEP_EVERY);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            self.sweep();
        }
    }

    /// Counts a gateway as heard until the returned value is dropped, which is its loss.
    pub fn join(self: &Arc<Self>, cluster: String, address: SocketAddr) -> Registration {
        let key = (cluster, address);
        let mut members = self.members.lock();
        make_room(&mut members.known, &key);
        members.joined += 1;
        let id = members.joined;
        let mut streams = BTreeSet::from([id]);
        if let Some(Member::Heard(others, _)) = members.known.get(&key) {
            streams.extend(others);
        }
        let before = members.told(&key);
        members.known.insert(key.clone(), Member::Heard(streams, Instant::now()));
        // It is back, whatever the others have been told.
        members.left.retain(|(left, _)| *left != key);
        if matches!(members.elsewhere.get(&key), Some(Elsewhere::Left(_))) {
            members.elsewhere.remove(&key);
        }
        members.follow_others.remove(&key);
        // A process that is stuck opens no stream.
        let was_behind = members.behind.remove(&key).is_some();
        if before != Told::Serving || was_behind {
            self.publish(&members);
        }
        self.news.notify_one();
        Registration { endpoints: Arc::clone(self), key: Some(key), id }
    }

    fn sweep(&self) {
        let mut members = self.members.lock();
        members.forget();
        self.publish(&members);
    }

    /// A process says it on its newest stream: the older ones are its own leftovers. A newer one is another process's
    /// that has taken the address meanwhile.
    fn leave(&self, key: &Key, id: StreamId) {
        let mut members = self.members.lock();
        let Some(Member::Heard(streams, _)) = members.known.get_mut(key) else {
            return;
        };
        streams.retain(|other| *other > id);
        if streams.is_empty() {
            self.withdraw(&mut members, key);
        }
    }

    /// A process that has lost its stream says on another one that it ends. Whoever is heard at its address is another
    /// process, and stays.
    pub(super) fn leave_unheard(&self, key: (String, SocketAddr)) {
        let mut members = self.members.lock();
        let here = matches!(members.known.get(&key), Some(Member::Lost(_)));
        let is_known = here || matches!(members.elsewhere.get(&key), Some(Elsewhere::Silent(_)));
        let is_heard = matches!(members.known.get(&key), Some(Member::Heard(..)))
            || matches!(members.elsewhere.get(&key), Some(Elsewhere::Heard));
        if is_known && !is_heard {
            self.withdraw(&mut members, &key);
        }
    }

    fn withdraw(&self, members: &mut Members, key: &Key) {
        members.known.insert(key.clone(), Member::Leaving(Instant::now()));
        if members.elsewhere.contains_key(key) {
            members.elsewhere.insert(key.clone(), Elsewhere::Left(Instant::now()));
        }
        members.left.push((key.clone(), Instant::now()));
        // Where nobody is told of them.
        let too_many = members.left.len().saturating_sub(MAX_ENDPOINTS);
        members.left.drain(..too_many);
        self.publish(members);
        self.news.notify_one();
    }

    /// Keeps it of the newest stream alone: an older one may be broken and not closed yet.
    fn set_behind(&self, key: &Key, id: StreamId, is_behind: bool) {
        let mut members = self.members.lock();
        let is_newest = match members.known.get(key) {
            Some(Member::Heard(streams, _)) => streams.last() == Some(&id),
            Some(Member::Lost(_) | Member::Leaving(_)) | None => false,
        };
        let was_behind = members.behind.contains_key(key);
        if !is_newest || is_behind == was_behind {
            return;
        }
        match is_behind {
            true => drop(members.behind.insert(key.clone(), id)),
            false => drop(members.behind.remove(key)),
        }
        self.publish(&members);
    }

    fn lose(&self, key: &Key, id: StreamId) {
        let mut members = self.members.lock();
        let Some(Member::Heard(streams, _)) = members.known.get_mut(key) else {
            return;
        };
        if streams.remove(&id) && streams.is_empty() {
            members.known.insert(key.clone(), Member::Lost(Instant::now()));
            let (cluster, address) = key;
            tracing::warn!(
                %address, cluster,
                "a gateway's last stream ended and it did not say that it leaves: it stays an endpoint, and Envoy's \
                 health checks decide meanwhile"
            );
        }
        // What it owed was owed on that stream; it may be current at another control plane by now.
        if members.behind.get(key) == Some(&id) {
            members.behind.remove(key);
            self.publish(&members);
        }
    }

    /// Tells Envoys, if it is anything new.
    fn publish(&self, members: &Members) {
        let mut clusters: BTreeMap<String, BTreeSet<SocketAddr>> = BTreeMap::new();
        let mut draining: BTreeMap<String, BTreeSet<SocketAddr>> = BTreeMap::new();
        let here = members.known.iter().map(|(key, member)| {
            let there = if members.elsewhere.is_empty() { None } else { members.elsewhere.get(key) };
            (key, Members::told_of(Some(member), there))
        });
        let elsewhere = members.elsewhere.iter().filter(|(key, _)| !members.known.contains_key(*key));
        let elsewhere = elsewhere.map(|(key, state)| (key, Members::told_of(None, Some(state))));
        for ((cluster, address), told) in here.chain(elsewhere) {
            let told = match told {
                Told::Serving => &mut clusters,
                Told::Draining => &mut draining,
                Told::Nothing => continue,
            };
            match told.get_mut(cluster) {
                Some(known) => drop(known.insert(*address)),
                None => drop(told.insert(cluster.clone(), BTreeSet::from([*address]))),
            }
        }
        let mut behind: BTreeMap<&String, BTreeSet<SocketAddr>> = BTreeMap::new();
        let behind_here = members.behind.keys().filter(|key| !members.follow_others.contains(*key));
        for (cluster, address) in behind_here {
            if clusters.get(cluster).is_some_and(|serving| serving.contains(address)) {
                behind.entry(cluster).or_default().insert(*address);
            }
        }
        for (cluster, behind) in behind {
            let Some(serving) = clusters.get_mut(cluster) else { continue };
            if behind.len() * 2 <= serving.len() {
                serving.retain(|address| !behind.contains(address));
                draining.entry(cluster.clone()).or_default().extend(behind);
            }
        }
        self.set.send_if_modified(|set| {
            let same = set.clusters == clusters && set.draining == draining;
            if same {
                return false;
            }
            let since = set.since.or_else(|| Some(Instant::now()));
            *set = Arc::new(EndpointSet { version: set.version + 1, since, clusters, draining });
            true
        });
    }
}

/// When there are too many, the one that was lost first goes.
fn make_room(members: &mut BTreeMap<Key, Member>, newcomer: &Key) {
    if members.len() < MAX_ENDPOINTS || members.contains_key(newcomer) {
        return;
    }
    let since = |member: &Member| match member {
        Member::Heard(..) => None,
        Member::Lost(since) | Member::Leaving(since) => Some(*since),
    };
    let gone = members.iter().filter_map(|(key, member)| Some((since(member)?, key))).min();
    if let Some(key) = gone.map(|(_, key)| key.clone()) {
        members.remove(&key);
    }
}

/// A gateway that is heard as long as this value lives.
pub struct Registration {
    endpoints: Arc<Endpoints>,
    /// Taken by an orderly end.
    key: Option<Key>,
    id: StreamId,
}

impl Registration {
    /// The gateway says that it ends: it gets no new requests from now on.
    pub fn leave(mut self) {
        if let Some(key) = self.key.take() {
            self.endpoints.leave(&key, self.id);
        }
    }

    /// Notes whether the gateway owes an answer to what it was sent.
    pub(super) fn set_behind(&self, is_behind: bool) {
        if let Some(key) = &self.key {
            self.endpoints.set_behind(key, self.id, is_behind);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.endpoints.lose(&key, self.id);
        }
    }
}

#[cfg(test)]
mod tests;
