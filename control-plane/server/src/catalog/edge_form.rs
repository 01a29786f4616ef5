//! The edge snapshot that is published, and whether what edges see of the state is still the same.

use std::sync::Arc;

use asp_proto::snapshot::{EdgeServer, EdgeSnapshot, Listing};
use asp_registry::CompiledServer;

/// What edges see of servers: their own entry, under which names primitives are limited, and the gateway pools.
pub(super) struct SeenServers {
    seen: Vec<(EdgeServer, Vec<Listing>, String)>,
}

impl SeenServers {
    pub(super) fn of(servers: &[Arc<CompiledServer>]) -> SeenServers {
        let seen = servers
            .iter()
            .map(|server| (server.edge.clone(), server.server.listings.clone(), server.server.pool.clone()));
        SeenServers { seen: seen.collect() }
    }

    /// Whether edges see no difference.
    pub(super) fn is_same(&self, servers: &[Arc<CompiledServer>]) -> bool {
        self.seen.len() == servers.len()
            && self.seen.iter().zip(servers).all(|((edge, listings, pool), server)| {
                (edge, listings, pool) == (&server.edge, &server.server.listings, &server.server.pool)
            })
    }
}

/// Whether edges take the snapshot; the error says why not.
pub(super) fn evaluate(edge: &EdgeSnapshot) -> Result<(), asp_edge::SnapshotError> {
    asp_edge::Snapshot::from_message(edge.clone()).map(drop)
}

/// Whether two differ by their revision only.
pub(super) fn says_the_same(one: &EdgeSnapshot, other: &EdgeSnapshot) -> bool {
    let bare = |edge: &EdgeSnapshot| EdgeSnapshot { revision: 0, digest: Vec::new(), ..edge.clone() };
    bare(one) == bare(other)
}
