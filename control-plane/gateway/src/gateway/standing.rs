//! Status of each server and its plugins on this gateway, for people.
//!
//! Takes no part in calls: lists and calls ask the backends themselves.

use std::collections::BTreeSet;
use std::sync::Arc;

use asp_backends::plugin::plugin_language;
use asp_call::execution::Availability;
use asp_proto::snapshot::{Primitive, Protocol};
use asp_snapshot::ListedPrimitive;

use super::Gateway;

/// A server of the snapshot.
#[derive(Clone, Debug)]
pub struct ServerStatus {
    pub name: String,
    /// Whether the requested org sees the server over MCP.
    pub is_exposed: bool,
    /// Number of primitives that it lists.
    pub listed: usize,
    pub plugins: Vec<PluginStatus>,
    /// Hosts of the services to which it forwards calls.
    pub upstreams: BTreeSet<String>,
}

/// A primitive that a plugin runs.
#[derive(Clone, Debug)]
pub struct PluginStatus {
    /// Id of the primitive.
    pub id: String,
    pub version: String,
    /// `python`, `node`, `java` or `mcp-stdio`.
    pub language: String,
    pub availability: Availability,
}

impl Gateway {
    /// Returns the servers of the snapshot in force, by name, as `org` sees them; none before the first snapshot.
    pub fn standing(&self, org: &str) -> Vec<ServerStatus> {
        let Some(snapshot) = self.snapshot() else { return Vec::new() };
        let plugin = |entry: &Arc<ListedPrimitive>| {
            let primitive = &entry.primitive;
            Some(PluginStatus {
                availability: self.pipeline.availability(primitive)?,
                language: plugin_language(primitive)?.to_owned(),
                id: primitive.id.clone(),
                version: primitive.version.clone(),
            })
        };
        let mut servers: Vec<ServerStatus> = snapshot
            .servers()
            .filter(|server| !snapshot.edge.is_all_servers(&server.message.name))
            .map(|server| ServerStatus {
                name: server.message.name.clone(),
                is_exposed: snapshot.edge.exposed(&server.message.name, org, Protocol::Mcp),
                listed: server.entries.iter().filter(|entry| !entry.listing.mcp_name.is_empty()).count(),
                plugins: server.entries.iter().filter_map(plugin).collect(),
                upstreams: server.entries.iter().filter_map(|entry| host(&entry.primitive)).collect(),
            })
            .collect();
        servers.sort_by(|one, other| one.name.cmp(&other.name));
        servers
    }
}

fn host(primitive: &Primitive) -> Option<String> {
    let rest = primitive.service_url()?.split_once("://")?.1;
    rest.split(['/', ':', '?', '#']).next().map(str::to_owned)
}
