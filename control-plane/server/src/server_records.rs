//! Stored servers, sorted by name.

use asp_store::control::ServerRecord;

/// Applies changes by name, `None` for a deleted server. `servers` is sorted by name and stays so.
pub(crate) fn change(servers: &mut Vec<ServerRecord>, changed: Vec<(String, Option<ServerRecord>)>) {
    for (name, record) in changed {
        match (servers.binary_search_by(|known| known.name.cmp(&name)), record) {
            (Ok(place), Some(record)) => {
                if let Some(known) = servers.get_mut(place) {
                    *known = record;
                }
            }
            (Ok(place), None) => drop(servers.remove(place)),
            (Err(place), Some(record)) => servers.insert(place, record),
            (Err(_), None) => {}
        }
    }
}
