//! Subscribers: who each is and may have, what it has acknowledged and refused, and how far it lags. And the revisions that
//! they have in force from other control planes, or from before an older database was restored.
//!
//! Refuses streams beyond a limit, and streams of one certificate's identity beyond a part of it, so that one fleet of
//! subscribers leaves capacity for the others; a stream that changes its address or pool; and kinds of resources that are
//! not for its role.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use asp_platform::clock;
use asp_platform::quota::Counts;
use asp_proto::xds::envoy::config::core::v3::Node;
use parking_lot::Mutex;
use prost_types::value;
use serde::Serialize;
use tonic::{Result, Status};

use super::contract::{ADVERTISE, Kind};
use super::degraded_items::{self, DegradedItem};
use super::failing_upstreams::{self, FailingUpstream};
use super::peer::Caller;
use super::published::Publication;
use super::refused_parts::{self, RefusedPart, RefusedParts};
use super::subscription::{Event, StaleSnapshot};

/// Maximum number of concurrent streams.
pub const MAX_STREAMS: usize = 4_096;
/// Maximum number of streams of one identity. All Envoys of a fleet have one identity and a few streams each; the rest is
/// for gateways.
pub const MAX_OF_IDENTITY: usize = MAX_STREAMS / 4 * 3;
/// Time without an answer after which a push counts as overdue.
pub const OVERDUE: Duration = Duration::from_secs(10);
/// Metadata key of a node: Envoy cluster that a gateway belongs to.
pub(super) const POOL: &str = "pool";
/// Maximum length of a node id and of an address, in characters.
const MAX_TEXT: usize = 256;
/// Maximum number of revisions kept per kind. The highest are dropped first: one beyond the store's own revision is of
/// no use until the store has passed it, and may be made up.
const MAX_SEEN: usize = 64;

/// A rejected push.
#[derive(Clone, Debug, Serialize, PartialEq, Eq, utoipa::ToSchema)]
pub struct Nack {
    pub revision: u64,
    pub reason: String,
    /// Unix milliseconds.
    pub at: u64,
}

/// A subscriber of one kind of resource.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subscriber {
    /// Node id that it reported.
    pub node: String,
    /// `edge`, `revocations`, `endpoints` or `gateway`.
    pub kind: &'static str,
    /// Address that a gateway advertises; empty for others.
    pub address: String,
    /// Unix milliseconds.
    pub connected_at: u64,
    pub pushed_revision: u64,
    /// Revision in force there: acknowledged on this stream or an earlier one. Includes later revisions that did not
    /// concern this subscriber.
    pub acked_revision: u64,
    /// Time from push to acknowledgement, in milliseconds.
    pub ack_ms: Option<u64>,
    pub last_nack: Option<Nack>,
    /// Parts of the acknowledged snapshot that are not in force at the gateway as sent; at most 50.
    pub refused_parts: Vec<RefusedPart>,
    /// Number of all such parts.
    pub refused_parts_count: u64,
    /// Services with a failure in the last ten minutes at the gateway; at most 50.
    pub failing_upstreams: Vec<FailingUpstream>,
    /// Items that the gateway does not serve as they were accepted, because their upstream lists them otherwise or no runtime can run
    /// them; at most 50.
    pub degraded_items: Vec<DegradedItem>,
    /// Version of the last acknowledgement on this stream.
    #[serde(skip)]
    pub acked_version: String,
    #[serde(skip)]
    pushed_at: u64,
    /// Whether the last push is unanswered.
    #[serde(skip)]
    is_waiting: bool,
}

impl Subscriber {
    /// Whether the last push has had no answer for [`OVERDUE`].
    pub fn is_overdue(&self) -> bool {
        let waited = Duration::from_millis(clock::now_ms().saturating_sub(self.pushed_at));
        self.is_waiting && waited >= OVERDUE
    }
}

type Key = (u64, Kind);

#[derive(Default)]
struct SubscriberTable {
    next_stream: u64,
    streams: usize,
    /// Streams of each identity.
    by_identity: Counts<String>,
    subscribers: BTreeMap<Key, Subscriber>,
}

/// The table of subscribers.
#[derive(Default)]
pub struct Subscribers {
    table: Mutex<SubscriberTable>,
}

impl Subscribers {
    pub fn new() -> Arc<Subscribers> {
        Arc::default()
    }

    /// Admits a stream with the identity in the subscriber's certificate, if it has one; `None` if there are too many.
    pub fn admit(self: &Arc<Self>, identity: Option<String>) -> Option<Stream> {
        let mut table = self.table.lock();
        if table.streams >= MAX_STREAMS {
            return None;
        }
        if let Some(identity) = &identity
            && !table.by_identity.add_within(MAX_OF_IDENTITY, identity.clone(), 1)
        {
            return None;
        }
        table.streams += 1;
        table.next_stream += 1;
        Some(Stream { subscribers: Arc::clone(self), id: table.next_stream, identity })
    }

    /// Returns all subscribers in order of connection.
    pub fn list(&self) -> Vec<Subscriber> {
        self.table.lock().subscribers.values().cloned().collect()
    }
}

/// One stream's entries in the table; removed when this value is dropped.
pub struct Stream {
    subscribers: Arc<Subscribers>,
    id: u64,
    identity: Option<String>,
}

impl Stream {
    /// Records a subscription; `in_force` is the revision that the subscriber already has, 0 for none.
    pub fn subscribed(&self, kind: Kind, node: &str, address: &str, in_force: u64) {
        let bounded = |text: &str| text.chars().take(MAX_TEXT).collect::<String>();
        let mut table = self.subscribers.table.lock();
        table.subscribers.entry((self.id, kind)).or_insert_with(|| Subscriber {
            node: bounded(node),
            kind: kind.as_str(),
            address: bounded(address),
            connected_at: clock::now_ms(),
            acked_revision: in_force,
            ..Subscriber::default()
        });
    }

    pub fn pushed(&self, kind: Kind, revision: u64) {
        self.update(kind, |subscriber| {
            subscriber.pushed_revision = revision;
            subscriber.pushed_at = clock::now_ms();
            subscriber.is_waiting = true;
        });
    }

    pub fn acknowledged(&self, kind: Kind, revision: u64, version: &str) {
        self.update(kind, |subscriber| {
            subscriber.acked_revision = revision;
            subscriber.acked_version = version.to_owned();
            subscriber.is_waiting = false;
            subscriber.ack_ms = Some(clock::now_ms().saturating_sub(subscriber.pushed_at));
        });
    }

    pub fn rejected(&self, kind: Kind, revision: u64, reason: &str) {
        self.update(kind, |subscriber| {
            subscriber.is_waiting = false;
            subscriber.last_nack = Some(Nack { revision, reason: reason.to_owned(), at: clock::now_ms() });
        });
    }

    /// Records the parts that the subscriber could not apply; returns whether they changed.
    pub fn refused_parts(&self, kind: Kind, refused: RefusedParts) -> bool {
        let mut is_new = false;
        self.update(kind, |subscriber| {
            let RefusedParts { count, named } = refused;
            is_new = subscriber.refused_parts_count != count || subscriber.refused_parts != named;
            subscriber.refused_parts_count = count;
            subscriber.refused_parts = named;
        });
        is_new
    }

    /// Records the services that fail at the subscriber.
    pub fn failing_upstreams(&self, kind: Kind, failing: Vec<FailingUpstream>) {
        self.update(kind, |subscriber| subscriber.failing_upstreams = failing);
    }

    /// Records the items that the subscriber does not serve as accepted.
    pub fn degraded_items(&self, kind: Kind, degraded: Vec<DegradedItem>) {
        self.update(kind, |subscriber| subscriber.degraded_items = degraded);
    }

    fn update(&self, kind: Kind, change: impl FnOnce(&mut Subscriber)) {
        if let Some(subscriber) = self.subscribers.table.lock().subscribers.get_mut(&(self.id, kind)) {
            change(subscriber);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut table = self.subscribers.table.lock();
        table.streams = table.streams.saturating_sub(1);
        if let Some(identity) = &self.identity {
            table.by_identity.remove(identity, 1);
        }
        for kind in Kind::ALL {
            table.subscribers.remove(&(self.id, kind));
        }
    }
}

// === one stream ===

/// The subscriber at the other end of a stream: its identity, and the resources it may have.
pub(super) struct Participant {
    seen_revisions: Arc<SeenRevisions>,
    pub(super) entry: Stream,
    caller: Caller,
    /// Node of the first request, and of a gateway's last one.
    pub(super) node: Node,
}

impl Participant {
    /// Admits a subscriber, unless there are too many, or too many with its identity.
    pub(super) fn admit(
        subscribers: &Arc<Subscribers>,
        seen_revisions: &Arc<SeenRevisions>,
        caller: Caller,
    ) -> Result<Participant> {
        let entry = subscribers.admit(caller.identity());
        Ok(Participant {
            seen_revisions: Arc::clone(seen_revisions),
            entry: entry.ok_or_else(|| Status::resource_exhausted("too many subscribers"))?,
            caller,
            node: Node::default(),
        })
    }

    /// Records the effect of a request, for `/api/snapshot` and the log.
    pub(super) fn note(&self, kind: Kind, event: Event, (in_force, version): (u64, &str)) -> Result<()> {
        match event {
            Event::Subscribed => {
                let address = metadata(&self.node, ADVERTISE).unwrap_or_default();
                self.entry.subscribed(kind, &self.node.id, address, in_force);
                self.seen_revisions.record(kind, in_force);
                self.keep_refused_parts(kind);
                tracing::info!(node = %self.node.id, kind = kind.as_str(), in_force, "subscribed");
            }
            Event::Acknowledged { revision } => {
                self.seen_revisions.record(kind, revision);
                self.entry.acknowledged(kind, revision, version);
                self.keep_refused_parts(kind);
            }
            Event::Rejected { revision, reason } => {
                tracing::error!(
                    node = %self.node.id, kind = kind.as_str(), revision, %reason,
                    "a subscriber rejected the snapshot and keeps its last one; fix what the reason names"
                );
                self.entry.rejected(kind, revision, &reason);
            }
            Event::Ignored => {}
            Event::TooMany => return Err(Status::invalid_argument("too many resource names")),
        }
        if kind == Kind::Gateway {
            self.entry.failing_upstreams(kind, failing_upstreams::read(&self.node));
            self.entry.degraded_items(kind, degraded_items::read(&self.node));
        }
        Ok(())
    }

    /// Records the parts that are not in force at a gateway as sent.
    fn keep_refused_parts(&self, kind: Kind) {
        if kind != Kind::Gateway {
            return;
        }
        let refused = refused_parts::read(&self.node);
        let count = refused.count;
        let parts: Vec<&str> = refused.named.iter().map(|part| part.name.as_str()).collect();
        let parts = parts.join(", ");
        if self.entry.refused_parts(kind, refused) && count > 0 {
            tracing::warn!(
                node = %self.node.id, count, %parts,
                "a gateway could not apply parts of the snapshot; `asp status` shows the reasons. Update the gateway \
                 or fix the parts"
            );
        }
    }

    /// Records that the published snapshot is older than the other end's.
    pub(super) fn refused(&self, kind: Kind, refusal: StaleSnapshot) {
        tracing::error!(
            node = %self.node.id, kind = kind.as_str(), revision = refusal.offered, in_force = refusal.in_force,
            "the published snapshot is older than the one in force at this subscriber, for example after an older \
             database was restored; the subscriber keeps its own. Raise the revision with `asp db raise-revision`"
        );
        self.entry.rejected(kind, refusal.offered, &refusal.to_string());
    }

    /// Takes the subscriber's node. The address and the pool of the first request were authorised, so they are fixed
    /// for the whole stream; a later node may add that the gateway shuts down.
    pub(super) fn name(&mut self, node: Node, is_open: bool) -> Result<()> {
        let differs = |key| metadata(&node, key) != metadata(&self.node, key);
        if is_open && (differs(ADVERTISE) || differs(POOL)) {
            tracing::warn!(
                caller = %self.caller, node = %self.node.id,
                "a subscriber changed its address or pool on an open stream, and the stream was ended"
            );
            return Err(Status::permission_denied(
                "a stream keeps the address and the pool of its first request",
            ));
        }
        self.node = node;
        Ok(())
    }

    /// Refuses the stream if this kind of resource, or the address at which it wants requests, is not for this caller.
    pub(super) async fn authorize(&self, kind: Kind) -> Result<()> {
        let mut evaluated = self.caller.may_subscribe(kind);
        let address = metadata(&self.node, ADVERTISE).unwrap_or_default();
        if evaluated.is_ok()
            && kind == Kind::Gateway
            && let Ok(address) = address.parse()
        {
            evaluated = self.caller.may_advertise(address).await;
        }
        evaluated.map_err(|reason| {
            tracing::warn!(
                caller = %self.caller, node = %self.node.id, kind = kind.as_str(), address, %reason,
                "subscription refused: nothing is sent to it, and no request is routed to its address"
            );
            Status::permission_denied(reason)
        })
    }
}

/// Returns a text in the metadata of a node.
pub(super) fn metadata<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    match node.metadata.as_ref()?.fields.get(key)?.kind.as_ref()? {
        value::Kind::StringValue(text) => Some(text),
        _ => None,
    }
}

// === revisions in force ===

/// Revisions that subscribers have in force. Another control plane on the same store may have published the same
/// content under a later revision, or the store's revision may have been raised past theirs. No subscriber would accept
/// what is then published under an earlier revision.
#[derive(Default)]
pub struct SeenRevisions {
    edge: Mutex<BTreeSet<u64>>,
    recent: Mutex<BTreeSet<u64>>,
    gateway: Mutex<BTreeSet<u64>>,
}

impl SeenRevisions {
    /// Records that a subscriber has a revision in force.
    pub fn record(&self, kind: Kind, revision: u64) {
        let mut seen = match kind {
            Kind::Edge => self.edge.lock(),
            Kind::Revocations => self.recent.lock(),
            Kind::Gateway => self.gateway.lock(),
            Kind::Endpoints => return,
        };
        seen.insert(revision);
        if seen.len() > MAX_SEEN {
            seen.pop_last();
        }
    }

    /// Whether a subscriber would reject the published revision, but accept one that the store has reached by now.
    /// `covers`: the store revision up to which everything is published.
    pub fn concerns(&self, published: &Publication, covers: u64) -> bool {
        let kinds = [
            (&self.edge, published.edge.revision),
            (&self.recent, published.recent.revision),
            (&self.gateway, published.gateway.revision),
        ];
        kinds.into_iter().any(|(seen, published)| {
            let mut seen = seen.lock();
            let Some(stored) = seen.range(..=covers).next_back().copied() else { return false };
            // It is kept: an older database may be restored, and what is published then is older than it.
            *seen = seen.split_off(&stored);
            published < stored
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_identity_leaves_room_for_the_others() {
        let subscribers = Subscribers::new();
        let admit = |identity: Option<&str>| subscribers.admit(identity.map(str::to_owned));
        let envoys: Vec<_> = (0..MAX_OF_IDENTITY).map_while(|_| admit(Some("edge"))).collect();
        assert_eq!(envoys.len(), MAX_OF_IDENTITY);
        assert!(admit(Some("edge")).is_none());
        let others: Vec<_> = (MAX_OF_IDENTITY..MAX_STREAMS).map_while(|_| admit(Some("gateway"))).collect();
        assert_eq!(envoys.len() + others.len(), MAX_STREAMS);
        assert!(admit(Some("gateway")).is_none() && admit(None).is_none(), "all are taken");
        drop(envoys);
        assert!(admit(Some("edge")).is_some(), "ended streams do not count");
        drop(others);
        assert!(subscribers.table.lock().by_identity.is_empty());
    }

    #[test]
    fn subscribers_without_a_certificate_share_all_streams() {
        let subscribers = Subscribers::new();
        let all: Vec<_> = (0..MAX_STREAMS).map_while(|_| subscribers.admit(None)).collect();
        assert_eq!(all.len(), MAX_STREAMS);
        assert!(subscribers.admit(None).is_none());
    }
}
