//! The other end of an xDS stream: its identity, the resources it may have, and whether requests are sent to it.
//!
//! Refuses: a stream that changes its address or pool, and kinds of resources that are not for its role. Keeps true: a
//! gateway is an endpoint of its cluster from its first snapshot until it announces its shutdown.

use std::net::SocketAddr;
use std::sync::Arc;

use asp_proto::xds::envoy::config::core::v3::Node;
use prost_types::value;
use tonic::{Result, Status};

use super::context::Context;
use super::contract::{ADVERTISE, DEFAULT_POOL, Kind};
use super::endpoints::{Endpoints, Registration};
use super::peer::Caller;
use super::subscribers::{self, OVERDUE, SeenRevisions};
use super::subscription::{Event, StaleSnapshot};
use super::{failing_upstreams, refused_parts};

/// Metadata key of a node: Envoy cluster that a gateway belongs to.
const POOL: &str = "pool";

/// A subscriber.
pub struct Participant {
    endpoints: Arc<Endpoints>,
    seen_revisions: Arc<SeenRevisions>,
    pub(super) entry: subscribers::Stream,
    caller: Caller,
    /// Node of the first request, and of a gateway's last one.
    pub(super) node: Node,
    presence: Presence,
}

/// Whether the gateway at the other end is an endpoint of its cluster.
enum Presence {
    /// No endpoint: not a gateway, or one without a snapshot.
    Absent,
    Serving(Registration),
    /// Has announced its shutdown.
    Left,
}

impl Participant {
    /// Admits a subscriber, unless there are too many, or too many with its identity.
    pub(super) fn admit(context: &Context, caller: Caller) -> Result<Participant> {
        let entry = context.subscribers.admit(caller.identity());
        Ok(Participant {
            endpoints: Arc::clone(&context.endpoints),
            seen_revisions: Arc::clone(&context.seen_revisions),
            entry: entry.ok_or_else(|| Status::resource_exhausted("too many subscribers"))?,
            caller,
            node: Node::default(),
            presence: Presence::Absent,
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

    /// Makes a gateway that has a snapshot, this one or an earlier one, an endpoint of its cluster.
    pub(super) fn join(&mut self) {
        if let (Presence::Absent, Some((pool, address))) = (&self.presence, self.place()) {
            self.presence = Presence::Serving(self.endpoints.join(pool, address));
        }
    }

    /// Withdraws the gateway, which announced its shutdown. On a stream opened only for the announcement, that refers
    /// to the stream it has lost.
    pub(super) fn leave(&mut self) {
        match std::mem::replace(&mut self.presence, Presence::Left) {
            Presence::Serving(registration) => registration.leave(),
            Presence::Absent => match self.place() {
                Some((pool, address)) => self.endpoints.leave_disconnected((pool, address)),
                None => return,
            },
            Presence::Left => return,
        }
        tracing::info!(node = %self.node.id, "gateway shuts down and was withdrawn");
    }

    /// Records that a gateway has not answered a push for [`OVERDUE`].
    pub(super) fn overdue(&self) {
        tracing::error!(
            node = %self.node.id, seconds = OVERDUE.as_secs(),
            "a gateway has not answered a push and gets no further ones until it does, including revocations; if this \
             persists, restart it"
        );
        if let Presence::Serving(registration) = &self.presence {
            registration.set_behind(true);
        }
    }

    /// Records that the gateway has answered.
    pub(super) fn answered(&self) {
        if let Presence::Serving(registration) = &self.presence {
            registration.set_behind(false);
        }
    }

    pub(super) fn has_left(&self) -> bool {
        matches!(self.presence, Presence::Left)
    }

    /// Returns the cluster and the address at which it wants requests, if any.
    fn place(&self) -> Option<(String, SocketAddr)> {
        let address = metadata(&self.node, ADVERTISE).filter(|address| !address.is_empty())?;
        let pool = metadata(&self.node, POOL).unwrap_or(DEFAULT_POOL).to_owned();
        match address.parse() {
            Ok(address) => Some((pool, address)),
            Err(_) => {
                tracing::warn!(
                    node = %self.node.id, address,
                    "a gateway does not advertise an <ip>:<port> and gets no requests from Envoy; set its \
                     ASP_ADVERTISE"
                );
                None
            }
        }
    }
}

pub(super) fn metadata<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    match node.metadata.as_ref()?.fields.get(key)?.kind.as_ref()? {
        value::Kind::StringValue(text) => Some(text),
        _ => None,
    }
}
