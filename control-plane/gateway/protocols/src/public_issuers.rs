//! The issuers that public documents and logins name.
//!
//! Keeps true: documents of the whole platform, and of the server that stands for all others, name only the issuers of
//! servers that are open to every org: those of the others would reveal who the tenants are.

use std::collections::HashSet;

use asp_snapshot::{Snapshot, VirtualServer};

/// Returns the names of the issuers to name for a server; without one, for the whole platform.
pub(crate) fn of<'s>(snapshot: &'s Snapshot, server: Option<&'s VirtualServer>) -> HashSet<&'s str> {
    let is_all = |server: &VirtualServer| snapshot.edge.is_all_servers(&server.message.name);
    let is_open =
        |server: &VirtualServer| server.edge.default_allow && !server.message.undiscovered && !is_all(server);
    // One pass over the servers, however many issuers there are.
    match server.filter(|server| !is_all(server)) {
        Some(server) => accepted(server).collect(),
        None => {
            snapshot.servers().filter(|server| is_open(server)).flat_map(|server| accepted(server)).collect()
        }
    }
}

/// Returns the names of the issuers whose tokens a server accepts.
fn accepted(server: &VirtualServer) -> impl Iterator<Item = &str> {
    server.edge.issuers.iter().map(String::as_str)
}
