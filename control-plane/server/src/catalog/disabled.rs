//! Disabled servers and primitives: stored, and not published.
//!
//! Keeps true: what is disabled is compiled like everything else, so its ids stay its own, its offers stay, and policy may
//! name it.

use std::collections::BTreeMap;
use std::sync::Arc;

use asp_registry::CompiledServer;
use asp_store::control::{ServerRecord, WHOLE_SERVER};

/// Whether the stored server is disabled as a whole.
pub(crate) fn is_whole(record: &ServerRecord) -> bool {
    record.disabled.iter().any(|entry| entry == WHOLE_SERVER)
}

/// Removes the servers that are disabled, and from the others the primitives that are.
pub(super) fn enabled(
    servers: Vec<Arc<CompiledServer>>,
    records: &[ServerRecord],
) -> Vec<Arc<CompiledServer>> {
    let concerned = records.iter().filter(|record| !record.disabled.is_empty());
    let disabled: BTreeMap<&str, &ServerRecord> =
        concerned.map(|record| (record.name.as_str(), record)).collect();
    let enabled = |server: Arc<CompiledServer>| match disabled.get(server.server.name.as_str()) {
        None => Some(server),
        Some(record) if is_whole(record) => None,
        Some(record) => {
            let mut server = CompiledServer::clone(&server);
            server.unlist(&record.disabled);
            Some(Arc::new(server))
        }
    };
    servers.into_iter().filter_map(enabled).collect()
}
