//! The gateways and their Envoy clusters, as served by EDS.
//!
//! A gateway is an endpoint from its first snapshot on. A lost stream does not withdraw it: a control plane that has
//! lost a gateway does not know whether Envoy has, too, and Envoy checks the health of each gateway itself. Keeps true:
//! - A gateway that announces its shutdown is withdrawn at once; a later process at its address stays.
//! - A lost gateway is forgotten after [`LEASE`], and only while another gateway of its cluster is connected, because then
//!   the loss is not this control plane's own.
//! - A gateway connected to another control plane on the same store counts as connected ([`shared`]).
//! - A gateway that does not answer a push on its newest stream is shown as draining, while at most half of its cluster is
//!   behind. If more are, the push itself takes long. A newer stream to another control plane counts, too: pushes that the
//!   gateway does not answer here are sent to it there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time for which a disconnected gateway stays known. Longer than any restart of a control plane; not longer, because
/// another process may get its address.
pub const LEASE: Duration = Duration::from_secs(300);
/// Time for which a gateway that shuts down is shown as draining. Envoy takes it out of rotation at once; if it were
/// removed at once, Envoy would keep it until its health check fails.
pub const DRAINING: Duration = Duration::from_secs(30);
/// Maximum number of known gateways, including the lost ones.
const MAX_ENDPOINTS: usize = 4_096;
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Addresses by cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointSet {
    /// Rises with every change; 0 before the first gateway.
    pub version: u64,
    /// Time at which the first gateway connected.
    pub since: Option<Instant>,
    pub clusters: BTreeMap<String, BTreeSet<SocketAddr>>,
    /// Gateways that shut down: they finish their requests and get no new ones.
    pub draining: BTreeMap<String, BTreeSet<SocketAddr>>,
}

pub mod shared;

type Key = (String, SocketAddr);

/// State of a gateway at this control plane.
#[derive(Clone, Debug)]
enum Member {
    /// Connected over these streams: at least one, two while a reconnect overlaps. The newest was opened at that time.
    Connected(BTreeSet<StreamId>, Instant),
    Lost(Instant),
    Leaving(Instant),
}

/// Number of a stream, in the order in which gateways joined.
type StreamId = u64;

/// State of a gateway at the other control planes on the same store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemoteState {
    Connected,
    /// Disconnected from all of them since then.
    Silent(Instant),
    Left(Instant),
}

#[derive(Default)]
struct MemberTable {
    /// Bounded by [`MAX_ENDPOINTS`].
    known: BTreeMap<Key, Member>,
    joined: StreamId,
    /// Bounded by the store.
    elsewhere: BTreeMap<Key, RemoteState>,
    /// Gateways that left here, and when, until the other control planes have been notified.
    left: Vec<(Key, Instant)>,
    /// Gateways in `known` with an unanswered push here, each with its stream.
    behind: BTreeMap<Key, StreamId>,
    /// Gateways that follow another control plane: their newest stream is not to this one. Bounded by the store.
    follow_others: BTreeSet<Key>,
}

/// A gateway's status as published to Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndpointStatus {
    Serving,
    Draining,
    Nothing,
}

impl MemberTable {
    fn status(&self, key: &Key) -> EndpointStatus {
        MemberTable::status_of(self.known.get(key), self.elsewhere.get(key))
    }

    fn status_of(here: Option<&Member>, there: Option<&RemoteState>) -> EndpointStatus {
        match (here, there) {
            // Its stream was opened later; the others may not have read that yet.
            (Some(Member::Connected(_, opened)), Some(RemoteState::Left(since))) if opened >= since => {
                EndpointStatus::Serving
            }
            (_, Some(RemoteState::Left(since))) if since.elapsed() < DRAINING => EndpointStatus::Draining,
            (_, Some(RemoteState::Left(_))) => EndpointStatus::Nothing,
            (Some(Member::Connected(..)), _) | (_, Some(RemoteState::Connected)) => EndpointStatus::Serving,
            (Some(Member::Leaving(_)), _) => EndpointStatus::Draining,
            (Some(Member::Lost(_)), _) | (None, Some(RemoteState::Silent(_))) => EndpointStatus::Serving,
            (None, None) => EndpointStatus::Nothing,
        }
    }

    /// Removes gateways whose time is up.
    fn forget(&mut self) {
        let now = Instant::now();
        let connected = self.connected();
        let is_over = |since: Instant, cluster: &String| {
            now.duration_since(since) >= LEASE && connected.contains(cluster)
        };
        self.known.retain(|(cluster, address), member| {
            let over = match member {
                Member::Connected(..) => false,
                Member::Lost(since) => is_over(*since, cluster),
                Member::Leaving(since) => now.duration_since(*since) >= DRAINING,
            };
            if over && matches!(member, Member::Lost(_)) {
                tracing::warn!(
                    %address, cluster,
                    "a gateway had no stream for the length of its lease while others of its cluster had one, and is \
                     no longer an endpoint; if it is running, make sure that it can reach a control plane"
                );
            }
            !over
        });
        self.elsewhere.retain(|(cluster, _), known| match known {
            RemoteState::Silent(since) => !is_over(*since, cluster),
            RemoteState::Connected | RemoteState::Left(_) => true,
        });
        let known = &self.known;
        self.behind.retain(|key, _| known.contains_key(key));
    }

    /// Returns the clusters with a connected gateway at any control plane.
    fn connected(&self) -> BTreeSet<String> {
        let here = self.known.iter().filter(|(_, member)| matches!(member, Member::Connected(..)));
        let there = self.elsewhere.iter().filter(|(_, known)| **known == RemoteState::Connected);
        here.map(|(key, _)| key)
            .chain(there.map(|(key, _)| key))
            .map(|(cluster, _)| cluster.clone())
            .collect()
    }
}

/// The gateways of this control plane.
pub struct Endpoints {
    /// Identifies this control plane among those on the same store.
    name: String,
    members: Mutex<MemberTable>,
    set: watch::Sender<Arc<EndpointSet>>,
    /// Notified when a gateway joins or leaves here.
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

    /// Removes gateways whose time is up, until `stop`; run it as a task.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(SWEEP_EVERY);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            self.sweep();
        }
    }

    /// Counts a gateway as connected until the returned value is dropped; after that it counts as lost.
    pub fn join(self: &Arc<Self>, cluster: String, address: SocketAddr) -> Registration {
        let key = (cluster, address);
        let mut members = self.members.lock();
        make_room(&mut members.known, &key);
        members.joined += 1;
        let id = members.joined;
        let mut streams = BTreeSet::from([id]);
        if let Some(Member::Connected(others, _)) = members.known.get(&key) {
            streams.extend(others);
        }
        let before = members.status(&key);
        members.known.insert(key.clone(), Member::Connected(streams, Instant::now()));
        // It is back, whatever the others were notified of.
        members.left.retain(|(left, _)| *left != key);
        if matches!(members.elsewhere.get(&key), Some(RemoteState::Left(_))) {
            members.elsewhere.remove(&key);
        }
        members.follow_others.remove(&key);
        // A process that opens a stream is not stuck.
        let was_behind = members.behind.remove(&key).is_some();
        if before != EndpointStatus::Serving || was_behind {
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

    /// Withdraws a gateway. A process announces its shutdown on its newest stream: older streams are its own leftovers;
    /// a newer one is that of another process that has since taken the address.
    fn leave(&self, key: &Key, id: StreamId) {
        let mut members = self.members.lock();
        let Some(Member::Connected(streams, _)) = members.known.get_mut(key) else {
            return;
        };
        streams.retain(|other| *other > id);
        if streams.is_empty() {
            self.withdraw(&mut members, key);
        }
    }

    /// Withdraws a gateway that announces its shutdown on another stream because it lost its own. A process that is
    /// connected with its address is another one and stays.
    pub(super) fn leave_disconnected(&self, key: (String, SocketAddr)) {
        let mut members = self.members.lock();
        let here = matches!(members.known.get(&key), Some(Member::Lost(_)));
        let is_known = here || matches!(members.elsewhere.get(&key), Some(RemoteState::Silent(_)));
        let is_heard = matches!(members.known.get(&key), Some(Member::Connected(..)))
            || matches!(members.elsewhere.get(&key), Some(RemoteState::Connected));
        if is_known && !is_heard {
            self.withdraw(&mut members, &key);
        }
    }

    fn withdraw(&self, members: &mut MemberTable, key: &Key) {
        members.known.insert(key.clone(), Member::Leaving(Instant::now()));
        if members.elsewhere.contains_key(key) {
            members.elsewhere.insert(key.clone(), RemoteState::Left(Instant::now()));
        }
        members.left.push((key.clone(), Instant::now()));
        // Bounded in case no other control plane ever reads them.
        let too_many = members.left.len().saturating_sub(MAX_ENDPOINTS);
        members.left.drain(..too_many);
        self.publish(members);
        self.news.notify_one();
    }

    /// Records whether a gateway is behind, for its newest stream only: an older one may be broken and not closed yet.
    fn set_behind(&self, key: &Key, id: StreamId, is_behind: bool) {
        let mut members = self.members.lock();
        let is_newest = match members.known.get(key) {
            Some(Member::Connected(streams, _)) => streams.last() == Some(&id),
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

    fn mark_lost(&self, key: &Key, id: StreamId) {
        let mut members = self.members.lock();
        let Some(Member::Connected(streams, _)) = members.known.get_mut(key) else {
            return;
        };
        if streams.remove(&id) && streams.is_empty() {
            members.known.insert(key.clone(), Member::Lost(Instant::now()));
            let (cluster, address) = key;
            tracing::warn!(
                %address, cluster,
                "a gateway's last stream ended without an announced shutdown; it stays an endpoint, subject to \
                 Envoy's health checks"
            );
        }
        // The unanswered push was on that stream; the gateway may be current at another control plane by now.
        if members.behind.get(key) == Some(&id) {
            members.behind.remove(key);
            self.publish(&members);
        }
    }

    /// Publishes the endpoints to Envoys if they changed.
    fn publish(&self, members: &MemberTable) {
        let mut clusters: BTreeMap<String, BTreeSet<SocketAddr>> = BTreeMap::new();
        let mut draining: BTreeMap<String, BTreeSet<SocketAddr>> = BTreeMap::new();
        let here = members.known.iter().map(|(key, member)| {
            let there = if members.elsewhere.is_empty() { None } else { members.elsewhere.get(key) };
            (key, MemberTable::status_of(Some(member), there))
        });
        let elsewhere = members.elsewhere.iter().filter(|(key, _)| !members.known.contains_key(*key));
        let elsewhere = elsewhere.map(|(key, state)| (key, MemberTable::status_of(None, Some(state))));
        for ((cluster, address), status) in here.chain(elsewhere) {
            let group = match status {
                EndpointStatus::Serving => &mut clusters,
                EndpointStatus::Draining => &mut draining,
                EndpointStatus::Nothing => continue,
            };
            match group.get_mut(cluster) {
                Some(known) => drop(known.insert(*address)),
                None => drop(group.insert(cluster.clone(), BTreeSet::from([*address]))),
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

/// Makes room for a new gateway: if there are too many, removes the one that was lost first.
fn make_room(members: &mut BTreeMap<Key, Member>, newcomer: &Key) {
    if members.len() < MAX_ENDPOINTS || members.contains_key(newcomer) {
        return;
    }
    let since = |member: &Member| match member {
        Member::Connected(..) => None,
        Member::Lost(since) | Member::Leaving(since) => Some(*since),
    };
    let gone = members.iter().filter_map(|(key, member)| Some((since(member)?, key))).min();
    if let Some(key) = gone.map(|(_, key)| key.clone()) {
        members.remove(&key);
    }
}

/// A gateway that counts as connected as long as this value lives.
pub struct Registration {
    endpoints: Arc<Endpoints>,
    /// `None` after an announced shutdown.
    key: Option<Key>,
    id: StreamId,
}

impl Registration {
    /// Withdraws the gateway, which announced its shutdown: it gets no new requests from now on.
    pub fn leave(mut self) {
        if let Some(key) = self.key.take() {
            self.endpoints.leave(&key, self.id);
        }
    }

    /// Records whether the gateway has an unanswered push.
    pub(super) fn set_behind(&self, is_behind: bool) {
        if let Some(key) = &self.key {
            self.endpoints.set_behind(key, self.id, is_behind);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.endpoints.mark_lost(&key, self.id);
        }
    }
}

#[cfg(test)]
mod tests;
