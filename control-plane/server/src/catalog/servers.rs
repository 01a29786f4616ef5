//! Sizes of servers, and the selection of those that fit into a snapshot together.
//!
//! A write is checked against the other servers before it is stored; [`select_fitting`] is for servers that an older version
//! or another process stored.

use std::sync::Arc;

use asp_registry::CompiledServer;
use asp_store::control::RouteRecord;
use prost::Message as _;

use super::budget::{self, BudgetError, FRAMING, PlatformBudget};
use super::fault::{Fault, NOT_SERVED, Part};
use crate::placement;

/// Returns the encoded bytes of a server in a gateway snapshot, including its part of the edge snapshot.
pub fn server_bytes(server: &CompiledServer) -> usize {
    let primitives = server.primitives.iter().map(|primitive| primitive.encoded_len() + FRAMING);
    server.server.encoded_len() + primitives.sum::<usize>() + edge_bytes(server) + FRAMING
}

/// Returns its encoded bytes in an edge snapshot.
pub(super) fn edge_bytes(server: &CompiledServer) -> usize {
    server.edge.encoded_len() + FRAMING
}

/// Admits `new` if it fits together with the other servers (without its own previous form) and the admins' routes;
/// `size` is [`server_bytes`].
pub fn admit(
    existing: &[Arc<CompiledServer>],
    new: &CompiledServer,
    routes: &[RouteRecord],
    size: impl Fn(&CompiledServer) -> usize,
) -> Result<(), BudgetError> {
    let name = &new.server.name;
    let former = existing.iter().find(|server| server.server.name == *name);
    let others = || existing.iter().filter(|server| server.server.name != *name);
    let check = |whole: &PlatformBudget, bytes: &dyn Fn(&CompiledServer) -> usize| {
        let grows = former.is_none_or(|former| bytes(new) > bytes(former));
        whole.admit(grows, others().map(|server| bytes(server)).sum::<usize>() + bytes(new))
    };
    check(&budget::SERVERS, &size)?;
    check(&budget::EDGE_SERVERS, &edge_bytes)?;
    // Also without the admins' routes, so that these can always be deleted.
    admit_routes(existing, new, &[])?;
    admit_routes(existing, new, routes)
}

fn admit_routes(
    existing: &[Arc<CompiledServer>],
    new: &CompiledServer,
    routes: &[RouteRecord],
) -> Result<(), BudgetError> {
    let bytes = |servers: &[&CompiledServer]| asp_registry::routes_bytes(&placement::routes(servers, routes));
    let before: Vec<&CompiledServer> = existing.iter().map(|server| &**server).collect();
    let mut after = before.clone();
    after.retain(|server| server.server.name != new.server.name);
    after.push(new);
    let after = bytes(&after);
    budget::ROUTES.admit(after > bytes(&before), after)
}

/// Keeps the servers that fit into `bound` bytes, smallest first; `size` is [`server_bytes`].
pub(crate) fn select_fitting(
    mut servers: Vec<Arc<CompiledServer>>,
    bound: usize,
    size: impl Fn(&CompiledServer) -> usize,
    faults: &mut Vec<Fault>,
) -> Vec<Arc<CompiledServer>> {
    servers.sort_by_cached_key(|server| size(server));
    let mut left = bound;
    servers.retain(|server| {
        let bytes = size(server);
        let fits = bytes <= left;
        if fits {
            left -= bytes;
        } else {
            let fault = format!("it takes {bytes} bytes of a snapshot; all servers together have {bound}");
            faults.push(server_fault(&server.server.name, &fault, NOT_SERVED));
        }
        fits
    });
    servers
}

pub(crate) fn server_fault(name: &str, fault: &str, in_force: &'static str) -> Fault {
    Fault {
        part: Part::Server,
        name: name.to_owned(),
        fault: fault.to_owned(),
        in_force,
        remedy: "put a corrected version of the server, or delete it",
    }
}
