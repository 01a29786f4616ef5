//! The edge snapshot that is published, and whether what edges see of the state is still the same.

use std::sync::Arc;

use asp_proto::snapshot::{EdgeSnapshot, Listing};
use asp_registry::CompiledServer;

/// Whether edges see the same of both: each server's own entry, under which names primitives are limited, and the gateway
/// pools. A version is none of it.
pub(super) fn shows_the_same(before: &[Arc<CompiledServer>], servers: &[Arc<CompiledServer>]) -> bool {
    let is_same = |(one, other): (&Arc<CompiledServer>, &Arc<CompiledServer>)| {
        Arc::ptr_eq(one, other)
            || one.edge == other.edge
                && one.server.pool == other.server.pool
                && one.server.listings.iter().map(seen).eq(other.server.listings.iter().map(seen))
    };
    before.len() == servers.len() && before.iter().zip(servers).all(is_same)
}

fn seen(listing: &Listing) -> [&str; 5] {
    let Listing { id, version: _, mcp_name, a2a_skill, rest_name, pool } = listing;
    [id, mcp_name, a2a_skill, rest_name, pool].map(String::as_str)
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
