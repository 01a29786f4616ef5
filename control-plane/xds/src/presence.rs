//! The presence of a gateway in its cluster: whether requests are sent to it.
//!
//! Keeps true: a gateway is an endpoint of its cluster from its first snapshot until it announces its shutdown.

use std::net::SocketAddr;
use std::sync::Arc;

use asp_proto::xds::envoy::config::core::v3::Node;

use super::contract::{ADVERTISE, DEFAULT_POOL};
use super::endpoints::{Endpoints, Registration};
use super::subscribers::{OVERDUE, POOL, metadata};

/// The presence of one gateway.
pub(super) struct Presence {
    endpoints: Arc<Endpoints>,
    membership: Membership,
}

/// The membership of a gateway in its cluster.
enum Membership {
    /// No endpoint: a gateway without a snapshot.
    Absent,
    Serving(Registration),
    /// Has announced its shutdown.
    Left,
}

impl Presence {
    pub(super) fn new(endpoints: Arc<Endpoints>) -> Presence {
        Presence { endpoints, membership: Membership::Absent }
    }

    /// Makes a gateway that has a snapshot, this one or an earlier one, an endpoint of its cluster.
    pub(super) fn join(&mut self, node: &Node) {
        if let (Membership::Absent, Some((pool, address))) = (&self.membership, place(node)) {
            self.membership = Membership::Serving(self.endpoints.join(pool, address));
        }
    }

    /// Withdraws the gateway, which announced its shutdown. On a stream opened only for the announcement, that refers
    /// to the stream it has lost.
    pub(super) fn leave(&mut self, node: &Node) {
        match std::mem::replace(&mut self.membership, Membership::Left) {
            Membership::Serving(registration) => registration.leave(),
            Membership::Absent => match place(node) {
                Some((pool, address)) => self.endpoints.leave_disconnected((pool, address)),
                None => return,
            },
            Membership::Left => return,
        }
        tracing::info!(node = %node.id, "gateway shuts down and was withdrawn");
    }

    /// Records that a gateway has not answered a push for [`OVERDUE`].
    pub(super) fn overdue(&self, node: &Node) {
        tracing::error!(
            node = %node.id, seconds = OVERDUE.as_secs(),
            "a gateway has not answered a push and gets no further ones until it does, including revocations; if this \
             persists, restart it"
        );
        if let Membership::Serving(registration) = &self.membership {
            registration.set_behind(true);
        }
    }

    /// Records that the gateway has answered.
    pub(super) fn answered(&self) {
        if let Membership::Serving(registration) = &self.membership {
            registration.set_behind(false);
        }
    }

    pub(super) fn has_left(&self) -> bool {
        matches!(self.membership, Membership::Left)
    }
}

/// Returns the cluster and the address at which it wants requests, if any.
fn place(node: &Node) -> Option<(String, SocketAddr)> {
    let address = metadata(node, ADVERTISE).filter(|address| !address.is_empty())?;
    let pool = metadata(node, POOL).unwrap_or(DEFAULT_POOL).to_owned();
    match address.parse() {
        Ok(address) => Some((pool, address)),
        Err(_) => {
            tracing::warn!(
                node = %node.id, address,
                "a gateway does not advertise an <ip>:<port> and gets no requests from Envoy; set its \
                 ASP_ADVERTISE"
            );
            None
        }
    }
}
